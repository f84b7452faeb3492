"""TableEntry, DirectCounterEntry and DirectMeterEntry: entries, default entries and their counters and
meters.

The specification's sections 9.1, 9.3.1 and 9.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from finsy.proto import p4r
from msgspec.structs import replace

from treecast.middleware.dataplane.p4.runtime import (
    Action,
    CounterData,
    Entry,
    Matches,
    MeterConfig,
    MeterCounts,
)

from .actions import action_from, action_to
from .amounts import check_zero, colours_to, counter_from, counter_to, meter_from, meter_to
from .errors import Code, P4RuntimeError, invalid
from .matches import matches_from, matches_to
from .schema import Schema, Table
from .store import DELETE, INSERT, MODIFY, Store, Undo, nothing, only_modify

_NANOSECONDS = 1_000_000_000


class TableStore(Store[p4r.TableEntry]):
    """The entries of all tables."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.TableEntry, now: float) -> Undo:
        table = self.schema.tables.find(message.table_id)
        _check_resources(table, message)
        if message.is_default_action:
            return self._write_default(kind, table, message, now)
        matches, priority = key_of(table, message)
        if table.is_const and (kind != MODIFY or message.HasField("action")):
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"the entries of {table.name} are constant")
        held = self.control.table(table.name)
        if kind == INSERT:
            entry = entry_from(self.schema, table, message, key=(matches, priority))
            held.insert(entry, now)
            return partial(held.delete, matches, priority)
        old = held.entry(matches, priority, now)
        if kind == DELETE:
            counts = self._counts(table, matches, priority)
            held.delete(matches, priority)
            return partial(self._insert_again, table, old, now, counts)
        return self._modify(table, old, message, now)

    def _insert_again(self, table: Table, old: Entry, now: float, counts: MeterCounts) -> None:
        held = self.control.table(table.name)
        held.insert(old, now)
        if table.direct_meter:
            held.set_meter_counts(old.matches, counts, old.priority)

    def _modify(self, table: Table, old: Entry, message: p4r.TableEntry, now: float) -> Undo:
        """Modifies an entry. An omitted action or counter stays; an omitted meter returns to its default."""
        counter, meter = _counter(table, message), _meter(table, message)
        held = self.control.table(table.name)
        if not old.is_const:
            entry = entry_from(self.schema, table, message, old.action, (old.matches, old.priority))
            held.modify(entry, now)
        elif message.HasField("action"):
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"this entry of {table.name} is constant")
        elif counter is not None:
            held.set_counter(old.matches, counter, old.priority)
        counts = self._counts(table, old.matches, old.priority)
        if table.direct_meter:
            held.set_meter(old.matches, meter, old.priority)
        if message.HasField("meter_counter_data"):
            held.set_meter_counts(old.matches, MeterCounts(), old.priority)
        return partial(self._restore, table, old, now, counts)

    def _counts(self, table: Table, matches: Matches | None, priority: int) -> MeterCounts:
        """Returns the packets that the entry's meter has marked."""
        if not table.direct_meter:
            return MeterCounts()
        return self.control.table(table.name).meter_counts(matches, priority)

    def _restore(self, table: Table, old: Entry, now: float, counts: MeterCounts) -> None:
        held = self.control.table(table.name)
        if not old.is_const:
            held.modify(old, now)
        if table.direct_counter and old.counter is not None:
            held.set_counter(old.matches, old.counter, old.priority)
        if table.direct_meter:
            held.set_meter(old.matches, old.meter, old.priority)
            held.set_meter_counts(old.matches, counts, old.priority)

    # --- the default entry

    def _write_default(
        self, kind: p4r.Update.Type.ValueType, table: Table, message: p4r.TableEntry, now: float
    ) -> Undo:
        only_modify(kind, f"the default entry of {table.name}")
        if message.match or message.priority or message.idle_timeout_ns:
            raise invalid(f"the default entry of {table.name} has no match, priority or idle timeout")
        if message.metadata or message.controller_metadata:
            raise P4RuntimeError(Code.UNIMPLEMENTED, f"{table.name}: default entries carry no metadata")
        if table.const_default:
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"the default entry of {table.name} is constant")
        held = self.control.table(table.name)
        old = held.default()
        counter, meter = _counter(table, message), _meter(table, message)
        action: Action | None = None
        if message.HasField("action"):
            action = action_from(self.schema, table, message.action, default=True, what=table.name)
        counts = self._counts(table, None, 0)
        held.set_default(action)
        if counter is not None:
            held.set_counter(None, counter)
        if table.direct_meter:
            held.set_meter(None, meter)
        if message.HasField("meter_counter_data"):
            held.set_meter_counts(None, MeterCounts())
        return partial(self._restore_default, table, old, counts)

    def _restore_default(self, table: Table, old: Entry | None, counts: MeterCounts) -> None:
        held = self.control.table(table.name)
        held.set_default(None if old is None else old.action)
        if old is not None and old.counter is not None and table.direct_counter:
            held.set_counter(None, old.counter)
        if old is not None and table.direct_meter:
            held.set_meter(None, old.meter)
            held.set_meter_counts(None, counts)

    # --- reading

    def read(self, wanted: p4r.TableEntry, now: float) -> Iterator[p4r.Entity]:
        for table, entry in chosen(self, wanted, now):
            yield p4r.Entity(table_entry=self._message(table, entry, wanted))

    def _message(self, table: Table, entry: Entry, wanted: p4r.TableEntry) -> p4r.TableEntry:
        message = entry_to(self.schema, table, entry)
        message.is_default_action = wanted.is_default_action
        if wanted.HasField("counter_data") and table.direct_counter and entry.counter is not None:
            unit = self.schema.direct_counters.find(table.direct_counter).unit
            message.counter_data.CopyFrom(counter_to(entry.counter, unit))
        if wanted.HasField("meter_config") and entry.meter is not None:
            message.meter_config.CopyFrom(meter_to(entry.meter))
        if wanted.HasField("meter_counter_data") and table.direct_meter:
            matches = None if wanted.is_default_action else entry.matches
            counts = self._counts(table, matches, entry.priority)
            message.meter_counter_data.CopyFrom(colours_to(counts))
        if wanted.HasField("time_since_last_hit") and table.idles:
            message.time_since_last_hit.elapsed_ns = round((entry.idle or 0.0) * _NANOSECONDS)
        return message


