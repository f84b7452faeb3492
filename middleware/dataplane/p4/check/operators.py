"""Unary and binary operators: their operand types, and their value if it is constant. Pure."""

from __future__ import annotations

from typing import NoReturn

from .. import ast, ir, types
from ..ir import Operator, UnaryOperator
from ..source import Span
from .base import Place
from .constants import arithmetic, compare, concatenate, shift, wrap
from .conversions import Conversions, same
from .scope import Typed

_SYMBOLS = {one.value: one for one in Operator}
_UNARY = {one.value: one for one in UnaryOperator}
_LOGICAL = (Operator.LOGICAL_AND, Operator.LOGICAL_OR)
_EQUALITY = (Operator.EQ, Operator.NE)
_ORDER = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)
_SHIFTS = (Operator.SHL, Operator.SHR)
_SATURATING = (Operator.ADD_SAT, Operator.SUB_SAT)
_DIVISION = (Operator.DIV, Operator.MOD)


class Operators:
    """The part of the checker that knows operators."""

    def __init__(self, at: Place, conversions: Conversions) -> None:
        self._at = at
        self._conversions = conversions

    def unary(self, node: ast.Unary, expected: types.Type | None) -> Typed:
        operator = _UNARY[node.operator]
        if operator is UnaryOperator.NOT:
            operand = self._at.expressions.expression(node.operand, types.BOOL)
            if not isinstance(operand.type, ir.Bool):
                self._refuse(node.operator, operand, node.span)
            return self.negated(operand, node.span)
        operand = self._at.expressions.expression(node.operand, expected)
        value_type = _arithmetic_type(operand.type)
        if isinstance(value_type, types.Infinite):
            assert isinstance(operand.node, ir.Literal)
            assert isinstance(operand.node.value, int)
            if operator is UnaryOperator.COMPLEMENT:
                self._at.fail(node.span, "'~' needs a number with a width")
            return self._conversions.literal(-operand.node.value, types.INT, node.span)
        if not isinstance(value_type, ir.Bits):
            return self._refuse(node.operator, operand, node.span)
        if isinstance(operand.node, ir.Literal):
            assert isinstance(operand.node.value, int)
            value = operand.node.value
            changed = -value if operator is UnaryOperator.NEGATE else ~value
            return self._conversions.literal(wrap(changed, value_type), value_type, node.span)
        return Typed(value_type, ir.Unary(operator, operand.node, value_type, node.span))

    def negated(self, operand: Typed, span: Span) -> Typed:
        """Checks `!operand`."""
        if isinstance(operand.node, ir.Literal):
            return self._conversions.literal(not operand.node.value, types.BOOL, span)
        return Typed(types.BOOL, ir.Unary(UnaryOperator.NOT, operand.node, types.BOOL, span))

    def _refuse(self, operator: str, operand: Typed, span: Span) -> NoReturn:
        self._at.fail(span, f"'{operator}' does not work on {types.describe(operand.type)}")

    def binary(self, node: ast.Binary, expected: types.Type | None) -> Typed:
        operator = _SYMBOLS[node.operator]
        if operator in _LOGICAL:
            return self._logical(operator, node)
        hint = expected if operator not in (*_EQUALITY, *_ORDER, Operator.CONCAT) else None
        left = self._at.expressions.expression(node.left, hint)
        if operator in _SHIFTS:
            return self.shifted(operator, left, self._at.expressions.expression(node.right), node.span)
        right = self._at.expressions.expression(node.right, left.type if operator in _EQUALITY else hint)
        return self.combined(operator, left, right, node.span)

    def operated(self, symbol: str, left: Typed, right: Typed, span: Span) -> Typed:
        """Returns the operation of an assignment such as `+=`."""
        operator = _SYMBOLS[symbol]
        if operator in _SHIFTS:
            return self.shifted(operator, left, right, span)
        return self.combined(operator, left, right, span)

    def combined(self, operator: Operator, left: Typed, right: Typed, span: Span) -> Typed:
        """Checks any operator but the logical ones and shifts, with checked operands."""
        if operator in _EQUALITY:
            return self._equality(operator, left, right, span)
        if operator is Operator.CONCAT:
            return self._concatenation(left, right, span)
        if operator in _DIVISION:
            self._check_positive(left, right)
        left, right, common = self._operands(operator, left, right, span)
        if operator in _ORDER:
            return self._fold(operator, left, right, types.BOOL, span)
        if operator in _DIVISION and isinstance(common, ir.Bits) and common.signed:
            self._at.fail(span, f"'{operator.value}' does not work on {types.describe(common)}")
        if operator in _SATURATING and isinstance(common, types.Infinite):
            self._at.fail(span, f"'{operator.value}' needs a number with a width")
        return self._fold(operator, left, right, common, span)

    def _check_positive(self, *operands: Typed) -> None:
        for one in operands:
            if isinstance(one.node, ir.Literal) and isinstance(one.node.value, int) and one.node.value < 0:
                self._at.fail(one.span, "division is not defined for negative numbers")

    def _logical(self, operator: Operator, node: ast.Binary) -> Typed:
        left = self._at.expressions.expression(node.left, types.BOOL)
        right = self._at.expressions.expression(node.right, types.BOOL)
        for one in (left, right):
            if not isinstance(one.type, ir.Bool):
                self._at.fail(one.span, f"'{operator.value}' does not work on {types.describe(one.type)}")
        if isinstance(left.node, ir.Literal):
            decided = bool(left.node.value) == (operator is Operator.LOGICAL_OR)
            return Typed(types.BOOL, left.node if decided else right.node)
        return Typed(types.BOOL, ir.Binary(operator, left.node, right.node, types.BOOL, node.span))

    def _operands(
        self, operator: Operator, left: Typed, right: Typed, span: Span
    ) -> tuple[Typed, Typed, types.Type]:
        """Returns both operands as numbers of one type, and that type."""
        one, other = _arithmetic_type(left.type), _arithmetic_type(right.type)
        for typed, found in ((left, one), (right, other)):
            if not isinstance(found, ir.Bits | types.Infinite):
                self._at.fail(span, f"'{operator.value}' does not work on {types.describe(typed.type)}")
        if isinstance(one, ir.Bits) and isinstance(other, types.Infinite):
            right = self._conversions.sized(right, one, right.span)
        elif isinstance(other, ir.Bits) and isinstance(one, types.Infinite):
            left = self._conversions.sized(left, other, left.span)
            one = other
        elif one != other:
            texts = f"{types.describe(left.type)} and {types.describe(right.type)}"
            self._at.fail(span, f"the operands of '{operator.value}' are of different types, {texts}")
        return left, right, one

    def _fold(self, operator: Operator, left: Typed, right: Typed, result: types.Type, span: Span) -> Typed:
        if isinstance(left.node, ir.Literal) and isinstance(right.node, ir.Literal):
            one, other = left.node.value, right.node.value
            try:
                if isinstance(result, ir.Bool):
                    return self._conversions.literal(compare(operator, one, other), result, span)
                assert isinstance(one, int)
                assert isinstance(other, int)
                bits = types.UNSIZED if isinstance(result, types.Infinite) else result
                assert isinstance(bits, ir.Bits)
                return self._conversions.literal(arithmetic(operator, one, other, bits), result, span)
            except ValueError as error:
                self._at.fail(span, str(error))
        if operator in _DIVISION and isinstance(right.node, ir.Literal) and right.node.value == 0:
            self._at.fail(span, "division by zero")
        represented = self._at.represent(result, span)
        return Typed(result, ir.Binary(operator, left.node, right.node, represented, span))

    def _equality(self, operator: Operator, left: Typed, right: Typed, span: Span) -> Typed:
        left, right = self._comparable(left, right)
        if not same(left.type, right.type):
            one, other = types.describe(left.type), types.describe(right.type)
            self._at.fail(span, f"{one} can't be compared with {other}")
        if _holds_stringlike(left.type):
            self._at.fail(span, f"values of type {types.describe(left.type)} can't be compared")
        return self._fold(operator, left, right, types.BOOL, span)

    def _comparable(self, left: Typed, right: Typed) -> tuple[Typed, Typed]:
        """Returns two operands of `==`, implicitly cast to one type if possible."""
        if same(left.type, right.type):
            return left, right
        for one, other, swapped in ((left, right, False), (right, left, True)):
            found = self._conversions.implicit(one, other.type, one.span)
            if found is not None:
                return (other, found) if swapped else (found, other)
        first, second = _arithmetic_type(left.type), _arithmetic_type(right.type)
        if first == second:
            return Typed(first, left.node), Typed(second, right.node)
        if isinstance(first, types.Infinite) and isinstance(second, ir.Bits):
            return self._conversions.sized(left, second, left.span), Typed(second, right.node)
        if isinstance(second, types.Infinite) and isinstance(first, ir.Bits):
            return Typed(first, left.node), self._conversions.sized(right, first, right.span)
        return left, right

    def _concatenation(self, left: Typed, right: Typed, span: Span) -> Typed:
        if isinstance(left.node, ir.Literal) and isinstance(right.node, ir.Literal):
            one, other = left.node.value, right.node.value
            if isinstance(one, str) and isinstance(other, str):
                return self._conversions.literal(one + other, types.STRING, span)
        first, second = _arithmetic_type(left.type), _arithmetic_type(right.type)
        for typed, found in ((left, first), (right, second)):
            if isinstance(found, types.Infinite):
                self._at.fail(typed.span, "'++' needs numbers with a width")
            if not isinstance(found, ir.Bits):
                self._at.fail(typed.span, f"'++' does not work on {types.describe(typed.type)}")
        assert isinstance(first, ir.Bits)
        assert isinstance(second, ir.Bits)
        result = ir.Bits(first.width + second.width, first.signed)
        if isinstance(left.node, ir.Literal) and isinstance(right.node, ir.Literal):
            one, other = left.node.value, right.node.value
            assert isinstance(one, int)
            assert isinstance(other, int)
            return self._conversions.literal(concatenate(one, first, other, second), result, span)
        return Typed(result, ir.Binary(Operator.CONCAT, left.node, right.node, result, span))

    def shifted(self, operator: Operator, left: Typed, right: Typed, span: Span) -> Typed:
        """Checks `left << right` and `left >> right`."""
        value_type, amount = _arithmetic_type(left.type), _arithmetic_type(right.type)
        if not isinstance(value_type, ir.Bits | types.Infinite):
            self._at.fail(left.span, f"'{operator.value}' does not work on {types.describe(left.type)}")
        if not isinstance(amount, ir.Bits | types.Infinite):
            self._at.fail(right.span, f"'{operator.value}' does not work on {types.describe(right.type)}")
        if isinstance(amount, ir.Bits) and amount.signed:
            self._at.fail(right.span, "the number of bits to shift by must be unsigned")
        if isinstance(right.node, ir.Literal):
            return self._shift_known(operator, left, right.node, value_type, span)
        if isinstance(value_type, types.Infinite):
            self._at.fail(left.span, "a number that is shifted by a variable amount needs a width")
        return Typed(value_type, ir.Binary(operator, left.node, right.node, value_type, span))

    def _shift_known(
        self, operator: Operator, left: Typed, right: ir.Literal, value_type: types.Type, span: Span
    ) -> Typed:
        amount = right.value
        assert isinstance(amount, int)
        bits = types.UNSIZED if isinstance(value_type, types.Infinite) else value_type
        assert isinstance(bits, ir.Bits)
        if amount < 0:
            self._at.fail(right.span, "a shift by a negative number is not defined")
        if isinstance(left.node, ir.Literal):
            assert isinstance(left.node.value, int)
            try:
                return self._conversions.literal(
                    shift(operator, left.node.value, amount, bits), value_type, span
                )
            except ValueError as error:
                self._at.fail(span, str(error))
        least = ir.Bits(max(amount.bit_length(), 1))
        literal = ir.Literal(amount, least, right.span)
        return Typed(value_type, ir.Binary(operator, left.node, literal, bits, span))


def _arithmetic_type(type_: types.Type) -> types.Type:
    """Returns the type that a value counts with: a serializable enum's bits, else its own (new types don't
    count).
    """
    return type_.bits if isinstance(type_, types.SerialEnum) else type_


def _holds_stringlike(type_: types.Type) -> bool:
    return isinstance(type_, ir.Void | types.ListType | types.TypeVariable)
