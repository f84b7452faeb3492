"""Generated programs on the embedded target against the meaning of rules, with state and windows."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.unit.filters import rule_strategies as some

from treecast.middleware.dataplane.p4 import Program, Switch, load_program
from treecast.middleware.dataplane.subscriptions.entries import install
from treecast.middleware.dataplane.subscriptions.header_file import HeaderFileError, read_header_file
from treecast.middleware.filters.actions import Rules
from treecast.middleware.filters.compiler.compile import Compiled, compile_rules
from treecast.middleware.filters.compiler.direct import Direct
from treecast.middleware.filters.compiler.program import program_text
from treecast.middleware.filters.compiler.schema import Schema
from treecast.middleware.filters.compiler.terms import Effect
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.rules import parse_rules

Packet = tuple[int, int, tuple[int, int] | None]
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]
INGRESS, PORTS = 9, range(10)

DESCRIPTION = """
// Two headers of small fields.
header first {
    bit<4> a;
    bit<4> b;
    bit<8> more;
}
header second {
    bit<4> c;
    bit<4> d;
}
@pragma query_next(first.more, 1, second)
@pragma query_field%s(first.a)
@pragma query_field(first.b)
@pragma query_field%s(second.c)
@pragma query_field_low(second.d, 4)
@pragma query_counter(n, 100, 8)
@pragma query_counter(m, 100, 8)

action mark(inout headers_t hdr, inout standard_metadata_t standard, bit<8> value) {
    hdr.first.more = value;
}
"""
CASES = [("", "_exact"), ("_ternary", "_lpm")]


def loaded(kinds: tuple[str, str]) -> tuple[Schema, Program]:
    schema = read_header_file(DESCRIPTION % kinds, "small.p4")
    return schema, load_program(program_text(schema, (2, 0, 3, 1)), "generated.p4")


PROGRAMS = {kinds: loaded(kinds) for kinds in CASES}


def sent(switch: Switch, packet: Packet, now: int) -> tuple[set[int], int | None]:
    """Returns the ports, and what `mark` has written."""
    data = some.to_bytes(packet)
    out = switch.receive(INGRESS, data, now / 1e6)
    marks = {one.packet[1] for one in out if one.packet != data}
    assert len(marks) < 2
    return {one.port for one in out}, marks.pop() if marks else None


def wanted(effect: Effect, packet: Packet) -> tuple[set[int], int | None]:
    there = 1 if packet[2] else 0
    mark = effect.custom[1][0] if effect.custom and effect.ports else there
    return set(effect.ports), None if mark == there else mark


@pytest.mark.parametrize("interpret", [False, True])
@given(
    st.sampled_from(CASES),
    some.stateful | some.stateless,
    st.lists(st.tuples(some.packets, st.integers(0, 60)), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
def test_the_program_does_what_rules_mean(
    interpret: bool, kinds: tuple[str, str], rules: Rules, arrivals: list[tuple[Packet, int]]
) -> None:
    schema, program = PROGRAMS[kinds]
    compiled = compiled_or_skipped(schema, rules)
    switch = Switch(program, ports=PORTS, interpret=interpret)
    install(compiled, switch)
    direct = Direct(schema, rules)
    now = 0
    for packet, later in arrivals:
        now += later
        assert sent(switch, packet, now) == wanted(
            direct.receive(some.of_schema(schema, packet), now), packet
        )


def compiled_or_skipped(schema: Schema, rules: Rules) -> Compiled:
    """Rules that need more state for one packet than two blocks hold are refused: not of interest here."""
    try:
        return compile_rules(schema, rules, (2, 0, 3, 1))
    except FilterError as error:
        assume("query_counter" not in error.reason)
        raise


def test_generated_code_runs_the_program() -> None:
    _, program = PROGRAMS[CASES[0]]
    assert Switch(program, ports=PORTS).engine == "generated"


@pytest.mark.parametrize(
    ("line", "reason", "place"),
    [
        ("@pragma query_field(first.z)", "first has no field z; it has a, b, more", (23, 9)),
        ("@pragma query_field(third.z)", "there is no header third; there are first, second", (23, 9)),
        ("@pragma query_field(first.a)", "first.a is a query field already", (23, 9)),
        ("@pragma query_range(first.a)", "there is no annotation query_range with 1 argument", (23, 9)),
        ("@pragma query_counter(k, 0, 8)", "0 is not from 1 to 281474976710655", (23, 9)),
        ("@pragma query_next(second.c, 1, first)", "first is declared before second.c", (23, 9)),
    ],
)
def test_wrong_descriptions_are_refused_with_their_place(
    line: str, reason: str, place: tuple[int, int]
) -> None:
    with pytest.raises(HeaderFileError) as caught:
        read_header_file(DESCRIPTION.rstrip() % ("", "") + "\n" + line, "small.p4")
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(
    ("constraint", "wanted"),
    [
        ("avg(b) > 4", [0, 1, 0, 0, 0, 1]),  # 1, 10 / 2, 12 / 3, 17 / 4 rounded down; 3; 7
        ("avg(b) >= 4", [0, 1, 1, 1, 0, 1]),
        ("sum(b) >= 10", [0, 1, 1, 1, 0, 0]),
        ("count() > 2", [0, 0, 1, 1, 0, 0]),
        ("n >= 2", [0, 0, 1, 1, 0, 0]),  # what earlier packets left
        ("not (count() > 2)", [1, 1, 0, 0, 1, 1]),
    ],
)
def test_state_by_hand(constraint: str, wanted: list[int], interpret: bool) -> None:
    """Four packets in one window, one in the next, one in the one after; others don't count."""
    schema, program = PROGRAMS[CASES[0]]
    rules = parse_rules(f"a == 1 and {constraint} : fwd(1)\na == 1 : n <- count()\n")
    compiled = compile_rules(schema, rules, (2, 0, 3, 1))
    switch = Switch(program, ports=PORTS, interpret=interpret)
    install(compiled, switch)
    arrivals = [(1, 0), (9, 20), (2, 50), (5, 99), (3, 100), (7, 250)]
    found = []
    for b, now in arrivals:
        found.append(len(switch.receive(INGRESS, some.to_bytes((1, b, None)), now / 1e6)))
        switch.receive(INGRESS, some.to_bytes((2, 15, None)), now / 1e6)
    assert found == wanted


def test_rules_may_name_the_port_by_which_a_packet_came() -> None:
    text = DESCRIPTION % ("", "") + "@pragma query_port(arrival.port)\n"
    schema = read_header_file(text, "small.p4")
    rules = parse_rules("arrival.port < 2 and a == 3 : fwd(2, 3)\nport == 3 : fwd(1)\n")
    compiled = compile_rules(schema, rules)
    switch = Switch(load_program(program_text(schema, compiled.order), "generated.p4"), ports=PORTS)
    install(compiled, switch)
    data = some.to_bytes((3, 0, None))
    found = [{out.port for out in switch.receive(port, data, 0.0)} for port in (1, 2, 3)]
    assert found == [{2, 3}, set(), {1}]
