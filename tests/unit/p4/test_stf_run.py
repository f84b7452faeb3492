"""Vectors run on a switch: correct ones pass, and each kind of difference is reported with its line."""

from __future__ import annotations

import pytest

from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.runtime import Switch
from treecast.middleware.dataplane.p4.stf.parse import parse
from treecast.middleware.dataplane.p4.stf.runner import PORTS, Report, Runner

SOURCE = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<16> b; bit<8> c; }
struct headers_t { h_t h; h_t[2] stack; }
struct metadata_t {}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.h); transition select(hdr.h.c) { 9: more; default: accept; } }
    state more { packet.extract(hdr.stack.next); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply {} }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(4, CounterType.packets_and_bytes) seen;
    register<bit<32>>(4) cells;
    meter(4, MeterType.packets) limits;
    direct_counter(CounterType.packets) hits;
    bit<2> colour;
    action drop() { mark_to_drop(standard); }
    action out_at(bit<9> port, bit<8> mark) { standard.egress_spec = port; hdr.h.c = mark; hits.count(); }
    action group(@name("data") bit<16> number) { standard.mcast_grp = number; }
    action mirrored(bit<32> session) { clone(CloneType.I2E, session); standard.egress_spec = 1; }
    table ternary_keys {
        key = { hdr.h.a: ternary; hdr.h.b: range; hdr.stack[0].isValid(): ternary; }
        actions = { out_at; drop; NoAction; }
        counters = hits;
    }
    table prefixes {
        key = { hdr.h.b: lpm; }
        actions = { group; mirrored; drop; }
        default_action = drop();
    }
    apply {
        seen.count((bit<32>) hdr.h.a & 3);
        cells.write(1, (bit<32>) hdr.h.b);
        limits.execute_meter((bit<32>) 2, colour);
        if (!ternary_keys.apply().hit) { prefixes.apply(); }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { if (standard.egress_rid != 0) { hdr.h.a = (bit<8>) standard.egress_rid; } }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.h); packet.emit(hdr.stack); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
PROGRAM = bundle.load(SOURCE.encode())


def run(vectors: str, *, strict: bool = True) -> Report:
    switch = Switch(PROGRAM, ports=PORTS, interpret=True)
    return Runner(PROGRAM, switch, strict=strict).run(parse(vectors))


def lines(report: Report) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in report.problems]


def test_ternary_range_and_stars() -> None:
    report = run("""
add ternary_keys 10 a:0x1* b:0x0100..0x01ff out_at(port:3, mark:0xaa)
add I.ternary_keys 20 hdr.h.a:0x12 out_at(port:4, mark:0xbb)
add ternary_keys 30 h.a:0x13&&&0x0f stack$0.$valid:1 I.out_at(port:5, mark:0xcc)
packet 0 11 0100 00
expect 3 11 0100 aa $
packet 0 12 0100 00
expect 4 12 01** bb
packet 0 13 0100 00
expect 3 13 0100 aa
packet 0 23 0100 09 01 0203 04 ee
expect 5 230100CC01020304ee $
""")
    assert lines(report) == []
    assert (report.packets_in, report.packets_out, report.expected, report.met) == (4, 4, 4, 4)


def test_groups_and_sessions() -> None:
    report = run("""
mirroring_add_mc 7 2
mc_mgrp_create 2
mc_node_create 5 3 4
mc_node_create 6 6
mc_node_associate 2 0
mc_node_associate 2 1
mirroring_get 7
mirroring_add 8 9
add prefixes b:0x0a00/8 group(number:2)
add prefixes b:0x0b** mirrored(session:7)
add prefixes b:0x0c01 mirrored(session:8)
packet 0 01 0a01 00
expect 3 05
expect 4 05
expect 6 06
packet 0 02 0b01 00
expect 1 02
expect 3 05
expect 4 05
expect 6 06
packet 0 03 0c01 00
expect 1 03
expect 9 03
packet 0 03 0c02 00
no_packet 2
mc_node_update 1 7
packet 0 01 0a01 00
expect 3
expect 4
expect 7 06
mirroring_delete 8
packet 0 03 0c01 00
expect 1 03
remove all
packet 0 01 0a01 00
""")
    assert lines(report) == []


