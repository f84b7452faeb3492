"""Expressions and l-values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ir
from ..bits import saturate, saturate_signed, shift_left
from .context import Context
from .packets import fixed_width, read
from .places import Nowhere, Place, SlicePlace
from .values import HeaderValue, StackValue, UnionValue, Value, copy, default, equal, fit, raw

MAX_SHIFT = 1 << 16


class Expressions:
    """`evaluate` gives a value, which may be part of a variable: copy it before storing it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.kinds: dict[type, Callable[[Any], Value]] = {
            ir.Literal: self._literal,
            ir.Variable: self._variable,
            ir.Member: self._member,
            ir.Element: self._from_place,
            ir.TupleElement: self._tuple_element,
            ir.Next: self._from_place,
            ir.Last: self._from_place,
            ir.LastIndex: self._last_index,
            ir.Slice: self._slice,
            ir.Unary: self._unary,
            ir.Binary: self._binary,
            ir.Conditional: self._conditional,
            ir.Cast: self._cast,
            ir.StructValue: self._struct_value,
            ir.HeaderValue: self._header_value,
            ir.StackValue: self._stack_value,
            ir.Default: self._default,
            ir.IsValid: self._is_valid,
            ir.Lookahead: self._lookahead,
            ir.PacketLength: self._packet_length,
        }
        self._places: dict[type, Callable[[Any], Place]] = {
            ir.Variable: self._variable_place,
            ir.Member: self._member_place,
            ir.TupleElement: self._tuple_place,
            ir.Element: self._element_place,
            ir.Next: self._next_place,
            ir.Last: self._last_place,
            ir.Slice: self._slice_place,
        }

    def evaluate(self, expression: ir.Expression) -> Value:
        return self.kinds[type(expression)](expression)

    def place(self, expression: ir.Expression) -> Place:
        return self._places.get(type(expression), self._value_place)(expression)

    # --- values

    def _literal(self, e: ir.Literal) -> Value:
        return e.value

    def _variable(self, e: ir.Variable) -> Value:
        return self._context.variable(e.index)

    def _from_place(self, e: ir.Expression) -> Value:
        return self.place(e).get()

    def _member(self, e: ir.Member) -> Value:
        return _cells(self.evaluate(e.base))[e.index]

    def _tuple_element(self, e: ir.TupleElement) -> Value:
        return self.evaluate(e.base)[e.index]

    def _last_index(self, e: ir.LastIndex) -> Value:
        return (self.evaluate(e.base).next - 1) & 0xFFFFFFFF

    def _slice(self, e: ir.Slice) -> Value:
        return (int(self.evaluate(e.base)) >> e.low) & ((1 << (e.high - e.low + 1)) - 1)

    def _unary(self, e: ir.Unary) -> Value:
        value = self.evaluate(e.operand)
        if e.operator is ir.UnaryOperator.NOT:
            return not value
        return fit(-value if e.operator is ir.UnaryOperator.NEGATE else ~value, e.type)

    def _binary(self, e: ir.Binary) -> Value:
        left = self.evaluate(e.left)
        if e.operator is ir.Operator.LOGICAL_AND:
            return bool(left) and bool(self.evaluate(e.right))
        if e.operator is ir.Operator.LOGICAL_OR:
            return bool(left) or bool(self.evaluate(e.right))
        if not isinstance(e.left, ir.Literal):
            left = copy(left)  # the right side may change it
        right = self.evaluate(e.right)
        if e.operator in (ir.Operator.EQ, ir.Operator.NE):
            return equal(left, right) is (e.operator is ir.Operator.EQ)
        if e.operator is ir.Operator.CONCAT:
            return _concat(e, left, right)
        return _arithmetic(e.operator, left, right, e.left.type)

    def _conditional(self, e: ir.Conditional) -> Value:
        return self.evaluate(e.yes if self.evaluate(e.condition) else e.no)

    def _cast(self, e: ir.Cast) -> Value:
        return _cast(self.evaluate(e.operand), e.type)

    def _elements(self, elements: tuple[ir.Expression, ...]) -> list[Value]:
        return [copy(self.evaluate(one)) for one in elements]

    def _struct_value(self, e: ir.StructValue) -> Value:
        return self._elements(e.elements)

    def _header_value(self, e: ir.HeaderValue) -> Value:
        return HeaderValue(True, self._elements(e.elements))

    def _stack_value(self, e: ir.StackValue) -> Value:
        return StackValue(self._elements(e.elements))

    def _default(self, e: ir.Default) -> Value:
        return default(e.type)

    def _is_valid(self, e: ir.IsValid) -> Value:
        value = self.evaluate(e.base)
        if isinstance(value, UnionValue):
            return any(one.valid for one in value.items)
        return value.valid

    def _lookahead(self, e: ir.Lookahead) -> Value:
        if self._context.cursor.left() < fixed_width(e.type):
            raise self._context.parser_error("PacketTooShort")
        at = self._context.cursor.at
        value = read(self._context.cursor, e.type, 0)
        self._context.cursor.at = at
        return value

    def _packet_length(self, e: ir.PacketLength) -> Value:
        return self._context.length

    # --- places

    def _variable_place(self, e: ir.Variable) -> Place:
        self._context.variable(e.index)
        return Place(self._context.variables, e.index)

    def _member_place(self, e: ir.Member) -> Place:
        base = self.place(e.base).get()
        return Place(_cells(base), e.index, base if isinstance(base, UnionValue) else None)

    def _tuple_place(self, e: ir.TupleElement) -> Place:
        return Place(self.place(e.base).get(), e.index)

    def _element_place(self, e: ir.Element) -> Place:
        stack = self.place(e.base).get()
        index = self.evaluate(e.index)
        if 0 <= index < len(stack.items):
            return Place(stack.items, index)
        if self._context.in_parser:
            raise self._context.parser_error("StackOutOfBounds")
        return Nowhere(e.type)

    def _next_place(self, e: ir.Next) -> Place:
        stack = self.place(e.base).get()
        if stack.next >= len(stack.items):
            raise self._context.parser_error("StackOutOfBounds")
        return Place(stack.items, stack.next)

    def _last_place(self, e: ir.Last) -> Place:
        stack = self.place(e.base).get()
        if stack.next < 1:
            raise self._context.parser_error("StackOutOfBounds")
        return Place(stack.items, stack.next - 1)

    def _slice_place(self, e: ir.Slice) -> Place:
        return SlicePlace(self.place(e.base), e.high, e.low, e.base.type)

    def _value_place(self, e: ir.Expression) -> Place:
        """Returns a temporary place for a value that is not an l-value, such as `f().x`."""
        return Place([copy(self.evaluate(e))], 0)


