"""Key sets of select cases and table entries. Pure."""

from __future__ import annotations

from .. import ast, ir, types
from ..source import Span
from .base import Place
from .constants import bounds
from .conversions import Conversions
from .expressions import Expressions
from .scope import Typed


class Matches:
    """The part of the checker that knows key sets."""

    def __init__(self, at: Place, conversions: Conversions, expressions: Expressions) -> None:
        self._at = at
        self._conversions = conversions
        self._expressions = expressions

    def match(self, node: ast.Expression, type_: types.Type) -> ir.Match:
        """Returns the match of one key set for a key of that type."""
        if isinstance(node, ast.DontCare | ast.Dots):
            return ir.MatchAny()
        if isinstance(node, ast.Mask):
            return self._mask(node, type_)
        if isinstance(node, ast.Range):
            return self._range(node, type_)
        return ir.MatchValue(self._known(node, type_))

    def _known(self, node: ast.Expression, type_: types.Type) -> int | bool:
        typed = self._expressions.expression(node, type_)
        base = types.underlying(type_)
        if isinstance(base, ir.Bits) and types.underlying(typed.type) == base:
            typed = Typed(base, typed.node)
        wanted = base if isinstance(base, ir.Bits) else type_
        literal = self._conversions.convert(typed, wanted, node.span).node
        if not isinstance(literal, ir.Literal) or isinstance(literal.value, str):
            self._at.fail(node.span, "what is matched must be known when the program is loaded")
        return literal.value

    def _bits(self, node: ast.Expression, type_: types.Type, sign: str) -> ir.Bits:
        base = types.underlying(type_)
        if not isinstance(base, ir.Bits):
            self._at.fail(node.span, f"'{sign}' does not work on {types.describe(type_)}")
        return base

    def _mask(self, node: ast.Mask, type_: types.Type) -> ir.Match:
        bits = self._bits(node, type_, "&&&")
        value = int(self._known(node.value, type_)) & _ones(bits)
        mask = int(self._known(node.mask, type_)) & _ones(bits)
        if mask == 0:
            return ir.MatchAny()
        return ir.MatchMask(value & mask, mask)

    def _range(self, node: ast.Range, type_: types.Type) -> ir.Match:
        bits = self._bits(node, type_, "..")
        low, high = int(self._known(node.low, type_)), int(self._known(node.high, type_))
        if low > high:
            self._at.warn(node.span, f"the range from {low} to {high} is empty")
        if (low, high) == bounds(bits):
            return ir.MatchAny()
        return ir.MatchRange(low, high)

    def key_elements(self, node: ast.Expression, count: int, span: Span) -> tuple[ast.Expression, ...]:
        """Returns one key set per key."""
        if isinstance(node, ast.KeySet | ast.ListValue):
            elements = node.elements
        elif isinstance(node, ast.DontCare):
            elements = (node,) * count
        else:
            elements = (node,)
        if len(elements) != count:
            self._at.fail(span, f"there are {count} keys, and {len(elements)} are matched here")
        return elements


def _ones(bits: ir.Bits) -> int:
    return (1 << bits.width) - 1


def as_prefix(match: ir.Match, width: int) -> bool:
    """Returns whether a mask's ones are its highest bits, so that it is a prefix."""
    if not isinstance(match, ir.MatchMask):
        return True
    rest = ((1 << width) - 1) ^ match.mask
    return rest & (rest + 1) == 0
