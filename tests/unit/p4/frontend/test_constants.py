"""Numbers known at load time: folded like Python's integers, in their width."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.p4.frontend.programs import complaint, load, value_of

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.check.constants import arithmetic, bounds, concatenate, shift, wrap


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("8w255 + 1", 0),
        ("8w0 - 1", 255),
        ("8s127 + 1", -128),
        ("8w16 * 16", 0),
        ("8w7 / 2", 3),
        ("8w7 % 4", 3),
        ("8w250 |+| 10", 255),
        ("8w3 |-| 4", 0),
        ("8s100 |+| 100", 127),
        ("-8s100 |-| 100", -128),
        ("8w0xF0 & 0x3C", 0x30),
        ("8w0xF0 | 0x0F", 0xFF),
        ("8w0xF0 ^ 0xFF", 0x0F),
        ("~8w0xF0", 0x0F),
        ("-8w1", 255),
        ("-8s1", -1),
        ("8w1 << 7", 128),
        ("8w1 << 8", 0),
        ("8w128 >> 7", 1),
        ("-8s127 >> 6", -2),
        ("4w0xA ++ 8w0x5C", 0xA5C),
        ("-4s1 ++ 4w0", -16),
        ("16w0xABCD[11:4]", 0xBC),
        ("16w0xABCD[4+:8]", 0xBC),
        ("(-8s1)[7:4]", 15),
        ("(bit<4>) 8w0xAB", 0xB),
        ("(int<8>) 8w255", -1),
        ("(bit<16>) (bit<8>) -8s1", 255),
        ("(int<16>) -8s1", -1),
        ("(bit<8>) 300", 44),
        ("(bit<1>) true", 1),
        ("(bool) 1w1", True),
        ("8w5 > 4", True),
        ("-8s1 < 0", True),
        ("8w255 == 8w0 - 1", True),
        ("true && false || !false", True),
        ("true ? 8w1 : 8w2", 1),
        ("8w1 + (5 > 4 ? 2 : 3)", 3),
        ("(bit<8>) ((1 << 70) >> 68)", 4),
        ("(bit<8>) (0x1F - 0b11 * 0o7)", 10),
        ("(bit<8>) (7 / 2 % 2)", 1),
        ("N", 12),
        ("T.b", 7),
        ("(bit<4>) (T) 4", 4),
        ("PAIR.y", 9),
        ("L[1]", 8),
        ("error.NoMatch", 2),
        ("Color.green", 1),
        ("HashAlgorithm.crc16", 2),
    ],
)
def test_folding(expression: str, value: int | bool) -> None:
    types = """
        const bit<16> N = 3 * 4;
        enum bit<8> T { a = 1, b = 7 }
        enum Color { red, green }
        struct pair_t { bit<8> x; bit<8> y; }
        const pair_t PAIR = {y = 9, x = 8};
        const tuple<bit<4>, bit<8>> L = {7, 8};
    """
    found = value_of(expression, types=types)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("8w1 / 0", "division by zero"),
        ("meta.x / 0", "division by zero"),
        ("5 / -1", "division is not defined for negative numbers"),
        ("meta.x << -1", "a shift by a negative number is not defined"),
        ("8w1 + 16w1", "the operands of '+' are of different types, bit<8> and bit<16>"),
        ("8w1 + 8s1", "the operands of '+' are of different types, bit<8> and int<8>"),
        ("8w1 << 8s1", "the number of bits to shift by must be unsigned"),
        ("8s1 / 8s1", "'/' does not work on int<8>"),
        ("true + true", "'+' does not work on bool"),
        ("8w1 && true", "'&&' does not work on bit<8>"),
        ("!8w1", "'!' does not work on bit<8>"),
        ("~true", "'~' does not work on bool"),
        ("8w1 ++ 1", "'++' needs numbers with a width"),
        ("8w1 == true", "bit<8> can't be compared with bool"),
        ("hdr.one == meta.x", "one_t can't be compared with bit<8>"),
        ("8w1[8:0]", "a slice from 8 to 0 of bit<8> is not possible"),
        ("8w1[0:4]", "a slice from 0 to 4 of bit<8> is not possible"),
        (
            "meta.x[meta.x:0]",
            "the left end of a slice must be a number that is known when the program is loaded",
        ),
        ("(bool) 8w1", "there is no cast from bit<8> to bool"),
        ("(bit<16>) 8s1", "a cast from int<8> to bit<16> changes width and sign; cast twice"),
        ("(bit<8>) hdr.one", "there is no cast from one_t to bit<8>"),
        ("meta.flag ? 1 : 2", "the width of these numbers isn't known; give one of them a width"),
        ("meta.flag ? 8w1 : 16w2", "bit<8> is wanted here, not bit<16>"),
        ("8w1 |+| true", "'|+|' does not work on bool"),
    ],
)
def test_what_is_not_possible(expression: str, message: str) -> None:
    assert complaint(f'log_msg("", {{{expression}}});') == message


def test_a_number_that_does_not_fit_is_warned_of() -> None:
    (warning,) = load("meta.x = 256;").warnings
    assert "warning: 256 does not fit into bit<8>; it becomes 0\n" in warning
    assert load("meta.x = 255; hdr.one.s = -128;").warnings == ()


WRAPPING: dict[ir.Operator, Callable[[int, int], int]] = {
    ir.Operator.ADD: operator.add,
    ir.Operator.SUB: operator.sub,
    ir.Operator.MUL: operator.mul,
    ir.Operator.AND: operator.and_,
    ir.Operator.OR: operator.or_,
    ir.Operator.XOR: operator.xor,
}
WIDTHS = st.builds(ir.Bits, st.integers(1, 70), st.booleans())


@st.composite
def operands(draw: st.DrawFn) -> tuple[ir.Bits, int, int]:
    bits = draw(WIDTHS)
    low, high = bounds(bits)
    return bits, draw(st.integers(low, high)), draw(st.integers(low, high))


@settings(max_examples=100)
@given(operands(), st.sampled_from(list(WRAPPING)))
def test_arithmetic_is_pythons_modulo_the_width(given_: tuple[ir.Bits, int, int], sign: ir.Operator) -> None:
    bits, left, right = given_
    found = arithmetic(sign, left, right, bits)
    low, high = bounds(bits)
    assert low <= found <= high
    assert (found - WRAPPING[sign](left, right)) % (1 << bits.width) == 0


@settings(max_examples=60)
@given(operands(), st.booleans())
def test_saturation_clamps(given_: tuple[ir.Bits, int, int], adding: bool) -> None:
    bits, left, right = given_
    sign = ir.Operator.ADD_SAT if adding else ir.Operator.SUB_SAT
    low, high = bounds(bits)
    exact = left + right if adding else left - right
    assert arithmetic(sign, left, right, bits) == max(low, min(high, exact))


@settings(max_examples=60)
@given(operands(), st.integers(0, 100))
def test_shifts_are_multiplications_and_divisions(given_: tuple[ir.Bits, int, int], count: int) -> None:
    bits, left, _ = given_
    assert (shift(ir.Operator.SHL, left, count, bits) - left * 2**count) % (1 << bits.width) == 0
    assert shift(ir.Operator.SHR, left, count, bits) == left // 2**count


@settings(max_examples=60)
@given(operands(), operands())
def test_concatenation_is_undone_by_slices(
    first: tuple[ir.Bits, int, int], second: tuple[ir.Bits, int, int]
) -> None:
    (high_type, high, _), (low_type, low, _) = first, second
    whole = concatenate(high, high_type, low, low_type)
    assert wrap(whole >> low_type.width, high_type) == high
    assert wrap(whole, low_type) == low


@st.composite
def formulas(draw: st.DrawFn, depth: int = 4) -> tuple[str, int]:
    """Draws an expression over bit<16>, and its value by Python."""
    if depth == 0 or draw(st.booleans()):
        value = draw(st.integers(0, 65535))
        return draw(st.sampled_from([f"16w{value}", f"16w{value:#x}", f"(bit<16>) {value}"])), value
    left, one = draw(formulas(depth - 1))
    right, other = draw(formulas(depth - 1))
    sign = draw(st.sampled_from(["+", "-", "*", "&", "|", "^", "?", "~", "++"]))
    if sign == "?":
        return f"(({left}) < ({right}) ? ({left}) : ({right}))", min(one, other)
    if sign == "~":
        return f"~({left})", one ^ 0xFFFF
    if sign == "++":
        return f"(({left})[7:0] ++ ({right})[15:8])", (one & 0xFF) << 8 | other >> 8
    found = {"+": one + other, "-": one - other, "*": one * other, "&": one & other, "|": one | other}
    return f"({left}) {sign} ({right})", found.get(sign, one ^ other) & 0xFFFF


@settings(max_examples=40)
@given(formulas())
def test_formulas_come_down_to_pythons_value(formula: tuple[str, int]) -> None:
    assert value_of(f"(bit<16>) ({formula[0]})") == formula[1]
