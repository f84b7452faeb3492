"""Packets with several messages: each port gets the messages that its rules want, and the packet's head."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.unit.filters import rule_strategies as some

from treecast.middleware.dataplane.p4 import Switch, load_program
from treecast.middleware.dataplane.subscriptions.entries import install
from treecast.middleware.dataplane.subscriptions.header_file import HeaderFileError, read_header_file
from treecast.middleware.filters.actions import Rules
from treecast.middleware.filters.compiler.changes import Installed
from treecast.middleware.filters.compiler.compile import compile_rules
from treecast.middleware.filters.compiler.direct import Direct
from treecast.middleware.filters.compiler.live import LiveRules
from treecast.middleware.filters.compiler.program import program_text
from treecast.middleware.filters.compiler.schema import SchemaError
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.rules import parse_rules

MOST = 3
DESCRIPTION = f"""
header first {{
    bit<4> a;
    bit<4> b;
    bit<8> removed;
    bit<8> count;
}}
header message {{
    bit<8> length;
    bit<8> more;
}}
header second {{
    bit<4> c;
    bit<4> d;
}}
@pragma query_messages(first.count, message.length, {MOST})
@pragma query_next(message.more, 1, second)
@pragma query_field(first.a)
@pragma query_field_exact(first.b)
@pragma query_field_ternary(second.c)
@pragma query_field(second.d)
@pragma query_counter(n, 100, 8)
@pragma query_counter(m, 100, 8)

