"""Parsers: states, selects, value sets, stacks, lookahead, subparsers, and their errors."""

from __future__ import annotations

import pytest
from tests.unit.p4.frontend.programs import complaint, load

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.ir.invariants import check_invariants


def parser(states: str, **pieces: str) -> tuple[ir.Parser, ir.Program]:
    """Returns the program's parser with these states."""
    program = load(states=states, **pieces)
    check_invariants(program)
    return program.parsers[program.pipeline.parser], program


def only(statements: str) -> tuple[ir.Statement, ...]:
    """Returns the statements of a state with this text."""
    return parser(f"state start {{ {statements} transition accept; }}")[0].states[0].body


def select(keys: str, cases: str, **pieces: str) -> list[tuple[tuple[ir.Match, ...], int]]:
    """Returns the cases of a select."""
    states = f"state start {{ transition select({keys}) {{ {cases} }} }} state next {{ transition accept; }}"
    transition = parser(states, **pieces)[0].states[0].transition
    assert isinstance(transition, ir.Select)
    return [(one.matches, one.target) for one in transition.cases]


def test_states_and_transitions() -> None:
    found, _ = parser(
        "state a { transition b; } state start { transition a; } state b { } state c { transition reject; }"
    )
    assert [one.name for one in found.states] == ["a", "start", "b", "c"]
    assert found.start == 1
    targets = [one.transition.target for one in found.states if isinstance(one.transition, ir.Goto)]
    assert targets == [2, 0, ir.REJECT, ir.REJECT]


def test_loops_are_possible() -> None:
    found, _ = parser(
        "state start { packet.extract(hdr.stack.next); transition select(hdr.stack.last.a) "
        "{ 0: accept; default: start; } }"
    )
    (state,) = found.states
    assert isinstance(state.transition, ir.Select)
    assert state.transition.cases[1].target == 0
    (extract,) = state.body
    assert isinstance(extract, ir.Extract)
    assert isinstance(extract.target, ir.Next)


@pytest.mark.parametrize(
    ("keys", "cases", "found"),
    [
        ("meta.x", "1: next; _: reject;", [((ir.MatchValue(1),), 1), ((ir.MatchAny(),), ir.REJECT)]),
        ("meta.x", "0x10 &&& 0xF0: next;", [((ir.MatchMask(0x10, 0xF0),), 1)]),
        ("meta.x", "(1 .. 3): next;", [((ir.MatchRange(1, 3),), 1)]),
        ("meta.x, meta.flag", "(1, true): next;", [((ir.MatchValue(1), ir.MatchValue(True)), 1)]),
        ("meta.x, meta.y", "(_, 1 .. 2): next;", [((ir.MatchAny(), ir.MatchRange(1, 2)), 1)]),
        ("meta.x, meta.y", "default: accept;", [((ir.MatchAny(), ir.MatchAny()), ir.ACCEPT)]),
        ("hdr.one.s", "-1: next;", [((ir.MatchValue(-1),), 1)]),
        ("meta.x", "(bit<8>) 3 + 1: next;", [((ir.MatchValue(4),), 1)]),
        ("packet.lookahead<bit<4>>()", "4w3: next;", [((ir.MatchValue(3),), 1)]),
    ],
)
def test_selects(keys: str, cases: str, found: list[tuple[tuple[ir.Match, ...], int]]) -> None:
    assert select(keys, cases) == found


def test_selecting_on_enums() -> None:
    types = "enum bit<8> Kind { a = 3 } enum Color { red, green }"
    cases = "(Kind.a, Color.green): next; (4, _): accept;"
    found = select("meta.k, meta.c", cases, types=types, fields="Kind k; Color c;")
    assert found == [
        ((ir.MatchValue(3), ir.MatchValue(1)), 1),
        ((ir.MatchValue(4), ir.MatchAny()), ir.ACCEPT),
    ]


def test_value_sets() -> None:
    types = "struct member_t { @match(ternary) bit<8> kind; bit<32> id; }"
    locals_ = "@size(9) value_set<member_t>(4) known; value_set<bit<8>>(2) some;"
    states = """
        state start { transition select(meta.x, meta.y) { known: accept; (1, 2): next; } }
        state next { transition select(meta.x) { some: accept; } }
    """
    found, program = parser(states, types=types, parser_locals=locals_)
    known, some = program.value_sets
    assert (known.name, known.size) == ("P.known", 9)
    assert [(one.name, one.type, one.match_kind) for one in known.fields] == [
        ("kind", ir.Bits(8), ir.MatchKind.TERNARY),
        ("id", ir.Bits(32), ir.MatchKind.EXACT),
    ]
    assert [one.name for one in some.fields] == [""]
    first = found.states[0].transition
    assert isinstance(first, ir.Select)
    assert first.cases[0].matches == (ir.MatchSet(0),)