def entry_from(
    schema: Schema,
    table: Table,
    message: p4r.TableEntry,
    old: Action | None = None,
    key: tuple[Matches, int] | None = None,
) -> Entry:
    """Returns the sent entry; `old` is its action if none is sent, `key` the result of `key_of`."""
    matches, priority = key or key_of(table, message)
    action = old
    if action is None or message.HasField("action"):
        action = action_from(schema, table, message.action, default=False, what=table.name)
    return Entry(
        matches,
        action,
        priority,
        message.metadata,
        message.controller_metadata,
        message.idle_timeout_ns / _NANOSECONDS,
        _counter(table, message),
        _meter(table, message),
    )


def entry_to(schema: Schema, table: Table, entry: Entry) -> p4r.TableEntry:
    """Returns the entry without its counters and meters."""
    return p4r.TableEntry(
        table_id=table.id,
        match=matches_to(table.fields, entry.matches),
        action=action_to(schema, entry.action),
        priority=entry.priority,
        metadata=entry.metadata,
        controller_metadata=entry.controller_metadata,
        idle_timeout_ns=round(entry.idle_timeout * _NANOSECONDS),
        is_const=entry.is_const,
    )


def key_of(table: Table, message: p4r.TableEntry) -> tuple[Matches, int]:
    """Returns the identity of an entry: its matches and its priority."""
    matches = matches_from(table.fields, message.match, table.name)
    if table.has_priority and message.priority <= 0:
        raise invalid(f"{table.name}: entries need a priority above 0")
    if not table.has_priority and message.priority:
        raise invalid(f"{table.name}: entries of exact and lpm tables have no priority")
    return matches, message.priority