def test_counters_registers_and_meters() -> None:
    report = run("""
add ternary_keys 1 a:0b* out_at(port:1, mark:1) = here
packet 0 01 0203 00
packet 0 05 0204 00 0000
expect 1
expect 1
check_counter seen(1) packets == 2
check_counter seen(1) bytes > 9
check_counter hits($here) packets == 2
check_counter here_is_no(0) packets == 2
check_register cells(1) == 0x0204
check_register cells(1) != 0x0204
counter_write seen 2 5 50
counter_read seen 2
register_write cells 0 7
register_read I.cells 0
register_reset cells
check_register cells(0) == 0
meter_set_rates limits 2 0.000001:5 0.000002:6
meter_get_rates limits 2
meter_array_set_rates limits 1:1
remove = here
packet 0 01 0203 00
wait 3
""")
    assert [problem.line for problem in report.problems] == [10, 12, 21]
    assert [text.split(" ", 1)[0] for _, text in report.read] == ["seen[2]", "I.cells[0]", "I.limits[2]"]
    assert "packets 5 bytes 50" in report.read[0][1]


@pytest.mark.parametrize("name", ["data", "number"])
def test_parameters_go_by_the_name_that_control_planes_see(name: str) -> None:
    """P4Info shows the `@name` of a parameter; the parameter's own name is accepted as well."""
    lines = ("mc_mgrp_create 4", "mc_node_create 1 2", "mc_node_associate 4 0")
    assert run("\n".join((*lines, f"add prefixes b:0x0100/8 group({name}:4)"))).passed


def test_every_difference_is_named_by_its_line() -> None:
    report = run("""
add ternary_keys 1 a:0x01 out_at(port:1, mark:1)
add ternary_keys 2 a:0x02 out_at(port:2, mark:1)
packet 0 01 0000 00
expect 1 01 0000 02
packet 0 02 0000 00
packet 0 01 0000 00
no_packet 2
expect 5 00
""")
    found = dict(lines(report))
    assert "byte 3, low nibble: 2 was expected, 1 came (sent by line 4)" in found[5]
    assert "no line expects came out at port 2" in found[6]
    assert "no line expects came out at port 1" in found[7]
    assert "no packet was expected at port 2" in found[8]
    assert "no packet came out at port 5" in found[9]
    assert "^" in next(problem.detail for problem in report.problems if problem.line == 5)


def test_ports_that_are_never_named() -> None:
    vectors = "add ternary_keys 1 a:1 out_at(port:7, mark:1)\npacket 0 01 0000 00"
    assert [line for line, _ in lines(run(vectors))] == [2]
    loose = run(vectors, strict=False)
    assert (lines(loose), loose.elsewhere) == ([], 1)


@pytest.mark.parametrize(
    ("line", "message", "word"),
    [
        (
            "add nothing a:1 drop()",
            "there is no table nothing; there are: I.prefixes, I.ternary_keys",
            "nothing",
        ),
        ("add ternary_keys 1 z:1 drop()", "there is no key z", "z"),
        ("add ternary_keys 1 a:1 a:2 drop()", "key hdr.h.a comes twice", "a"),
        ("add prefixes b:1/8 group(data:1, number:2)", "parameter number comes twice", "number"),
        ("add ternary_keys a:1 drop()", "needs a priority", ""),
        ("add ternary_keys 1 a:256 drop()", "a has 8 bits, 0x100 does not fit", "a"),
        ("add ternary_keys 1 b:5..1 drop()", "is matched by range", "b"),
        ("add ternary_keys 1 a:1 fly()", "there is no action of I.ternary_keys fly", "fly"),
        ("add ternary_keys 1 a:1 out_at(port:1)", "lacks its argument mark", "out_at"),
        ("add ternary_keys 1 a:1 out_at(port:1, mark:1, more:1)", "has no parameter more", "more"),
        ("add ternary_keys 1 a:1 out_at(port:0x200, mark:1)", "port has 9 bits", "port"),
        ("add prefixes b:0x01/17 drop()", "a prefix of 17 is none", "b"),
        ("add prefixes b:0x*1 drop()", "`*` stand at the end only", "b"),
        ("setdefault ternary_keys fly()", "there is no action", "fly"),
        ("remove = gone", "no entry was given the handle gone", "gone"),
        ("register_read limits 0", "there is no register limits", "limits"),
        ("register_read cells 9", "9", ""),
        ("mc_node_associate 1 0", "there is no multicast node 0", ""),
        ("mirroring_get 3", "there is no mirror session 3", ""),
        ("meter_get_rates hits 0", "there is no meter hits", "hits"),
        ("meter_set_rates limits 0 1:1", "a meter has two rates", ""),
    ],
)
def test_what_the_program_has_not(line: str, message: str, word: str) -> None:
    (problem,) = run(line).problems
    assert message in problem.message
    assert problem.word == word


def test_the_run_goes_on_after_a_refusal() -> None:
    report = run(
        "add nothing a:1 drop()\nadd ternary_keys 1 a:1 out_at(port:1, mark:1)\npacket 0 01000000\nexpect 1"
    )
    assert [problem.line for problem in report.problems] == [1]
    assert report.met == 1
