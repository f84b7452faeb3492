"""Telemetry, video with a meter, views of records and IP on the embedded target, and three on one switch."""

from __future__ import annotations

import json
import struct
from random import Random

import pytest
from examples.camus.itch import feed, packet
from examples.camus.market import HERE, PUBLISHER, compiled_rules, switch_with
from tests.unit.p4.test_camus_examples import blocks, expected

from treecast.middleware.dataplane.p4 import Switch
from treecast.middleware.filters.actions import Forward
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.filters.rules import parse_rules
from treecast.middleware.model.records import Record

CLIENT = 9
ELSEWHERE = (10 << 24) + 0x050505


def ports(switch: Switch, data: bytes, now: float = 0.0) -> set[int]:
    out = switch.receive(CLIENT, data, now)
    assert all(one.packet == data for one in out)
    assert len({one.port for one in out}) == len(out)
    return {one.port for one in out}


def ipv4(payload: bytes, destination: int = ELSEWHERE, protocol: int = 17) -> bytes:
    head = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0, 1, destination)
    return bytes(12) + b"\x08\x00" + head + payload


def udp(port: int, payload: bytes, destination: int = ELSEWHERE) -> bytes:
    return ipv4(struct.pack("!HHHH", 4711, port, 8 + len(payload), 0) + payload, destination)


def telemetry(switch_id: int, latency: int, *, hops: int = 1, instructions: int = 0xA000) -> bytes:
    stack = struct.pack("!II", switch_id, latency) + bytes(8) * (hops - 1)
    shim = struct.pack("!BBBB", 1, 0, 3 + 2 * hops, 0) + struct.pack("!HBBHH", 0x1000, 2, 3, instructions, 0)
    return udp(5000, shim + stack + b"the application's own data")


@pytest.mark.parametrize("hops", [1, 3])
def test_collectors_get_what_was_slow(hops: int) -> None:
    switch = switch_with(compiled_rules("telemetry"))
    rng = Random(3)
    seen = {1: 0, 2: 0, 3: 0}
    for _ in range(1500):
        switch_id, latency = rng.randrange(1, 15), int(rng.paretovariate(0.5) * 10)
        wanted = {
            port
            for port, wants in (
                (1, switch_id == 2 and latency > 100),
                (2, latency > 1000),
                (3, switch_id in (11, 12) and latency > 50),
            )
            if wants
        }
        assert ports(switch, telemetry(switch_id, min(latency, 2**32 - 1), hops=hops)) == wanted
        for port in wanted:
            seen[port] += 1
    assert all(20 < count < 1000 for count in seen.values())


def test_other_telemetry_and_what_is_cut_off_goes_to_nobody() -> None:
    switch = switch_with(compiled_rules("telemetry"))
    slow = telemetry(2, 5000)
    assert ports(switch, slow) == {1, 2}
    assert ports(switch, telemetry(2, 5000, instructions=0x2000)) == set()
    assert ports(switch, slow[: len(slow) - 27]) == set()
    assert ports(switch, udp(5001, slow[42:])) == set()


def interest(content: int) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, 4, 6, 64) + bytes(16) + content.to_bytes(16)
    return bytes(12) + b"\x86\xdd" + head + b"tail"


HOT = 0x20010DB8 << 96
UPSTREAM, FORWARDER = 1, 2