def _counter(table: Table, message: p4r.TableEntry) -> CounterData | None:
    return counter_from(message.counter_data, table.name) if message.HasField("counter_data") else None


def _meter(table: Table, message: p4r.TableEntry) -> MeterConfig | None:
    return meter_from(message.meter_config, table.name) if message.HasField("meter_config") else None


def _check_resources(table: Table, message: p4r.TableEntry) -> None:
    """Refuses fields for features that the table lacks."""
    if message.HasField("counter_data") and not table.direct_counter:
        raise invalid(f"{table.name} has no direct counter")
    if message.HasField("meter_config") and not table.direct_meter:
        raise invalid(f"{table.name} has no direct meter")
    if message.HasField("time_since_last_hit"):
        raise invalid(f"{table.name}: time_since_last_hit cannot be written")
    if message.idle_timeout_ns < 0 or (message.idle_timeout_ns and not table.idles):
        raise invalid(f"{table.name} keeps no idle timeout")
    if message.HasField("meter_counter_data"):
        if not table.direct_meter:
            raise invalid(f"{table.name} has no direct meter")
        check_zero(message.meter_counter_data, table.name)


def chosen(
    store: Store[p4r.TableEntry] | Store[p4r.DirectCounterEntry] | Store[p4r.DirectMeterEntry],
    wanted: p4r.TableEntry,
    now: float,
) -> Iterator[tuple[Table, Entry]]:
    """Yields the entries that a filter lets through (9.1.5)."""
    for table in store.schema.tables.chosen(wanted.table_id):
        if wanted.table_id:
            _check_asked(table, wanted)
        held = store.control.table(table.name)
        if wanted.is_default_action:
            entries = iter((held.default(),))
        elif wanted.match:
            matches = matches_from(table.fields, wanted.match, table.name)
            entries = (one for one in held.entries(now) if one.matches == matches)
        else:
            entries = held.entries(now)
        for entry in entries:
            if not wanted.table_id or _passes(store.schema, wanted, entry):
                yield table, entry


def _check_asked(table: Table, wanted: p4r.TableEntry) -> None:
    if wanted.HasField("counter_data") and not table.direct_counter:
        raise invalid(f"{table.name} has no direct counter")
    asks_meter = wanted.HasField("meter_config") or wanted.HasField("meter_counter_data")
    if asks_meter and not table.direct_meter:
        raise invalid(f"{table.name} has no direct meter")
    if wanted.HasField("time_since_last_hit") and not table.idles:
        raise invalid(f"{table.name} keeps no idle timeout")


def _passes(schema: Schema, wanted: p4r.TableEntry, entry: Entry) -> bool:
    if wanted.priority and entry.priority != wanted.priority:
        return False
    if wanted.controller_metadata and entry.controller_metadata != wanted.controller_metadata:
        return False
    if wanted.metadata and entry.metadata != wanted.metadata:
        return False
    if not wanted.HasField("action"):
        return True
    if wanted.action.WhichOneof("type") != "action" or wanted.action.action.params:
        raise invalid("entries are filtered by an action's id only")
    return action_to(schema, entry.action).action.action_id == wanted.action.action.action_id


