"""Identifier routing with a service that moves, and highway monitoring, on the embedded target."""

from __future__ import annotations

import struct
from random import Random

from examples.camus.market import HERE, compiled_rules, switch_with

from treecast.middleware.dataplane.p4 import Switch, load_program
from treecast.middleware.dataplane.subscriptions.writes import Writer
from treecast.middleware.filters.compiler.changes import Installed
from treecast.middleware.filters.compiler.live import LiveRules
from treecast.middleware.filters.compiler.program import program_text
from treecast.middleware.filters.rules import parse_rules

CLIENT = 9


def request(identifier: int, locator: int = 0) -> bytes:
    head = bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, 4, 59, 64) + bytes(16)
    return head + struct.pack("!QQ", locator, identifier) + b"data"


def ports(switch: Switch, packet: bytes, now: float = 0.0) -> set[int]:
    out = switch.receive(CLIENT, packet, now)
    assert all(one.packet == packet for one in out)
    return {one.port for one in out}


def test_requests_find_a_service_by_its_identifier_alone() -> None:
    switch = switch_with(compiled_rules("ila"))
    for locator in (0, 7, 1 << 63):
        assert ports(switch, request(0x1001, locator)) == {1, 2}
        assert ports(switch, request(0x1003, locator)) == {3}
    assert ports(switch, request(0x1004)) == set()
    assert ports(switch, request(0x1001)[:40]) == set()


def test_no_request_is_lost_while_a_service_moves() -> None:
    """Packets after every write of the move go to the old home or the new one; others are not touched."""
    schema = compiled_rules("ila").schema
    order = tuple(range(len(schema.fields)))
    rules = LiveRules(schema, order)
    installed = Installed(rules)
    switch = Switch(load_program(program_text(schema, order), "generated.p4"), ports=range(16))
    writer = Writer(installed, schema, order, switch.control)
    writer.begin()
    _, _, third = rules.add(parse_rules((HERE / "ila.rules").read_text()).rules)
    for one in installed.change():
        writer.write(one)
    for home in (4, 1, 5):
        old = ports(switch, request(0x1003))
        rules.remove([third])
        (third,) = rules.add(parse_rules(f"identifier == 0x1003 : fwd({home})").rules)
        writes = 0
        for one in installed.change():
            writer.write(one)
            writes += 1
            assert ports(switch, request(0x1003)) in (old, {home})
            assert ports(switch, request(0x1001)) == {1, 2}
            assert ports(switch, request(0x1002)) == {2}
        assert ports(switch, request(0x1003)) == {home}
        assert 0 < writes < 10


def report(x: int, y: int, speed: int) -> bytes:
    payload = struct.pack("!IHHB", 1, x, y, speed)
    udp = struct.pack("!HHHH", 4711, 5055, 8 + len(payload), 0) + payload
    ip = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, 1, 2)
    return bytes(12) + b"\x08\x00" + ip + udp


def test_fast_cars_and_jams_are_seen() -> None:
    switch = switch_with(compiled_rules("highway"))
    rng = Random(5)
    speeds: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    for number in range(1500):
        now = number * 0.011
        x, y = rng.choice([(rng.randrange(8, 33), rng.randrange(28, 43)), (25, 35)])
        speed = rng.randrange(0, 30 if (x, y) == (25, 35) and int(now) % 3 else 90)
        if (x, y) == (25, 35) and int(now) % 3 == 1:
            speed //= 3
        wanted = {4}
        if 10 < x < 20 and 30 < y < 40 and speed > 55:
            wanted.add(1)
        if 15 <= x < 30 and 30 < y < 40 and speed > 55:
            wanted.add(2)
        if (x, y) == (25, 35):
            second = speeds.setdefault(round(now * 1e6) // 1_000_000, [])
            second.append(speed)
            if sum(second) // len(second) < 10:
                wanted.add(3)
        assert ports(switch, report(x, y, speed), now) == wanted
        for port in wanted:
            seen[port] = seen.get(port, 0) + 1
    assert seen[4] == 1500
    assert all(20 < seen[port] < 1000 for port in (1, 2, 3))
    assert ports(switch, report(15, 35, 60)[:50]) == set()
