"""Transfers what control planes and packets have written from one switch to another with a newer program.

Objects correspond if they have the same name and kind. Content without a place in the newer program is
refused, by name, except counters, which do not affect forwarding. Direct counters, meters' configurations and
colours, and default actions set by a controller are transferred; idle times restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from .. import ir
from .control import Control
from .errors import ControlError, Problem
from .tables import TableState
from .values import CounterData, MeterCounts

_T = TypeVar("_T")


def carry_over(old: Control, before: ir.Program, new: Control, after: ir.Program, now: float) -> None:
    """Transfers to the fresh switch `new`. Raises ControlError for content without a place; discard `new`
    then.
    """
    _profiles(old, before, new)
    for group in old.replication.groups():
        new.replication.insert_group(group)
    for session in old.replication.sessions():
        new.replication.insert_session(session)
    for table in before.tables:
        _table(old, table, new, after, now)
    for extern in before.externs:
        _CELLS.get(extern.kind, _nothing)(old, extern, new, after)
    for value_set in before.value_sets:
        if members := old.value_set(value_set.name).members():
            new.value_set(value_set.name).set(members)
    for name, config in old.digest_configs().items():
        new.digest(name).insert(config)


def _profiles(old: Control, before: ir.Program, new: Control) -> None:
    for extern in before.externs:
        if extern.kind in ("action_profile", "action_selector"):
            for member in old.profile(extern.name).members():
                new.profile(extern.name).insert_member(member)
            for group in old.profile(extern.name).groups():
                new.profile(extern.name).insert_group(group)


def _table(old: Control, table: ir.Table, new: Control, after: ir.Program, now: float) -> None:
    before = old.table(table.name)
    newer = next((one for one in after.tables if one.name == table.name), None)
    entries = [entry for entry in before.entries(now) if not entry.is_const]
    if newer is None and not entries and not before.is_default_set():
        return
    made = new.table(table.name)  # refused: it has content without a place
    for entry in list(made.entries()):
        if not entry.is_const:  # the program begins with it: the controller may have changed it
            made.delete(entry.matches, entry.priority)
    for entry in entries:
        made.insert(entry if made.counted else replace(entry, counter=None), now)
        if before.metered and made.metered:
            counts = before.meter_counts(entry.matches, entry.priority)
            made.set_meter_counts(entry.matches, counts, entry.priority)
    if before.is_default_set():
        made.set_default(before.default().action)
    _default(before, made)


def _default(before: TableState, made: TableState) -> None:
    """Transfers the default entry's state."""
    if before.counted and made.counted:
        made.set_counter(None, before.counter(None))
    if before.metered and made.metered:
        made.set_meter(None, before.meter(None))
        made.set_meter_counts(None, before.meter_counts(None))


# --- cells


def _has(after: ir.Program, extern: ir.ExternInstance) -> bool:
    return any((one.name, one.kind) == (extern.name, extern.kind) for one in after.externs)


def _written(cells: list[_T], empty: _T) -> list[tuple[int, _T]]:
    return [(place, cell) for place, cell in enumerate(cells) if cell != empty]


def _counter(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    if _has(after, extern):
        cells = new.counter(extern.name)
        for place, data in _written(old.counter(extern.name).read_all()[: cells.size], CounterData()):
            cells.write(place, data)


def _meter(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    before = old.meter(extern.name)
    for place, config in _written(before.read_all(), None):
        new.meter(extern.name).write(place, config)
    if _has(after, extern):
        cells = new.meter(extern.name)
        for place in range(min(cells.size, before.size)):
            counts = before.counts(place)
            if counts != MeterCounts():
                cells.set_counts(place, counts)


def _register(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    written = _written(old.register(extern.name).read_all(), 0)
    if written and not _has(after, extern):
        raise ControlError(Problem.INVALID, f"the program has no register {extern.name}, which is written")
    for place, value in written:
        new.register(extern.name).write(place, value)


def _nothing(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    """Does nothing: direct objects go with their entries, profiles were transferred before."""


_CELLS: dict[str, Callable[[Control, ir.ExternInstance, Control, ir.Program], None]] = {
    "counter": _counter,
    "meter": _meter,
    "register": _register,
}
