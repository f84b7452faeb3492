"""Hosts that relay to hosts: three zones of four hosts on routers without multicast, and two tiers.

Copies into a zone are counted as bytes at the router's interfaces. All fabrics are in this process; their
sockets are in the namespaces.
"""

from __future__ import annotations

import asyncio
import os
import random

from msgspec.structs import replace
from tests.network.conftest import StartLab
from tests.unit.fabric.edges import KEYS, STREAM, until

from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link, Router
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside
from treecast.middleware.fabric.carriers.relay import NAME, Relay
from treecast.middleware.fabric.core.reorder import Delivery, Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import JoinedStream, Origin
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import FabricCounters

PORT = 7672
STREAM_ID = 7
START = Progress(0, 0)
# All fabrics share one processor here: a host that waits for it is not slow, and gets no replay.
PATIENT = replace(STREAM, quiet_after=20.0, slow_share=1.1)
BYTES = 50_000
BURST = 200  # messages: 10 MB
KILLS = int(os.environ.get("TREECAST_RELAY_KILLS", "3"))


class Counted:
    """A sink that checks order and content without keeping bytes."""

    def __init__(self, first: int = 0) -> None:
        self.next = first

    def deliver(self, deliveries: list[Delivery]) -> None:
        for one in deliveries:
            assert one.message.sequence == self.next
            assert one.message.payload == _payload(self.next)
            self.next += 1

    def failed(self, error: Exception) -> None:
        raise error


