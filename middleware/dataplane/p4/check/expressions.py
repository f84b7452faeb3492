"""Expressions: names, members, slices, literals of all kinds. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ast, ir, types
from ..source import Span
from .base import Place
from .constants import slice_of
from .conversions import Conversions, same
from .operators import Operators
from .scope import (
    ConstantEntity,
    Entity,
    ExternEntity,
    FunctionEntity,
    InstanceEntity,
    TableEntity,
    Typed,
    TypeEntity,
    VariableEntity,
)
from .type_refs import TypeRefs

_NOUNS: dict[type, str] = {
    TypeEntity: "a type",
    ExternEntity: "an extern object",
    FunctionEntity: "a function",
    InstanceEntity: "an instance of a control or parser",
    TableEntity: "a table",
}


class Expressions:
    """The part of the checker that types expressions."""

    def __init__(
        self, at: Place, type_refs: TypeRefs, conversions: Conversions, operators: Operators
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._conversions = conversions
        self._operators = operators
        at.expressions = self
        self._handlers: dict[type, Callable[[Any, types.Type | None], Typed]] = {
            ast.IntegerLiteral: self._integer,
            ast.StringLiteral: self._string,
            ast.BoolLiteral: self._bool,
            ast.Dots: self._dots,
            ast.Invalid: self._invalid,
            ast.This: self._this,
            ast.ListValue: self._list,
            ast.StructValue: self._struct,
            ast.Name: self._name,
            ast.TypeExpression: self._type_expression,
            ast.Member: self._member,
            ast.Index: self._index,
            ast.Slice: self._slice,
            ast.PlusSlice: self._plus_slice,
            ast.Cast: self._cast,
            ast.Conditional: self._conditional,
            ast.Call: self._call,
            ast.Unary: self._operators.unary,
            ast.Binary: self._operators.binary,
        }

    def expression(self, node: ast.Expression, expected: types.Type | None = None) -> Typed:
        """Returns the expression with its type. `expected` helps lists and numbers to find theirs; it forces
        nothing.
        """
        handler = self._handlers.get(type(node))
        if handler is None:
            self._at.fail(node.span, "this can't stand here")
        typed: Typed = handler(node, expected)
        return typed

    def value(self, node: ast.Expression, wanted: types.Type) -> Typed:
        """Returns the expression as a value of the wanted type."""
        return self._conversions.convert(self.expression(node, wanted), wanted, node.span)

    def lvalue(self, node: ast.Expression) -> Typed:
        """Checks an expression that must be assignable."""
        typed = self.expression(node)
        if not typed.writable:
            why = "it is read-only" if typed.place else "it is no variable, field, element or slice"
            self._at.fail(node.span, f"this can't be assigned to: {why}")
        return typed

    def boolean(self, node: ast.Expression) -> Typed:
        """Returns a condition."""
        typed = self.expression(node, types.BOOL)
        if not isinstance(typed.type, ir.Bool):
            self._at.fail(node.span, f"a condition is bool, not {types.describe(typed.type)}")
        return typed

    # --- literals

    def _integer(self, node: ast.IntegerLiteral, expected: types.Type | None) -> Typed:
        if node.width is None:
            return self._conversions.literal(node.value, types.INT, node.span)
        if node.width == 0 and node.signed:
            self._at.fail(node.span, "a width of 0 is not possible")
        whole = self._conversions.literal(node.value, types.INT, node.span)
        return self._conversions.sized(whole, ir.Bits(node.width, node.signed), node.span)

    def _string(self, node: ast.StringLiteral, expected: types.Type | None) -> Typed:
        return self._conversions.literal(node.value, types.STRING, node.span)

    def _bool(self, node: ast.BoolLiteral, expected: types.Type | None) -> Typed:
        return self._conversions.literal(node.value, types.BOOL, node.span)

    def _dots(self, node: ast.Dots, expected: types.Type | None) -> Typed:
        if expected is None or isinstance(expected, types.Infinite | types.TypeVariable):
            self._at.fail(node.span, "the type of '...' isn't known here")
        return self.default(expected, node.span)

    def default(self, type_: types.Type, span: Span) -> Typed:
        """Returns the value of something that isn't initialised."""
        base = types.underlying(type_)
        if isinstance(base, ir.Bits | ir.ErrorCode | types.EnumType):
            return self._conversions.literal(0, type_, span)
        if isinstance(base, ir.Bool):
            return self._conversions.literal(False, type_, span)
        if isinstance(base, types.Tuple):
            elements = tuple(self.default(one, span).node for one in base.elements)
            return self._conversions.build(type_, elements, span)
        if isinstance(base, types.Record) and base.kind == "struct":
            elements = tuple(self.default(one.type, span).node for one in base.fields)
            return self._conversions.build(type_, elements, span)
        return Typed(type_, ir.Default(self._at.represent(type_, span), span))

    def _invalid(self, node: ast.Invalid, expected: types.Type | None) -> Typed:
        if expected is None or not (types.is_header(expected) or types.is_union(expected)):
            self._at.fail(node.span, "'{#}' is an invalid header; no header is wanted here")
        return Typed(expected, ir.Default(self._at.represent(expected, node.span), node.span))

    def _this(self, node: ast.This, expected: types.Type | None) -> Typed:
        self._at.fail(
            node.span, "'this' is for extern objects that a program defines, which this target has not"
        )

    # --- lists and struct values

    def _list(self, node: ast.ListValue, expected: types.Type | None) -> Typed:
        wanted = types.underlying(expected) if expected is not None else None
        if isinstance(wanted, types.Stack):
            return self._stack_value(node, wanted)
        elements = node.elements
        rest = bool(elements) and isinstance(elements[-1], ast.Dots)
        slots = _slots(wanted)
        if slots is None:
            found = [self.expression(one) for one in elements]
            tuple_type = types.Tuple(tuple(one.type for one in found))
            return self._conversions.build(tuple_type, tuple(one.node for one in found), node.span)
        assert wanted is not None
        given = elements[:-1] if rest else elements
        if len(given) > len(slots) or (len(given) < len(slots) and not rest):
            of = types.describe(wanted)
            self._at.fail(node.span, f"{of} has {len(slots)} elements, not {len(given)}")
        nodes = [self.value(one, slot).node for one, slot in zip(given, slots, strict=False)]
        nodes += [self.default(slot, node.span).node for slot in slots[len(given) :]]
        return self._conversions.build(wanted, tuple(nodes), node.span)

    def _stack_value(self, node: ast.ListValue, wanted: types.Stack) -> Typed:
        elements = node.elements
        rest = bool(elements) and isinstance(elements[-1], ast.Dots)
        given = elements[:-1] if rest else elements
        if len(given) > wanted.size or (len(given) < wanted.size and not rest):
            of = types.describe(wanted)
            self._at.fail(node.span, f"{of} has {wanted.size} elements, not {len(given)}")
        nodes = [self.value(one, wanted.element).node for one in given]
        nodes += [self.default(wanted.element, node.span).node] * (wanted.size - len(given))
        return Typed(wanted, ir.StackValue(tuple(nodes), self._at.represent(wanted, node.span), node.span))

    def list_value(self, node: ast.Expression, wanted: types.ListType) -> Typed:
        """Returns a value of type list, `(list<bit<8>>){1, 2}`, with its elements as those of a tuple. Only
        `for` goes through one, so that it is never stored.
        """
        if not isinstance(node, ast.ListValue):
            typed = self.expression(node)
            if typed.type != wanted:
                of = types.describe(wanted)
                self._at.fail(node.span, f"a value of type {of} is written as ({of}){{a, b}}")
            return typed
        nodes = tuple(self.value(one, wanted.element).node for one in node.elements)
        represented = self._at.represent(wanted.element, node.span)
        return Typed(wanted, ir.StructValue(nodes, ir.TupleType((represented,) * len(nodes)), node.span))

    def _struct(self, node: ast.StructValue, expected: types.Type | None) -> Typed:
        names: set[str] = set()
        for one in node.elements:
            if one.name in names:
                self._at.fail(one.span, f"field '{one.name}' is given twice")
            names.add(one.name)
        if not isinstance(expected, types.Record):
            return self._anonymous(node, expected)
        if expected.kind == "header_union":
            self._at.fail(node.span, "a header union can't be written as a list of fields")
        given = {one.name: one for one in node.elements}
        for name, one in given.items():
            if name not in expected.places:
                hint = self._at.suggest(name, expected.places)
                self._at.fail(one.span, f"there is no field '{name}' in {types.describe(expected)}{hint}")
        nodes = []
        for field in expected.fields:
            if field.name in given:
                nodes.append(self.value(given[field.name].value, field.type).node)
            elif node.rest:
                nodes.append(self.default(field.type, node.span).node)
            else:
                self._at.fail(node.span, f"field '{field.name}' of {types.describe(expected)} is not given")
        return self._conversions.build(expected, tuple(nodes), node.span)

    def _anonymous(self, node: ast.StructValue, expected: types.Type | None) -> Typed:
        if node.rest or (expected is not None and not isinstance(expected, types.TypeVariable)):
            wanted = "a type that isn't known" if expected is None else types.describe(expected)
            self._at.fail(node.span, f"a list of fields stands here where {wanted} is wanted")
        found = [self.expression(one.value) for one in node.elements]
        fields = tuple(
            types.FieldType(one.name, typed.type, (), one.span)
            for one, typed in zip(node.elements, found, strict=True)
        )
        record = types.Record("struct", "", fields, (), node.span)
        return self._conversions.build(record, tuple(one.node for one in found), node.span)

    # --- names and members

    def _name(self, node: ast.Name, expected: types.Type | None) -> Typed:
        return self.entity_value(self._at.lookup(node.name, node.absolute, node.span), node)

    def entity_value(self, entity: Entity, node: ast.Name) -> Typed:
        """Returns the value of a constant or variable."""
        if isinstance(entity, VariableEntity):
            represented = self._at.represent(entity.type, node.span)
            variable = ir.Variable(entity.index, represented, node.span)
            return Typed(entity.type, variable, True, entity.writable)
        if isinstance(entity, ConstantEntity):
            return Typed(entity.value.type, _moved(entity.value.node, node.span))
        noun = _NOUNS.get(type(entity), "no value")
        self._at.fail(node.span, f"'{node.name}' is {noun}, where a value is wanted")

    def _type_expression(self, node: ast.TypeExpression, expected: types.Type | None) -> Typed:
        self._at.fail(node.span, "a type stands here where a value is wanted")

    def _member(self, node: ast.Member, expected: types.Type | None) -> Typed:
        if isinstance(node.base, ast.TypeExpression):
            return self._member_of_type(node, node.base)
        if isinstance(node.base, ast.Call) and node.name in ("hit", "miss", "action_run"):
            return self._at.calls.table_result(node, node.base)
        base = self.expression(node.base)
        if isinstance(base.type, types.Record):
            return self._field(base, base.type, node)
        if isinstance(base.type, types.Stack):
            return self._stack_member(base, base.type, node)
        self._at.fail(node.name_span, f"{types.describe(base.type)} has no member '{node.name}'")

    def _member_of_type(self, node: ast.Member, base: ast.TypeExpression) -> Typed:
        type_ = self._type_refs.type_of(base.type)
        name = node.name
        if isinstance(type_, types.EnumType) and name in type_.represented.members:
            return self._conversions.literal(type_.represented.members.index(name), type_, node.span)
        if isinstance(type_, types.SerialEnum) and name in type_.members:
            return self._conversions.literal(type_.members[name], type_, node.span)
        if isinstance(type_, ir.ErrorCode) and name in self._at.errors:
            return self._conversions.literal(self._at.errors[name], type_, node.span)
        known: tuple[str, ...] = ()
        if isinstance(type_, types.EnumType):
            known = type_.represented.members
        elif isinstance(type_, types.SerialEnum):
            known = tuple(type_.members)
        elif isinstance(type_, ir.ErrorCode):
            known = tuple(self._at.errors)
        of = types.describe(type_)
        self._at.fail(node.name_span, f"there is no member '{name}' in {of}{self._at.suggest(name, known)}")

    def _field(self, base: Typed, record: types.Record, node: ast.Member) -> Typed:
        place = record.places.get(node.name)
        if place is None:
            hint = self._at.suggest(node.name, record.places)
            of = f"{record.kind.replace('_', ' ')} '{types.describe(record)}'"
            self._at.fail(node.name_span, f"there is no field '{node.name}' in {of}{hint}")
        type_ = record.fields[place].type
        if isinstance(base.node, ir.StructValue | ir.HeaderValue):
            return Typed(type_, _moved(base.node.elements[place], node.span))
        represented = self._at.represent(type_, node.span)
        member = ir.Member(base.node, place, node.name, represented, node.span)
        return Typed(type_, member, base.place, base.writable)

    def _stack_member(self, base: Typed, stack: types.Stack, node: ast.Member) -> Typed:
        name = node.name
        if name == "size":
            return self._conversions.literal(stack.size, types.INT, node.span)
        if name not in ("next", "last", "lastIndex"):
            self._at.fail(node.name_span, f"a header stack has no member '{name}'")
        if self._at.frame.kind != "parser":
            self._at.fail(node.name_span, f"'{name}' of a header stack can be used in parsers only")
        if name == "lastIndex":
            return Typed(types.BIT32, ir.LastIndex(base.node, types.BIT32, node.span))
        represented = self._at.represent(stack.element, node.span)
        make = ir.Next if name == "next" else ir.Last
        return Typed(stack.element, make(base.node, represented, node.span), base.place, base.writable)

    # --- indices and slices

    def _index(self, node: ast.Index, expected: types.Type | None) -> Typed:
        base = self.expression(node.base)
        index = self.expression(node.index)
        if isinstance(base.type, types.Tuple):
            return self._tuple_element(base, base.type, index, node)
        if not isinstance(base.type, types.Stack):
            self._at.fail(node.span, f"{types.describe(base.type)} can't be indexed")
        if isinstance(index.node, ir.Literal):
            place = index.node.value
            if not isinstance(place, int) or isinstance(place, bool):
                self._at.fail(node.index.span, "an index is a number")
            if not 0 <= place < base.type.size:
                self._at.fail(
                    node.index.span, f"the stack has {base.type.size} elements; there is no {place}"
                )
            index = self._conversions.literal(place, types.BIT32, node.index.span)
        index_type = types.underlying(index.type)
        if not isinstance(index_type, ir.Bits):
            self._at.fail(node.index.span, f"an index is a number, not {types.describe(index.type)}")
        represented = self._at.represent(base.type.element, node.span)
        element = ir.Element(base.node, index.node, represented, node.span)
        return Typed(base.type.element, element, base.place, base.writable)

    def _tuple_element(self, base: Typed, tuple_type: types.Tuple, index: Typed, node: ast.Index) -> Typed:
        place = index.node.value if isinstance(index.node, ir.Literal) else None
        if not isinstance(place, int) or isinstance(place, bool):
            self._at.fail(node.index.span, "the index into a tuple must be known when the program is loaded")
        if not 0 <= place < len(tuple_type.elements):
            self._at.fail(
                node.index.span, f"the tuple has {len(tuple_type.elements)} elements; there is no {place}"
            )
        type_ = tuple_type.elements[place]
        if isinstance(base.node, ir.StructValue):
            return Typed(type_, _moved(base.node.elements[place], node.span))
        represented = self._at.represent(type_, node.span)
        element = ir.TupleElement(base.node, place, represented, node.span)
        return Typed(type_, element, base.place, base.writable)

    def _slice(self, node: ast.Slice, expected: types.Type | None) -> Typed:
        high = self._at.integer(node.high, "the left end of a slice")
        low = self._at.integer(node.low, "the right end of a slice")
        return self._sliced(self.expression(node.base), high, low, node.span)

    def _plus_slice(self, node: ast.PlusSlice, expected: types.Type | None) -> Typed:
        base = self.expression(node.base)
        width = self._at.integer(node.width, "the width of a slice")
        low = self.expression(node.low)
        if width < 1:
            self._at.fail(node.width.span, f"a slice of {width} bits is not possible")
        if isinstance(low.node, ir.Literal) and isinstance(low.node.value, int):
            return self._sliced(base, low.node.value + width - 1, low.node.value, node.span)
        bits = types.underlying(base.type)
        if not isinstance(bits, ir.Bits) or not isinstance(types.underlying(low.type), ir.Bits):
            self._at.fail(node.span, f"{types.describe(base.type)} can't be sliced")
        if width > bits.width:
            self._at.fail(node.width.span, f"the slice is wider than {types.describe(base.type)}")
        unsigned = self._conversions.cast(Typed(bits, base.node), ir.Bits(bits.width), node.span)
        shifted = self._operators.shifted(ir.Operator.SHR, unsigned, low, node.span)
        found = self._sliced(shifted, width - 1, 0, node.span)
        return Typed(found.type, found.node)

    def _sliced(self, base: Typed, high: int, low: int, span: Span) -> Typed:
        bits = types.underlying(base.type)
        if isinstance(base.type, types.Infinite) and isinstance(base.node, ir.Literal):
            assert isinstance(base.node.value, int)
            if low < 0 or high < low:
                self._at.fail(span, f"a slice from {high} to {low} is not possible")
            return self._conversions.literal(
                slice_of(base.node.value, high, low), ir.Bits(high - low + 1), span
            )
        if not isinstance(bits, ir.Bits):
            self._at.fail(span, f"{types.describe(base.type)} can't be sliced")
        if low < 0 or high < low or high >= bits.width:
            of = types.describe(base.type)
            self._at.fail(span, f"a slice from {high} to {low} of {of} is not possible")
        type_ = ir.Bits(high - low + 1)
        if isinstance(base.node, ir.Literal):
            assert isinstance(base.node.value, int)
            return self._conversions.literal(slice_of(base.node.value, high, low), type_, span)
        return Typed(type_, ir.Slice(base.node, high, low, type_, span), base.place, base.writable)

    # --- casts and choices

    def _cast(self, node: ast.Cast, expected: types.Type | None) -> Typed:
        wanted = self._type_refs.type_of(node.type)
        if isinstance(wanted, types.TypeVariable):
            self._at.fail(node.span, "a cast to a type parameter is not possible")
        if isinstance(wanted, types.ListType):
            return self.list_value(node.operand, wanted)
        operand = self.expression(node.operand, wanted)
        return self._conversions.cast(operand, wanted, node.span)

    def _conditional(self, node: ast.Conditional, expected: types.Type | None) -> Typed:
        condition = self.boolean(node.condition)
        yes, no = self.expression(node.yes, expected), self.expression(node.no, expected)
        if isinstance(yes.type, types.Infinite) and isinstance(no.type, types.Infinite):
            if expected is not None and isinstance(types.underlying(expected), ir.Bits):
                yes, no = self._conversions.convert(yes, expected), self._conversions.convert(no, expected)
            elif not isinstance(condition.node, ir.Literal):
                self._at.fail(node.span, "the width of these numbers isn't known; give one of them a width")
        elif isinstance(yes.type, types.Infinite | types.Tuple):
            yes = self._conversions.convert(yes, no.type)
        else:
            no = self._conversions.convert(no, yes.type)
        if not same(yes.type, no.type):
            one, other = types.describe(yes.type), types.describe(no.type)
            self._at.fail(node.span, f"the branches of '?' are of different types, {one} and {other}")
        if isinstance(condition.node, ir.Literal):
            chosen = yes if condition.node.value else no
            return Typed(chosen.type, chosen.node)
        represented = self._at.represent(yes.type, node.span)
        return Typed(yes.type, ir.Conditional(condition.node, yes.node, no.node, represented, node.span))

    # --- further up

    def _call(self, node: ast.Call, expected: types.Type | None) -> Typed:
        typed = self._at.calls.call(node, expected)
        if isinstance(typed.type, ir.Void):
            self._at.fail(node.span, "this call gives no value")
        return typed


def _slots(wanted: types.Type | None) -> tuple[types.Type, ...] | None:
    """Returns the element types of a list's target type; None if a list cannot become it."""
    if isinstance(wanted, types.Tuple):
        return wanted.elements
    if isinstance(wanted, types.Record) and wanted.kind != "header_union":
        return tuple(field.type for field in wanted.fields)
    return None


def _moved(node: ir.Expression, span: Span) -> ir.Expression:
    """Returns a constant with the place of its use."""
    if isinstance(node, ir.Literal):
        return ir.Literal(node.value, node.type, span)
    return node
