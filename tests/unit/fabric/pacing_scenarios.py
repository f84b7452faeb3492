"""Scenarios of pacing over modelled links, each drawn from a seed. They run in virtual time.

Each returns its figures, and raises AssertionError if an invariant (`invariants`) or its own bound is broken.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.unit.fabric.invariants import CheckedStations
from tests.unit.fabric.links import Weather
from tests.unit.fabric.stations import Group

from treecast.middleware.fabric.core.accounting import Row
from treecast.middleware.fabric.core.settings import StreamSettings

Measured = dict[str, float]
ORIGIN = 1


@dataclass
class Drawn:
    """A link and a load."""

    random: random.Random
    rate: float  # bytes per second of a link
    weather: Weather
    settings: StreamSettings
    members: list[int]
    size: int  # bytes of a message

    def stations(self, seed: int, hosts: int, patience: float = 3.0) -> CheckedStations:
        return CheckedStations(seed, self.weather, self.settings, hosts, patience=patience)


def draw(seed: int, *, uplink: bool, loss: float = 0.0, first: int = 2) -> Drawn:
    """`uplink`: the links from origins are narrow; else those to receivers, whose queues are short."""
    own = random.Random(seed)
    rate = own.uniform(3e6, 12e6)
    queue = int(rate * own.uniform(0.004, 0.03)) + 30_000
    weather = Weather(
        loss=loss,
        delay=own.choice([0.0002, 0.001, 0.005]),
        jitter=own.choice([0.0, 0.0002, 0.002]),
        rate=0.0 if uplink else rate,
        queue=0 if uplink else queue,
        uplink=rate if uplink else 10 * rate,
    )
    settings = StreamSettings(
        mtu=own.choice([1400, 4000, 8900, 8900]), retain_bytes=1 << 30, log_bytes=1 << 30
    )
    members = list(range(first, first + own.randint(2, 4)))
    return Drawn(own, rate, weather, settings, members, own.choice([1000, 6000, 60_000]))


def load(stations: CheckedStations, group: Group, drawn: Drawn, size: int) -> None:
    stations.publish(group, drawn.size, size // drawn.size)


def finish(stations: CheckedStations, seconds: float) -> float:
    """Waits until all hosts have all messages and, within 5 s, all accounts close. Returns the time to
    complete.
    """
    begun = stations.now
    groups = list(stations.groups.values())
    done = stations.run_until(lambda: all(stations.complete(group) for group in groups), seconds)
    assert done, f"not complete after {seconds:.1f} s: {lacking(stations)}"
    took = stations.now - begun

    def rows() -> list[Row]:
        return [group.sender.row(host) for group in groups for host in group.members]

    assert stations.run_until(lambda: all(row.closed for row in rows()), 5), "accounts stay open"
    assert all(row.balanced for row in rows())
    return took


def lacking(stations: CheckedStations) -> str:
    found = []
    for group in stations.groups.values():
        for host in group.members:
            peer = group.sender.peers.get(host)
            state = peer.state.name if peer is not None else "-"
            found.append(f"{host}: {stations.next[host, group.key]}/{group.sender.end} {state}")
    return ", ".join(found)


def copies(stations: CheckedStations) -> float:
    """Returns the bytes on the origins' links for each published byte."""
    published = sum(sum(map(len, group.payloads.values())) for group in stations.groups.values())
    return sum(stations.sent_bytes.get(group.key[0], 0) for group in _one_each(stations)) / published


def _one_each(stations: CheckedStations) -> list[Group]:
    """Returns one group of each origin."""
    return list({group.key[0]: group for group in stations.groups.values()}.values())


def fairness(stations: CheckedStations, groups: list[Group], seconds: float) -> float:
    """Returns the slower group's live bytes divided by the faster one's, when that one is done."""
    reached = stations.run_until(lambda: not all(group.sender.live.waits() for group in groups), seconds)
    assert reached, lacking(stations)
    sent = [group.sender.live.bytes for group in groups]
    return min(sent) / max(sent)


EACH = 800_000  # bytes of a burst
_JITTERS = 200  # at least so many jitters long: only over many of them do two streams share a link evenly


def two_streams(seed: int) -> Measured:
    """Two groups of one origin share its link."""
    drawn = draw(seed, uplink=True)
    stations = drawn.stations(seed, 1 + len(drawn.members))
    groups = [stations.group(ORIGIN, number, drawn.members) for number in (7, 8)]
    stations.run(0.2)
    each = max(EACH, int(_JITTERS * drawn.weather.jitter * drawn.rate))
    for group in groups:
        load(stations, group, drawn, each)
    line = 2 * each / drawn.rate
    begun = stations.now
    share = fairness(stations, groups, 4 * line + 2)
    finish(stations, 4 * line + 2)
    measured = {"fairness": share, "times": (stations.now - begun) / line, "copies": copies(stations)}
    return measured


def two_origins(seed: int) -> Measured:
    """A group of each of two origins share the links to their common receivers."""
    drawn = draw(seed, uplink=False, first=3)
    stations = drawn.stations(seed, 2 + len(drawn.members))
    groups = [stations.group(origin, 7, drawn.members) for origin in (1, 2)]
    stations.run(0.2)
    for group in groups:
        load(stations, group, drawn, EACH)
    line = 2 * EACH / drawn.rate
    begun = stations.now
    share = fairness(stations, groups, 6 * line + 3)
    finish(stations, 6 * line + 3)
    return {"fairness": share, "times": (stations.now - begun) / line, "copies": copies(stations)}


