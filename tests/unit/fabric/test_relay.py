"""Hosts that relay to other hosts: what they accept and refuse, and failover between them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Final

import pytest
from msgspec.structs import replace
from tests.unit.fabric.edges import KEYS, STREAM, Collected, fabrics, until

from treecast.middleware.fabric.carriers.carrier import Place
from treecast.middleware.fabric.carriers.relay import AT_ORIGIN, NAME, Relay, make
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import Origin
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.udp import shown
from treecast.middleware.wire.relay import MOST_HOPS, MOST_HOSTS, RelayHeader, RelayKind, encode_header
from treecast.middleware.wire.segment import NO_KEYS, KeyRing, Kind, control, encode
from treecast.middleware.wire.segment_bodies import Probe

SETTINGS: Final = FabricSettings(stream=STREAM, carriers=(NAME,))
ZONES: Final = {1: "a", 2: "a", 3: "b", 4: "b", 5: "b", 6: "c"}


def relay(fabric: Fabric) -> Relay:
    found = fabric.carriers.named(NAME)
    assert isinstance(found, Relay)
    return found


def place(made: list[Fabric], zones: dict[int, str]) -> None:
    for fabric in made:
        for host, label in zones.items():
            fabric.carriers.set_zone(host, label)


def streamed(made: list[Fabric]) -> tuple[Origin, dict[int, Collected]]:
    origin = made[0].originate(7, 1)
    sinks = {fabric.host: Collected() for fabric in made[1:]}
    for fabric in made[1:]:
        origin.add_receiver(fabric.host, 0)
        fabric.join(1, 7, 1, sinks[fabric.host], progress=Progress(0, 0))
    return origin, sinks


def probe_of(sender: int, keys: KeyRing = KEYS) -> bytes:
    segment = control(Kind.PROBE, sender, 0, 0, sender, Probe(0, 99).encode())
    return encode(segment, keys)


async def test_a_stream_goes_by_hosts_of_other_zones_and_accounts_close() -> None:
    async with fabrics(*ZONES, settings=SETTINGS) as made:
        place(made, ZONES)
        origin, sinks = streamed(made)
        origin.use_carrier(NAME, set(sinks))
        payloads = [bytes([number]) * 3000 for number in range(40)]
        for payload in payloads:
            origin.publish(payload, 1)
        await until(lambda: all(sink.payloads == payloads for sink in sinks.values()))
        origin.close()
        await until(lambda: origin.finished)
        assert all(row.closed and row.balanced for row in origin.rows().values())
        carried = sum(relay(fabric).sent_on for fabric in made[2:5])
        assert carried >= 2 * 40  # two hosts of zone b
        assert relay(made[0]).sent_on == 0


async def test_its_copies_are_those_that_it_sends() -> None:
    async with fabrics(*ZONES, settings=SETTINGS) as made:
        place(made, ZONES)
        one, addresses = relay(made[0]), {fabric.address: fabric.host for fabric in made}
        hosts = sorted(set(ZONES) - {1})
        for stream in range(20):
            copies = one.copies((1, stream, 1), 0, hosts)
            assert [{ZONES[host] for host in copy.hosts} for copy in copies] == [{"a"}, {"b"}, {"c"}]
            assert not any(server.used for server in one._servers.values())  # nobody is asked for that
            ways = one._find((tuple(hosts), 1 << 32 | stream, MOST_HOPS))
            assert [copy.hosts[0] for copy in copies] == [addresses[address] for _, address in ways]
            assert [copy.address for copy in copies] == [shown(address) for _, address in ways]


async def test_who_answers_nothing_is_replaced_and_comes_back() -> None:
    """Its socket is silent: it neither answers nor returns an error."""
    async with fabrics(*ZONES, settings=SETTINGS) as made:
        place(made, ZONES)
        one, nonce = made[0], 0
        heard: set[int] = set()
        for fabric in made[1:]:
            fabric.on_probe = lambda *_, host=fabric.host: heard.add(host)

        async def all_heard(hosts: set[int]) -> None:
            nonlocal nonce
            heard.clear()
            async with asyncio.timeout(60):
                while not heard >= hosts:
                    nonce += 1
                    one.send_probe(NAME, 0, nonce, sorted(set(ZONES) - {1}))
                    await asyncio.sleep(0.01)

        await all_heard({2, 3, 4, 5, 6})
        head = next(host for host, server in relay(one)._servers.items() if server.used)
        dead = made[head - 1]
        loop = asyncio.get_running_loop()
        loop.remove_reader(dead._udp.sock.fileno())
        await all_heard({2, 3, 4, 5, 6} - {head})
        assert relay(one)._shunned == {head}
        loop.add_reader(dead._udp.sock.fileno(), dead._on_readable, dead._udp)
        await until(lambda: not relay(one)._shunned)
        await all_heard({2, 3, 4, 5, 6})


async def test_what_has_no_tag_of_the_cluster_is_not_sent_on() -> None:
    async with fabrics(1, 2, 3, settings=SETTINGS) as made:
        heard: set[int] = set()
        for fabric in made[1:]:
            fabric.on_probe = lambda *_, host=fabric.host: heard.add(host)
        refused = made[1].counters.refused
        to = made[1].address
        send = made[0]._udp.sock.sendto
        forward = encode_header(RelayHeader(RelayKind.FORWARD, 16, (2, 3)))
        send(forward + probe_of(1, NO_KEYS), to)
        await until(lambda: "UNAUTHENTICATED" in refused)
        send(forward + probe_of(1)[:-1] + b"?", to)
        await until(lambda: "FORGED" in refused)
        send(encode_header(RelayHeader(RelayKind.HELLO, 1)) + probe_of(1, NO_KEYS), to)
        await until(lambda: refused["UNAUTHENTICATED"] == 2)
        send(encode_header(RelayHeader(RelayKind.FORWARD, 16, (3, 4))) + probe_of(1), to)
        await until(lambda: "NOT_NAMED" in refused)
        assert relay(made[1]).sent_on == 0
        assert not heard
        send(forward + probe_of(1), to)
        await until(lambda: heard == {2, 3})
        assert relay(made[1]).sent_on == 1


async def test_nothing_goes_round() -> None:
    """The list names its sender and unknown hosts; the last hop serves all the others itself."""
    async with fabrics(1, 2, 3, 4, 5, 6, settings=SETTINGS) as made:
        heard: list[int] = []
        for fabric in made:
            fabric.on_probe = lambda *_, host=fabric.host: heard.append(host)
        header = encode_header(RelayHeader(RelayKind.FORWARD, 1, (1, 2, 3, 4, 5, 6, 70, 80)))
        made[0]._udp.sock.sendto(header + probe_of(1), made[1].address)
        await until(lambda: sorted(heard) == [2, 3, 4, 5, 6])
        assert [relay(fabric).sent_on for fabric in made] == [0, 4, 0, 0, 0, 0]


async def test_a_host_that_lies_about_its_zone_costs_copies_and_loses_nothing() -> None:
    lied = {**ZONES, 4: "a", 5: "c", 6: "no zone/"}
    async with fabrics(*ZONES, settings=SETTINGS) as made:
        place(made[:3], ZONES)
        place(made[3:], lied)
        origin, sinks = streamed(made)
        origin.use_carrier(NAME, set(sinks))
        for number in range(40):
            origin.publish(bytes([number]) * 3000, 1)
        await until(lambda: all(len(sink.payloads) == 40 for sink in sinks.values()))


@pytest.mark.parametrize("count", [3, 70, 200])
async def test_an_origin_sends_few_copies_however_many_hosts_there_are(count: int) -> None:
    async with fabrics(1, settings=SETTINGS) as (one,):
        carrier, hosts = relay(one), tuple(range(2, 2 + count))
        for host in hosts:
            one.set_host(host, ("127.0.0.1", 20_000 + host))
        ways = carrier._ways_to(hosts, 5, 16)
        assert len(ways) == min(count, AT_ORIGIN) if count < MOST_HOSTS else len(ways) >= AT_ORIGIN
        assert len(ways) <= AT_ORIGIN * -(-count // MOST_HOSTS)
        assert carrier._ways_to(hosts, 5, 16) is ways


def test_what_is_closed_sends_nothing() -> None:
    carrier = make(SETTINGS)
    carrier.set_host(7, Place(("127.0.0.1", 1), "seven", "eu"))
    carrier.send(0, [b"x" * 40], [7])
    with pytest.raises(OSError, match="not open"):
        carrier.check(0)
    with closing(carrier):
        pass


# --- hosts that lie, die and disagree


async def carried(made: list[Fabric], count: int = 40) -> Origin:
    """Sends messages by relay until all others have them and all accounts are closed."""
    origin, sinks = streamed(made)
    origin.use_carrier(NAME, set(sinks))
    payloads = [bytes([number]) * 3000 for number in range(count)]
    for payload in payloads:
        origin.publish(payload, 1)
    await until(lambda: all(sink.payloads == payloads for sink in sinks.values()))
    origin.close()
    await until(lambda: origin.finished)
    assert all(row.closed and row.balanced for row in origin.rows().values())
    return origin


@pytest.mark.parametrize("label", ["a/b/../c", "x" * 300, "/", "a" + "/a" * 20])
async def test_a_label_that_is_none_puts_its_host_outside_all_zones(label: str) -> None:
    async with fabrics(*ZONES, settings=SETTINGS) as made:
        place(made, ZONES | {4: label})
        await carried(made)


async def test_hosts_that_see_different_zones_send_nothing_in_circles() -> None:
    """Each host takes itself for the one outside, so that each would have another of its list serve it."""
    async with fabrics(*ZONES, settings=SETTINGS) as made:
        for fabric in made:
            for host in ZONES:
                fabric.carriers.set_zone(host, "here" if host == fabric.host else f"there/{host % 2}")
        await carried(made)
        assert sum(relay(fabric).sent_on for fabric in made) <= 5 * 40  # less than a copy for each receiver


@pytest.mark.parametrize("hops", [1, 2, MOST_HOPS])
async def test_hosts_that_name_each_other_end_by_the_list(hops: int) -> None:
    """A says that it sends on for B, and B for A: each takes itself off the list."""
    async with fabrics(1, 2, 3, settings=SETTINGS) as made:
        place(made, {1: "a", 2: "b", 3: "c"})
        heard: list[int] = []
        for fabric in made[1:]:
            fabric.on_probe = lambda *_, host=fabric.host: heard.append(host)
        header = encode_header(RelayHeader(RelayKind.FORWARD, hops, (2, 3)))
        for to in (made[1], made[2]):
            made[0]._udp.send([header + probe_of(1)], to.address)
        await until(lambda: sorted(heard) == [2, 2, 3, 3])
        assert [relay(fabric).sent_on for fabric in made] == [0, 1, 1]


async def test_a_host_that_dies_between_choice_and_forwarding_is_passed_over() -> None:
    """Its socket is silent from the moment that the way through it is known."""
    stream = replace(STREAM, quiet_after=20.0, slow_share=1.1, hold_bytes=1 << 20)
    async with fabrics(*ZONES, settings=replace(SETTINGS, stream=stream)) as made:
        place(made, ZONES)
        origin, sinks = streamed(made)
        origin.use_carrier(NAME, set(sinks))
        origin.publish(b"first", 1)
        await until(lambda: all(sink.payloads == [b"first"] for sink in sinks.values()))
        head = next(host for host, server in relay(made[0])._servers.items() if server.used)
        dead = made[head - 1]
        asyncio.get_running_loop().remove_reader(dead._udp.sock.fileno())
        payloads = [b"first", *(bytes([number]) * 3000 for number in range(30))]
        for payload in payloads[1:]:
            origin.publish(payload, 1)
        await until(lambda: all(sink.payloads == payloads for host, sink in sinks.items() if host != head))