def _cells(value: Value) -> list[Value]:
    """Returns the fields of a struct, header or union."""
    if isinstance(value, HeaderValue):
        return value.fields
    if isinstance(value, UnionValue):
        return value.items
    assert isinstance(value, list)
    return value


def _concat(e: ir.Binary, left: Value, right: Value) -> Value:
    high, _ = raw(left, e.left.type)
    low, width = raw(right, e.right.type)
    return fit((high << width) | low, e.type)


def _cast(value: Value, type_: ir.Type) -> Value:
    match type_:
        case ir.Bool():
            return bool(value)
        case ir.Bits():
            return fit(int(value), type_)
        case ir.HeaderType(fields=fields):
            return HeaderValue(True, _casts(value, [field.type for field in fields]))
        case ir.StructType(fields=fields):
            return _casts(value, [field.type for field in fields])
        case ir.TupleType(elements=elements):
            return _casts(value, list(elements))
    return value


def _casts(value: Value, types: list[ir.Type]) -> list[Value]:
    return [copy(one) for one in value[: len(types)]]


def _arithmetic(operator: ir.Operator, left: Value, right: Value, type_: ir.Type) -> Value:
    compared = _COMPARE.get(operator)
    if compared is not None:
        return compared(left, right)
    signed = isinstance(type_, ir.Bits) and type_.signed
    width = ir.width_of(type_)
    if operator is ir.Operator.SHL:
        return fit(shift_left(left, right, width), type_)
    if operator is ir.Operator.SHR:
        return left >> min(right, MAX_SHIFT)
    if operator in (ir.Operator.ADD_SAT, ir.Operator.SUB_SAT):
        exact = left + right if operator is ir.Operator.ADD_SAT else left - right
        return saturate_signed(exact, width) if signed else saturate(exact, width)
    if operator in (ir.Operator.DIV, ir.Operator.MOD) and right == 0:
        return 0  # P4 leaves it open
    return fit(_COMPUTE[operator](left, right), type_)


_COMPARE: dict[ir.Operator, Callable[[Value, Value], bool]] = {
    ir.Operator.LT: lambda a, b: a < b,
    ir.Operator.LE: lambda a, b: a <= b,
    ir.Operator.GT: lambda a, b: a > b,
    ir.Operator.GE: lambda a, b: a >= b,
}

_COMPUTE: dict[ir.Operator, Callable[[Value, Value], int]] = {
    ir.Operator.ADD: lambda a, b: a + b,
    ir.Operator.SUB: lambda a, b: a - b,
    ir.Operator.MUL: lambda a, b: a * b,
    ir.Operator.DIV: lambda a, b: a // b,
    ir.Operator.MOD: lambda a, b: a % b,
    ir.Operator.AND: lambda a, b: a & b,
    ir.Operator.OR: lambda a, b: a | b,
    ir.Operator.XOR: lambda a, b: a ^ b,
}