class DirectCounterStore(Store[p4r.DirectCounterEntry]):
    """The counters of entries."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.DirectCounterEntry, now: float) -> Undo:
        only_modify(kind, "a direct counter")
        table = self._table(message.table_entry)
        matches, priority = _key_or_default(table, message.table_entry)
        held = self.control.table(table.name)
        old = held.counter(matches, priority)
        if not message.HasField("data"):
            return nothing
        held.set_counter(matches, counter_from(message.data, table.name), priority)
        return partial(held.set_counter, matches, old, priority)

    def _table(self, entry: p4r.TableEntry) -> Table:
        table = self.schema.tables.find(entry.table_id)
        if not table.direct_counter:
            raise invalid(f"{table.name} has no direct counter")
        return table

    def read(self, wanted: p4r.DirectCounterEntry, now: float) -> Iterator[p4r.Entity]:
        if wanted.table_entry.table_id:
            self._table(wanted.table_entry)
        found = False
        for table, entry in chosen(self, wanted.table_entry, now):
            if table.direct_counter and entry.counter is not None:
                found = True
                unit = self.schema.direct_counters.find(table.direct_counter).unit
                message = p4r.DirectCounterEntry(data=counter_to(entry.counter, unit))
                message.table_entry.CopyFrom(_identity(self.schema, table, entry, wanted.table_entry))
                yield p4r.Entity(direct_counter_entry=message)
        _expect_found(found, wanted.table_entry)


class DirectMeterStore(Store[p4r.DirectMeterEntry]):
    """The meters of entries."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.DirectMeterEntry, now: float) -> Undo:
        only_modify(kind, "a direct meter")
        table = self._table(message.table_entry)
        matches, priority = _key_or_default(table, message.table_entry)
        held = self.control.table(table.name)
        old = held.meter(matches, priority)
        config = meter_from(message.config, table.name) if message.HasField("config") else None
        counts = held.meter_counts(matches, priority)
        if message.HasField("counter_data"):
            check_zero(message.counter_data, table.name)
            held.set_meter_counts(matches, MeterCounts(), priority)
        held.set_meter(matches, config, priority, now)
        return partial(self._restore, table, matches, priority, old, counts)

    def _restore(
        self,
        table: Table,
        matches: Matches | None,
        priority: int,
        old: MeterConfig | None,
        counts: MeterCounts,
    ) -> None:
        held = self.control.table(table.name)
        held.set_meter(matches, old, priority)
        held.set_meter_counts(matches, counts, priority)

    def _table(self, entry: p4r.TableEntry) -> Table:
        table = self.schema.tables.find(entry.table_id)
        if not table.direct_meter:
            raise invalid(f"{table.name} has no direct meter")
        return table

    def read(self, wanted: p4r.DirectMeterEntry, now: float) -> Iterator[p4r.Entity]:
        if wanted.table_entry.table_id:
            self._table(wanted.table_entry)
        found = False
        for table, entry in chosen(self, wanted.table_entry, now):
            if table.direct_meter:
                found = True
                message = p4r.DirectMeterEntry()
                if entry.meter is not None:
                    message.config.CopyFrom(meter_to(entry.meter))
                if wanted.HasField("counter_data"):
                    matches = None if wanted.table_entry.is_default_action else entry.matches
                    counts = self.control.table(table.name).meter_counts(matches, entry.priority)
                    message.counter_data.CopyFrom(colours_to(counts))
                message.table_entry.CopyFrom(_identity(self.schema, table, entry, wanted.table_entry))
                yield p4r.Entity(direct_meter_entry=message)
        _expect_found(found, wanted.table_entry)


def _key_or_default(table: Table, entry: p4r.TableEntry) -> tuple[Matches | None, int]:
    return (None, 0) if entry.is_default_action else key_of(table, entry)


def _identity(schema: Schema, table: Table, entry: Entry, wanted: p4r.TableEntry) -> p4r.TableEntry:
    """Returns the entry that a counter or meter belongs to, with its action."""
    message = entry_to(schema, table, replace(entry, metadata=b"", controller_metadata=0, idle_timeout=0.0))
    message.is_default_action = wanted.is_default_action
    message.is_const = False
    return message


def _expect_found(found: bool, wanted: p4r.TableEntry) -> None:
    """Raises NOT_FOUND if a named entry is missing."""
    if not found and wanted.match:
        raise P4RuntimeError(Code.NOT_FOUND, "there is no such entry")
