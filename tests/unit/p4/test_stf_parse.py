"""The vector language: every kind of statement parses, and every error points at its word."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.dataplane.p4.stf import statements as s
from treecast.middleware.dataplane.p4.stf.compare import difference, side_by_side
from treecast.middleware.dataplane.p4.stf.lexing import VectorError
from treecast.middleware.dataplane.p4.stf.parse import parse

ALL = """
# a comment
ADD test2 100 data.f2:0x04040404 c4_6(val4:0x4040, port:2)   # and another
add tab1 dstAddr:0xa1a2a3a4a5a6 act(port:2) = A
add test1 0 data.$valid:0b1 data.f1:0x****0101 setb1(val:0x7f, port:2)
add "ingress.t" h[1].a:10.0.x(y:1)
""".replace("10.0.x", "10 x")


def test_entries() -> None:
    ternary, named, stars, quoted = parse(ALL)
    assert isinstance(ternary, s.Add)
    assert (ternary.line, ternary.table, ternary.priority) == (3, "test2", 100)
    assert ternary.matches[0].name == "data.f2"
    assert ternary.matches[0].value == s.Value(0x04040404, 0xFFFFFFFF, 32)
    assert [(a.name, a.value.number) for a in ternary.call.arguments] == [("val4", 0x4040), ("port", 2)]
    assert isinstance(named, s.Add)
    assert (named.handle, named.priority) == ("A", None)
    assert isinstance(stars, s.Add)
    assert stars.matches[1].value == s.Value(0x0101, 0xFFFF, 32, stars=True)
    assert isinstance(quoted, s.Add)
    assert (quoted.table, quoted.matches[0].name) == ("ingress.t", "h[1].a")


def test_values_of_all_kinds() -> None:
    (entry,) = parse("add t a:10/8 b:0x0a&&&0xff c:1..5 d:0b1*0 e:0o17 act()")
    assert isinstance(entry, s.Add)
    values = {one.name: one.value for one in entry.matches}
    assert values["a"].prefix == 8
    assert values["b"].mask == 0xFF
    assert (values["c"].number, values["c"].high) == (1, 5)
    assert values["d"] == s.Value(0b100, 0b101, 3, stars=True)
    assert values["e"].number == 0o17


def test_packets() -> None:
    sent, prefix, exact, anything, empty = parse(
        "packet 0 0001 0203 AAbb\nexpect 1 00*1 **\nexpect 1 0001 $\nexpect 2\nexpect 3 $"
    )
    assert sent == s.Packet(1, 0, bytes.fromhex("00010203aabb"))
    assert prefix == s.Expect(2, 1, "00*1**", False)
    assert exact == s.Expect(3, 1, "0001", True)
    assert anything == s.Expect(4, 2, None, False)
    assert empty == s.Expect(5, 3, "", True)


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        ("remove all", s.Remove(1)),
        ("remove all t", s.Remove(1, "t")),
        ("remove = A", s.Remove(1, handle="A")),
        ("no_packet", s.NoPacket(1, None)),
        ("no_packet 3", s.NoPacket(1, 3)),
        ("wait", s.Wait(1, 0.0)),
        ("wait 1.5", s.Wait(1, 1.5)),
        ("check_counter c(10) packets == 2", s.CheckCounter(1, "c", 10, False, "==", 2)),
        ("check_counter c($A)", s.CheckCounter(1, "c", "$A", False, None, 0)),
        ("check_counter c(0) bytes >= 0x10", s.CheckCounter(1, "c", 0, True, ">=", 16)),
        ("check_register a.r(1) != 5", s.CheckRegister(1, "a.r", 1, "!=", 5)),
        ("mirroring_add 5 4", s.MirrorToPort(1, 5, 4)),
        ("mirroring_add_mc 8 3", s.MirrorToGroup(1, 8, 3)),
        ("mirroring_delete 8", s.MirrorDelete(1, 8)),
        ("mirroring_get 8", s.MirrorGet(1, 8)),
        ("mc_mgrp_create 1113", s.GroupCreate(1, 1113)),
        ("mc_node_create 257 6 8", s.NodeCreate(1, 257, (6, 8))),
        ("mc_node_update 0 6", s.NodeUpdate(1, 0, (6,))),
        ("mc_node_associate 1113 0", s.NodeAssociate(1, 1113, 0)),
        ("counter_read a.c 1", s.CounterRead(1, "a.c", 1)),
        ("counter_write a.c 1 2 3", s.CounterWrite(1, "a.c", 1, 2, 3)),
        ("register_read a.r 1", s.RegisterRead(1, "a.r", 1)),
        ("register_write a.r 1 0x64", s.RegisterWrite(1, "a.r", 1, 100)),
        ("register_reset a.r", s.RegisterReset(1, "a.r")),
        ("meter_get_rates a.m 2", s.MeterRead(1, "a.m", 2)),
        (
            "meter_set_rates a.m 2 0.000005:4 0.00002:5",
            s.MeterWrite(1, "a.m", 2, (s.MeterRate(0.000005, 4), s.MeterRate(0.00002, 5))),
        ),
        (
            "meter_array_set_rates a.m 1:7 2:9",
            s.MeterWrite(1, "a.m", None, (s.MeterRate(1, 7), s.MeterRate(2, 9))),
        ),
    ],
)
def test_every_other_statement(line: str, statement: s.Statement) -> None:
    assert parse(line) == (statement,)


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("addd t a()", 1, "there is no command 'addd'"),
        ("add t a:", 9, "a number is expected"),
        ("add t a:5 act(x 5)", 17, "`:` is expected"),
        ("add t a:5 act(x:5", 18, "`,` or `)`"),
        ("add t a:5 act() B", 17, "nothing is expected after this"),
        ("add t a:5 act() = ", 18, "the entry's handle"),
        ("add t a:1.5 act()", 9, "a whole number"),
        ("add t a:5/0x** act()", 11, "a prefix length is a whole number"),
        ("packet x 00", 8, "a port number"),
        ("packet 0 00 0x", 14, "'x' is no digit"),
        ("packet 0 000", 9, "3 digits are no whole bytes"),
        ("expect 0 00$00", 12, "'$' is no digit"),
        ("check_counter c(1) things == 1", 20, "`packets` or `bytes`"),
        ("check_counter c(1) bytes = 1", 26, "a comparison is expected"),
        ("mc_mgrp_create", 15, "a group is expected"),
        ("wait & ", 6, "unexpected character"),
    ],
)
def test_errors_point(line: str, column: int, message: str) -> None:
    with pytest.raises(VectorError) as caught:
        parse(f"\n{line}", "x.stf")
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (2, column)
    head, text, caret = str(caught.value).split("\n")
    assert head.startswith(f"x.stf:2:{column}: ")
    assert text == f"  {line}"
    assert caret.index("^") == 2 + column - 1


@given(st.text(max_size=60))
def test_arbitrary_text_gives_only_its_own_error(text: str) -> None:
    with contextlib.suppress(VectorError):
        assert isinstance(parse(text), tuple)


def test_differences() -> None:
    assert difference("0A*B", False, b"\x0a\xfb\x99") is None
    assert difference(None, False, b"") is None
    assert difference("0A", True, b"\x0a\x00") == "2 bytes came, 1 were expected"
    assert difference("0A0B", False, b"\x0a") == "1 bytes came, at least 2 were expected"
    assert difference("0A", False, b"\x0b") == "byte 0, low nibble: A was expected, B came"


def test_the_difference_is_shown_below_its_nibble() -> None:
    shown = side_by_side("00" * 16 + "0A", True, bytes(16) + b"\x0b\xff").split("\n")
    assert shown == [
        "   0 expected  " + " ".join(["00"] * 16),
        "     got       " + " ".join(["00"] * 16),
        "  16 expected  0A",
        "     got       0B FF",
        "                ^ ^^",
    ]
