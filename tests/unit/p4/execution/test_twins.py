"""Generated code behaves like the interpreter for all packets and entries."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from tests.unit.p4.execution import twins

from treecast.middleware.dataplane.p4.bits import csum16_bytes
from treecast.middleware.dataplane.p4.runtime import Switch

PARSED = (
    "01000000016400000265000003660000016701000001 0108000e0e 0203ffffffffffffffffffffffffffff 0201aabbccdd"
    " 02070102030405060708090a0b0c 03000102 040100ff0a0b 0503010203040506070809 05090102030405060708"
    " 0601aa000102030405 080000020180ff 080000030180ff 0900 0a00123456 07011122334455 c800 0b0001020304"
)


def routed(address: int) -> str:
    """Returns an IPv4 packet with a correct checksum."""
    header = bytes.fromhex("450000200001000040110000c0a80001") + address.to_bytes(4, "big")
    checksum = csum16_bytes(header).to_bytes(2, "big")
    return "0a0b0c0d0e0f0102030405060800" + (header[:10] + checksum + header[12:]).hex() + "00" * 12


def state_packets() -> list[str]:
    start = "0a0b0c0d0e0f010203040506080045000024000100004011f000c0a80001ef"
    return [f"{start}{kind:02x}0001aaaaff9800100000" for kind in (0x00, 0x80, 0xC0, 0xC0)]


def numbers() -> list[str]:
    sides = product((0, 200), (3, 255), (5, 251), range(0x30, 0x34), range(4))
    return [f"{a:02x}{b:02x}{c:02x}807fff{f:02x}0123456789abcdef{x:02x}" for a, b, c, f, x in sides]


def operations() -> list[str]:
    pairs = product(range(20), (0, 1, 3))
    return [f"{op:02x}{count:02x}{op * 257:04x}aabbccddeeff001122334455" for op, count in pairs]


def flows() -> list[str]:
    found = [f"{op:02x}{a:02x}{b:02x}09" for op, a, b in product(range(15), (0, 5, 9, 10), (1, 4, 250))]
    return [*found, "63010203"]


BASES = {
    "router": [routed(address) for address in (0, 1, 0x0A000001, 0x80000000, 0xFFFFFFFF)],
    "bitmask": state_packets(),
    "parsing": PARSED.split(),
    "copies": operations(),
    "numbers": numbers(),
    "flow": flows(),
}


def packets(name: str, random: Random, count: int) -> list[bytes]:
    """Yields known packets, packets with changed, missing or added bytes, and noise."""
    bases = [bytes.fromhex(text) for text in BASES[name]]
    found = list(bases)
    while len(found) < count:
        packet = bytearray(random.choice(bases))
        for _ in range(random.choice([0, 1, 2, 4])):
            packet[random.randrange(len(packet))] = random.choice([0, 1, 255, random.getrandbits(8)])
        packet += random.randbytes(random.choice([0, 0, 7]))
        cut = random.choice([len(packet), len(packet), random.randint(0, len(packet))])
        found.append(bytes(packet[:cut]))
    return [*found, *(random.randbytes(random.randint(0, 70)) for _ in range(10))]


def pair(name: str, seed: int) -> tuple[Switch, Switch]:
    plain, fast = twins.switch(name, interpret=True), twins.switch(name)
    assert (plain.engine, fast.engine) == ("interpreted", "generated")
    for one in (plain, fast):
        twins.fill(one, Random(seed))
    return plain, fast


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("name", twins.NAMES)
def test_generated_is_interpreted(name: str, seed: int) -> None:
    plain, fast = pair(name, seed)
    random = Random(seed)
    for number, packet in enumerate(packets(name, random, 90)):
        port, now = random.randrange(12), number * 0.01
        assert plain.receive(port, packet, now) == fast.receive(port, packet, now), packet.hex()
        assert plain.stats() == fast.stats(), packet.hex()
    assert twins.state(plain) == twins.state(fast)
    assert sum(port.packets_out for port in plain.stats().ports.values()) > 5


@pytest.mark.parametrize("name", twins.NAMES)
def test_entries_change_between_packets(name: str) -> None:
    plain, fast = pair(name, 5)
    random = Random(5)
    for number, packet in enumerate(packets(name, random, 30)[:60]):
        for table_of_plain, table_of_fast in zip(plain._machine.tables, fast._machine.tables, strict=True):
            twins.add_entry(plain, table_of_plain, Random(number))
            twins.add_entry(fast, table_of_fast, Random(number))
        assert plain.receive(1, packet, number) == fast.receive(1, packet, number)
    assert twins.state(plain) == twins.state(fast)
