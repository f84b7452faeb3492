"""Limits, refused programs, and programs that the generator leaves to the interpreter."""

from __future__ import annotations

import pytest

from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    CloneSession,
    ControlError,
    Entry,
    ExactMatch,
    MeterConfig,
    MulticastGroup,
    Problem,
    Replica,
    Switch,
    ValueSetMember,
)
from treecast.middleware.dataplane.p4.source import P4Error

FRAME = """
#include <core.p4>
#include <v1model.p4>
%(types)s
header h_t { bit<8> a; bit<8> b; }
struct headers { h_t h; }
struct metadata { bit<8> m; }
parser P(packet_in p, out headers h, inout metadata m, inout standard_metadata_t s) {
    %(declarations)s
    state start { p.extract(h.h); %(parse)s }
}
control V(inout headers h, inout metadata m) { apply { } }
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    %(locals)s
    apply { s.egress_spec = 1; %(ingress)s }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply { %(egress)s } }
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out p, in headers h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
EMPTY = dict.fromkeys(("types", "declarations", "locals", "ingress", "egress"), "")
EMPTY["parse"] = "transition accept;"
PACKET = bytes.fromhex("0102aabb")


def switch(interpret: bool = False, **parts: str) -> Switch:
    program = load_program(FRAME % (EMPTY | parts), "limits.p4")
    return Switch(program, ports=range(8), interpret=interpret)


ENGINES = pytest.mark.parametrize("interpret", [True, False])


@ENGINES
@pytest.mark.parametrize("place", ["ingress", "egress"])
def test_a_loop_without_end_drops_the_packet(interpret: bool, place: str) -> None:
    one = switch(interpret, **{place: "for (bit<8> i = 0; i < 200; i = i & 7) { h.h.a = i; }"})
    assert one.receive(0, PACKET, 0.0) == []
    assert one.stats().drops == {"loop without end": 1}


@ENGINES
def test_a_range_is_evaluated_once(interpret: bool) -> None:
    one = switch(interpret, ingress="for (bit<8> i in 8w1 .. h.h.a) { h.h.b = h.h.b + i; }")
    (out,) = one.receive(0, bytes.fromhex("0402"), 0.0)
    assert out.packet.hex() == "040c"


@ENGINES
def test_a_value_set_is_filled_at_run_time(interpret: bool) -> None:
    test = "if (s.parser_error == error.NoError && h.h.a == 1) { h.h.b = 9; }"
    parse = "transition select(h.h.a) { known: accept; }"
    one = switch(interpret, declarations="value_set<bit<8>>(2) known;", parse=parse, ingress=test)
    assert one.receive(0, PACKET, 0.0)[0].packet.hex() == "0102aabb"
    assert one.stats().parser_errors == {"NoMatch": 1}
    field = one._machine.value_sets[0].keys[0].name
    one.control.value_set("P.known").set([ValueSetMember({field: ExactMatch(1)})])
    assert one.receive(0, PACKET, 0.0)[0].packet.hex() == "0109aabb"
    with pytest.raises(ControlError) as refused:
        one.control.value_set("P.known").set([ValueSetMember({field: ExactMatch(n)}) for n in range(3)])
    assert refused.value.problem is Problem.FULL
    assert len(one.control.value_set("P.known").members()) == 1


TIMED = "table t { key = { h.h.a: exact; } actions = { NoAction; } support_timeout = true; size = 10; }"


@ENGINES
def test_idle_entries_are_told(interpret: bool) -> None:
    one = switch(interpret, locals=TIMED, ingress="t.apply();")
    entry = Entry({"h.h.a": ExactMatch(1)}, ActionCall("NoAction"), idle_timeout=2.0)
    one.control.table("I.t").insert(entry, 0.0)
    assert one.control.idle_entries(1.9) == []
    one.receive(0, PACKET, 1.9)
    assert one.control.idle_entries(3.8) == []
    (told,) = one.control.idle_entries(4.0)
    assert (told.table, told.entry.matches, told.entry.idle) == ("I.t", entry.matches, 4.0 - 1.9)
    assert one.control.idle_entries(5.0) == []
    assert len(one.control.idle_entries(6.0)) == 1


DIRECT = """
direct_meter<bit<8>>(MeterType.packets) pace;
action show() { pace.read(h.h.b); }
table t { key = { h.h.a: exact; } actions = { show; NoAction; } meters = pace; size = 10; }
"""


@ENGINES
def test_a_direct_meter_colours_packets(interpret: bool) -> None:
    one = switch(interpret, locals=DIRECT, ingress="t.apply();")
    matches = {"h.h.a": ExactMatch(1)}
    config = MeterConfig(cir=1, cburst=1, pir=2, pburst=2)
    one.control.table("I.t").insert(Entry(matches, ActionCall("I.show"), meter=config), 0.0)
    assert [one.receive(0, PACKET, 0.0)[0].packet[1] for _ in range(4)] == [0, 1, 2, 2]
    assert one.control.table("I.t").meter(matches) == config
    one.control.table("I.t").set_meter(matches, None)
    assert one.receive(0, PACKET, 0.0)[0].packet[1] == 0


TWO_LPM = "table t { key = { h.h.a: lpm; h.h.b: lpm; } actions = { NoAction; } }"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"ingress": "resubmit(m);"}, "resubmit_preserving_field_list"),
        ({"types": "struct r_t { bit<8> x; }", "locals": "register<r_t>(4) r;"}, "neither bits nor bool"),
        ({"locals": TWO_LPM, "ingress": "t.apply();"}, "more than one lpm"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_by_line(parts: dict[str, str], text: str) -> None:
    with pytest.raises(P4Error, match=text) as refused:
        switch(**parts)
    assert "limits.p4:" in str(refused.value)


def test_what_the_generator_cannot_do_is_interpreted() -> None:
    one = switch(
        types="header odd_t { bit<3> x; }", parse="odd_t o = p.lookahead<odd_t>(); transition accept;"
    )
    assert one.engine.startswith("interpreted: ")
    assert one.receive(0, PACKET, 0.0)[0].packet == PACKET


def test_many_entries() -> None:
    table = 'table t { key = { h.h.a ++ h.h.b: exact @name("k"); } actions = { NoAction; } size = 65536; }'
    one = switch(locals=table, ingress="t.apply();")
    name = one._machine.tables[0].shape.keys[0].name
    for value in range(20_000):
        one.control.table("I.t").insert(Entry({name: ExactMatch(value)}, ActionCall("NoAction")))
    one.receive(0, PACKET, 0.0)
    assert one.stats().tables["I.t"].hits == 1
    for value in range(20_000):
        one.control.table("I.t").delete({name: ExactMatch(value)})
    one.receive(0, PACKET, 0.0)
    assert one.stats().tables["I.t"].misses == 1


@ENGINES
def test_the_old_mark_to_drop(interpret: bool) -> None:
    one = switch(interpret, ingress="s.mcast_grp = 3; mark_to_drop();")
    assert one.receive(0, PACKET, 0.0) == []
    assert one.stats().drops == {"dropped in ingress": 1}


SHARED = """if (s.egress_rid == 2) { h.h.b = 0x77; }
if (h.h.a == 5 && s.instance_type != 2) { clone(CloneType.E2E, 9); }"""


@ENGINES
def test_copies_that_egress_leaves_alone_and_one_that_it_does_not(interpret: bool) -> None:
    one = switch(interpret, ingress="s.mcast_grp = 4; h.h.b = 0x33;", egress=SHARED)
    replicas = tuple(Replica(port, port) for port in (1, 2, 3))
    one.control.replication.insert_group(MulticastGroup(4, replicas))
    one.control.replication.insert_session(CloneSession(9, (Replica(6, 0),)))
    outs = one.receive(0, bytes.fromhex("0102aa"), 0.0)
    assert [out.packet.hex() for out in outs] == ["0133aa", "0177aa", "0133aa"]
    outs = one.receive(0, bytes.fromhex("0502aa"), 0.0)
    assert [(out.port, out.packet.hex()) for out in outs[3:]] == [(6, "0533aa"), (6, "0577aa"), (6, "0533aa")]
