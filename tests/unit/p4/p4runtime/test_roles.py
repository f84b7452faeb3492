"""Role configurations in Stratum's form: what a role may write, read, receive and configure."""

from __future__ import annotations

from typing import Any

import finsy as fy
import grpc
import pytest
from finsy.proto import p4r, stratum
from tests.unit.p4.p4runtime.planes import SCHEMA, Plane, Refused, Served, insert, lpm
from tests.unit.p4.p4runtime.programs import ethernet

FAR = 0x020000000002
PREFIX = SCHEMA.tables.names["MyIngress.prefix_table"].id
TERNARY = SCHEMA.tables.names["MyIngress.ternary_table"].id
PORT = 1  # the first field of packet_in


async def join(plane: Plane, role: str, election_id: int = 1, **config: Any) -> p4r.MasterArbitrationUpdate:
    """Joins as a controller of a role with a configuration; returns the notification."""
    if plane.stream is None:
        plane.stream = plane.stub.StreamChannel()
    update = p4r.MasterArbitrationUpdate(device_id=1)
    update.election_id.low = plane.election_id = election_id
    update.role.name = role
    update.role.config.Pack(stratum.P4RoleConfig(**config))
    await plane.send(p4r.StreamMessageRequest(arbitration=update))
    return (await plane.heard()).arbitration


async def write_as(plane: Plane, role: str, *updates: p4r.Update) -> None:
    request = p4r.WriteRequest(device_id=1, role=role, updates=updates)
    request.election_id.low = plane.election_id
    await plane.call("Write", request)


def entry(plane: Plane, port: int = 3) -> p4r.Update:
    return insert(table_entry=plane.entry("prefix_table", lpm(FAR, 48), action="forward", port=port))


async def test_a_role_writes_and_sees_what_it_lists(plane: Plane, planes: Any) -> None:
    routes = planes()
    told = await join(routes, "routes", shared_p4_ids=[PREFIX])
    assert told.status.code == 0
    sent = stratum.P4RoleConfig()
    assert told.role.config.Unpack(sent)
    assert list(sent.shared_p4_ids) == [PREFIX]
    await write_as(routes, "routes", entry(routes))
    other = insert(table_entry=plane.entry("ternary_table", action="learn", priority=1))
    with pytest.raises(Refused, match="may not write table_entry") as caught:
        await write_as(routes, "routes", other)
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
    await plane.write(other)  # the role without a name may do everything
    for role, seen in (("routes", {PREFIX}), ("", {PREFIX, TERNARY})):
        request = p4r.ReadRequest(device_id=1, role=role, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        found = [one async for response in routes.stub.Read(request) for one in response.entities]
        assert {one.table_entry.table_id for one in found if not one.table_entry.is_const} == seen


async def test_only_a_role_that_says_so_sets_pipelines(plane: Plane, planes: Any) -> None:
    for role, may in (("one", False), ("two", True)):
        controller = planes()
        await join(controller, role, can_push_pipeline=may)
        if may:
            await controller.set_pipeline(role=role)
            continue
        with pytest.raises(Refused, match="may not set pipelines") as caught:
            await controller.set_pipeline(role=role)
        assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_packets_go_to_roles_that_want_them(plane: Plane, planes: Any, switch: Served) -> None:
    deaf, all_, some = planes(), planes(), planes()
    await join(deaf, "deaf")
    await join(all_, "all", receives_packet_ins=True)
    chosen = stratum.P4RoleConfig.PacketFilter(metadata_id=PORT, value=b"\2")
    await join(some, "some", receives_packet_ins=True, packet_in_filter=chosen)
    await plane.write(
        insert(table_entry=plane.entry("prefix_table", lpm(FAR, 48), action="to_controller")),
    )
    for port in (1, 2):
        switch.receive(port, ethernet(FAR, payload=bytes([port])))
    assert [(await all_.heard()).packet.payload[-1] for _ in range(2)] == [1, 2]
    assert (await some.heard()).packet.payload[-1] == 2
    assert (await plane.heard()).packet.payload[-1] == 1
    told = await join(deaf, "deaf", 2)  # its next message is the reply to this
    assert told.status.code == 0


@pytest.mark.parametrize("what", ["another form", "cut", "without a name", "taken"])
async def test_configurations_that_are_refused(planes: Any, what: str) -> None:
    first, second = planes(), planes()
    await join(first, "first", exclusive_p4_ids=[PREFIX])
    update = p4r.MasterArbitrationUpdate(device_id=1)
    update.role.name = "" if what == "without a name" else "second"
    update.role.config.Pack(stratum.P4RoleConfig(shared_p4_ids=[PREFIX]))
    if what == "another form":
        update.role.config.Pack(p4r.Uint128(low=1))
    elif what == "cut":
        update.role.config.value = b"\x0a"
    second.stream = second.stub.StreamChannel()
    await second.send(p4r.StreamMessageRequest(arbitration=update))
    with pytest.raises(Refused) as caught:
        await second.heard()
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_finsys_switch_in_a_role(switch: Served, plane: Plane, tmp_path: Any) -> None:
    config = stratum.P4RoleConfig(exclusive_p4_ids=[PREFIX], receives_packet_ins=True)
    options = fy.SwitchOptions(role_name="routes", role_config=config)
    forward = fy.P4TableEntry(
        "prefix_table",
        match=fy.P4TableMatch({"hdr.ethernet.dst": (FAR, 48)}),
        action=fy.P4TableAction("forward", port=3),
    )
    async with fy.Switch("s", switch.address, options) as client:
        assert client.is_primary
        await client.insert([forward])
        assert [out.port for out in switch.receive(0, ethernet(FAR))] == [3]
        with pytest.raises(fy.P4ClientError, match="PERMISSION_DENIED"):
            await client.insert(
                [fy.P4TableEntry("ternary_table", priority=1, action=fy.P4TableAction("learn"))]
            )
