"""The endpoint, call by call: arbitration, pipelines, streams, and refusals."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.proto import p4r
from tests.unit.p4.p4runtime.planes import (
    SCHEMA,
    Plane,
    Refused,
    Served,
    exact,
    insert,
    lpm,
    number,
    until,
)
from tests.unit.p4.p4runtime.programs import KITCHEN, ethernet

from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.bundle import Bundle
from treecast.middleware.dataplane.p4.p4info import build_p4info, parse_text
from treecast.middleware.dataplane.p4runtime.device_config import unwrapped

_Code = grpc.StatusCode
_Request = p4r.SetForwardingPipelineConfigRequest
FAR = 0x020000000002


# --- arbitration


async def test_the_second_controller_is_backup_until_it_bids_higher(planes: Any) -> None:
    one, two = planes(), planes()
    await one.arbitrate(5)
    assert (await one.heard()).arbitration.status.code == 0
    await two.arbitrate(3)
    told = (await two.heard()).arbitration
    assert (told.status.code, told.election_id.low) == (6, 5)
    await two.arbitrate(7)
    assert (await two.heard()).arbitration.status.code == 0
    told = (await one.heard()).arbitration
    assert (told.status.code, told.election_id.low) == (6, 7)
    with pytest.raises(Refused) as caught:
        await one.set_pipeline()
    assert caught.value.code is _Code.PERMISSION_DENIED
    await two.set_pipeline()


async def test_when_the_primary_goes_backups_are_told(planes: Any) -> None:
    one, two = planes(), planes()
    await one.arbitrate(5)
    await one.heard()
    await two.arbitrate(3)
    await two.heard()
    await one.stream.done_writing()
    told = (await two.heard()).arbitration
    assert (told.status.code, told.election_id.low) == (5, 5)
    with pytest.raises(Refused) as caught:
        await two.set_pipeline()
    assert caught.value.code is _Code.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"device_id": 9}, None, _Code.NOT_FOUND),
        ({}, {"device_id": 9}, _Code.NOT_FOUND),
        ({}, {"role": "other"}, _Code.FAILED_PRECONDITION),
    ],
)
async def test_wrong_arbitration_ends_the_stream(
    planes: Any, first: dict[str, Any], second: dict[str, Any] | None, code: grpc.StatusCode
) -> None:
    plane = planes()
    await plane.arbitrate(1, **first)
    if second is not None:
        await plane.heard()
        await plane.arbitrate(2, **second)
    with pytest.raises(Refused) as caught:
        await plane.heard()
    assert caught.value.code is code


async def test_an_election_id_in_use_ends_the_stream(planes: Any) -> None:
    one, two = planes(), planes()
    await one.arbitrate(5)
    await one.heard()
    await two.arbitrate(5)
    with pytest.raises(Refused, match="election id 5 exists") as caught:
        await two.heard()
    assert caught.value.code is _Code.INVALID_ARGUMENT


# --- pipelines


async def test_before_a_pipeline_nothing_is_written_or_read(planes: Any) -> None:
    plane: Plane = planes()
    await plane.arbitrate()
    await plane.heard()
    with pytest.raises(Refused, match="no forwarding pipeline config") as caught:
        await plane.write(insert(table_entry=p4r.TableEntry(table_id=1)))
    assert caught.value.code is _Code.FAILED_PRECONDITION
    with pytest.raises(Refused) as caught:
        await plane.read(p4r.Entity(table_entry=p4r.TableEntry()))
    assert caught.value.code is _Code.FAILED_PRECONDITION
    response = await plane.call(
        "GetForwardingPipelineConfig", p4r.GetForwardingPipelineConfigRequest(device_id=1)
    )
    assert not response.HasField("config")


async def test_the_pipeline_is_given_back(plane: Plane) -> None:
    request = _Request(device_id=1, action=_Request.VERIFY_AND_COMMIT)
    request.election_id.low = 1
    request.config.p4_device_config = KITCHEN.encode()
    request.config.p4info.CopyFrom(SCHEMA.info)
    request.config.cookie.cookie = 77
    await plane.call("SetForwardingPipelineConfig", request)
    kinds = p4r.GetForwardingPipelineConfigRequest
    whole = await plane.call("GetForwardingPipelineConfig", kinds(device_id=1))
    assert whole.config == request.config
    cookie = await plane.call(
        "GetForwardingPipelineConfig", kinds(device_id=1, response_type=kinds.COOKIE_ONLY)
    )
    assert [field.name for field, _ in cookie.config.ListFields()] == ["cookie"]
    assert cookie.config.cookie.cookie == 77


def length_delimited(tag: int, data: bytes) -> bytes:
    """Returns a field of a message, as protobuf writes it."""
    size, out = len(data), bytearray([tag])
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size]) + data


@pytest.mark.parametrize(
    "before", [b"", b"\x08\x01", b"\x08\x00\x12\x02{}"], ids=["data", "reassign", "extras"]
)
async def test_a_wrapped_device_config_is_unwrapped(plane: Plane, switch: Served, before: bytes) -> None:
    """Controllers made for bmv2's first server send it inside p4.tmp.P4DeviceConfig."""
    await plane.set_pipeline(source=before + length_delimited(0x1A, KITCHEN.encode()))
    await plane.write(insert(table_entry=plane.entry("prefix_table", lpm(0, 1), action="forward", port=3)))
    assert [out.port for out in switch.receive(0, ethernet(FAR))] == [3]


