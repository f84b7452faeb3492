"""Writes and reads of every kind of entity through gRPC, and their effects on packets."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.proto import p4d, p4r
from tests.unit.p4.p4runtime.planes import (
    SCHEMA,
    Plane,
    Refused,
    Served,
    delete,
    exact,
    insert,
    lpm,
    modify,
    number,
)
from tests.unit.p4.p4runtime.programs import ethernet

FAR = 0x020000000002


def _table(entity: p4r.Entity) -> p4r.TableEntry:
    return entity.table_entry


# --- tables


async def test_an_entry_lives_and_is_read_as_it_was_written(plane: Plane, switch: Served) -> None:
    entry = plane.entry("prefix_table", lpm(0x020000000000, 24), action="forward", port=3)
    entry.metadata, entry.controller_metadata = b"mine", 7
    await plane.write(insert(table_entry=entry))
    assert [out.port for out in switch.receive(0, ethernet(FAR))] == [3]
    assert [
        _table(one)
        for one in await plane.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=entry.table_id)))
    ] == [entry]
    entry.action.action.params[0].value = number(4)
    await plane.write(modify(table_entry=entry))
    assert [out.port for out in switch.receive(0, ethernet(FAR))] == [4]
    await plane.write(delete(table_entry=plane.entry("prefix_table", lpm(0x020000000000, 24))))
    assert switch.receive(0, ethernet(FAR)) == []
    assert await plane.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=entry.table_id))) == []


async def test_default_entries(plane: Plane, switch: Served) -> None:
    default = plane.entry("prefix_table", action="forward", port=2)
    default.is_default_action = True
    await plane.write(modify(table_entry=default))
    assert [out.port for out in switch.receive(0, ethernet(FAR))] == [2]
    wanted = p4r.TableEntry(table_id=default.table_id, is_default_action=True)
    (found,) = await plane.read(p4r.Entity(table_entry=wanted))
    assert found.table_entry == default
    await plane.write(modify(table_entry=wanted))
    assert switch.receive(0, ethernet(FAR)) == []
    with pytest.raises(Refused) as caught:
        await plane.write(insert(table_entry=default))
    assert caught.value.codes == [3]


async def test_ternary_optional_and_range(plane: Plane) -> None:
    matches = [
        p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=number(0x0800), mask=number(0xFF00))),
        p4r.FieldMatch(field_id=2, optional=p4r.FieldMatch.Optional(value=number(5))),
        p4r.FieldMatch(field_id=3, range=p4r.FieldMatch.Range(low=number(1), high=number(4))),
    ]
    entry = plane.entry("ternary_table", *matches, action="learn", priority=10)
    other = plane.entry("ternary_table", action="NoAction", priority=11)
    await plane.write(insert(table_entry=entry), insert(table_entry=other))
    wanted = p4r.TableEntry(table_id=entry.table_id)
    assert {one.table_entry.priority for one in await plane.read(p4r.Entity(table_entry=wanted))} == {10, 11}
    wanted.priority = 10
    assert [_table(one) for one in await plane.read(p4r.Entity(table_entry=wanted))] == [entry]
    wanted = p4r.TableEntry(table_id=entry.table_id, match=matches)
    assert [_table(one) for one in await plane.read(p4r.Entity(table_entry=wanted))] == [entry]
    wanted = p4r.TableEntry(table_id=entry.table_id)
    wanted.action.action.action_id = other.action.action.action_id
    assert [_table(one) for one in await plane.read(p4r.Entity(table_entry=wanted))] == [other]


async def test_constant_entries(plane: Plane, switch: Served) -> None:
    table = SCHEMA.tables.names["MyIngress.fixed_table"]
    (found,) = await plane.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id)))
    assert found.table_entry.is_const
    entry = plane.entry("fixed_table", exact(7), action="drop")
    for update in (insert(table_entry=entry), delete(table_entry=plane.entry("fixed_table", exact(0xDEAD)))):
        with pytest.raises(Refused) as caught:
            await plane.write(update)
        assert caught.value.codes == [7]


async def test_direct_counters(plane: Plane, switch: Served) -> None:
    entry = plane.entry("exact_table", exact(FAR), action="counted", port=1)
    await plane.write(insert(table_entry=entry))
    switch.receive(0, ethernet(FAR))
    switch.receive(0, ethernet(FAR))
    key = plane.entry("exact_table", exact(FAR))
    (found,) = await plane.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key)))
    assert (found.direct_counter_entry.data.packet_count, found.direct_counter_entry.data.byte_count) == (
        2,
        0,
    )
    change = p4r.DirectCounterEntry(table_entry=key, data=p4r.CounterData(packet_count=40))
    await plane.write(modify(direct_counter_entry=change))
    key.counter_data.SetInParent()
    (found,) = await plane.read(p4r.Entity(table_entry=key))
    assert found.table_entry.counter_data.packet_count == 40
    missing = p4r.DirectCounterEntry(table_entry=plane.entry("exact_table", exact(99)))
    with pytest.raises(Refused) as caught:
        await plane.read(p4r.Entity(direct_counter_entry=missing))
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


async def test_direct_meters(plane: Plane) -> None:
    entry = plane.entry("ternary_table", action="metered", priority=1)
    config = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    entry.meter_config.CopyFrom(config)
    await plane.write(insert(table_entry=entry))
    key = p4r.TableEntry(table_id=entry.table_id, priority=1)
    (found,) = await plane.read(p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=key)))
    assert found.direct_meter_entry.config == config
    entry.ClearField("meter_config")
    await plane.write(modify(table_entry=entry))
    (found,) = await plane.read(p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=key)))
    assert not found.direct_meter_entry.HasField("config")


# --- arrays


async def test_counters(plane: Plane, switch: Served) -> None:
    counter = SCHEMA.counters.names["MyIngress.per_port"]
    switch.receive(3, ethernet(FAR))
    found = await plane.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter.id)))
    counts = {one.counter_entry.index.index: one.counter_entry.data.packet_count for one in found}
    assert counts == {**dict.fromkeys(range(8), 0), 3: 1}
    one = p4r.CounterEntry(
        counter_id=counter.id, index=p4r.Index(index=5), data=p4r.CounterData(byte_count=9)
    )
    await plane.write(modify(counter_entry=one))
    one.ClearField("data")
    (read,) = await plane.read(p4r.Entity(counter_entry=one))
    assert read.counter_entry.data.byte_count == 9
    assert len(await plane.read(p4r.Entity(counter_entry=p4r.CounterEntry()))) == 8


async def test_registers(plane: Plane, switch: Served) -> None:
    register = SCHEMA.registers.names["MyIngress.cells"]
    switch.receive(6, ethernet(FAR))
    cell = p4r.RegisterEntry(register_id=register.id, index=p4r.Index(index=0))
    (read,) = await plane.read(p4r.Entity(register_entry=cell))
    assert read.register_entry.data.bitstring == b"\x06"
    every = p4r.RegisterEntry(register_id=register.id, data=p4d.P4Data(bitstring=number(0x01020304)))
    await plane.write(modify(register_entry=every))
    found = await plane.read(p4r.Entity(register_entry=p4r.RegisterEntry()))
    assert {one.register_entry.data.bitstring for one in found} == {b"\x01\x02\x03\x04"}
    assert len(found) == 16


async def test_meters(plane: Plane) -> None:
    meter = SCHEMA.meters.names["MyIngress.limits"]
    config = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    entry = p4r.MeterEntry(meter_id=meter.id, index=p4r.Index(index=2), config=config)
    await plane.write(modify(meter_entry=entry))
    found = await plane.read(p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=meter.id)))
    assert [one.meter_entry.HasField("config") for one in found] == [False, False, True, False]
    assert found[2].meter_entry == entry


# --- profiles, groups, sessions, sets


async def test_members_and_groups(plane: Plane, switch: Served) -> None:
    spread = SCHEMA.profiles.names["MyIngress.spread"]
    members = [
        p4r.ActionProfileMember(
            action_profile_id=spread.id, member_id=n, action=plane.action("forward", port=n)
        )
        for n in (1, 2)
    ]
    await plane.write(*(insert(action_profile_member=member) for member in members))
    group = p4r.ActionProfileGroup(action_profile_id=spread.id, group_id=5)
    for n in (1, 2):
        group.members.add(member_id=n, weight=n)
    await plane.write(insert(action_profile_group=group))
    entry = plane.entry("selector_table", exact(0x0800))
    entry.action.action_profile_group_id = 5
    await plane.write(insert(table_entry=entry))
    assert switch.receive(0, ethernet(FAR))[0].port in (1, 2)
    found = await plane.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember()))
    assert [one.action_profile_member for one in found] == members
    (read,) = await plane.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup()))
    assert read.action_profile_group == group
    (row,) = await plane.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=entry.table_id)))
    assert row.table_entry == entry
    with pytest.raises(Refused) as caught:
        await plane.write(delete(action_profile_group=group))
    assert caught.value.codes == [9]


async def test_one_shot(plane: Plane, switch: Served) -> None:
    entry = plane.entry("selector_table", exact(0x0800))
    actions = entry.action.action_profile_action_set.action_profile_actions
    actions.add(action=plane.action("forward", port=7), weight=1)
    await plane.write(insert(table_entry=entry))
    assert [out.port for out in switch.receive(0, ethernet(FAR))] == [7]
    (row,) = await plane.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=entry.table_id)))
    assert row.table_entry == entry


def _pre(**fields: Any) -> p4r.PacketReplicationEngineEntry:
    return p4r.PacketReplicationEngineEntry(**fields)


async def test_multicast_groups_and_clone_sessions(plane: Plane, switch: Served) -> None:
    replicas = [p4r.Replica(port=number(1), instance=1), p4r.Replica(port=number(2), instance=1)]
    group = p4r.MulticastGroupEntry(multicast_group_id=9, replicas=replicas, metadata=b"m")
    session = p4r.CloneSessionEntry(session_id=4, replicas=replicas[:1], packet_length_bytes=14)
    await plane.write(
        insert(packet_replication_engine_entry=_pre(multicast_group_entry=group)),
        insert(packet_replication_engine_entry=_pre(clone_session_entry=session)),
        insert(table_entry=plane.entry("prefix_table", lpm(FAR, 48), action="multicast", group=9)),
    )
    assert sorted(out.port for out in switch.receive(0, ethernet(FAR))) == [1, 2]
    wanted = p4r.Entity(packet_replication_engine_entry=_pre(multicast_group_entry=p4r.MulticastGroupEntry()))
    (read,) = await plane.read(wanted)
    assert read.packet_replication_engine_entry.multicast_group_entry == group
    wanted = p4r.Entity(packet_replication_engine_entry=_pre(clone_session_entry=p4r.CloneSessionEntry()))
    (read,) = await plane.read(wanted)
    assert read.packet_replication_engine_entry.clone_session_entry == session
    for change in (group, session):
        del change.replicas[:]
    await plane.write(
        modify(packet_replication_engine_entry=_pre(multicast_group_entry=group)),
        delete(packet_replication_engine_entry=_pre(clone_session_entry=session)),
    )
    assert switch.receive(0, ethernet(FAR)) == []
    assert await plane.read(wanted) == []


async def test_value_sets(plane: Plane) -> None:
    found = next(iter(SCHEMA.value_sets.values()))
    entry = p4r.ValueSetEntry(value_set_id=found.id)
    for kind in (0x22F3, 0x893B):
        entry.members.add(match=[exact(kind)])
    await plane.write(modify(value_set_entry=entry))
    (read,) = await plane.read(p4r.Entity(value_set_entry=p4r.ValueSetEntry()))
    assert read.value_set_entry == entry
    entry.members.add(match=[exact(0x22F3)])
    with pytest.raises(Refused) as caught:
        await plane.write(modify(value_set_entry=entry))
    assert caught.value.codes == [6]


# --- batches


async def test_each_update_of_a_batch_has_its_own_answer(plane: Plane) -> None:
    good = plane.entry("exact_table", exact(1), action="drop")
    unknown = p4r.TableEntry(table_id=0x02FFFFFF)
    with pytest.raises(Refused) as caught:
        await plane.write(
            insert(table_entry=good),
            insert(table_entry=good),
            insert(table_entry=unknown),
            delete(table_entry=plane.entry("exact_table", exact(2))),
            insert(),
        )
    assert caught.value.code is grpc.StatusCode.UNKNOWN
    assert caught.value.codes == [0, 6, 5, 5, 3]
    assert len(await plane.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=good.table_id)))) == 1


async def test_a_full_table(plane: Plane) -> None:
    entries = [plane.entry("exact_table", exact(n), action="drop") for n in range(6)]
    with pytest.raises(Refused) as caught:
        await plane.write(*(insert(table_entry=entry) for entry in entries))
    assert caught.value.codes == [0, 0, 0, 0, 8, 8]


@pytest.mark.parametrize("atomicity", [p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC])
async def test_a_batch_is_rolled_back(plane: Plane, atomicity: Any) -> None:
    register, counter = (
        SCHEMA.registers.names["MyIngress.cells"],
        SCHEMA.counters.names["MyIngress.per_port"],
    )
    old = plane.entry("exact_table", exact(1), action="counted", port=1)
    group = p4r.MulticastGroupEntry(multicast_group_id=3)
    await plane.write(
        insert(table_entry=old), insert(packet_replication_engine_entry=_pre(multicast_group_entry=group))
    )
    everything = [p4r.Entity(table_entry=p4r.TableEntry()), p4r.Entity(register_entry=p4r.RegisterEntry())]
    everything.append(p4r.Entity(counter_entry=p4r.CounterEntry()))
    everything.append(
        p4r.Entity(packet_replication_engine_entry=_pre(multicast_group_entry=p4r.MulticastGroupEntry()))
    )
    before = await plane.read(*everything)
    changed = plane.entry("exact_table", exact(1), action="drop")
    cells = p4r.RegisterEntry(register_id=register.id, data=p4d.P4Data(bitstring=b"\x09"))
    counts = p4r.CounterEntry(counter_id=counter.id, data=p4r.CounterData(packet_count=5))
    with pytest.raises(Refused) as caught:
        await plane.write(
            modify(table_entry=changed),
            insert(table_entry=plane.entry("exact_table", exact(2), action="drop")),
            modify(register_entry=cells),
            modify(counter_entry=counts),
            delete(packet_replication_engine_entry=_pre(multicast_group_entry=group)),
            delete(table_entry=old),
            delete(table_entry=plane.entry("exact_table", exact(77))),
            insert(table_entry=plane.entry("exact_table", exact(3), action="drop")),
            atomicity=atomicity,
        )
    assert caught.value.codes == [10, 10, 10, 10, 10, 10, 5, 10]
    assert await plane.read(*everything) == before


# --- what is refused


def _wrong(plane: Plane) -> list[tuple[p4r.Update, int]]:
    ternary = p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=b"\x01", mask=b"\x00"))
    outside = p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=b"\x03", mask=b"\x01"))
    backward = p4r.FieldMatch(field_id=3, range=p4r.FieldMatch.Range(low=b"\x05", high=b"\x01"))
    meter = SCHEMA.meters.names["MyIngress.limits"].id
    register = SCHEMA.registers.names["MyIngress.cells"].id
    wide = plane.entry("exact_table", exact(1), action="counted", port=512)
    extra = plane.entry("exact_table", exact(1), action="drop")
    extra.action.action.params.add(param_id=1, value=b"\x01")
    without = plane.entry("exact_table", exact(1))
    foreign = plane.entry("exact_table", exact(1), action="forward", port=1)
    default_only = plane.entry("exact_table", exact(1), action="NoAction")
    member = plane.entry("profile_table", exact(1))
    member.action.action_profile_member_id = 4
    direct = plane.entry("profile_table", exact(1), action="forward", port=1)
    idle = plane.entry("prefix_table", lpm(FAR, 48), action="drop")
    idle.idle_timeout_ns = 5
    counted = plane.entry("prefix_table", lpm(FAR, 48), action="drop")
    counted.counter_data.packet_count = 1
    low = p4r.MeterEntry(meter_id=meter, index=p4r.Index(index=0), config=p4r.MeterConfig(cir=5, pir=1))
    return [
        (insert(table_entry=plane.entry("exact_table", action="drop")), 3),
        (insert(table_entry=plane.entry("exact_table", exact(1), exact(2), action="drop")), 3),
        (insert(table_entry=plane.entry("exact_table", exact(1, field=9), action="drop")), 3),
        (insert(table_entry=plane.entry("exact_table", exact(1 << 48), action="drop")), 11),
        (insert(table_entry=plane.entry("exact_table", lpm(0, 8), action="drop")), 3),
        (insert(table_entry=plane.entry("exact_table", exact(1), action="drop", priority=1)), 3),
        (insert(table_entry=plane.entry("prefix_table", lpm(1, 8), action="drop")), 3),
        (insert(table_entry=plane.entry("prefix_table", lpm(0, 0), action="drop")), 3),
        (insert(table_entry=plane.entry("prefix_table", lpm(0, 49), action="drop")), 3),
        (insert(table_entry=plane.entry("ternary_table", action="learn")), 3),
        (insert(table_entry=plane.entry("ternary_table", ternary, action="learn", priority=1)), 3),
        (insert(table_entry=plane.entry("ternary_table", outside, action="learn", priority=1)), 3),
        (insert(table_entry=plane.entry("ternary_table", backward, action="learn", priority=1)), 3),
        (insert(table_entry=wide), 11),
        (insert(table_entry=extra), 3),
        (insert(table_entry=without), 3),
        (insert(table_entry=foreign), 3),
        (insert(table_entry=default_only), 7),
        (insert(table_entry=member), 5),
        (insert(table_entry=direct), 3),
        (insert(table_entry=idle), 3),
        (insert(table_entry=counted), 3),
        (modify(table_entry=plane.entry("exact_table", exact(8), action="drop")), 5),
        (modify(counter_entry=p4r.CounterEntry(counter_id=1)), 5),
        (modify(meter_entry=p4r.MeterEntry(meter_id=meter, index=p4r.Index(index=4))), 11),
        (modify(meter_entry=p4r.MeterEntry(meter_id=meter, index=p4r.Index(index=-1))), 3),
        (modify(meter_entry=low), 3),
        (insert(meter_entry=p4r.MeterEntry(meter_id=meter)), 3),
        (modify(register_entry=p4r.RegisterEntry(register_id=register, data=p4d.P4Data(bool=True))), 3),
        (
            modify(
                register_entry=p4r.RegisterEntry(
                    register_id=register, data=p4d.P4Data(bitstring=bytes([1] * 5))
                )
            ),
            11,
        ),
        (insert(packet_replication_engine_entry=_pre(multicast_group_entry=p4r.MulticastGroupEntry())), 3),
        (insert(packet_replication_engine_entry=_pre(clone_session_entry=p4r.CloneSessionEntry())), 3),
        (
            delete(
                packet_replication_engine_entry=_pre(clone_session_entry=p4r.CloneSessionEntry(session_id=3))
            ),
            5,
        ),
        (insert(packet_replication_engine_entry=_pre()), 3),
        (insert(extern_entry=p4r.ExternEntry(extern_id=1)), 12),
        (p4r.Update(entity=p4r.Entity(table_entry=extra)), 3),
    ]


async def test_wrong_updates_change_nothing(plane: Plane) -> None:
    updates = _wrong(plane)
    everything = p4r.Entity(table_entry=p4r.TableEntry())
    before = await plane.read(everything)
    with pytest.raises(Refused) as caught:
        await plane.write(*(update for update, _ in updates))
    got = [(detail.canonical_code, detail.message) for detail in caught.value.details]
    wanted = [code for _, code in updates]
    assert [code for code, _ in got] == wanted, [
        (str(update), code, answer)
        for (update, code), answer in zip(updates, got, strict=True)
        if code != answer[0]
    ]
    assert await plane.read(everything) == before


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (p4r.Entity(), grpc.StatusCode.INVALID_ARGUMENT),
        (p4r.Entity(table_entry=p4r.TableEntry(table_id=7)), grpc.StatusCode.NOT_FOUND),
        (p4r.Entity(extern_entry=p4r.ExternEntry()), grpc.StatusCode.UNIMPLEMENTED),
        (
            p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry()),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=1)), grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_wrong_reads_are_refused(plane: Plane, wanted: p4r.Entity, code: grpc.StatusCode) -> None:
    with pytest.raises(Refused) as caught:
        await plane.read(wanted)
    assert caught.value.code is code