def test_what_packets_can_do() -> None:
    found = only(
        """
        packet.extract(hdr.one);
        packet.extract(hdr.var, (bit<32>) hdr.one.a << 3);
        packet.extract<one_t>(_);
        packet.advance(16);
        meta.y = packet.length();
        one_t ahead = packet.lookahead<one_t>();
        verify(meta.y > 3, error.PacketTooShort);
        meta.y = hdr.stack.lastIndex;
        """
    )
    names = [type(one).__name__ for one in found]
    assert names == ["Extract", "Extract", "Skip", "Skip", "Assign", "Declare", "Verify", "Assign"]
    skipped = found[2]
    assert isinstance(skipped, ir.Skip)
    assert isinstance(skipped.bits, ir.Literal)
    assert skipped.bits.value == 64


def test_subparsers_and_their_variables() -> None:
    types = """
        parser Sub(packet_in p, out one_t h)(bit<8> limit) {
            bit<8> seen = limit;
            state start { p.extract(h); verify(seen > 2, error.NoMatch); transition accept; }
        }
    """
    states = "state start { sub.apply(packet, hdr.one); transition accept; }"
    found, program = parser(states, types=types, parser_locals="Sub(5) sub;")
    inner = next(one for one in program.parsers if one.type_name == "Sub")
    assert inner.name == "P.sub"
    assert [one.name for one in inner.parameters] == ["h"]
    (declared,) = inner.setup
    assert isinstance(declared, ir.Declare)
    (applied,) = found.states[0].body
    assert isinstance(applied, ir.ApplyParser)
    assert len(applied.arguments) == 1


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ("state begin { transition accept; }", "parser 'P' has no state 'start'"),
        ("state start { transition nowhere; }", "there is no state 'nowhere'"),
        ("state start { transition select(meta.x) { 1: nowhere; } }", "there is no state 'nowhere'"),
        ("state start { transition accept; } state start { }", "state 'start' is there twice"),
        ("state accept { } state start { }", "state 'accept' is built in"),
        ("state start { transition select(hdr.one) { _: accept; } }", "a select can't be about one_t"),
        (
            "state start { transition select(meta.x) { (1, 2): accept; } }",
            "there are 1 keys, and 2 are matched here",
        ),
        (
            "state start { transition select(meta.x) { meta.x: accept; } }",
            "what is matched must be known when the program is loaded",
        ),
        (
            "state start { transition select(meta.flag) { true &&& true: accept; } }",
            "'&&&' does not work on bool",
        ),
        ("state start { return; }", "there is no 'return' in parsers"),
        ("state start { exit; }", "there is no 'exit' in parsers"),
        ("state start { switch (meta.x) { } }", "there is no 'switch' in parsers"),
        ("state start { for (bit<8> i in 1 .. 2) { } }", "there is no 'for' in parsers"),
        ("state start { packet.extract(meta.x); }", "extract needs a header, not bit<8>"),
        (
            "state start { packet.extract(hdr.var); }",
            "header 'var_t' has a varbit field, whose size must be given",
        ),
        ("state start { packet.extract(hdr.one, 8); }", "header 'one_t' has no varbit field"),
        (
            "state start { packet.extract<var_t>(_); }",
            "header 'var_t' has a varbit field, whose size must be given",
        ),
        (
            "state start { var_t v = packet.lookahead<var_t>(); }",
            "lookahead needs a type of fixed size, not var_t",
        ),
        ("state start { packet.extract(sm); }", "extract needs a header, not standard_metadata_t"),
        ("state start { packet.skip(8); }", "packet_in has no method 'skip'"),
        ("state start { P.apply(packet, hdr, meta, sm); }", "'P' is used before it is declared, at t.p4:9:8"),
        ("state start { verify(true, 3); }", "error is wanted here, not int"),
    ],
)
def test_refused(states: str, message: str) -> None:
    assert complaint(states=states) == message


def test_packets_are_not_read_in_controls_nor_written_in_parsers() -> None:
    types = "control Reader(packet_in p) { apply { p.advance(8); } }"
    assert complaint(types=types) == "packets are read in parsers only"
    types = "control Writer(packet_out p, in M2 m) { apply { p.emit(m); } }"
    assert complaint(types="struct M2 { bit<8> a; } " + types) == "emit needs headers, not M2"