@pytest.mark.parametrize(
    "data",
    [b"", b"\x1a", b"\x1a\x05abc", b"\x08", b"\x08\x01", b"\x1a\xff\xff\xff\xff", b"control c", b"\x22\x00"],
)
def test_what_is_no_wrapped_config_stays_as_it_is(data: bytes) -> None:
    assert unwrapped(data) == data


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"source": b""}, _Code.INVALID_ARGUMENT, "it is empty"),
        ({"source": b"control ("}, _Code.INVALID_ARGUMENT, "program.p4:1:9"),
        ({"source": b"\xff\xfe\x00"}, _Code.INVALID_ARGUMENT, "neither P4 source"),
        ({"source": b'{"program": "bmv2"}'}, _Code.INVALID_ARGUMENT, "bmv2's JSON cannot be run"),
        ({"device_id": 3}, _Code.NOT_FOUND, "no device 3"),
        ({"role": "unheard"}, _Code.NOT_FOUND, "no role 'unheard'"),
        ({"action": _Request.UNSPECIFIED}, _Code.INVALID_ARGUMENT, "action is missing"),
        ({"action": _Request.COMMIT}, _Code.INVALID_ARGUMENT, "takes no config"),
    ],
)
async def test_pipelines_that_are_refused(
    plane: Plane, fields: dict[str, Any], code: grpc.StatusCode, text: str
) -> None:
    with pytest.raises(Refused, match=text) as caught:
        await plane.set_pipeline(**fields)
    assert caught.value.code is code


async def test_p4info_of_another_program_is_refused(plane: Plane) -> None:
    request = _Request(device_id=1, action=_Request.VERIFY)
    request.election_id.low = 1
    request.config.p4_device_config = KITCHEN.encode()
    request.config.p4info.CopyFrom(parse_text('tables { preamble { id: 33554433 name: "other" } }'))
    with pytest.raises(Refused, match="the program has no table other") as caught:
        await plane.call("SetForwardingPipelineConfig", request)
    assert caught.value.code is _Code.INVALID_ARGUMENT


async def test_save_and_commit(plane: Plane, switch: Served) -> None:
    """Writes go to the saved pipeline at once; packets pass it only after the commit."""
    await plane.set_pipeline(action=_Request.VERIFY_AND_SAVE)
    await plane.write(insert(table_entry=plane.entry("prefix_table", lpm(0, 1), action="forward", port=3)))
    assert switch.receive(0, ethernet(FAR)) == []
    commit = _Request(device_id=1, action=_Request.COMMIT)
    commit.election_id.low = 1
    await plane.call("SetForwardingPipelineConfig", commit)
    assert [out.port for out in switch.receive(0, ethernet(FAR))] == [3]
    with pytest.raises(Refused) as caught:
        await plane.call("SetForwardingPipelineConfig", commit)
    assert caught.value.code is _Code.NOT_FOUND


