"""One scenario in one deployment: bytes on links, latencies, what did not arrive, CPU of servers and agents.

Everything is reported at the paper's scale: where rates and links are divided by a factor, so that this
machine can carry them, counted rates are multiplied by it again. Latencies and CPU are as they were.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from treecast.agents.rabbitmq.connection import CallRefused, ConnectionLost
from treecast.middleware.api.discovery import Address
from treecast.middleware.dataplane.lab.lab import Lab, LabError

from ..figure import NotMeasured, Row, Task
from ..rabbitmq import missing
from .deployments import DEPLOYMENTS, Deployment
from .ends import SMALLEST, WARM, Publisher, Subscriber
from .scenarios import ACTIVE, GRACE, Scenario, Trial
from .sites import USER, Failed, Sites, described

IDLE_SECONDS: Final = 3.0
QUANTILES: Final = {
    "least ms": 0.0,
    "q1 ms": 0.25,
    "median ms": 0.5,
    "q3 ms": 0.75,
    "p99 ms": 0.99,
    "most ms": 1.0,
}
_LINK_QUANTILES: Final = {"least": 0.0, "q1": 0.25, "median": 0.5, "q3": 0.75, "most": 1.0}
_WARM_SECONDS: Final = 120.0
_LOOK: Final = 0.05  # seconds
_APART: Final = 1 << 24  # between the numbers of two scenarios
_WARMED: Final = 3  # messages at each subscriber, while all travel as they are to
_MBIT: Final = 1e6


def rows_of(trial: Trial, task: Task) -> list[Row]:
    """Returns the rows of a task, whose point is the mode in which the trial is run."""
    (mode,) = task.point
    return [{**row, "run": task.run} for row in run(trial, mode)]


def run(trial: Trial, mode: str) -> list[Row]:
    """Runs all scenarios in one deployment, in a lab of its own. Raises NotMeasured."""
    if reason := missing():
        raise NotMeasured(reason)
    with tempfile.TemporaryDirectory(prefix="treecast-snaps-") as folder:
        try:
            with Lab.up(described(trial.network, trial.wires)) as lab:
                sites = Sites(lab, trial.network, Path(folder))
                deployment = DEPLOYMENTS[mode](sites, trial.center)
                deployment.start(trial.hosts())
                return [asyncio.run(measured(deployment, scenario, trial)) for scenario in trial.scenarios]
        except (LabError, ConnectionLost, CallRefused) as error:
            raise NotMeasured(f"{mode}: {error}") from error


async def measured(deployment: Deployment, scenario: Scenario, trial: Trial) -> Row:
    """Returns the row of one scenario. Raises Failed."""
    sites, brokers = deployment.sites, deployment.brokers(scenario)
    interval = scenario.size * 8 / (scenario.rate / scenario.scale)
    sites.lab.shape(round(trial.wires.rate / scenario.scale))
    idle = await idle_share(sites, brokers)
    await asyncio.to_thread(deployment.begin, scenario)
    publisher, subscribers = await connected(deployment, scenario, interval)
    try:
        await warmed(deployment, scenario, publisher, subscribers)
        count = max(1, math.ceil(trial.seconds / interval))
        first = trial.scenarios.index(scenario) * _APART  # a late message of an earlier one is told by it
        for one in subscribers:
            one.begin(first, count)
        seen = await loaded(sites, brokers, publisher, first, count)
        await arrived(subscribers, count)
        if faults := [one.fault for one in (publisher, *subscribers) if one.fault]:
            raise Failed(f"{deployment.name}, {scenario.name}: a connection was lost: {faults[0]}")
    finally:
        for application in (publisher, *subscribers):
            await application.close()
        await asyncio.to_thread(deployment.end, scenario)
    return {
        "mode": deployment.name,
        "scenario": scenario.name,
        "Mbit/s": scenario.rate / _MBIT,
        "size": scenario.size,
        "scale": scenario.scale,
        **delivered(subscribers, count),
        **links_of(seen, scenario),
        "CPU %": round(100 * seen.cpu / seen.seconds, 1),
        "agents %": round(100 * seen.agents / seen.seconds, 1),
        "idle %": round(idle, 1),
        "CPU ms per message": round(1000 * (seen.cpu - idle / 100 * seen.seconds) / count, 3),
    }


async def idle_share(sites: Sites, brokers: Sequence[str]) -> float:
    """Returns what servers and agents take of a core while nothing is published, in percent."""
    before, begun = sites.cpu(brokers), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    return 100 * (sites.cpu(brokers) - before) / (time.monotonic() - begun)


async def connected(
    deployment: Deployment, scenario: Scenario, interval: float
) -> tuple[Publisher, list[Subscriber]]:
    """Returns the publisher and the subscribers, which consume."""
    sites, exchange = deployment.sites, deployment.exchange(scenario)

    def at(host: str) -> tuple[str, Address]:
        where = Address(*sites.address(deployment.server_of(host), host))
        return sites.lab.namespace(host), where

    publisher = Publisher(exchange, max(scenario.size, SMALLEST), interval)
    await publisher.connect(*at(scenario.publisher), USER)
    subscribers = [Subscriber(host) for host in scenario.subscribers]
    for one in subscribers:
        await one.connect(*at(one.host), USER)
        await one.consume(f"{scenario.name}-{one.host}", exchange)
    return publisher, subscribers


async def warmed(
    deployment: Deployment, scenario: Scenario, publisher: Publisher, subscribers: list[Subscriber]
) -> None:
    """Publishes slowly until messages reach all subscribers as they are to. Raises Failed."""
    end, good = time.monotonic() + _WARM_SECONDS, 0
    for number in itertools.count(WARM):
        wanted = [one.warmed + 1 for one in subscribers]
        publisher.publish(number)
        missing = await came(subscribers, wanted)
        joined = await asyncio.to_thread(deployment.joined, scenario)
        good = good + 1 if joined and not missing else 0
        if good == _WARMED:
            await asyncio.sleep(GRACE / 2)  # nothing of the warm-up is on its way then
            return
        if time.monotonic() > end:
            what = f"to {', '.join(missing)}" if missing else "by trees"
            raise Failed(f"{deployment.name}, {scenario.name}: nothing comes {what}")


async def came(subscribers: list[Subscriber], wanted: list[int]) -> list[str]:
    """Waits until each has had so many messages of the warm-up. Returns the hosts of those that have not."""
    for _ in range(round(GRACE / _LOOK)):
        await asyncio.sleep(_LOOK)
        missing = [one.host for one, count in zip(subscribers, wanted, strict=True) if one.warmed < count]
        if not missing:
            break
    return missing


class Seen(Struct, frozen=True):
    """Counters of the time in which messages were published. `cpu`: seconds of servers and agents,
    and `agents`, of these alone."""

    seconds: float
    cpu: float
    agents: float
    links: dict[tuple[str, str], int]


async def loaded(sites: Sites, brokers: Sequence[str], publisher: Publisher, first: int, count: int) -> Seen:
    """Publishes `count` messages, numbered from `first`."""
    before, begun = sites.received(), time.monotonic()
    cpu, agents = sites.cpu(brokers), sites.cpu_of_agents(brokers)
    await publisher.run(first, count)
    seconds, after = time.monotonic() - begun, sites.received()
    cpu, agents = sites.cpu(brokers) - cpu, sites.cpu_of_agents(brokers) - agents
    return Seen(seconds, cpu, agents, {link: after[link] - before[link] for link in after})


async def arrived(subscribers: list[Subscriber], count: int) -> None:
    """Waits until all has arrived, or the time for it is over."""
    for _ in range(round(GRACE / _LOOK)):
        if all(one.came == count for one in subscribers):
            return
        await asyncio.sleep(_LOOK)


def delivered(subscribers: Sequence[Subscriber], count: int) -> dict[str, Any]:
    """Returns how many messages arrived, and the distribution of their latencies in ms."""
    found = sorted(one for subscriber in subscribers for one in subscriber.latencies if one >= 0)
    expected = count * len(subscribers)
    ms = {name: round(quantile(found, share) / 1e6, 3) for name, share in QUANTILES.items()}
    return {
        "published": count,
        "loss %": round(100 * (1 - len(found) / expected), 3),
        "twice": sum(one.twice for one in subscribers),
        **ms,
        "latencies ms": [round(quantile(found, share / 100) / 1e6, 3) for share in range(101)],
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns the quantile of sorted values (the nearest one); NaN is never returned: 0 for none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def links_of(seen: Seen, scenario: Scenario) -> dict[str, Any]:
    """Returns the rates of active links in Mbit/s at the paper's scale, and the largest of the others."""
    scaled = {link: size * 8 * scenario.scale / seen.seconds / _MBIT for link, size in seen.links.items()}
    least = ACTIVE * scenario.rate / _MBIT
    active = {link: rate for link, rate in scaled.items() if rate >= least}
    rates = sorted(active.values())
    boxes = {f"link {name}": round(quantile(rates, share), 3) for name, share in _LINK_QUANTILES.items()}
    return {
        "links": len(active),
        **boxes,
        "other links": round(max([rate for rate in scaled.values() if rate < least], default=0.0), 3),
        "by link": {f"{tail}-{head}": round(rate, 3) for (tail, head), rate in sorted(active.items())},
    }
