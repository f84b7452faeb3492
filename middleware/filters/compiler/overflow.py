"""Rules for a switch whose tables are bounded: what does not fit is widened, so that nobody misses a packet.

Numbers become multiples of a growing alpha; then constraints on one field after the other count as true,
first those of the field whose table is fullest. The result matches each packet that the rules match, and
subscribers filter what they get beyond. Rules that run custom actions or change variables stay as they are,
since widened they would do so for packets of others; a rule that reads state gives up its state first,
because a window that counts more packets may say less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from ..actions import Rules
from ..loosen import counted_as_true, loosen, widened
from ..tree import Constraint, Field
from .compile import Compiled, compile_rules
from .diagram import DiagramTooLarge
from .schema import Schema
from .statistics import TableSize, sizes
from .variables import is_state

ALPHAS: Final = tuple(4**power for power in range(1, 13))
_STATES_PER_ENTRY: Final = 64  # a diagram with more states than this for each entry of a table is given up


class Fitted(Struct, frozen=True):
    """Rules as they fit, and how they were widened. `needed`: the tables that were too small for them as they
    are; empty if the diagram was too large to be built.
    """

    compiled: Compiled
    rules: Rules
    alpha: int = 1
    left_out: tuple[str, ...] = ()
    needed: tuple[TableSize, ...] = ()
    wider: bool = False


class TablesTooSmall(ValueError):
    """The rules do not fit, and may not be widened so that they do."""

    def __init__(self, size: int, over: Sequence[TableSize], widened: bool) -> None:
        needs = ", ".join(f"{one.table} {one.entries:,}" for one in over) or "a diagram that is too large"
        why = (
            "rules with custom actions or variables stay exact; move some to another switch, or take one "
            "with larger tables (--size)"
            if widened
            else "leave out --refuse to widen the rules, or take a switch with larger tables (--size)"
        )
        super().__init__(f"tables hold {size:,} entries, and the rules need {needs}: {why}")


def fitted(
    schema: Schema, rules: Rules, size: int, order: Sequence[int] | None = None, widen: bool = True
) -> Fitted:
    """Returns rules whose tables have at most `size` entries each. Raises TablesTooSmall, FilterError."""
    first = _compiled(schema, rules, order, size)
    needed = _over(first, size)
    if first is not None and not needed:
        return Fitted(first, rules)
    if widen:
        for alpha, left_out, wider in _wider(schema, rules, size, order):
            found = _compiled(schema, wider, order, size)
            if found is not None and not _over(found, size):
                return Fitted(found, wider, alpha, left_out, needed, True)
    raise TablesTooSmall(size, needed, widen)


def _compiled(schema: Schema, rules: Rules, order: Sequence[int] | None, size: int) -> Compiled | None:
    try:
        return compile_rules(schema, rules, order, max(1000, _STATES_PER_ENTRY * size))
    except DiagramTooLarge:
        return None


def _over(compiled: Compiled | None, size: int) -> tuple[TableSize, ...]:
    return tuple(one for one in sizes(compiled) if one.entries > size) if compiled is not None else ()


def _wider(
    schema: Schema, rules: Rules, size: int, order: Sequence[int] | None
) -> Iterator[tuple[int, tuple[str, ...], Rules]]:
    """Yields alpha, the fields left out, and the rules, each wider than the one before."""
    stateless = widened(rules, lambda tree: counted_as_true(tree, lambda one: is_state(schema, one)))
    for alpha in ALPHAS:
        yield alpha, (), _loosened(stateless, alpha)
    gone: list[int] = []
    wide = stateless
    while len(gone) < len(schema.fields):
        gone.append(_fullest(schema, _compiled(schema, wide, order, size), gone))
        wide = widened(stateless, lambda tree: counted_as_true(tree, lambda one: _is_of(schema, one, gone)))
        yield 1, tuple(".".join(schema.fields[place].path) for place in gone), wide


def _loosened(rules: Rules, alpha: int) -> Rules:
    return widened(rules, lambda tree: loosen(tree, alpha))


def _is_of(schema: Schema, constraint: Constraint, places: Sequence[int]) -> bool:
    attribute = constraint.attribute
    return (
        isinstance(attribute, Field)
        and not is_state(schema, constraint)
        and schema.field(attribute) in places
    )


def _fullest(schema: Schema, compiled: Compiled | None, gone: Sequence[int]) -> int:
    """Returns the field that is left out next: of the largest tables, or else the last of the description."""
    left = [place for place in range(len(schema.fields)) if place not in gone]
    if compiled is None:
        return left[-1]
    entries = {place: one.size() for place, one in zip(compiled.order, compiled.fields, strict=True)}
    return max(left, key=lambda place: entries[place])