async def test_a_program_of_several_files(plane: Plane) -> None:
    head, mark, rest = KITCHEN.partition("header ethernet_t")
    files = {
        "main/kitchen.p4": head + '#include "headers.p4"\n' + rest.split(";  }", 1)[-1],
        "headers.p4": "",
    }
    body = rest.split("}", 1)
    files["main/kitchen.p4"] = head + '#include "headers.p4"\n' + body[1]
    files["main/headers.p4"] = mark + body[0] + "}\n"
    config = Bundle("main/kitchen.p4", files).encode()
    await plane.set_pipeline(config)
    assert build_p4info(bundle.load(config)) == SCHEMA.info


async def test_capabilities(plane: Plane) -> None:
    response = await plane.call("Capabilities", p4r.CapabilitiesRequest())
    assert response.p4runtime_api_version.split(".")[0] == "1"


# --- packets, digests, stream errors


async def test_packets_to_and_from_the_controller(plane: Plane, switch: Served) -> None:
    await plane.write(
        insert(table_entry=plane.entry("prefix_table", lpm(FAR, 48), action="to_controller")),
    )
    assert switch.receive(5, ethernet(FAR, payload=b"hello")) == []
    found = (await plane.heard()).packet
    assert found.payload == ethernet(FAR, payload=b"hello")
    assert {one.metadata_id: one.value for one in found.metadata} == {1: b"\x05", 2: b"\x00"}
    out = p4r.PacketOut(payload=ethernet(1))
    out.metadata.add(metadata_id=1, value=number(6))
    out.metadata.add(metadata_id=2, value=number(0))
    await plane.send(p4r.StreamMessageRequest(packet=out))
    await until(lambda: switch.sent)
    assert [(one.port, one.packet) for one in switch.sent] == [(6, ethernet(1))]


async def test_a_wrong_packet_out_is_answered(plane: Plane) -> None:
    await plane.send(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x")))
    error = (await plane.heard()).error
    assert error.canonical_code == 3
    assert error.packet_out.packet_out.payload == b"x"


async def test_backups_may_not_send(plane: Plane, planes: Any) -> None:
    other: Plane = planes()
    await other.arbitrate(0)
    assert (await other.heard()).arbitration.status.code == 6
    await other.send(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x")))
    assert (await other.heard()).error.canonical_code == 7


async def test_digests_are_sent_and_acknowledged(plane: Plane, switch: Served) -> None:
    digest = next(iter(SCHEMA.digests.values()))
    config = p4r.DigestEntry.Config(max_timeout_ns=0, max_list_size=1, ack_timeout_ns=10**12)
    ternary = plane.entry("ternary_table", action="learn", priority=1)
    await plane.write(
        insert(digest_entry=p4r.DigestEntry(digest_id=digest.id, config=config)), insert(table_entry=ternary)
    )
    switch.receive(4, ethernet(FAR, src=0x0200000000AA))
    found = (await plane.heard()).digest
    assert found.digest_id == digest.id
    (data,) = found.data
    assert [member.bitstring for member in data.struct.members] == [number(0x0200000000AA), b"\x04"]
    ack = p4r.DigestListAck(digest_id=digest.id, list_id=found.list_id)
    await plane.send(p4r.StreamMessageRequest(digest_ack=ack))
    await plane.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=5)))
    error = (await plane.heard()).error
    assert (error.canonical_code, error.WhichOneof("details")) == (3, "digest_list_ack")


async def test_idle_entries_are_told(plane: Plane, switch: Served) -> None:
    entry = plane.entry("exact_table", exact(FAR), action="drop")
    entry.idle_timeout_ns = 2 * 10**9
    await plane.write(insert(table_entry=entry))
    switch.now += 3
    (found,) = (await plane.heard()).idle_timeout_notification.table_entry
    assert found.table_id == entry.table_id
    assert list(found.match) == list(entry.match)
    assert found.idle_timeout_ns == entry.idle_timeout_ns


async def test_a_slow_controller_loses_packets_and_nothing_else(plane: Plane, switch: Served) -> None:
    await plane.write(insert(table_entry=plane.entry("prefix_table", lpm(FAR, 48), action="to_controller")))
    frame = ethernet(FAR, payload=bytes(1400))
    for _ in range(80):
        switch.server.receive([(1, frame)] * 100)
    assert switch.server.counters.packet_ins == 8000
    assert switch.server.counters.dropped > 0
    assert (await plane.heard()).HasField("packet")
    await plane.read(p4r.Entity(table_entry=p4r.TableEntry()))