action pruned(inout headers_t hdr, bit<16> bytes) {{
    hdr.first.removed = (bit<8>) bytes;
}}
"""
SCHEMA = read_header_file(DESCRIPTION, "messages.p4")
PROGRAM = load_program(program_text(SCHEMA, (2, 0, 3, 1)), "generated.p4")
INGRESS, PORTS = 9, range(10)
Second = tuple[int, int] | None
Packet = tuple[int, int, list[tuple[Second, bytes]]]

seconds = st.none() | st.tuples(some.values, some.values)
messages = st.tuples(seconds, st.binary(max_size=3))
packets = st.tuples(some.values, some.values, st.lists(messages, max_size=MOST + 2))


def encoded(message: tuple[Second, bytes]) -> bytes:
    second, tail = message
    body = b"\0" + tail if second is None else bytes([1, second[0] << 4 | second[1]]) + tail
    return bytes([len(body)]) + body


def to_bytes(packet: Packet, kept: list[bytes], removed: int = 0) -> bytes:
    return bytes([packet[0] << 4 | packet[1], removed, len(kept)]) + b"".join(kept)


def wanted(direct: Direct, packet: Packet, now: int, everybody: set[int]) -> dict[int, bytes]:
    """Returns the copy of each port, by each message on its own."""
    a, b, several = packet
    if not several:
        ports = direct.receive(some.of_schema(SCHEMA, (a, b, None)), now).ports
        return {port: to_bytes(packet, []) for port in ports if port != INGRESS}
    kept: dict[int, list[bytes]] = {}
    for second, tail in several[:MOST]:
        for port in direct.receive(some.of_schema(SCHEMA, (a, b, second)), now).ports:
            kept.setdefault(port, []).append(encoded((second, tail)))
    behind = [encoded(one) for one in several[MOST:]]
    whole = sum(len(encoded(one)) for one in several)
    ports = everybody if behind else set(kept)
    copies = {port: [*kept.get(port, []), *behind] for port in ports}
    return {port: to_bytes(packet, one, whole - sum(map(len, one))) for port, one in copies.items()}


@pytest.mark.parametrize("interpret", [False, True])
@given(
    some.rules(
        some.trees(some.on_fields | some.on_state), some.ports.map(some.Forward) | st.just(some.COUNT)
    ),
    st.lists(st.tuples(packets, st.integers(0, 60)), min_size=1, max_size=10),
)
@example(parse_rules("c == 1 : fwd(1, 2)\nd > 3 and count() > 1 : fwd(2)"), [])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_port_gets_the_messages_that_it_wants(
    interpret: bool, rules: Rules, arrivals: list[tuple[Packet, int]]
) -> None:
    try:
        compiled = compile_rules(SCHEMA, rules, (2, 0, 3, 1))
    except FilterError as error:
        assume("query_counter" not in error.reason)
        raise
    switch = Switch(PROGRAM, ports=PORTS, interpret=interpret)
    install(compiled, switch)
    direct = Direct(SCHEMA, rules)
    everybody = {port for effect in compiled.leaves for port in effect.ports}
    now = 0
    for packet, later in arrivals:
        now += later
        data = to_bytes(packet, [encoded(one) for one in packet[2]])
        found = {one.port: one.packet for one in switch.receive(INGRESS, data, now / 1e6)}
        assert found == wanted(direct, packet, now, everybody)


@pytest.mark.parametrize("interpret", [False, True])
def test_counted_by_hand(interpret: bool) -> None:
    """Three messages for two ports; a port that the packet came by gets none; a fourth one goes to all."""
    rules = parse_rules("c == 1 : fwd(1)\nd == 5 : fwd(1, 2)\nb == 3 and c == 7 : fwd(9)")
    switch = Switch(PROGRAM, ports=PORTS, interpret=interpret)
    install(compile_rules(SCHEMA, rules, (2, 0, 3, 1)), switch)

    def ports_of(*several: tuple[Second, bytes]) -> dict[int, tuple[int, bytes]]:
        data = to_bytes((0, 3, []), [encoded(one) for one in several])
        return {one.port: (one.packet[2], one.packet[3:]) for one in switch.receive(INGRESS, data, 0.0)}

    one, five, seven, none = ((1, 0), b"x"), ((0, 5), b""), ((7, 0), b""), (None, b"zz")
    assert ports_of(one, five, none) == {1: (2, encoded(one) + encoded(five)), 2: (1, encoded(five))}
    assert ports_of(seven, none) == {}
    assert ports_of(none, none, none) == {}
    assert ports_of(one) == {1: (1, encoded(one))}
    behind = encoded(none)
    assert ports_of(seven, none, one, none) == {1: (2, encoded(one) + behind), 2: (1, behind)}


@pytest.mark.parametrize("interpret", [False, True])
@given(st.integers(2, MOST), st.data())
@settings(max_examples=30, deadline=None)
def test_packets_whose_messages_are_cut_go_to_nobody(
    interpret: bool, count: int, data: st.DataObject
) -> None:
    rules = parse_rules("a >= 0 : fwd(1)")
    switch = Switch(PROGRAM, ports=PORTS, interpret=interpret)
    install(compile_rules(SCHEMA, rules, (2, 0, 3, 1)), switch)
    whole = to_bytes((1, 1, []), [encoded(((1, 1), b"abc"))] * count)
    cut = data.draw(st.integers(3, len(whole) - 1))
    assert switch.receive(INGRESS, whole[:cut], 0.0) == []
    assert len(switch.receive(INGRESS, whole, 0.0)) == 1
    lies = to_bytes((1, 1, []), [b"\x01\x01\x11"] * count)  # shorter than the header that it names
    assert switch.receive(INGRESS, lies, 0.0) == []
    switch.receive(INGRESS, data.draw(st.binary(max_size=40)), 0.0)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("message.length, 3", "message.more, 3", "message.more is not the first field of message"),
        ("message.length, 3", "message.length, 65", "65 is not from 1 to 64"),
        ("first.count, message", "second.c, message", "message is declared before second"),
        ("@pragma query_next(m", "@pragma query_next(first, second)\n@pragma query_next(m", "behind first"),
        ("bit<16> bytes", "bit<8> bytes", "write: action pruned(inout headers_t hdr, bit<16> bytes)"),
    ],
)
def test_wrong_descriptions_are_refused(old: str, new: str, reason: str) -> None:
    assert old in DESCRIPTION
    with pytest.raises(HeaderFileError) as caught:
        read_header_file(DESCRIPTION.replace(old, new), "messages.p4")
    assert reason in caught.value.reason


def test_what_a_message_cannot_have_is_refused() -> None:
    with pytest.raises(FilterError, match="with query_messages ports are 0 to 63, not 64") as caught:
        compile_rules(SCHEMA, parse_rules("a == 1 : fwd(1)\nb == 1 : fwd(64)"))
    assert (caught.value.line, caught.value.column) == (2, 14)
    with pytest.raises(FilterError, match="there is no action pruned"):
        compile_rules(SCHEMA, parse_rules("a == 1 : pruned(3)"))
    with_mark = DESCRIPTION + "action mark(inout headers_t hdr) {\n    hdr.first.removed = 1;\n}\n"
    with pytest.raises(FilterError, match="mark changes a whole packet"):
        compile_rules(read_header_file(with_mark, "messages.p4"), parse_rules("a == 1 : mark()"))
    with pytest.raises(SchemaError, match="written whole"):
        Installed(LiveRules(SCHEMA))
