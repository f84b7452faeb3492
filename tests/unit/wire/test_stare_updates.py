"""Update numbers as serial numbers; updates cut and reassembled; scapy builds and reads the same bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire import stare
from treecast.middleware.wire.stare_numbers import CYCLE, nearest, newer, on_wire, rebase, step
from treecast.middleware.wire.stare_updates import Parts, TooLargeError, cut, largest

WIRE = st.integers(0, CYCLE - 1)


@given(WIRE, WIRE)
def test_of_two_numbers_one_is_newer_unless_they_are_half_a_cycle_apart(one: int, other: int) -> None:
    assert newer(one, other) + newer(other, one) == ((one - other) % CYCLE not in (0, CYCLE // 2))
    assert (other + step(one, other)) % CYCLE == one
    assert newer(one, other) == (step(one, other) > 0)


@given(st.integers(0, 1 << 40), st.integers(-8191, 8191))
def test_a_whole_number_is_found_again_from_its_14_bits(expected: int, off: int) -> None:
    assert nearest(on_wire(expected + off), expected) == expected + off


@given(st.integers(0, CYCLE - 1), st.integers(0, 1 << 40))
def test_a_number_counted_from_nowhere_is_moved_by_whole_cycles(number: int, towards: int) -> None:
    by = rebase(number, towards)
    assert by % CYCLE == 0
    assert abs(number + by - towards) <= CYCLE // 2


@given(st.binary(max_size=2000), st.integers(32, 200), st.integers(0, 1 << 20), st.randoms())
def test_an_update_comes_back_from_its_segments_in_any_order(
    value: bytes, size: int, number: int, random: random.Random
) -> None:
    if len(value) > largest(size):
        with pytest.raises(TooLargeError):
            cut(300, 7, number, value, size)
        return
    datagrams = cut(300, 7, number, value, size)
    assert all(len(one) <= size + stare.HEADER_SIZE for one in datagrams)
    random.shuffle(datagrams)
    parts = Parts(stare.decode_header(datagrams[0]).total)
    for datagram in datagrams + datagrams[:1]:
        header = stare.decode_header(datagram)
        assert (header.state, header.vnf, header.update) == (300, 7, on_wire(number))
        parts.add(header.number, datagram[stare.HEADER_SIZE :])
    assert parts.whole
    assert parts.joined() == value
    assert parts.size == len(value)


def test_64_segments_are_the_most() -> None:
    assert len(cut(300, 7, 0, bytes(64 * 100), 100)) == 64
    with pytest.raises(TooLargeError):
        cut(300, 7, 0, bytes(64 * 100 + 1), 100)


# --- scapy, independent of `wire`


@pytest.fixture(scope="module")
def layer() -> type:
    """Defines STARE's header as a layer of scapy, bit by bit from the paper's figure 3."""
    scapy = pytest.importorskip("scapy.all")

    class Stare(scapy.Packet):  # type: ignore[misc, name-defined]
        name = "STARE"
        fields_desc = [  # noqa: RUF012
            scapy.BitField("kind", 0, 2),
            scapy.BitField("state", 0, 22),
            scapy.BitField("vnf", 0, 14),
            scapy.BitField("update", 0, 14),
            scapy.BitField("last", 0, 6),
            scapy.BitField("number", 0, 6),
        ]

    return Stare


def test_scapy_builds_the_same_bytes(layer: type) -> None:
    for kind, state, vnf, update, total, number in (
        (0, 256, 1, 0, 1, 0),
        (3, 4_194_303, 16_383, 16_383, 64, 63),
        (0, 70_000, 300, 9_000, 30, 17),
    ):
        header = stare.StareHeader(stare.StareKind(kind), state, vnf, update, total, number)
        built = layer(kind=kind, state=state, vnf=vnf, update=update, last=total - 1, number=number)
        assert bytes(built) == stare.encode_header(header)


def test_scapy_dissects_a_whole_packet(layer: type) -> None:
    from scapy.all import IP, UDP  # type: ignore[attr-defined]

    [datagram] = cut(70_000, 300, 9_000, b"value", 1464)
    group = ".".join(str(byte) for byte in stare.group(70_000))
    packet = IP(bytes(IP(dst=group, src="10.0.0.1") / UDP(sport=1, dport=stare.PORT) / datagram))
    assert len(packet) == stare.overhead() + len(b"value")
    bits = int.from_bytes(bytes(map(int, packet.dst.split("."))))
    assert (bits >> 24, bits >> 22 & 3, bits & 0x3FFFFF) == (0b11101111, 0, 70_000)
    seen = layer(bytes(packet[UDP].payload))
    assert (seen.kind, seen.state, seen.vnf, seen.update, seen.last, seen.number) == (
        0,
        70_000,
        300,
        9_000,
        0,
        0,
    )
    assert bytes(seen.payload) == b"value"