def test_only_contents_that_are_asked_for_often_go_to_the_cache() -> None:
    """The sixth request within a window of 100 ms is the first that goes there. Each content has a meter."""
    switch = switch_with(compiled_rules("video"))
    rng = Random(2)
    asked: dict[tuple[int, int], int] = {}
    to_cache = 0
    for number in range(2000):
        now = number * 0.004 + 0.001  # never on the edge of a window
        content = HOT + rng.choice([1, 1, 1, 2, 3, 99, rng.randrange(100, 1 << 60)])
        key = (content, round(now * 1e6) // 100_000)
        asked[key] = asked.get(key, 0) + 1
        hot = content - HOT in (1, 2, 3) and asked[key] > 5
        assert ports(switch, interest(content), now) == {FORWARDER if hot else UPSTREAM}
        to_cache += hot
    assert 200 < to_cache < 1500


def test_hosts_and_racks_get_their_packets() -> None:
    switch = switch_with(compiled_rules("ip"))
    ten = 10 << 24
    for host, port in ((0x0101, 1), (0x0102, 2), (0x0201, 3), (0x02FF, 3), (0x0209, 4), (0x0103, 8)):
        assert ports(switch, ipv4(b"anything", ten + host, protocol=6)) == {port}
    assert ports(switch, ipv4(b"", 0xC0A80001)) == {8}


def record(topic: int, stock: str, price: int) -> tuple[bytes, Record]:
    """Returns a record as a packet with a content header, and as a topic stores it."""
    value = json.dumps({"topic": topic, "stock": stock, "price": price}).encode()
    content = struct.pack("!I8sI", topic, stock.ljust(8).encode(), price)
    return udp(7672, content + value), Record(None, value, (), 0)


def test_switches_and_views_agree() -> None:
    """The same filters on the same records: the switch's tables by the content header, a view by JSON."""
    switch = switch_with(compiled_rules("views"))
    views: list[tuple[int, RecordFilter]] = []
    for rule in parse_rules((HERE / "views.rules").read_text().replace("topic ==", "value.topic ==")).rules:
        (action,) = rule.actions
        assert isinstance(action, Forward)
        views.append((action.ports[0], RecordFilter(rule.filter, "orders", 0)))
    rng = Random(4)
    seen = {port: 0 for port, _ in views}
    for _ in range(1500):
        stock = rng.choice(["GOOGL", "AAPL", "TSLA", "T", "GOOG", "XT"])
        data, stored = record(rng.choice([7, 7, 7, 8]), stock, rng.randrange(1000))
        wanted = {port for port, view in views if view.matches(stored)}
        assert ports(switch, data) == wanted
        for port in wanted:
            seen[port] += 1
    assert all(50 < count < 1400 for count in seen.values())


@pytest.mark.parametrize("most", [1, 4])
def test_applications_beside_each_other_on_one_switch(most: int) -> None:
    """Market data, telemetry and plain IP, mixed: each subscriber gets the packets of its own application, as
    if that were alone."""
    switch = switch_with(compiled_rules("together"))
    rng = Random(6)
    bought: dict[int, int] = {}
    sequence, seen = 1, dict.fromkeys((1, 2, 3, 4, 5, 6, 10, 11), 0)
    market = feed(1000, Random(7), most)
    for number in range(1500):
        now = number * 0.002
        kind = rng.randrange(3)
        if kind == 0:
            messages = next(market)
            out = switch.receive(PUBLISHER, packet(messages, sequence), now)
            encoded = {id(m): m.encode(sequence + place) for place, m in enumerate(messages)}
            sequence += len(messages)
            want = expected(messages, round(now * 1e6) // 1_000_000, bought)
            assert {one.port: blocks(one.packet) for one in out} == {
                port: [encoded[id(m)] for m in kept] for port, kept in want.items()
            }
            wanted = set(want)
        elif kind == 1:
            switch_id, latency = rng.randrange(1, 4), rng.randrange(2000)
            wanted = {5} if switch_id == 2 and latency > 100 else set()
            wanted |= {6} if latency > 1000 else set()
            assert ports(switch, telemetry(switch_id, latency), now) == wanted
        else:
            host = rng.choice([0x0101, 0x0201, 0x0202, 0x0303])
            wanted = {0x0101: {10}, 0x0303: set()}.get(host, {11})
            assert ports(switch, ipv4(b"payload", (10 << 24) + host, protocol=6), now) == wanted
        for port in wanted:
            seen[port] += 1
    assert all(seen.values())
