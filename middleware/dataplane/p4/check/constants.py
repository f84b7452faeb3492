"""Arithmetic on constants known at load time. Pure.

`int` has any size; Bits wrap. Errors are ValueErrors with the reason.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from .. import ir
from ..ir import Operator

MOST_BITS = 1 << 17  # of a number: wider than any packet; keeps `1 << (1 << 40)` from filling memory


def wrap(value: int, type_: ir.Bits) -> int:
    """Returns the value that the type holds: modulo 2**width, with sign if it has one."""
    if type_.width < 0:
        if value.bit_length() > MOST_BITS:
            raise ValueError("the number is too large")
        return value
    value &= (1 << type_.width) - 1
    if type_.signed and type_.width and value >> (type_.width - 1):
        value -= 1 << type_.width
    return value


def bounds(type_: ir.Bits) -> tuple[int, int]:
    """Returns the least and the most that the type holds."""
    if type_.signed:
        half = 1 << max(type_.width - 1, 0)
        return (-half, half - 1) if type_.width else (0, 0)
    return 0, (1 << type_.width) - 1


_PLAIN: dict[Operator, Callable[[int, int], int]] = {
    Operator.ADD: operator.add,
    Operator.SUB: operator.sub,
    Operator.MUL: operator.mul,
    Operator.AND: operator.and_,
    Operator.OR: operator.or_,
    Operator.XOR: operator.xor,
}
_COMPARE: dict[Operator, Callable[[int, int], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}


def compare(symbol: Operator, left: int | bool | str, right: int | bool | str) -> bool:
    """Evaluates ==, !=, <, <=, >, >= on two values of one type."""
    if isinstance(left, str) or isinstance(right, str):
        return (left == right) == (symbol is Operator.EQ)
    return _COMPARE[symbol](left, right)


def arithmetic(symbol: Operator, left: int, right: int, type_: ir.Bits) -> int:
    """Returns the result of a binary operation whose operands and result have one type."""
    plain = _PLAIN.get(symbol)
    if plain is not None:
        return wrap(plain(left, right), type_)
    if symbol in (Operator.ADD_SAT, Operator.SUB_SAT):
        low, high = bounds(type_)
        return min(max(left + right if symbol is Operator.ADD_SAT else left - right, low), high)
    if right == 0:
        raise ValueError("division by zero")
    if left < 0 or right < 0:
        raise ValueError("division is not defined for negative numbers")
    return left // right if symbol is Operator.DIV else left % right


def shift(symbol: Operator, left: int, right: int, type_: ir.Bits) -> int:
    """Evaluates `<<` and `>>`; the result has the left operand's type."""
    if right < 0:
        raise ValueError("a shift by a negative number is not defined")
    if symbol is Operator.SHR:
        return left >> min(right, MOST_BITS)
    if type_.width < 0:
        if right > MOST_BITS:
            raise ValueError("the number is too large")
        return wrap(left << right, type_)
    return wrap(left << right, type_) if right < type_.width else 0


def concatenate(left: int, left_type: ir.Bits, right: int, right_type: ir.Bits) -> int:
    """Evaluates `left ++ right`, of the type that `concatenated` returns."""
    bits = (left << right_type.width) | (right & ((1 << right_type.width) - 1))
    return wrap(bits, ir.Bits(left_type.width + right_type.width, left_type.signed))


def slice_of(value: int, high: int, low: int) -> int:
    """Evaluates `value[high:low]`."""
    return (value >> low) & ((1 << (high - low + 1)) - 1)
