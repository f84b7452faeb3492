"""Any update ends with a canonical code, and a batch that is rolled back leaves nothing."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4d, p4r
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.p4.p4runtime.planes import SCHEMA
from tests.unit.p4.p4runtime.programs import KITCHEN, ethernet

from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.p4runtime.entities import Entities
from treecast.middleware.dataplane.p4.p4runtime.errors import Code, P4RuntimeError
from treecast.middleware.dataplane.p4.p4runtime.schema import MatchKind
from treecast.middleware.dataplane.p4.runtime import Switch

PROGRAM = bundle.load(KITCHEN.encode())
_SMALL = st.integers(-1, 12)
_UINT = st.integers(0, 4)
_BYTES = st.sampled_from([b"", b"\x00", b"\x01", b"\x05", b"\x00\x07", b"\x01\xfe", b"\xff" * 7])


def _ids(kindred: Any) -> st.SearchStrategy[int]:
    return st.sampled_from([*kindred, *kindred, *kindred, 0, 3])


def _message(kind: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draws a message with these fields, or sometimes with only some of them."""
    whole, some = st.fixed_dictionaries(fields), st.fixed_dictionaries({}, optional=fields)
    return st.one_of(whole, whole, whole, some).map(lambda given: kind(**given))


_FIELD_MATCH = st.one_of(
    _message(p4r.FieldMatch, field_id=_UINT, exact=_message(p4r.FieldMatch.Exact, value=_BYTES)),
    _message(
        p4r.FieldMatch, field_id=_UINT, lpm=_message(p4r.FieldMatch.LPM, value=_BYTES, prefix_len=_SMALL)
    ),
    _message(
        p4r.FieldMatch, field_id=_UINT, ternary=_message(p4r.FieldMatch.Ternary, value=_BYTES, mask=_BYTES)
    ),
    _message(p4r.FieldMatch, field_id=_UINT, range=_message(p4r.FieldMatch.Range, low=_BYTES, high=_BYTES)),
    _message(p4r.FieldMatch, field_id=_UINT, optional=_message(p4r.FieldMatch.Optional, value=_BYTES)),
)
_PARAMS = st.lists(_message(p4r.Action.Param, param_id=_UINT, value=_BYTES), max_size=2)
_ACTION = _message(p4r.Action, action_id=_ids(SCHEMA.actions), params=_PARAMS)


@st.composite
def _right_action(draw: st.DrawFn, ids: tuple[int, ...]) -> p4r.Action:
    """Draws an action with its own parameters."""
    action = SCHEMA.actions.find(draw(st.sampled_from(ids)))
    message = p4r.Action(action_id=action.id)
    for number in action.params:
        message.params.add(param_id=number, value=draw(_UINT).to_bytes(1, "big"))
    return message


@st.composite
def _right_entry(draw: st.DrawFn) -> p4r.TableEntry:
    """Draws an entry that fits its table, apart from its references."""
    table = draw(st.sampled_from(list(SCHEMA.tables.values())))
    message = p4r.TableEntry(table_id=table.id, priority=draw(st.integers(1, 3)) if table.has_priority else 0)
    for field in table.fields.values():
        value = draw(_UINT).to_bytes(1, "big")
        kinds = {
            MatchKind.EXACT: {"exact": p4r.FieldMatch.Exact(value=value)},
            MatchKind.LPM: {"lpm": p4r.FieldMatch.LPM(value=value, prefix_len=field.width)},
            MatchKind.TERNARY: {"ternary": p4r.FieldMatch.Ternary(value=value, mask=b"\xff")},
            MatchKind.RANGE: {"range": p4r.FieldMatch.Range(low=value, high=b"\x07")},
            MatchKind.OPTIONAL: {"optional": p4r.FieldMatch.Optional(value=value)},
        }
        if field.kind is MatchKind.EXACT or draw(st.booleans()):
            message.match.add(field_id=field.id, **kinds[field.kind])
    if table.profile:
        message.action.action_profile_member_id = draw(_UINT)
    else:
        message.action.action.CopyFrom(draw(_right_action(tuple(table.scopes))))
    if table.direct_meter and draw(st.booleans()):
        message.meter_config.CopyFrom(p4r.MeterConfig(cir=1, pir=2))
    return message


