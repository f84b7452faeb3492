"""A run's plan, determined by its seed: the network, the publishers, and the sequence of operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.wire.stare import FIRST_STATE

MOST_LINKS = 5  # per switch to other switches, so that it has at most 6 ports


@dataclass(frozen=True)
class Options:
    """The size of a run. Shares from 0 to 1, times in simulated seconds."""

    design: str = "embedded"
    states: int = 1000
    switches: int = 20
    vnfs: int = 40
    operations: float = 4.0  # per state, in addition to its first subscriptions
    rate: float = 10_000.0  # operations a second
    loss: float = 0.05
    duplicate: float = 0.01
    reorder: float = 0.05
    refresh: float = 30.0
    seed: int = 1
    settle: float = 600.0  # maximum


@dataclass(frozen=True)
class Operation:
    """`what`: publish, join or leave; `which` selects one of the possible ones."""

    what: str
    state: int
    which: float
    value: bytes = b""


def network_of(options: Options) -> Network:
    """Returns a random tree of switches with some extra links, and a host on each switch."""
    rng = Random(f"{options.seed}/network")
    count = options.switches
    edges: list[tuple[int, int]] = []
    degree = [0] * count
    for new in range(1, count):
        old = rng.choice([one for one in range(new) if degree[one] < MOST_LINKS - 1])
        edges.append((old, new))
        degree[old] += 1
        degree[new] += 1
    for _ in range(count // 4):
        free = [one for one in range(count) if degree[one] < MOST_LINKS]
        first, second = rng.sample(free, 2)
        edges.append((first, second))
        degree[first] += 1
        degree[second] += 1
    return with_hosts(build([f"s{number}" for number in range(count)], edges))


def states_of(options: Options) -> range:
    return range(FIRST_STATE, FIRST_STATE + options.states)


def publishers_of(options: Options) -> dict[int, list[int]]:
    """Returns the VNFs (numbers from 0) of each state; a tenth of the states has two."""
    rng = Random(f"{options.seed}/publishers")
    return {
        state: rng.sample(range(options.vnfs), 2 if rng.random() < 0.1 else 1) for state in states_of(options)
    }


def operations(options: Options) -> Iterator[Operation]:
    """Yields one to three subscriptions of every state in random order, then a mix of operations, half of
    them publishes."""
    rng = Random(f"{options.seed}/operations")
    states = states_of(options)
    first = [state for state in states for _ in range(rng.randint(1, 3))]
    rng.shuffle(first)
    for state in first:
        yield Operation("join", state, rng.random())
    for _ in range(round(options.operations * options.states)):
        what = rng.choice(("publish", "publish", "join", "leave"))
        value = (
            rng.randbytes(3000 if rng.random() < 0.01 else rng.randint(8, 60)) if what == "publish" else b""
        )
        yield Operation(what, rng.choice(states), rng.random(), value)