def lossy(seed: int) -> Measured:
    """2 % to 20 % of all packets are lost, both ways: some repairs are asked for many times."""
    loss = random.Random(seed ^ 0x5A5A).uniform(0.02, 0.2)
    drawn = draw(seed, uplink=True, loss=loss)
    stations = drawn.stations(seed, 1 + len(drawn.members), patience=8.0)
    group = stations.group(ORIGIN, 7, drawn.members)
    stations.run(0.5)
    load(stations, group, drawn, EACH)
    line = EACH / (drawn.rate * (1 - loss))
    took = finish(stations, 20 * line + 10)
    return {"loss": loss, "times": took / line, "seconds": took, "copies": copies(stations)}


def comes_and_goes(seed: int) -> Measured:
    """During a burst one host joins, one leaves, one stalls and one is cut off for a while."""
    drawn = draw(seed, uplink=True)
    drawn.members = [2, 3, 4, 5]
    stations = drawn.stations(seed, 6, patience=4.0)
    group = stations.group(ORIGIN, 7, drawn.members)
    stations.run(0.2)
    load(stations, group, drawn, 2 * EACH)
    line = 2 * EACH / drawn.rate
    begun = stations.now
    own = drawn.random
    events: list[tuple[float, Callable[[], None]]] = [
        (own.uniform(0, line), lambda: stations.join(group, 6, own.choice([0, group.sender.end]))),
        (own.uniform(0, line), lambda: stations.leave(group, 3)),
        (own.uniform(0, line), lambda: stations.stall(4, own.uniform(0.05, 2.0))),
    ]
    cut_at, healed = own.uniform(0, line), own.uniform(0.02, 1.5)
    events += [(cut_at, lambda: stations.cut.add(5)), (cut_at + healed, lambda: stations.cut.discard(5))]
    for at, event in sorted(events, key=lambda one: one[0]):
        stations.run(max(0.0, begun + at - stations.now))
        event()
    steady = stations.run_until(lambda: stations.complete(group, [2]), 4 * line + 4)
    assert steady, lacking(stations)
    kept_up = stations.now - begun
    finish(stations, 8 * line + 12)
    return {"others_late": kept_up - line, "late": stations.now - begun - line, "copies": copies(stations)}


def loss_goes(seed: int) -> Measured:
    """Heavy loss ends: measures the time until the rate is that of the line again."""
    drawn = draw(seed, uplink=True)
    stations = drawn.stations(seed, 1 + len(drawn.members), patience=4.0)
    group = stations.group(ORIGIN, 7, drawn.members)
    stations.run(0.2)
    load(stations, group, drawn, int(drawn.rate * 0.8))
    stations.run(0.1)
    stations.weather.loss = drawn.random.uniform(0.1, 0.4)
    stations.run(drawn.random.uniform(0.1, 0.6))
    stations.weather.loss = 0.0
    begun = stations.now
    while stations.now < begun + 10:
        before = group.sender.live.bytes
        stations.run(0.1)
        if group.sender.live.bytes - before >= 0.8 * 0.1 * drawn.rate or not group.sender.live.waits():
            break
    back = stations.now - begun
    finish(stations, 20)
    return {"back": back, "copies": copies(stations)}


def small_beside_burst(seed: int) -> Measured:
    """Sends a message of 100 bytes every 10 ms beside a burst on another stream of its origin."""
    drawn = draw(seed, uplink=True)
    stations = drawn.stations(seed, 1 + len(drawn.members))
    burst = stations.group(ORIGIN, 7, drawn.members)
    small = stations.group(ORIGIN, 8, drawn.members)
    stations.run(0.2)
    for _ in range(30):
        stations.publish(small, 100)
        stations.run(0.01)
    idle = p99(stations.took[small.key])
    stations.took[small.key].clear()
    load(stations, burst, drawn, int(0.4 * drawn.rate))
    while not stations.complete(burst):
        stations.publish(small, 100)
        stations.run(0.01)
    beside = p99(stations.took[small.key])
    finish(stations, 10)
    return {"idle_ms": idle * 1e3, "beside_ms": beside * 1e3, "copies": copies(stations)}


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


SCENARIOS: dict[str, Callable[[int], Measured]] = {
    one.__name__: one
    for one in (two_streams, two_origins, lossy, comes_and_goes, loss_goes, small_beside_burst)
}

# The lower and upper bound by scenario and figure.
BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    "two_streams": {"fairness": (0.4, 1.0), "times": (0.0, 4.0), "copies": (0.0, 4.0)},
    "two_origins": {"fairness": (0.05, 1.0), "times": (0.0, 8.0), "copies": (0.0, 20.0)},
    "lossy": {"seconds": (0.0, 12.0), "copies": (0.0, 6.0)},
    "comes_and_goes": {"others_late": (-0.1, 3.0), "late": (-0.1, 10.0), "copies": (0.0, 6.0)},
    "loss_goes": {"back": (0.0, 3.0), "copies": (0.0, 5.0)},
    "small_beside_burst": {"idle_ms": (0.0, 20.0), "beside_ms": (0.0, 250.0), "copies": (0.0, 2.5)},
}