_CHOICES = st.lists(
    _message(p4r.ActionProfileAction, action=_ACTION, weight=_SMALL, watch_port=_BYTES), max_size=2
)
_TABLE_ACTION = st.one_of(
    _message(p4r.TableAction, action=_ACTION),
    _message(p4r.TableAction, action_profile_member_id=_UINT),
    _message(p4r.TableAction, action_profile_group_id=_UINT),
    _message(
        p4r.TableAction,
        action_profile_action_set=_message(p4r.ActionProfileActionSet, action_profile_actions=_CHOICES),
    ),
)
_METER = _message(p4r.MeterConfig, cir=_SMALL, cburst=_SMALL, pir=_SMALL, pburst=_SMALL, eburst=_SMALL)
_COUNTER = _message(p4r.CounterData, packet_count=_SMALL, byte_count=_SMALL)
_INDEX = _message(p4r.Index, index=_SMALL)
_TABLE_ENTRY = _message(
    p4r.TableEntry,
    table_id=_ids(SCHEMA.tables),
    match=st.lists(_FIELD_MATCH, max_size=3),
    action=_TABLE_ACTION,
    priority=_SMALL,
    meter_config=_METER,
    counter_data=_COUNTER,
    is_default_action=st.booleans(),
    idle_timeout_ns=_SMALL,
    metadata=_BYTES,
)
_REPLICAS = st.lists(_message(p4r.Replica, port=_BYTES, instance=st.integers(0, 1 << 17)), max_size=3)
_ENTITY = st.one_of(
    _message(p4r.Entity, table_entry=_TABLE_ENTRY),
    _message(p4r.Entity, table_entry=_right_entry()),
    _message(p4r.Entity, table_entry=_right_entry()),
    _message(
        p4r.Entity,
        direct_counter_entry=_message(p4r.DirectCounterEntry, table_entry=_TABLE_ENTRY, data=_COUNTER),
    ),
    _message(
        p4r.Entity, direct_meter_entry=_message(p4r.DirectMeterEntry, table_entry=_TABLE_ENTRY, config=_METER)
    ),
    _message(
        p4r.Entity,
        action_profile_member=_message(
            p4r.ActionProfileMember, action_profile_id=_ids(SCHEMA.profiles), member_id=_UINT, action=_ACTION
        ),
    ),
    _message(
        p4r.Entity,
        action_profile_member=_message(
            p4r.ActionProfileMember,
            action_profile_id=_ids(SCHEMA.profiles),
            member_id=_UINT,
            action=_right_action(tuple(sorted(next(iter(SCHEMA.profiles.values())).actions))),
        ),
    ),
    _message(
        p4r.Entity,
        action_profile_group=_message(
            p4r.ActionProfileGroup,
            action_profile_id=_ids(SCHEMA.profiles),
            group_id=_UINT,
            max_size=st.integers(-1, 40),
            members=st.lists(
                _message(p4r.ActionProfileGroup.Member, member_id=_UINT, weight=_SMALL), max_size=3
            ),
        ),
    ),
    _message(
        p4r.Entity,
        counter_entry=_message(
            p4r.CounterEntry, counter_id=_ids(SCHEMA.counters), index=_INDEX, data=_COUNTER
        ),
    ),
    _message(
        p4r.Entity,
        meter_entry=_message(p4r.MeterEntry, meter_id=_ids(SCHEMA.meters), index=_INDEX, config=_METER),
    ),
    _message(
        p4r.Entity,
        register_entry=_message(
            p4r.RegisterEntry,
            register_id=_ids(SCHEMA.registers),
            index=_INDEX,
            data=_message(p4d.P4Data, bitstring=_BYTES) | _message(p4d.P4Data, bool=st.booleans()),
        ),
    ),
    _message(
        p4r.Entity,
        packet_replication_engine_entry=_message(
            p4r.PacketReplicationEngineEntry,
            multicast_group_entry=_message(
                p4r.MulticastGroupEntry, multicast_group_id=_UINT, replicas=_REPLICAS, metadata=_BYTES
            ),
        ),
    ),
    _message(
        p4r.Entity,
        packet_replication_engine_entry=_message(
            p4r.PacketReplicationEngineEntry,
            clone_session_entry=_message(
                p4r.CloneSessionEntry,
                session_id=st.integers(0, 1 << 17),
                replicas=_REPLICAS,
                class_of_service=_UINT,
                packet_length_bytes=_SMALL,
            ),
        ),
    ),
    _message(
        p4r.Entity,
        value_set_entry=_message(
            p4r.ValueSetEntry,
            value_set_id=_ids(SCHEMA.value_sets),
            members=st.lists(
                _message(p4r.ValueSetMember, match=st.lists(_FIELD_MATCH, max_size=2)), max_size=6
            ),
        ),
    ),
    _message(
        p4r.Entity,
        digest_entry=_message(
            p4r.DigestEntry,
            digest_id=_ids(SCHEMA.digests),
            config=_message(
                p4r.DigestEntry.Config, max_timeout_ns=_SMALL, max_list_size=_SMALL, ack_timeout_ns=_SMALL
            ),
        ),
    ),
)
_UPDATE = _message(p4r.Update, type=st.sampled_from([1, 1, 1, 1, 2, 3, 0]), entity=_ENTITY)
EVERYTHING = [
    p4r.Entity(table_entry=p4r.TableEntry()),
    p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
    p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
    p4r.Entity(counter_entry=p4r.CounterEntry()),
    p4r.Entity(meter_entry=p4r.MeterEntry()),
    p4r.Entity(register_entry=p4r.RegisterEntry()),
    p4r.Entity(value_set_entry=p4r.ValueSetEntry()),
    p4r.Entity(digest_entry=p4r.DigestEntry()),
    p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry()),
    p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry()),
    *(
        p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(**{field: message}))
        for field, message in (
            ("multicast_group_entry", p4r.MulticastGroupEntry()),
            ("clone_session_entry", p4r.CloneSessionEntry()),
        )
    ),
    *(
        p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id, is_default_action=True))
        for table in SCHEMA.tables.values()
    ),
]


