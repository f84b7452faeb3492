"""The example applications on the embedded target, against predicates written by hand."""

from __future__ import annotations

from random import Random

import pytest
from examples.camus.itch import Executed, Message, Order, feed, packet
from examples.camus.market import INTERVAL, PUBLISHER, SUBSCRIBERS, compiled_rules, switch_with
from hypothesis import given, settings
from hypothesis import strategies as st


def wanted(order: Order, bought: int) -> set[int]:
    """Returns who wants an order; `bought`: Amazon's buy orders of this second, with this one."""
    ports = set()
    if order.stock == "GOOGL":
        ports |= {1}
    if order.stock == "AAPL" and order.price > 150_0000:
        ports |= {2}
    if order.stock == "MSFT" and order.side == "B" and order.shares >= 500:
        ports |= {2, 3}
    if order.stock.startswith("T") and (order.price < 50_0000 or order.shares > 900):
        ports |= {3}
    if order.stock == "AMZN" and order.side == "B" and bought > 3:
        ports |= {4}
    return ports


def expected(messages: list[Message], second: int, bought: dict[int, int]) -> dict[int, list[Message]]:
    """Returns the messages of each subscriber who wants some."""
    found: dict[int, list[Message]] = {}
    for one in messages:
        if isinstance(one, Order):
            if one.stock == "AMZN" and one.side == "B":
                bought[second] = bought.get(second, 0) + 1
            for port in wanted(one, bought.get(second, 0)):
                found.setdefault(port, []).append(one)
    return found


def blocks(frame: bytes) -> list[bytes]:
    """Returns the messages of a frame, and checks each length and the checksum of its headers."""
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    read = Ether(frame)
    rebuilt = read.copy()
    del rebuilt[IP].chksum
    assert IP(bytes(rebuilt[IP])).chksum == read[IP].chksum
    assert (read[IP].len, read[UDP].len) == (len(frame) - 14, len(frame) - 34)
    count, rest = int.from_bytes(frame[60:62]), frame[62:]
    found = []
    while rest:
        end = 2 + int.from_bytes(rest[:2])
        found.append(rest[2:end])
        rest = rest[end:]
    assert len(found) == count
    return found


@pytest.mark.parametrize("most", [1, 12])
def test_subscribers_of_market_data_get_what_they_want(most: int) -> None:
    switch = switch_with(compiled_rules())
    bought: dict[int, int] = {}
    seen = dict.fromkeys(SUBSCRIBERS, 0)
    sequence = 1
    for number, messages in enumerate(feed(1000, Random(7), most)):
        data = packet(messages, sequence)
        sent = [one.encode(sequence + place) for place, one in enumerate(messages)]
        sequence += len(messages)
        out = switch.receive(PUBLISHER, data, number * INTERVAL)
        want = expected(messages, int(number * INTERVAL * 1e6) // 1_000_000, bought)
        mine = {id(one): block for one, block in zip(messages, sent, strict=True)}
        assert {one.port: blocks(one.packet) for one in out} == {
            port: [mine[id(one)] for one in kept] for port, kept in want.items()
        }
        for port, kept in want.items():
            seen[port] += len(kept)
    assert all(0 < count < sequence - 1 for count in seen.values())


def test_lengths_of_messages_are_those_of_the_specification() -> None:
    assert len(Order("AAPL", "B", 1, 1).encode(1)) == 36
    assert len(Order("AAPL", "B", 1, 1, attributed=True).encode(1)) == 40
    assert len(Executed(1).encode(1)) == 31


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_packets_that_are_cut_or_damaged_go_to_nobody_who_did_not_ask(data: st.DataObject) -> None:
    switch = SWITCH
    whole = packet([Order("GOOGL", "B", 100, 1000)], 1)
    cut = data.draw(st.integers(0, 81))
    assert switch.receive(PUBLISHER, whole[:cut], 0.0) == []
    switch.receive(PUBLISHER, data.draw(st.binary(max_size=100)), 0.0)
    place = data.draw(st.integers(14, 14))
    options = bytes([*whole[:place], 0x46, *whole[place + 1 :]])  # IPv4 with options
    assert switch.receive(PUBLISHER, options, 0.0) == []


SWITCH = switch_with(compiled_rules())


# --- DNS

CLIENT, SERVER = 5, 8


def query(name: str, kind: int = 1, **fields: int) -> bytes:
    from scapy.layers.dns import DNS, DNSQR
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    frame = Ether(src="02:00:00:00:00:05", dst="02:00:00:00:00:53") / IP(src="10.0.0.5", dst="10.0.0.53")
    return bytes(
        frame / UDP(sport=4711, dport=53) / DNS(id=77, rd=1, qd=DNSQR(qname=name, qtype=kind), **fields)
    )


@pytest.mark.parametrize(("name", "address"), [("h105", "10.0.0.105"), ("h106", "10.0.0.106")])
def test_queries_are_answered_in_the_switch(name: str, address: str) -> None:
    """As another implementation reads the answer, with its checksums."""
    from scapy.layers.dns import DNS
    from scapy.layers.inet import IP
    from scapy.layers.l2 import Ether

    out = switch_with(compiled_rules("dns")).receive(CLIENT, query(name), 0.0)
    assert [one.port for one in out] == [CLIENT]
    answer = Ether(out[0].packet)
    found = answer[DNS]
    assert (found.id, found.qr, found.aa, found.rd, found.ancount) == (77, 1, 1, 1, 1)
    assert found.qd[0].qname == f"{name}.".encode()
    assert (found.an[0].rrname, found.an[0].rdata, found.an[0].ttl) == (f"{name}.".encode(), address, 60)
    assert (answer.dst, answer[IP].dst, answer[IP].src) == ("02:00:00:00:00:05", "10.0.0.5", "10.0.0.53")
    assert answer[IP].len == len(out[0].packet) - 14
    rebuilt = answer.copy()
    del rebuilt[IP].chksum
    assert IP(bytes(rebuilt[IP])).chksum == answer[IP].chksum


@pytest.mark.parametrize(
    "packet_",
    [
        query("h107"),
        query("h105.example"),
        query("h105", kind=28),
        query("host"),
        query("h105", qr=1),
        query("h105")[:60],
        b"no packet at all",
    ],
)
def test_everything_else_goes_to_the_server_unchanged(packet_: bytes) -> None:
    out = switch_with(compiled_rules("dns")).receive(CLIENT, packet_, 0.0)
    assert [(one.port, one.packet) for one in out] == [(SERVER, packet_)]
