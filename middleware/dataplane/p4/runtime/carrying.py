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
from .values import CounterData, MeterCounts

_T = TypeVar("_T")


def carry_over(old: Control, before: ir.Program, new: Control, after: ir.Program, now: float) -> None:
    """Transfers to the fresh switch `new`. Raises ControlError for content without a place; discard `new`
    then.
    """
    _profiles(old, before, new)
    for group in old.multicast_groups():
        new.insert_multicast_group(group)
    for session in old.clone_sessions():
        new.insert_clone_session(session)
    for table in before.tables:
        _table(old, table, new, after, now)
    for extern in before.externs:
        _CELLS.get(extern.kind, _nothing)(old, extern, new, after)
    for value_set in before.value_sets:
        if members := old.value_set(value_set.name):
            new.set_value_set(value_set.name, members)
    for name, config in old.digest_configs().items():
        new.insert_digest(name, config)


def _profiles(old: Control, before: ir.Program, new: Control) -> None:
    for extern in before.externs:
        if extern.kind in ("action_profile", "action_selector"):
            for member in old.members(extern.name):
                new.insert_member(extern.name, member)
            for group in old.groups(extern.name):
                new.insert_group(extern.name, group)


def _table(old: Control, table: ir.Table, new: Control, after: ir.Program, now: float) -> None:
    name = table.name
    newer = next((one for one in after.tables if one.name == name), None)
    entries = [entry for entry in old.entries(name, now) if not entry.is_const]
    if newer is None and not entries and not old.is_default_set(name):
        return
    own = [] if newer is None else [one for one in new.entries(name) if not one.is_const]
    for entry in own:  # those that the program begins with: the controller may have changed them
        new.delete(name, entry.matches, entry.priority)
    for entry in entries:
        counted = newer is not None and newer.counters is not None
        new.insert(name, entry if counted else replace(entry, counter=None), now)
        if table.meters is not None and newer is not None and newer.meters is not None:
            counts = old.direct_meter_counts(name, entry.matches, entry.priority)
            new.set_direct_meter_counts(name, entry.matches, counts, entry.priority)
    if old.is_default_set(name):
        new.set_default(name, old.default(name).action, now)
    if newer is not None:
        _default(old, table, new, newer)


def _default(old: Control, table: ir.Table, new: Control, newer: ir.Table) -> None:
    """Transfers the default entry's state."""
    if table.counters is not None and newer.counters is not None:
        new.set_direct_counter(table.name, None, old.direct_counter(table.name, None))
    if table.meters is not None and newer.meters is not None:
        new.set_direct_meter(table.name, None, old.direct_meter(table.name, None))
        new.set_direct_meter_counts(table.name, None, old.direct_meter_counts(table.name, None))


# --- cells


def _has(after: ir.Program, extern: ir.ExternInstance) -> bool:
    return any((one.name, one.kind) == (extern.name, extern.kind) for one in after.externs)


def _written(cells: list[_T], empty: _T) -> list[tuple[int, _T]]:
    return [(place, cell) for place, cell in enumerate(cells) if cell != empty]


def _counter(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    if _has(after, extern):
        size = len(new.counters(extern.name))
        for place, data in _written(old.counters(extern.name)[:size], CounterData()):
            new.set_counter(extern.name, place, data)


def _meter(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    for place, config in _written(old.meters(extern.name), None):
        new.set_meter(extern.name, place, config)
    if _has(after, extern):
        size = len(new.meters(extern.name))
        for place in range(min(size, len(old.meters(extern.name)))):
            counts = old.meter_counts(extern.name, place)
            if counts != MeterCounts():
                new.set_meter_counts(extern.name, place, counts)


def _register(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    written = _written(old.registers(extern.name), 0)
    if written and not _has(after, extern):
        raise ControlError(Problem.INVALID, f"the program has no register {extern.name}, which is written")
    for place, value in written:
        new.set_register(extern.name, place, value)


def _nothing(old: Control, extern: ir.ExternInstance, new: Control, after: ir.Program) -> None:
    """Does nothing: direct objects go with their entries, profiles were transferred before."""


_CELLS: dict[str, Callable[[Control, ir.ExternInstance, Control, ir.Program], None]] = {
    "counter": _counter,
    "meter": _meter,
    "register": _register,
}
