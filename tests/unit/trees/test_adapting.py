"""Trees follow what publishers send: counts by carriers, a decision, and an update in the emulator while
packets are in flight."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from treecast.middleware.control.trees.adapting import FEWEST, THRESHOLDS, Observed, better_trees
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.evaluation.label_network import LabelNetwork
from treecast.middleware.model.tally import SetCount, Tally
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.routing.virtual.choice import measure
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import request
from treecast.middleware.routing.virtual.strategies import NEED_KNOWLEDGE, STRATEGIES, Knowledge, install

# Two rings of four with a link between them, a host at each switch.
RINGS = [*((n, (n + 1) % 4) for n in range(4)), *((4 + n, 4 + (n + 1) % 4) for n in range(4)), (3, 4)]
SAMPLE = 60


def rings() -> Network:
    return with_hosts(build([f"s{n}" for n in range(8)], RINGS))


def some_wishes(network: Network, rng: Random) -> list[tuple[int, list[int]]]:
    """Returns three publishers, each with two sets of receivers."""
    found = []
    for source in rng.sample(network.hosts, 3):
        others = [host for host in network.hosts if host != source]
        found += [(source, sorted(rng.sample(others, 4))) for _ in range(2)]
    return found


def labels(cloud: LabelNetwork, rules: RuleBase) -> float:
    asked = [request(cloud.network, source, receivers) for source, receivers in cloud.wanted]
    return measure(cloud.network, rules, asked)


def test_trees_follow_what_is_sent() -> None:
    network = rings()
    cloud = LabelNetwork(network, 5)
    cloud.wanted = some_wishes(network, Random(1))
    seen, rng = Observed(network, fewest=60), Random(2)

    async def look(manager: TreeManager) -> int:
        """Runs traffic for a while, then lets the manager look; returns whether there was an update."""
        cloud.pass_time(1.0, 100)
        seen.add(cloud.observed())
        trees = better_trees(manager.base, seen, rng, SAMPLE)
        if trees is None:
            return 0
        (await manager.update(trees)).check_invariants()
        return 1

    async def run() -> None:
        switches = cloud.switches()
        manager = TreeManager(network, switches, cloud, MemoryStore(), limit=2, life=1.0, sleep=cloud.sleep)
        await manager.start()
        for wishes in (cloud.wanted, some_wishes(network, Random(9))):
            cloud.wanted = wishes  # clients move
            before = labels(cloud, manager.rules)
            assert sum([await look(manager) for _ in range(3)]) > 0
            assert labels(cloud, manager.rules) < 0.85 * before
        assert await look(manager) == 0  # it comes to rest

    asyncio.run(run())
    assert cloud.under_way > 0
    assert cloud.got() == cloud.sent
    assert cloud.run.carried.astray == []


def test_what_was_seen() -> None:
    network = build(["s", "a", "b", "c"], [(0, 1), (0, 2), (0, 3)], hosts=[1, 2, 3])
    seen = Observed(network, fewest=0)
    seen.add({"a": {("b",): 10, ("b", "c"): 30, ("elsewhere",): 9, ("a",): 5}, "elsewhere": {("a",): 1}})
    assert seen.weights == {(1, (2,)): 10.0, (1, (2, 3)): 30.0}
    seen.add({"a": {("b",): 14, ("b", "c"): 3}})  # the second publisher restarted
    assert seen.weights == {(1, (2,)): 9.0, (1, (2, 3)): 18.0}
    knowledge = seen.knowledge(Random(1))
    assert {node: round(share, 3) for node, share in knowledge.subscribers[1].items()} == {2: 1.0, 3: 0.667}
    drawn = [members(asked.receivers) for asked in seen.sample(Random(1), 200)]
    assert {tuple(one) for one in drawn} == {(2,), (2, 3)}
    assert all(asked.receivers in (mask_of([2]), mask_of([2, 3])) for asked in seen.sample(Random(1), 9))
    assert drawn.count([2, 3]) > drawn.count([2])
    for _ in range(8):
        seen.add({"a": {("b",): 14, ("b", "c"): 3}})
    assert seen.weights == {}  # long ago


def test_nothing_is_decided_on_little() -> None:
    network = rings()
    seen, (source, other) = Observed(network), network.hosts[:2]
    assert Observed(network).sample(Random(1)) == []
    for count in (FEWEST // 2, FEWEST - 1):  # no count fades meanwhile
        seen.add({network.names[source]: {(network.names[other],): count}})
        assert seen.total == count
        assert better_trees(RuleBase(network, 3), seen, Random(1)) is None


@pytest.mark.parametrize("strategy", sorted(NEED_KNOWLEDGE))
def test_the_operators_strategy_alone_is_laid_once_it_is_known_what_is_sent(strategy: str) -> None:
    network, limit = rings(), 6
    draw = ("clusters", "hybrid", "hybrid-partitions")  # of the generator
    seen = Observed(network, fewest=60)
    for source, receivers in some_wishes(network, Random(1)):
        seen.weights[source, tuple(receivers)] = 50.0
    bare = RuleBase(network, limit)
    trees = better_trees(bare, seen, Random(2), SAMPLE, strategy)
    assert trees is not None
    wanted = [
        set(install(network, limit, STRATEGIES[strategy], seen.knowledge(rng, at), rng).trees.values())
        for at in THRESHOLDS
        for rng in [Random(2)]
    ]
    if strategy not in draw:
        assert set(trees) in wanted
    rules = RuleBase(network, limit)
    for edges in trees:
        rules.add(edges)
    sample = seen.sample(Random(3), SAMPLE)
    assert measure(network, rules, sample) <= 0.95 * measure(network, bare, sample)
    again = better_trees(rules, seen, Random(2), SAMPLE, strategy)
    assert again is None or strategy in draw, "it comes to rest"


def test_a_publisher_tallies_what_its_stacks_carried() -> None:
    """Deltas of the carrier add up to its counts, with the labels that switches got, also over a change of
    trees."""
    network = rings()
    cloud = LabelNetwork(network, 3)
    cloud.wanted = some_wishes(network, Random(4))
    for carrier in cloud.carriers.values():
        carrier.tally = Tally()
    taken: list[tuple[tuple[int, ...], SetCount]] = []

    async def run() -> None:
        switches = cloud.switches()
        manager = TreeManager(network, switches, cloud, MemoryStore(), limit=2, life=0.1, sleep=cloud.sleep)
        await manager.start()
        for seed in (1, 2):
            trees = list(install(network, 2, STRATEGIES["random"], Knowledge(), Random(seed)).trees.values())
            await manager.update(trees)
            cloud.pass_time(1.0, 40)
            for carrier in cloud.carriers.values():
                assert carrier.tally is not None
                taken.extend(carrier.tally.take().sets)

    asyncio.run(run())
    counted: dict[tuple[int, ...], int] = {}
    for hosts, one in taken:
        counted[hosts] = counted.get(hosts, 0) + one.packets
    wanted: dict[tuple[int, ...], int] = {}
    for carrier in cloud.carriers.values():
        for hosts, count in carrier._counts.items():
            wanted[hosts] = wanted.get(hosts, 0) + count
    assert counted == wanted
    assert len({one.header.version for _, one in taken}) > 1
    labels_counted = sum(
        one.packets * (one.header.hops + one.header.stops + len(one.header.trees)) for _, one in taken
    )
    assert 2 * labels_counted + 2 * sum(wanted.values()) == sum(
        one.packets * one.header.size for _, one in taken
    )
    assert labels_counted > 0
