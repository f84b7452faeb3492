"""Trees follow what publishers send: counts by carriers, a decision, and an update in the emulator while
packets are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.control.trees.adapting import FEWEST, Observed, better_trees
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.control.trees.told import read_trees, write_trees
from treecast.middleware.dataplane.emulator import LinkSettings
from treecast.middleware.evaluation.twins import FRAME, switched
from treecast.middleware.fabric.carriers.carrier import Place
from treecast.middleware.fabric.carriers.labels import BY_ETHERNET, LabelRules, Labels
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.routing.virtual.choice import measure
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import request

# Two rings of four with a link between them, a host at each switch.
RINGS = [*((n, (n + 1) % 4) for n in range(4)), *((4 + n, 4 + (n + 1) % 4) for n in range(4)), (3, 4)]
DELAY = 0.01
SAMPLE = 60


def rings() -> Network:
    return with_hosts(build([f"s{n}" for n in range(8)], RINGS))


class Port:
    """The wire of a publisher's carrier: it sends into the emulator."""

    address = "emulated"

    def __init__(self, cloud: Cloud, node: int) -> None:
        self._cloud, self._node = cloud, node

    def send(self, datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            self._cloud.run.put(self._node, FRAME + datagram)


class Cloud:
    """Daemons' label carriers on emulated switches. A host's id is its node number plus one."""

    def __init__(self, network: Network, seed: int) -> None:
        self.network, self.rng = network, Random(seed)
        self.run = switched("virtual_trees")
        links = dict.fromkeys(range(len(network.tails)), LinkSettings(delay=DELAY))
        self.run.become(network, {node: SwitchState.of() for node in network.switches}, links)
        self.carriers = {node: Labels(BY_ETHERNET, 1000) for node in network.hosts}
        for host, carrier in self.carriers.items():
            carrier.begin(host + 1, Port(self, host))
            for node in network.hosts:
                carrier.set_host(node + 1, Place(name=network.names[node]))
        self.sent: list[list[int]] = []
        self.wanted: list[tuple[int, list[int]]] = []
        self.under_way = 0

    def publish(self) -> None:
        source, receivers = self.rng.choice(self.wanted)
        if not self.carriers[source].reach([receivers[0] + 1]).hosts:
            return  # it has not heard of a network yet
        self.sent.append(receivers)
        payload = (len(self.sent) - 1).to_bytes(4)
        self.carriers[source].send(0, [payload], [node + 1 for node in receivers])

    def pass_time(self, seconds: float, packets: int) -> None:
        emulator = self.run.emulator
        for _ in range(packets):
            emulator.at(emulator.now + seconds * self.rng.random(), self.publish)
        emulator.run(seconds)
        self.under_way = max(self.under_way, emulator.under_way)

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        told, rules = read_trees(write_trees(version, network, trees))
        for carrier in self.carriers.values():
            carrier.learn(LabelRules(version, told, rules))
            self.pass_time(0.02, 2)

    async def sleep(self, seconds: float) -> None:
        self.pass_time(seconds, 5)

    async def bring(self, switch: int, state: SwitchState) -> int:
        self.pass_time(0.02, 2)
        return self.run.bring(switch, state)

    def observed(self) -> dict[str, dict[tuple[str, ...], int]]:
        return {self.network.names[node]: carrier.observed() for node, carrier in self.carriers.items()}

    def got(self) -> list[list[int]]:
        """Returns the receivers of each packet, with repetitions."""
        self.run.emulator.drain()
        found: list[list[int]] = [[] for _ in self.sent]
        for link, frames in self.run.carried.frames.items():
            if self.network.is_host[self.network.heads[link]]:
                for frame in frames:
                    found[int.from_bytes(frame[-4:])].append(self.network.heads[link])
        return [sorted(hosts) for hosts in found]


class One:
    open = True

    def __init__(self, cloud: Cloud, switch: int) -> None:
        self._cloud, self._switch = cloud, switch

    async def read(self) -> SwitchState:
        return self._cloud.run.read(self._switch)

    async def bring_to(self, desired: SwitchState) -> int:
        return await self._cloud.bring(self._switch, desired)


def some_wishes(network: Network, rng: Random) -> list[tuple[int, list[int]]]:
    """Returns three publishers, each with two sets of receivers."""
    found = []
    for source in rng.sample(network.hosts, 3):
        others = [host for host in network.hosts if host != source]
        found += [(source, sorted(rng.sample(others, 4))) for _ in range(2)]
    return found


def labels(cloud: Cloud, rules: RuleBase) -> float:
    asked = [request(cloud.network, source, receivers) for source, receivers in cloud.wanted]
    return measure(cloud.network, rules, asked)


def test_trees_follow_what_is_sent() -> None:
    network = rings()
    cloud = Cloud(network, 5)
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
        switches = {node: One(cloud, node) for node in network.switches}
        manager = TreeManager(network, switches, cloud, MemoryStore(), limit=2, life=1.0, sleep=cloud.sleep)
        await manager.start()
        for wishes in (cloud.wanted, some_wishes(network, Random(9))):
            cloud.wanted = wishes  # clients move
            before = labels(cloud, manager.rules)
            assert sum([await look(manager) for _ in range(3)]) > 0
            assert labels(cloud, manager.rules) < 0.8 * before
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
