"""Static analysis of a parser before code generation, and the texts of its matches."""

from __future__ import annotations

from .. import ir
from .layout import Leaf


def typed(text: str, type_: ir.Type) -> str:
    """Returns raw bits as a value of the type."""
    if isinstance(type_, ir.Bool):
        return f"{text} != 0"
    if isinstance(type_, ir.Bits) and type_.signed and type_.width:
        half = 1 << (type_.width - 1)
        return f"({text} ^ {half}) - {half}"
    return text


def from_whole(leaf: Leaf, whole: str, varbit: str) -> str:
    """Returns a leaf of a header with varbit, from the number of the whole header."""
    shift = f"({leaf.after} + {varbit})" if leaf.before_varbit else str(leaf.after)
    if isinstance(leaf.type, ir.Varbit):
        return f"({whole} >> {leaf.after} & (1 << {varbit}) - 1, {varbit})"
    return typed(f"({whole} >> {shift} & {(1 << leaf.width) - 1})", leaf.type)


def match_text(match: ir.Match, text: str) -> str:
    match match:
        case ir.MatchValue(value=value):
            return f"{text} == {value!r}"
        case ir.MatchMask(value=value, mask=mask):
            return f"{text} & {mask} == {value & mask}"
        case ir.MatchRange(low=low, high=high):
            return f"{low} <= {text} <= {high}"
    raise TypeError(f"{match} is no match of one key")


def is_set(matches: tuple[ir.Match, ...]) -> bool:
    return bool(matches) and isinstance(matches[0], ir.MatchSet)


def merged(cases: tuple[ir.Case, ...]) -> list[tuple[list[tuple[ir.Match, ...]], int]]:
    """Merges consecutive cases with the same target."""
    merged: list[tuple[list[tuple[ir.Match, ...]], int]] = []
    for case in cases:
        if merged and merged[-1][1] == case.target and not is_any(merged[-1][0][-1]):
            merged[-1][0].append(case.matches)
        else:
            merged.append(([case.matches], case.target))
    return merged


def is_any(matches: tuple[ir.Match, ...]) -> bool:
    return all(isinstance(match, ir.MatchAny) for match in matches)


def targets(state: ir.State) -> list[int]:
    transition = state.transition
    if isinstance(transition, ir.Goto):
        found = [transition.target]
    else:
        found = [target for _, target in merged(transition.cases)]
    return [target for target in found if target >= 0]


def labels(parser: ir.Parser) -> set[int]:
    """Returns the first state, and those that several lead to."""
    ways: dict[int, int] = {parser.start: 2}
    for state in parser.states:
        for target in targets(state):
            ways[target] = ways.get(target, 0) + 1
    return {number for number, count in ways.items() if count > 1}


def jumps_to(parser: ir.Parser, number: int) -> bool:
    return any(number in targets(state) for state in parser.states)


def has_loop(parser: ir.Parser) -> bool:
    """Returns whether a state can be reached from itself."""
    state_of: dict[int, int] = {}

    def loops(number: int) -> bool:
        if state_of.get(number) == 1:
            return True
        if state_of.get(number) == 2:
            return False
        state_of[number] = 1
        found = any(loops(target) for target in targets(parser.states[number]))
        state_of[number] = 2
        return found

    return loops(parser.start)


def whole_bytes(e: ir.Expression) -> bool:
    """Returns whether the number is a multiple of 8 for sure (32 bits wrap at one)."""
    if isinstance(e, ir.Literal):
        return int(e.value) % 8 == 0
    if isinstance(e, ir.Binary):
        if e.operator is ir.Operator.MUL:
            return whole_bytes(e.left) or whole_bytes(e.right)
        if e.operator is ir.Operator.SHL:
            return isinstance(e.right, ir.Literal) and int(e.right.value) >= 3
        if e.operator is ir.Operator.CONCAT:
            return ir.width_of(e.right.type) >= 3 and whole_bytes(e.right)
        if e.operator in (ir.Operator.ADD, ir.Operator.SUB):
            return whole_bytes(e.left) and whole_bytes(e.right)
    if isinstance(e, ir.Cast):
        return isinstance(e.type, ir.Bits) and whole_bytes(e.operand)
    return False
