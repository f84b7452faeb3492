"""Detects programs whose unchanged packets leave as they came: the deparser emits what the parser extracts,
in the same order on every path through the parser.
"""

from __future__ import annotations

from .. import ir

NOTHING = -1


def emits_in_order(program: ir.Program) -> bool:
    """Returns whether, on every path through the parser, positions of extracted headers in the deparser's
    order increase; only a stack's `next` may follow itself.
    """
    places = _places(program)
    parser = program.parsers[program.pipeline.parser]
    if places is None or any(isinstance(s, ir.ApplyParser) for state in parser.states for s in state.body):
        return False
    furthest: dict[int, int] = {parser.start: NOTHING}
    waiting = [parser.start]
    while waiting:
        number = waiting.pop()
        after = _through(parser.states[number], furthest[number], places, parser.parameters[0].variable)
        if after is None:
            return False
        for target in _targets(parser.states[number]):
            if furthest.get(target, NOTHING - 1) < after:
                furthest[target] = after
                waiting.append(target)
    return True


Path = tuple[int, ...]


def _places(program: ir.Program) -> dict[Path, int] | None:
    """Returns the headers that the deparser emits, by path, with their place; None: it does more than
    emit.
    """
    control = program.controls[program.pipeline.deparser]
    root = control.parameters[0].variable
    places: dict[Path, int] = {}
    for s in control.body:
        if isinstance(s, ir.Declare):
            continue
        if not isinstance(s, ir.Emit):
            return None
        path = _path(s.value, root)
        if path is None:
            return None
        for one in _headers(path, s.value.type):
            if one in places:
                return None
            places[one] = len(places)
    return places


def _headers(path: Path, type_: ir.Type) -> list[Path]:
    """Paths of headers, unions and stacks in a value."""
    if isinstance(type_, ir.StructType):
        return [one for n, f in enumerate(type_.fields) for one in _headers((*path, n), f.type)]
    return [path]


def _path(e: ir.Expression, root: int) -> Path | None:
    if isinstance(e, ir.Variable):
        return () if e.index == root else None
    if isinstance(e, ir.Member):
        base = _path(e.base, root)
        return None if base is None else (*base, e.index)
    return None


def _through(state: ir.State, furthest: int, places: dict[Path, int], root: int) -> int | None:
    """Returns the furthest position after a state; None: out of order, or unknown."""
    for s in state.body:
        if isinstance(s, ir.If):
            return None
        if not isinstance(s, ir.Extract):
            continue
        place, repeats = _extracted(s.target, places, root)
        if place is None or place < furthest or (place == furthest and not repeats):
            return None
        furthest = place
    return furthest


def _extracted(target: ir.Expression, places: dict[Path, int], root: int) -> tuple[int | None, bool]:
    """Returns the target's place, and whether it may come again."""
    repeats = False
    while isinstance(target, ir.Member | ir.Next):
        if isinstance(target, ir.Next):
            repeats = True
            target = target.base
        path = _path(target, root)
        if path is not None and path in places:
            return places[path], repeats
        if not isinstance(target, ir.Member):
            return None, False
        target = target.base
    return None, False


def _targets(state: ir.State) -> list[int]:
    transition = state.transition
    found = (
        [transition.target] if isinstance(transition, ir.Goto) else [case.target for case in transition.cases]
    )
    return [target for target in found if target >= 0]