def _payload(number: int) -> bytes:
    return number.to_bytes(4) * (BYTES // 4)


class Site:
    """Fabrics in zones; the first host is the origin of one stream to all others."""

    def __init__(self, made: Lab, zones: dict[str, str], stream: StreamSettings = PATIENT) -> None:
        """`zones`: zone labels by host name."""
        self.settings = FabricSettings(stream=stream, carriers=(NAME,))
        self.made = made
        self.zones = zones
        self.names = list(zones)
        self.loop = asyncio.get_running_loop()
        self.at: dict[str, Fabric] = {}
        self.sinks: dict[str, Counted] = {}
        self.joined: dict[str, JoinedStream] = {}
        self.origin: Origin

    def start(self, name: str) -> Fabric:
        number = self.names.index(name) + 1
        fabric = Fabric(number, self.settings, KEYS, FabricCounters(), random.Random(number))

        def begin() -> None:
            fabric.open((self.made.ipv4(name), PORT), self.loop)
            for other, label in self.zones.items():
                host = self.names.index(other) + 1
                fabric.carriers.set_zone(host, label)  # opens the socket of its own zone's group
                if other != name:
                    fabric.set_host(host, (self.made.ipv4(other), PORT))

        inside(self.made.namespace(name), begin)
        self.at[name] = fabric
        return fabric

    def receive(self, name: str, progress: Progress = START) -> None:
        sink = self.sinks[name] = Counted(progress.next)
        self.joined[name] = self.at[name].join(1, STREAM_ID, 1, sink, progress=progress)

    async def begin(self) -> None:
        """Waits until all hosts are up and the carrier reaches them."""
        first = self.names[0]
        for name in self.names:
            self.start(name)
        self.origin = self.at[first].originate(STREAM_ID, 1)
        heard: set[int] = set()
        for name in self.names[1:]:
            fabric = self.at[name]
            fabric.on_probe = lambda *_, host=fabric.host: heard.add(host)
            self.origin.add_receiver(fabric.host, 0)
            self.receive(name)
        hosts = range(2, len(self.names) + 1)
        while heard != set(hosts):
            self.at[first].send_probe(NAME, 0, 1, hosts)
            await asyncio.sleep(0.05)
        self.origin.use_carrier(NAME, hosts)
        await self.send(1)

    async def send(self, count: int) -> None:
        await self.publish(count)
        await self.all_have(self.origin.end)

    async def publish(self, count: int) -> None:
        end = self.origin.end + count
        while self.origin.end < end:
            if self.origin.publish(_payload(self.origin.end), 1) is None:
                await asyncio.sleep(0.001)  # the log is full

    async def all_have(self, end: int) -> None:
        await until(lambda: all(sink.next >= end for sink in self.sinks.values()))

    def carrier(self, name: str) -> Relay:
        found = self.at[name].carriers.named(NAME)
        assert isinstance(found, Relay)
        return found

    def close(self) -> None:
        for fabric in self.at.values():
            fabric.close()


def described(zones: dict[str, str]) -> Description:
    """Returns a bridge for each zone, and a router between them; the router's interface `n` belongs to zone
    `n`."""
    labels = sorted(set(zones.values()))
    lans = {label: f"lan{number}" for number, label in enumerate(labels)}
    return Description(
        hosts=dict.fromkeys(zones, Host()),
        bridges=dict.fromkeys(lans.values(), Bridge()),
        routers={"core": Router()},
        links=(
            *(Link((lan, "core")) for lan in lans.values()),
            *(Link((host, lans[label])) for host, label in zones.items()),
        ),
    )


def entered(made: Lab, zones: dict[str, str]) -> dict[str, int]:
    """Returns the bytes that the router has sent into each zone."""
    labels = sorted(set(zones.values()))
    return {label: made.counters("core", f"eth{n}")["tx_bytes"] for n, label in enumerate(labels)}


def sent(made: Lab, hosts: list[str]) -> dict[str, int]:
    return {host: made.counters(host)["tx_bytes"] for host in hosts}


def less(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {key: count - before[key] for key, count in after.items()}


THREE = {f"{zone}{number}": zone for zone in "abc" for number in range(1, 5)}


async def test_one_copy_crosses_each_boundary_and_nobody_sends_more_than_twice_what_it_gets(
    lab: StartLab,
) -> None:
    made = lab(described(THREE))
    site = Site(made, THREE)
    try:
        await site.begin()
        await site.send(20)  # opens windows, and lets zone heads reply
        before, own = entered(made, THREE), sent(made, site.names)
        await site.send(BURST)
        published = BURST * BYTES
        crossed, own = less(entered(made, THREE), before), less(sent(made, site.names), own)
        assert published < crossed["b"] < 1.15 * published
        assert published < crossed["c"] < 1.15 * published
        assert crossed["a"] < 0.1 * published  # reports
        assert own["a1"] < 4.5 * published
        assert all(count < 2.3 * published for host, count in own.items() if host != "a1")
        site.origin.close()
        await until(lambda: site.origin.finished)
        rows = site.origin.rows().values()
        assert all(row.closed and row.addressed == BURST + 21 for row in rows)
    finally:
        site.close()


def reached(site: Site, name: str) -> frozenset[int]:
    """Returns the hosts that the group of a host's zone reaches."""
    group = site.carrier(name)._group
    assert group is not None
    return group.reached


def of_zone(site: Site, zone: str) -> list[str]:
    return [name for name in site.names if site.zones[name] == zone]


async def shared(site: Site, zone: str, hosts: int) -> str:
    """Sends until the zone's only forwarding host reaches so many others by multicast; returns its name."""
    names = of_zone(site, zone)
    async with asyncio.timeout(90):
        while True:
            before = {name: site.carrier(name).sent_on for name in names}
            await site.send(5)
            busy = [name for name in names if site.carrier(name).sent_on > before[name]]
            if len(busy) == 1 and len(reached(site, busy[0])) == hosts:
                return busy[0]
            await asyncio.sleep(0.05)


async def test_inside_a_zone_one_copy_goes_by_multicast(lab: StartLab) -> None:
    """No multicast crosses the router. The host that serves zone b sends one copy to its three others."""
    made = lab(described(THREE))
    site = Site(made, THREE)
    try:
        await site.begin()
        await shared(site, "b", 3)
        before, crossed = sent(made, of_zone(site, "b")), entered(made, THREE)
        await site.send(BURST)
        own, published = less(sent(made, of_zone(site, "b")), before), BURST * BYTES
        assert published < less(entered(made, THREE), crossed)["b"] < 1.15 * published
        assert published < sum(own.values()) < 1.5 * published
        site.origin.close()
        await until(lambda: site.origin.finished)
        assert all(row.closed and row.balanced for row in site.origin.rows().values())
    finally:
        site.close()


async def test_a_host_that_multicast_does_not_reach_gets_unicast(lab: StartLab) -> None:
    made = lab(described(THREE))
    site = Site(made, THREE)
    try:
        await site.begin()
        head = await shared(site, "b", 3)
        deaf = next(name for name in of_zone(site, "b") if name != head)
        group = site.carrier(deaf)._group
        assert group is not None
        group.close()
        head = await shared(site, "b", 2)
        assert site.names.index(deaf) + 1 not in reached(site, head)
        own = site.carrier(head).own_group()
        assert own is not None
        assert (own.name, own.lost, own.reached) == ("zone b", (site.names.index(deaf) + 1,), 2)
        assert "IGMP" in own.advice
        before = sent(made, of_zone(site, "b"))
        await site.send(BURST)
        own, published = less(sent(made, of_zone(site, "b")), before), BURST * BYTES
        assert 2 * published < sum(own.values()) < 2.5 * published
    finally:
        site.close()


async def test_two_tiers_are_entered_once_each(lab: StartLab) -> None:
    """Both zones of eu are behind their own router: traffic to it crosses once for both."""
    zones = {"u1": "us", "u2": "us", "x1": "eu/x", "x2": "eu/x", "y1": "eu/y", "y2": "eu/y"}
    lans = {"us": "lanu", "eu/x": "lanx", "eu/y": "lany"}
    made = lab(
        Description(
            hosts=dict.fromkeys(zones, Host()),
            bridges=dict.fromkeys(lans.values(), Bridge()),
            routers={"core": Router(), "europe": Router()},
            links=(
                *(Link(pair) for pair in (("lanu", "core"), ("core", "europe"))),
                *(Link((lan, "europe")) for lan in ("lanx", "lany")),
                *(Link((host, lans[label])) for host, label in zones.items()),
            ),
        )
    )
    site = Site(made, zones)
    try:
        await site.begin()
        await site.send(20)
        before = made.counters("core", "eth1")["tx_bytes"], made.counters("europe", "eth1")["tx_bytes"]
        inner = made.counters("europe", "eth2")["tx_bytes"]
        await site.send(BURST)
        published = BURST * BYTES
        assert published < made.counters("core", "eth1")["tx_bytes"] - before[0] < 1.15 * published
        assert published < made.counters("europe", "eth1")["tx_bytes"] - before[1] < 1.15 * published
        assert published < made.counters("europe", "eth2")["tx_bytes"] - inner < 1.15 * published
    finally:
        site.close()


async def _kill_and_restart(site: Site) -> None:
    """Kills the host that serves zone b in mid-stream; it comes back at its position and gets the rest."""
    await site.publish(10)
    before = {name: site.carrier(name).sent_on for name in site.names}
    await site.send(10)
    busy = {name: site.carrier(name).sent_on - before[name] for name in site.names[1:]}
    victim = max([name for name in busy if site.zones[name] == "b"], key=lambda name: busy[name])
    assert busy[victim]
    await site.publish(20)
    progress = site.joined[victim].progress
    site.at[victim].close()
    del site.sinks[victim]
    await site.publish(40)
    await site.all_have(site.origin.end)
    site.start(victim)
    site.receive(victim, progress)
    await site.send(1)


async def test_who_sends_on_is_killed_in_mid_stream_and_nothing_is_lost(lab: StartLab) -> None:
    """With settings by which the others soon continue without a dead host. `make crash-relay` kills 20
    times."""
    made = lab(described(THREE))
    site = Site(made, THREE, STREAM)
    try:
        await site.begin()
        for _ in range(KILLS):
            await _kill_and_restart(site)
        site.origin.close()
        await until(lambda: site.origin.finished)
        for row in site.origin.rows().values():
            assert (row.addressed, row.outstanding, row.balanced) == (site.origin.end, 0, True)
            assert not row.expired
    finally:
        site.close()
