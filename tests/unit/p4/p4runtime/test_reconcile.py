"""RECONCILE_AND_COMMIT sets another program and keeps the entries, or changes nothing."""

from __future__ import annotations

import grpc
import pytest
from finsy.proto import p4d, p4r
from tests.unit.p4.p4runtime.planes import Plane, Refused, Served, exact, insert, lpm, modify
from tests.unit.p4.p4runtime.programs import KITCHEN, ethernet

FAR = 0x020000000002
RECONCILE = p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT
NEWER = KITCHEN.replace(
    "register<bit<32>>(16) cells;", "register<bit<32>>(32) cells; register<bit<8>>(1) added;"
)
LESS = KITCHEN.replace(
    "{ forward; multicast; mirror; to_controller; drop; NoAction; }", "{ drop; NoAction; }"
)


async def written(plane: Plane) -> None:
    """Writes an entity of every kind."""
    default = plane.entry("profile_table", action="forward", port=6)
    default.is_default_action = True
    counted = plane.entry("exact_table", exact(1), action="counted", port=2)
    counted.counter_data.packet_count = 7
    spread = plane.schema.profiles.names["MyIngress.spread"].id
    shared = plane.schema.profiles.names["MyIngress.shared"].id
    member = p4r.ActionProfileMember(member_id=1, action=plane.action("forward", port=5))
    group = p4r.ActionProfileGroup(action_profile_id=spread, group_id=9)
    group.members.add(member_id=1, weight=1)
    chosen = plane.entry("selector_table", exact(0x0800))
    chosen.action.action_profile_group_id = 9
    tree = p4r.MulticastGroupEntry(multicast_group_id=4, replicas=[p4r.Replica(port=b"\1", instance=0)])
    cells = plane.schema.registers.names["MyIngress.cells"].id
    limits = plane.schema.meters.names["MyIngress.limits"].id
    special = plane.schema.value_sets.names["MyParser.special"].id
    value = p4r.ValueSetEntry(value_set_id=special)
    value.members.add().match.append(exact(0x1234))
    await plane.write(
        insert(table_entry=plane.entry("prefix_table", lpm(FAR, 48), action="forward", port=3)),
        modify(table_entry=default),
        insert(table_entry=counted),
        *(
            insert(action_profile_member=p4r.ActionProfileMember(**_of(member, profile)))
            for profile in (spread, shared)
        ),
        insert(action_profile_group=group),
        insert(table_entry=chosen),
        insert(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=tree)),
        modify(
            register_entry=p4r.RegisterEntry(
                register_id=cells, index=p4r.Index(index=3), data=p4d.P4Data(bitstring=b"\x2a")
            )
        ),
        modify(
            meter_entry=p4r.MeterEntry(
                meter_id=limits,
                index=p4r.Index(index=1),
                config=p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4),
            )
        ),
        modify(value_set_entry=value),
    )


def _of(member: p4r.ActionProfileMember, profile: int) -> dict[str, object]:
    return {"action_profile_id": profile, "member_id": member.member_id, "action": member.action}


def everything() -> list[p4r.Entity]:
    """Returns filters for everything that `written` has written."""
    counted = p4r.TableEntry()
    counted.counter_data.SetInParent()
    counted.meter_config.SetInParent()
    groups = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    return [
        p4r.Entity(table_entry=counted),
        p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
        p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
        p4r.Entity(packet_replication_engine_entry=groups),
        p4r.Entity(meter_entry=p4r.MeterEntry()),
        p4r.Entity(counter_entry=p4r.CounterEntry()),
        p4r.Entity(value_set_entry=p4r.ValueSetEntry()),
    ]


async def test_all_that_was_written_stays(plane: Plane, switch: Served) -> None:
    await written(plane)
    assert [out.port for out in switch.receive(3, ethernet(FAR, kind=0x86DD))] == [6]
    before = await plane.read(*everything())
    await plane.set_pipeline(NEWER.encode(), action=RECONCILE)
    assert await plane.read(*everything()) == before
    cells = plane.schema.registers.names["MyIngress.cells"].id
    found = await plane.read(p4r.Entity(register_entry=p4r.RegisterEntry(register_id=cells)))
    values = [int.from_bytes(one.register_entry.data.bitstring, "big") for one in found]
    assert values == [3, 0, 0, 42] + [0] * 28
    assert [out.port for out in switch.receive(3, ethernet(FAR, kind=0x86DD))] == [6]
    assert switch.device.active is not None
    assert "added" in str(switch.device.active.program.externs)


async def test_what_has_no_place_is_named_and_nothing_changes(plane: Plane, switch: Served) -> None:
    await written(plane)
    before = await plane.read(*everything())
    active = switch.device.active
    with pytest.raises(Refused, match="forward") as caught:
        await plane.set_pipeline(LESS.encode(), action=RECONCILE)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert switch.device.active is active
    assert await plane.read(*everything()) == before


async def test_without_a_pipeline_it_is_the_first(planes: object, switch: Served) -> None:
    plane = planes()  # type: ignore[operator]
    await plane.arbitrate()
    await plane.heard()
    await plane.set_pipeline(action=RECONCILE)
    await plane.write(insert(table_entry=plane.entry("prefix_table", lpm(FAR, 48), action="forward", port=3)))
    assert [out.port for out in switch.receive(0, ethernet(FAR))] == [3]


async def test_colours_of_meters_stay(plane: Plane, switch: Served) -> None:
    await plane.write(
        insert(table_entry=plane.entry("ternary_table", action="metered", priority=1)),
    )
    for _ in range(3):
        switch.receive(0, ethernet(FAR))
    await plane.set_pipeline(NEWER.encode(), action=RECONCILE)
    wanted = p4r.TableEntry()
    wanted.meter_counter_data.SetInParent()
    found = await plane.read(p4r.Entity(table_entry=wanted))
    marked = {one.table_entry.table_id: one.table_entry.meter_counter_data for one in found}
    assert marked[plane.schema.tables.names["MyIngress.ternary_table"].id].green.packet_count == 3
