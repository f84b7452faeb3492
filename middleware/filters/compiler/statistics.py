"""The memory that a compiled rule set needs, and that of one big table (Camus, section VIII.F).

A real ASIC's per cent cannot be computed here. The model is that of match-action hardware as published:
SRAM in blocks of 1,024 words of 128 bits, TCAM in blocks of 512 words of 44 bits; an entry takes whole
words of its table's width, and a range takes as many TCAM words as its prefixes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from msgspec import Struct

from .bounds import Bounds
from .boxes import Box, both
from .compile import Compiled
from .schema import STATE_BITS
from .tables import LevelTables, prefixes_of

SRAM_WORDS: Final = 1024
SRAM_BITS: Final = 128
TCAM_WORDS: Final = 512
TCAM_BITS: Final = 44
_AT_BITS: Final = 8


class TableSize(Struct, frozen=True):
    """One part of one table. `words`: entries once ranges are prefixes."""

    table: str
    entries: int
    key_bits: int
    words: int
    memory: str
    blocks: int


def sizes(compiled: Compiled) -> list[TableSize]:
    """Returns the tables that have entries."""
    state = max(1, (compiled.diagram.leaves + len(compiled.diagram.levels)).bit_length())
    found: list[TableSize] = []
    for place, tables in zip(compiled.order, compiled.fields, strict=True):
        field = compiled.schema.fields[place]
        width = field.bits if field.kind == "low" else field.width
        if len(tables.classes) > 1:
            ends = [*tables.classes[1:], 1 << field.width]
            words = sum(
                len(prefixes_of(low, end, field.width)) for low, end in zip(tables.classes, ends, strict=True)
            )
            found.append(_tcam(f"{field.key}_map", len(tables.classes), field.width, words))
        found += _parts(field.key, tables, state, width, field.width)
    if compiled.links:
        found.append(_sram("links", len(compiled.links), state, state))
    for counter, tables in zip(compiled.schema.counters, compiled.blocks, strict=True):
        found += _parts(counter.name, tables, state, STATE_BITS, STATE_BITS)
    found.append(_sram("leaf", len(compiled.leaves), state, 16))
    return [one for one in found if one.entries]


def _parts(name: str, tables: LevelTables, state: int, width: int, span_width: int) -> list[TableSize]:
    words = sum(
        len(prefixes_of(low, high + 1, span_width))
        for low, high in zip(tables.span_low, tables.span_high, strict=True)
    )
    return [
        _sram(f"{name}_exact", len(tables.exact_state), state + width, state),
        _tcam(f"{name}_span", len(tables.span_state), state + span_width, words),
        _sram(f"{name}_rest", len(tables.rest_state), state, state),
        _sram(f"{name}_absent", len(tables.absent_state), state, state),
    ]


def _sram(table: str, entries: int, key: int, data: int) -> TableSize:
    """An entry of exact matches holds its key and what follows."""
    each = SRAM_BITS // (key + data + _AT_BITS)  # several entries may share a word
    words = -(-entries // each) if each else entries * -(-(key + data + _AT_BITS) // SRAM_BITS)
    return TableSize(table, entries, key, entries, "SRAM", -(-words // SRAM_WORDS))


def _tcam(table: str, entries: int, key: int, words: int) -> TableSize:
    blocks = -(-words // TCAM_WORDS) * -(-key // TCAM_BITS)
    return TableSize(table, entries, key, words, "TCAM", blocks)


# --- the baseline


def one_big_table(boxes: Iterable[Box], most: int) -> int | None:
    """Returns the entries of one table over all fields: one for each set of rules that one packet may
    match, as a switch takes one entry only. These are the boxes and all their intersections. None: more
    than `most`.
    """
    groups: dict[object, set[Box]] = defaultdict(set)
    listed = set(boxes)
    split = _splitting(listed)
    for box in listed:
        groups[dict(box).get(split) if split is not None else None].add(box)
    total = 0
    for group in groups.values():
        found = len(group) if _nested(group) else _closure(group, most - total)
        if found is None or total + found > most:
            return None
        total += found
    return total


def _splitting(boxes: set[Box]) -> int | None:
    """Returns an attribute by which boxes fall into groups that do not meet: each box allows one value."""
    common = set.intersection(*({a for a, b in box if _is_point(b)} for box in boxes)) if boxes else set()
    return min(common, default=None)


def _is_point(bounds: Bounds) -> bool:
    return len(bounds) == 2 and bounds[1] - bounds[0] == 1


def _nested(boxes: set[Box]) -> bool:
    """Returns whether boxes that differ in one attribute at most lie in one another: then none is added."""
    attributes = {tuple(attribute for attribute, _ in box) for box in boxes}
    if len(attributes) != 1:
        return False
    differing = [
        place for place in range(len(next(iter(attributes)))) if len({box[place] for box in boxes}) > 1
    ]
    if len(differing) > 1:
        return False
    chain = sorted((box[differing[0]][1] for box in boxes), key=lambda b: (b[0], -b[-1])) if differing else []
    if any(len(bounds) != 2 for bounds in chain):
        return False
    return all(inner[1] <= outer[1] for outer, inner in pairwise(chain))


def _closure(boxes: set[Box], most: int) -> int | None:
    found: set[Box] = set()
    for box in boxes:
        met = {one for other in found if (one := both(other, box)) is not None}
        found |= met
        found.add(box)
        if len(found) > most:
            return None
    return len(found)


def combinations(boxes: Iterable[Box], most: int) -> int | None:
    """Returns how many sets of boxes have a point in common: the baseline in the paper's words, "entries
    for all permutations of overlapping queries". None if boxes and intersections are more than `most`.
    """
    sets: dict[Box, int] = {}
    for box in boxes:
        added: dict[Box, int] = {box: 1}
        for other, count in sets.items():
            met = both(other, box)
            if met is not None:
                added[met] = added.get(met, 0) + count
        for met, count in added.items():
            sets[met] = sets.get(met, 0) + count
        if len(sets) > most:
            return None
    return sum(sets.values())
