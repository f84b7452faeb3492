"""The fabric's carriers over bridges and relayed links: traffic counted at the ends of wires.

All fabrics are in this process; their sockets are in the namespaces.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.network.conftest import StartLab
from tests.unit.fabric.edges import IP_MULTICAST, KEYS, STREAM, Collected, join, until

from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import Origin
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import FabricCounters

HOSTS = ("alpha", "beta", "gamma", "delta")
START = Progress(0, 0)
PORT = 7672
STATE = 5000
MESSAGES, BYTES = 100, 10_000
_NOISE = 60  # frames: reports, heartbeats, and those of the kernel itself
_TRIES = 60
_NDP_SECONDS = 0.1

PAIR = """
[hosts.alpha]
[hosts.beta]
[[links]]
between = ["alpha", "beta"]
relay = true
"""


def switched(bridge: Bridge) -> Description:
    return Description(
        hosts=dict.fromkeys(HOSTS, Host()),
        bridges={"lan": bridge},
        links=tuple(Link((host, "lan")) for host in HOSTS),
    )


def in_host(made: Lab, host: str, function: Callable[[], None]) -> None:
    inside(made.namespace(host), function)


@asynccontextmanager
async def fabrics(
    made: Lab, *hosts: str, ipv6: bool = False, settings: FabricSettings | None = None
) -> AsyncIterator[dict[str, Fabric]]:
    loop = asyncio.get_running_loop()
    started: dict[str, Fabric] = {}
    for number, host in enumerate(hosts, 1):
        fabric = Fabric(
            number, settings or FabricSettings(stream=STREAM), KEYS, FabricCounters(), random.Random(number)
        )
        address = (made.ipv6(host) if ipv6 else made.ipv4(host), PORT)
        in_host(made, host, lambda fabric=fabric, address=address: fabric.open(address, loop))
        started[host] = fabric
    for one in started.values():
        for other in started.values():
            if one is not other:
                one.set_host(other.host, other.address)
    try:
        yield started
    finally:
        for fabric in started.values():
            fabric.close()


def stream(origin_of: Fabric, *receivers: Fabric) -> tuple[Origin, list[Collected]]:
    origin = origin_of.originate(7, 1)
    sinks = []
    for fabric in receivers:
        origin.add_receiver(fabric.host, 0)
        sinks.append(Collected())
        fabric.join(origin_of.host, 7, 1, sinks[-1], progress=START)
    return origin, sinks


async def carry(origin: Origin, sinks: list[Collected], count: int = MESSAGES) -> None:
    """Sends messages of BYTES, a few at a time, and waits until all have arrived everywhere."""
    want = origin.end + count
    for number in range(count):
        origin.publish(bytes([number % 256]) * BYTES, 1)
        if number % 10 == 9:
            await until(lambda: all(len(sink.deliveries) >= origin.end for sink in sinks))
    await until(lambda: all(len(sink.deliveries) == want for sink in sinks))
    for sink in sinks:
        assert [one.message.sequence for one in sink.deliveries] == list(range(want))


def frames(made: Lab, direction: str) -> dict[str, int]:
    return {host: made.counters(host)[f"{direction}_bytes"] for host in HOSTS}


@pytest.mark.parametrize("ipv6", [False, True])
async def test_multicast_crosses_each_link_once_and_reaches_members_only(lab: StartLab, ipv6: bool) -> None:
    """Measured at the interfaces; the fourth host, which subscribes to nothing, gets almost no bytes."""
    made = lab(switched(Bridge()))
    async with fabrics(made, *HOSTS, ipv6=ipv6) as at:
        heard: set[int] = set()
        for host in ("beta", "gamma"):
            fabric = at[host]
            in_host(made, host, lambda fabric=fabric: join(fabric, STATE))
            fabric.on_probe = lambda *_, number=fabric.host: heard.add(number)
        origin, sinks = stream(at["alpha"], at["beta"], at["gamma"])
        await carry(origin, sinks, 1)
        for _ in range(_TRIES):
            at["alpha"].send_probe(IP_MULTICAST, STATE, 1, ())
            await asyncio.sleep(_NDP_SECONDS)
            if heard == {2, 3}:
                break
        origin.use_carrier(IP_MULTICAST, heard, STATE)
        published = MESSAGES * BYTES
        for _ in range(_TRIES):  # the bridge floods until its querier has been up for half a second
            sent, received = frames(made, "tx"), frames(made, "rx")
            await carry(origin, sinks)
            sent = {host: count - sent[host] for host, count in frames(made, "tx").items()}
            received = {host: count - received[host] for host, count in frames(made, "rx").items()}
            assert published < sent["alpha"] < 1.2 * published
            for host in ("beta", "gamma"):
                assert published < received[host] < 1.2 * published
            if received["delta"] < 0.1 * published:
                break
        assert received["delta"] < 0.1 * published
        assert all(row.balanced for row in origin.rows().values())


async def test_unicast_to_two_hosts_is_sent_twice(lab: StartLab) -> None:
    made = lab(switched(Bridge()))
    async with fabrics(made, *HOSTS) as at:
        origin, sinks = stream(at["alpha"], at["beta"], at["gamma"])
        sent = made.counters("alpha")["tx_bytes"]
        await carry(origin, sinks)
        sent = made.counters("alpha")["tx_bytes"] - sent
        assert 2 * MESSAGES * BYTES < sent < 2.2 * MESSAGES * BYTES


@pytest.mark.parametrize("ipv6", [False, True])
async def test_a_burst_arrives_over_a_relayed_link_as_packets_of_the_path(lab: StartLab, ipv6: bool) -> None:
    """One UDP_SEGMENT call becomes one frame per datagram there, none longer than the link allows."""
    made = lab(PAIR)
    async with fabrics(made, "alpha", "beta", ipv6=ipv6) as at:
        origin, sinks = stream(at["alpha"], at["beta"])
        await carry(origin, sinks, 1)
        before, _ = made.link("alpha", "beta").settled()
        calls = at["alpha"].counters.send_calls
        await carry(origin, sinks)
        after, _ = made.link("alpha", "beta").settled()
        segments = MESSAGES * -(-BYTES // (at["alpha"].stream_settings.mtu - 56))
        assert segments <= after.received - before.received < segments + 2 * _NOISE
        assert at["alpha"].counters.send_calls - calls < segments
        assert at["alpha"].counters.offload_refused == 0


async def test_loss_duplication_and_reordering_at_once(lab: StartLab) -> None:
    made = lab(PAIR)
    async with fabrics(made, "alpha", "beta") as at:
        origin, sinks = stream(at["alpha"], at["beta"])
        await carry(origin, sinks, 1)
        made.link("alpha", "beta").change(loss=0.1, duplicate=0.05, reorder=0.05)
        await carry(origin, sinks)
        origin.close()
        await until(lambda: origin.finished)
        row = origin.rows()[2]
        assert (row.addressed, row.outstanding, row.balanced) == (MESSAGES + 1, 0, True)
        assert row.repaired > 0


async def test_a_host_that_was_cut_off_goes_on_where_it_was(lab: StartLab) -> None:
    made = lab(PAIR)
    async with fabrics(made, "alpha", "beta") as at:
        origin, sinks = stream(at["alpha"], at["beta"])
        await carry(origin, sinks, 10)
        made.link("alpha", "beta").cut()
        for _ in range(50):
            origin.publish(b"x" * BYTES, 1)
        await asyncio.sleep(0.2)
        assert len(sinks[0].deliveries) == 10
        made.link("alpha", "beta").heal()
        await until(lambda: len(sinks[0].deliveries) == 60)


@pytest.mark.parametrize("ipv6", [False, True])
async def test_groups_beyond_the_bound_of_one_socket_all_reach_the_one_receiver(
    lab: StartLab, ipv6: bool
) -> None:
    made = lab(switched(Bridge()))
    async with fabrics(made, "alpha", "beta", ipv6=ipv6) as at:
        await _probe_all(made, at, 200)
        multicast = at["beta"].state().carriers[1]
        assert (multicast.targets, multicast.holders) == (200, 1 if ipv6 else 10)


@pytest.mark.slow
async def test_ten_thousand_groups(lab: StartLab) -> None:
    made = lab(switched(Bridge(hash_max=32768)))
    async with fabrics(made, "alpha", "beta") as at:
        await _probe_all(made, at, 10_000)
        multicast = at["beta"].state().carriers[1]
        assert (multicast.targets, multicast.holders) == (10_000, 500)


async def _probe_all(made: Lab, at: dict[str, Fabric], count: int) -> None:
    """Beta joins `count` groups and waits for a probe of each; lost probes are sent again."""

    def join_all() -> None:
        for number in range(count):
            join(at["beta"], STATE + number)

    heard: set[int] = set()
    at["beta"].on_probe = lambda _, state, nonce: heard.add(state if state == nonce else -1)
    in_host(made, "beta", join_all)
    for _ in range(_TRIES):
        for number in range(STATE, STATE + count):
            if number not in heard:
                at["alpha"].send_probe(IP_MULTICAST, number, number, ())
                if number % 100 == 0:
                    await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        if len(heard) == count:
            break
    assert heard == set(range(STATE, STATE + count))


@pytest.mark.parametrize("ipv6", [False, True])
async def test_packets_that_are_too_long_for_the_path_go_in_fragments(lab: StartLab, ipv6: bool) -> None:
    """A router's second link is narrower. IPv4 routers fragment packets; IPv6 routers report the limit to the
    sender.

    Then the kernel refuses bursts on that path, and packets are sent one by one.
    """
    made = lab(
        '[hosts.alpha]\n[hosts.beta]\n[routers.north]\n[[links]]\nbetween = ["alpha", "north"]\n'
        '[[links]]\nbetween = ["north", "beta"]\nmtu = 1300\n'
    )
    async with fabrics(made, "alpha", "beta", ipv6=ipv6) as at:
        assert at["alpha"].state().segment_bytes == (1500 - 56 if ipv6 else 1500 - 36)
        origin, sinks = stream(at["alpha"], at["beta"])
        await carry(origin, sinks, 20)
        unicast = at["alpha"].state().carriers[0]
        assert unicast.one_by_one == ((f"[{made.ipv6('beta')}]:{PORT}",) if ipv6 else ())
