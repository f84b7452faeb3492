"""Translated types (control planes use strings where the switch has numbers), and hidden or translated header
fields."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.proto import p4r
from tests.unit.p4.p4runtime.planes import Plane, Refused, Served, insert

from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.p4info import build_p4info
from treecast.middleware.dataplane.p4.p4runtime.errors import P4RuntimeError
from treecast.middleware.dataplane.p4.p4runtime.names import Names
from treecast.middleware.dataplane.p4.p4runtime.schema import Schema

PROGRAM = """
#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("treecast.example/port", string)
type bit<9> port_t;
@p4runtime_translation("treecast.example/vrf", string)
@p4runtime_translation_mappings({ {"", 0}, {"blue", 5} })
type bit<10> vrf_t;
@p4runtime_translation("treecast.example/number", 32)
type bit<9> number_t;

@controller_header("packet_in")
header to_cpu_t { number_t number; @hidden bit<7> pad; port_t port; bit<7> reserved; }
@controller_header("packet_out")
header from_cpu_t { @hidden bit<4> before; port_t port; bit<3> kind; }

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
struct headers_t { to_cpu_t to_cpu; from_cpu_t from_cpu; ethernet_t ethernet; }
struct metadata_t { vrf_t vrf; }

parser MyParser(packet_in p, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {
    state start { transition select(s.ingress_port) { 510: cpu; default: ethernet; } }
    state cpu { p.extract(hdr.from_cpu); transition ethernet; }
    state ethernet { p.extract(hdr.ethernet); transition accept; }
}
control MyVerify(inout headers_t hdr, inout metadata_t meta) { apply {} }
control MyCompute(inout headers_t hdr, inout metadata_t meta) { apply {} }
control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {
    action set_vrf(vrf_t vrf) { meta.vrf = vrf; }
    action forward(port_t port) { s.egress_spec = (bit<9>) port; }
    action to_cpu() {
        hdr.to_cpu.setValid();
        hdr.to_cpu.number = (number_t) s.ingress_port;
        hdr.to_cpu.pad = 0x7f;
        hdr.to_cpu.port = (port_t) s.ingress_port;
        hdr.to_cpu.reserved = 1;
        s.egress_spec = 510;
    }
    table vrfs {
        key = { hdr.ethernet.src: exact; }
        actions = { set_vrf; }
        default_action = set_vrf((vrf_t) 10w0);
    }
    table routes {
        key = { meta.vrf: exact; hdr.ethernet.dst: optional; }
        actions = { forward; to_cpu; NoAction; }
    }
    table masked { key = { meta.vrf: ternary; } actions = { NoAction; } }
    apply {
        if (hdr.from_cpu.isValid()) {
            s.egress_spec = (bit<9>) hdr.from_cpu.port;
            hdr.ethernet.kind = (bit<16>) hdr.from_cpu.kind ++ 9w0 ++ hdr.from_cpu.before;
            hdr.from_cpu.setInvalid();
        } else { vrfs.apply(); routes.apply(); masked.apply(); }
    }
}
control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) { apply {} }
control MyDeparser(packet_out p, in headers_t hdr) { apply { p.emit(hdr.to_cpu); p.emit(hdr.ethernet); } }
V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
""".replace("(bit<16>) hdr.from_cpu.kind ++ 9w0 ++", "hdr.from_cpu.kind ++ 9w0 ++")
SCHEMA = Schema(build_p4info(bundle.load(PROGRAM.encode())))
FRAME = bytes.fromhex("020000000002 020000000001 0800")


@pytest.fixture
async def named(plane: Plane) -> Plane:
    await plane.set_pipeline(PROGRAM.encode())
    plane.schema = SCHEMA
    return plane


def entry(table: str, matches: list[p4r.FieldMatch], action: str, *values: bytes) -> p4r.TableEntry:
    message = p4r.TableEntry(table_id=SCHEMA.tables.names[f"MyIngress.{table}"].id, match=matches)
    message.priority = int(table != "vrfs")
    found = SCHEMA.actions.names[f"MyIngress.{action}"]
    message.action.action.action_id = found.id
    for number, value in enumerate(values, 1):
        message.action.action.params.add(param_id=number, value=value)
    return message


def exact(value: bytes, field: int = 1) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, exact=p4r.FieldMatch.Exact(value=value))


def route(vrf: bytes, port: bytes) -> p4r.TableEntry:
    return entry("routes", [exact(vrf)], "forward", port)


async def test_strings_become_numbers_and_strings_again(named: Plane, switch: Served) -> None:
    member = entry("vrfs", [exact(FRAME[6:12].lstrip(b"\0"))], "set_vrf", b"red")
    wanted = [member, route(b"red", b"3"), route(b"blue", b"4"), route(b"", b"7")]
    await named.write(*(insert(table_entry=one) for one in wanted))
    found = await named.read(p4r.Entity(table_entry=p4r.TableEntry()))
    assert sorted(one.table_entry.SerializeToString() for one in found) == sorted(
        one.SerializeToString() for one in wanted
    )
    assert [out.port for out in switch.receive(1, FRAME)] == [3]
    assert [out.port for out in switch.receive(1, FRAME[:6] + bytes(6) + FRAME[12:])] == [7]
    assert switch.device.active is not None
    control = switch.device.active.switch.control
    held = {one.matches["meta.vrf"].value for one in control.table("MyIngress.routes").entries()}  # type: ignore[union-attr]
    assert held == {0, 5, 1023}


async def test_names_outlast_a_reconciled_pipeline(named: Plane) -> None:
    await named.write(insert(table_entry=route(b"red", b"3")))
    await named.set_pipeline(
        PROGRAM.replace('{"blue", 5}', '{"blue", 6}').encode(),
        action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
    )
    assert await named.read(p4r.Entity(table_entry=p4r.TableEntry())) == []
    await named.write(insert(table_entry=route(b"red", b"3")))
    reconcile = p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT
    await named.set_pipeline(
        PROGRAM.replace('{"blue", 5}', '{"blue", 6}, {"x", 7}').encode(), action=reconcile
    )
    (found,) = await named.read(p4r.Entity(table_entry=p4r.TableEntry()))
    assert found.table_entry == route(b"red", b"3")
    with pytest.raises(Refused, match="was 6 before"):
        await named.set_pipeline(PROGRAM.encode(), action=reconcile)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (route(b"\xff", b"1"), grpc.StatusCode.INVALID_ARGUMENT),
        (route(b"red", b""), grpc.StatusCode.INVALID_ARGUMENT),
        (route(b"x" * 2000, b"1"), grpc.StatusCode.INVALID_ARGUMENT),
        (route(b"5", b"1"), grpc.StatusCode.INVALID_ARGUMENT),  # that is blue
    ],
)
async def test_strings_that_are_refused(named: Plane, wrong: p4r.TableEntry, code: grpc.StatusCode) -> None:
    with pytest.raises(Refused) as caught:
        await named.write(insert(table_entry=wrong))
    assert caught.value.codes == [code.value[0]]


async def test_strings_have_no_masks(named: Plane) -> None:
    ternary = p4r.FieldMatch.Ternary(value=b"red", mask=b"\xff")
    message = p4r.TableEntry(table_id=SCHEMA.tables.names["MyIngress.masked"].id, priority=1)
    message.match.append(p4r.FieldMatch(field_id=1, ternary=ternary))
    message.action.action.action_id = SCHEMA.actions.names["NoAction"].id
    with pytest.raises(Refused) as caught:
        await named.write(insert(table_entry=message))
    assert caught.value.codes == [grpc.StatusCode.INVALID_ARGUMENT.value[0]]


async def test_hidden_and_translated_fields_of_packet_headers(named: Plane, switch: Served) -> None:
    await named.write(insert(table_entry=entry("routes", [exact(b"")], "to_cpu")))
    switch.receive(3, FRAME)
    heard = (await named.heard()).packet
    assert {one.metadata_id: one.value for one in heard.metadata} == {1: b"\3", 3: b"3", 4: b"\1"}
    assert heard.payload == FRAME
    message = p4r.PacketOut(payload=FRAME)
    message.metadata.add(metadata_id=2, value=b"6")
    message.metadata.add(metadata_id=3, value=b"\5")
    outs, _ = switch.device.send(message, 0.0)
    assert [(out.port, out.packet) for out in outs] == [(6, FRAME[:12] + bytes.fromhex("a000"))]


async def test_a_hidden_field_cannot_be_given(named: Plane, switch: Served) -> None:
    message = p4r.PacketOut(payload=FRAME)
    for number in (1, 2, 3):
        message.metadata.add(metadata_id=number, value=b"1")
    with pytest.raises(P4RuntimeError, match="no field 1"):
        switch.device.send(message, 0.0)


def test_numbers_run_out() -> None:
    names = Names("small_t", 2, {"one": 1})
    assert [names.number(name, "") for name in (b"a", b"b", b"c")] == [3, 2, 0]
    with pytest.raises(P4RuntimeError, match="no number left"):
        names.number(b"d", "")
    assert names.number(b"b", "") == 2
    assert names.data(3) == b"a"


def test_mappings_that_contradict_each_other_are_refused(switch: Served) -> None:
    for pair in ('{"red", 5}', '{"blue", 6}', '{"red", 1024}'):
        config = p4r.ForwardingPipelineConfig()
        config.p4_device_config = PROGRAM.replace('{"blue", 5}', f'{{"blue", 5}}, {pair}').encode()
        with pytest.raises(P4RuntimeError, match="vrf_t"):
            switch.device.verify(config, 0.0)


def test_a_client_without_the_program_does_not_translate() -> None:
    field: Any = next(iter(SCHEMA.actions.names["MyIngress.forward"].params.values()))
    with pytest.raises(P4RuntimeError, match="not translated here"):
        field.number(b"1", "port")
