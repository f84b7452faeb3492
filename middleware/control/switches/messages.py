"""Changes as P4Runtime updates, and read entities as a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from finsy.proto import p4i, p4r

from treecast.middleware.dataplane.p4 import (
    ActionCall,
    Entry,
    MemberEntry,
    Schema,
    Table,
    ValueSetMember,
    action_from,
    action_to,
    call_from,
    call_to,
    entry_from,
    entry_to,
    group_entry_from,
    group_entry_to,
    group_from,
    group_to,
    matches_from,
    matches_to,
    meter_from,
    meter_to,
    number_of,
    session_from,
    session_to,
    to_data,
)

from .difference import Change, Kind
from .state import SwitchState

_KINDS: Final = {
    Kind.INSERT: p4r.Update.INSERT,
    Kind.MODIFY: p4r.Update.MODIFY,
    Kind.DELETE: p4r.Update.DELETE,
}


def update_of(schema: Schema, change: Change) -> p4r.Update:
    """Returns one change as a message. Raises KeyError if the program has no such element."""
    return p4r.Update(type=_KINDS[change.kind], entity=_ENTITIES[change.field](schema, change))


def _entry(schema: Schema, change: Change) -> p4r.Entity:
    table = schema.tables.names[change.key.table]
    message = entry_to(schema, table, change.value)
    if change.value.meter is not None and change.kind is not Kind.DELETE:
        message.meter_config.CopyFrom(meter_to(change.value.meter))
    return p4r.Entity(table_entry=message)


def _default(schema: Schema, change: Change) -> p4r.Entity:
    table = schema.tables.names[change.key]
    message = p4r.TableEntry(table_id=table.id, is_default_action=True)
    if change.value is not None:
        message.action.CopyFrom(action_to(schema, change.value))
    return p4r.Entity(table_entry=message)


def _member(schema: Schema, change: Change) -> p4r.Entity:
    profile = schema.profiles.names[change.key[0]]
    message = p4r.ActionProfileMember(action_profile_id=profile.id, member_id=change.key[1])
    message.action.CopyFrom(call_to(schema, change.value.call))
    return p4r.Entity(action_profile_member=message)


def _selection(schema: Schema, change: Change) -> p4r.Entity:
    return p4r.Entity(action_profile_group=group_to(schema.profiles.names[change.key[0]], change.value))


def _group(schema: Schema, change: Change) -> p4r.Entity:
    message = p4r.PacketReplicationEngineEntry(multicast_group_entry=group_entry_to(change.value))
    return p4r.Entity(packet_replication_engine_entry=message)


def _session(schema: Schema, change: Change) -> p4r.Entity:
    message = p4r.PacketReplicationEngineEntry(clone_session_entry=session_to(change.value))
    return p4r.Entity(packet_replication_engine_entry=message)


def _value_set(schema: Schema, change: Change) -> p4r.Entity:
    found = schema.value_sets.names[change.key]
    message = p4r.ValueSetEntry(value_set_id=found.id)
    for member in change.value or ():
        message.members.add(match=matches_to(found.fields, member.matches))
    return p4r.Entity(value_set_entry=message)


def _register(schema: Schema, change: Change) -> p4r.Entity:
    register = schema.registers.names[change.key[0]]
    data = to_data(register.type, schema.info.type_info, iter([change.value or 0]))
    message = p4r.RegisterEntry(register_id=register.id, data=data)
    message.index.index = change.key[1]
    return p4r.Entity(register_entry=message)


def _meter(schema: Schema, change: Change) -> p4r.Entity:
    message = p4r.MeterEntry(meter_id=schema.meters.names[change.key[0]].id)
    message.index.index = change.key[1]
    if change.value is not None:
        message.config.CopyFrom(meter_to(change.value))
    return p4r.Entity(meter_entry=message)


_ENTITIES: Final[dict[str, Callable[[Schema, Change], p4r.Entity]]] = {
    "entries": _entry,
    "defaults": _default,
    "members": _member,
    "selections": _selection,
    "groups": _group,
    "sessions": _session,
    "value_sets": _value_set,
    "registers": _register,
    "meters": _meter,
}


def filters_for(schema: Schema, wanted: SwitchState) -> list[p4r.Entity]:
    """Returns read filters for everything in a `SwitchState`; of cells only the wanted ones."""
    filters = [p4r.Entity() for _ in range(5)]
    filters[0].action_profile_member.SetInParent()
    filters[1].action_profile_group.SetInParent()
    filters[2].packet_replication_engine_entry.multicast_group_entry.SetInParent()
    filters[3].packet_replication_engine_entry.clone_session_entry.SetInParent()
    filters[4].value_set_entry.SetInParent()
    if not schema.profiles:
        del filters[:2]
    if not schema.value_sets:
        filters.pop()
    for table in schema.tables.values():
        filters.extend(_table_filters(table))
    for name, index in wanted.registers:
        register = p4r.RegisterEntry(register_id=schema.registers.names[name].id)
        register.index.index = index
        filters.append(p4r.Entity(register_entry=register))
    for name, index in wanted.meters:
        meter = p4r.MeterEntry(meter_id=schema.meters.names[name].id)
        meter.index.index = index
        filters.append(p4r.Entity(meter_entry=meter))
    return filters


def _table_filters(table: Table) -> Iterable[p4r.Entity]:
    entries = p4r.TableEntry(table_id=table.id)
    if table.direct_meter:
        entries.meter_config.SetInParent()
    yield p4r.Entity(table_entry=entries)
    if not table.const_default and not table.profile:
        yield p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id, is_default_action=True))


def state_of(schema: Schema, entities: Iterable[p4r.Entity]) -> SwitchState:
    """Returns the state in these entities. Raises ValueError for an element that the program does not
    have.
    """
    reading = _Reading(schema)
    for entity in entities:
        which = entity.WhichOneof("entity") or "nothing"
        reader = getattr(reading, which, None)
        if reader is None:
            raise ValueError(f"the switch answered with a {which}, which was not asked for")
        reader(getattr(entity, which))
    return SwitchState.of(**reading.found)


class _Reading:
    """A reader with a method for each kind of entity; they fill the arguments of `SwitchState.of`."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.found: dict[str, Any] = {
            "entries": [],
            "defaults": {},
            "members": [],
            "selections": [],
            "groups": [],
            "sessions": [],
            "value_sets": {},
            "registers": {},
            "meters": {},
        }

    def table_entry(self, message: p4r.TableEntry) -> None:
        table = self._schema.tables.find(message.table_id)
        if message.is_default_action:
            self._default(table, message)
        elif not message.is_const and not table.is_const:
            entry: Entry = entry_from(self._schema, table, message)
            self.found["entries"].append((table.name, entry))

    def _default(self, table: Table, message: p4r.TableEntry) -> None:
        """Records the default action if it differs from the program's own."""
        action = action_from(self._schema, table, message.action, default=True, what=table.name)
        if isinstance(action, ActionCall) and action != self._initial(table):
            self.found["defaults"][table.name] = action

    def _initial(self, table: Table) -> ActionCall | None:
        declared = next(one for one in self._schema.info.tables if one.preamble.id == table.id)
        call: p4i.TableActionCall = declared.initial_default_action
        if not call.action_id:
            return ActionCall("NoAction")
        action = self._schema.actions.find(call.action_id)
        arguments = {
            action.params[one.param_id].name: int.from_bytes(one.value, "big") for one in call.arguments
        }
        return ActionCall(action.name, arguments)

    def action_profile_member(self, message: p4r.ActionProfileMember) -> None:
        profile = self._schema.profiles.find(message.action_profile_id)
        call = call_from(self._schema, message.action, profile.name)
        self.found["members"].append((profile.name, MemberEntry(message.member_id, call)))

    def action_profile_group(self, message: p4r.ActionProfileGroup) -> None:
        profile = self._schema.profiles.find(message.action_profile_id)
        self.found["selections"].append((profile.name, group_from(profile, message)))

    def packet_replication_engine_entry(self, message: p4r.PacketReplicationEngineEntry) -> None:
        if message.HasField("multicast_group_entry"):
            self.found["groups"].append(group_entry_from(message.multicast_group_entry))
        else:
            self.found["sessions"].append(session_from(message.clone_session_entry))

    def value_set_entry(self, message: p4r.ValueSetEntry) -> None:
        found = self._schema.value_sets.find(message.value_set_id)
        members = [ValueSetMember(matches_from(found.fields, m.match, found.name)) for m in message.members]
        if members:
            self.found["value_sets"][found.name] = members

    def register_entry(self, message: p4r.RegisterEntry) -> None:
        register = self._schema.registers.find(message.register_id)
        value = number_of(register.type, self._schema.info.type_info, message.data, register.name)
        self.found["registers"][register.name, message.index.index] = value

    def meter_entry(self, message: p4r.MeterEntry) -> None:
        if message.HasField("config"):
            name = self._schema.meters.find(message.meter_id).name
            self.found["meters"][name, message.index.index] = meter_from(message.config, name)


def counter_filters(schema: Schema, name: str, cells: Iterable[int]) -> list[p4r.Entity]:
    """Returns read filters for cells of a counter. Raises KeyError if the program has none of this name."""
    filters = []
    for cell in cells:
        entry = p4r.CounterEntry(counter_id=schema.counters.names[name].id)
        entry.index.index = cell
        filters.append(p4r.Entity(counter_entry=entry))
    return filters


def counted(entities: Iterable[p4r.Entity]) -> dict[int, tuple[int, int]]:
    """Returns packets and bytes by cell."""
    found = {}
    for entity in entities:
        entry = entity.counter_entry
        found[entry.index.index] = entry.data.packet_count, entry.data.byte_count
    return found