def _state(entities: Entities) -> list[bytes]:
    """Returns everything that can be read, in a fixed order, as a rollback may reorder entries."""
    return sorted(one.SerializeToString(deterministic=True) for one in entities.read(EVERYTHING, 0.0))


@settings(max_examples=80)
@given(st.lists(_UPDATE, max_size=12), st.lists(_UPDATE, max_size=6))
def test_every_update_has_an_outcome(first: list[p4r.Update], second: list[p4r.Update]) -> None:
    switch = Switch(PROGRAM, ports=range(8), interpret=True)
    entities = Entities(SCHEMA, switch.control)
    outcomes = entities.write(first, p4r.WriteRequest.CONTINUE_ON_ERROR, 0.0)
    assert len(outcomes) == len(first)
    assert all(outcome.code is not Code.INTERNAL for outcome in outcomes)
    before = _state(entities)
    outcomes = entities.write(second, p4r.WriteRequest.ROLLBACK_ON_ERROR, 0.0)
    if any(outcome.code is not Code.OK for outcome in outcomes):
        assert _state(entities) == before
    switch.receive(1, ethernet(1), 1.0)


@settings(max_examples=40)
@given(st.lists(_ENTITY, max_size=4), st.lists(_UPDATE, max_size=8))
def test_every_filter_is_answered_or_refused(wanted: list[p4r.Entity], updates: list[p4r.Update]) -> None:
    switch = Switch(PROGRAM, ports=range(8), interpret=True)
    entities = Entities(SCHEMA, switch.control)
    entities.write(updates, p4r.WriteRequest.CONTINUE_ON_ERROR, 0.0)
    for filter_ in wanted:
        try:
            found = list(entities.read([filter_], 0.0))
        except P4RuntimeError:
            continue
        assert all(isinstance(one, p4r.Entity) for one in found)
