"""Identifiers and aliases are p4c's: the expected numbers are from its own P4Info files."""

from __future__ import annotations

import pytest

from treecast.middleware.dataplane.p4.p4info.ids import IdError, Kind, Symbols, name_hash, number_fields


@pytest.mark.parametrize(
    ("kind", "name", "number"),
    [
        (Kind.ACTION, "NoAction", 21257015),
        (Kind.TABLE, "MyIngress.ipv4_lpm", 37375156),
        (Kind.ACTION, "MyIngress.ipv4_forward", 28792405),
        (Kind.CONTROLLER_HEADER, "packet_out_header_t", 76689799),
        (Kind.CONTROLLER_HEADER, "packet_in_header_t", 81826293),
    ],
)
def test_known_numbers(kind: Kind, name: str, number: int) -> None:
    symbols = Symbols()
    symbols.add(kind, name)
    symbols.assign()
    assert symbols.id(kind, name) == number


def test_a_taken_number_gives_way_to_the_next() -> None:
    symbols = Symbols()
    symbols.add(Kind.TABLE, "wanted", name_hash(b"t") & 0xFFFFFF)
    symbols.add(Kind.TABLE, "t")
    symbols.assign()
    assert symbols.id(Kind.TABLE, "t") == symbols.id(Kind.TABLE, "wanted") + 1
    assert symbols.id(Kind.TABLE, "wanted") >> 24 == Kind.TABLE


def test_given_numbers_are_checked() -> None:
    symbols = Symbols()
    symbols.add(Kind.TABLE, "a", 0x02000007)
    with pytest.raises(IdError, match="belongs to something else"):
        symbols.add(Kind.TABLE, "b", 7)
    with pytest.raises(IdError, match="no identifier of a table"):
        symbols.add(Kind.TABLE, "c", 0x01000008)


def test_the_alias_is_the_shortest_suffix_that_nothing_else_has() -> None:
    symbols = Symbols()
    for name in ("d.a.c", "e.b.c", "lonely", "x.same", "same"):
        symbols.add(Kind.TABLE, name)
    symbols.add(Kind.ACTION, "x.only")
    aliases = [symbols.alias(name) for name in ("d.a.c", "e.b.c", "lonely", "x.only", "x.same", "same")]
    assert aliases == ["a.c", "b.c", "lonely", "only", "x.same", "same"]


def test_fields_are_numbered_around_those_given() -> None:
    assert number_fields([None, None, None]) == [1, 2, 3]
    assert number_fields([None, 1, None]) == [2, 1, 3]
    assert number_fields([3, None, None]) == [3, 2, 4]
    with pytest.raises(IdError):
        number_fields([2, 2])
