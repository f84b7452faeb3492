"""Make before break on switches that run p4/virtual_trees.p4. A packet sent at any moment of an update
arrives once, and ids of removed trees are never reused, even after faults and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import random_network
from tests.unit.routing.test_virtual import random_rules

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.api.virtual_trees import read_trees, write_trees
from treecast.middleware.control.switches import SwitchRefused, SwitchState
from treecast.middleware.control.trees.manager import Kept, TreeManager
from treecast.middleware.control.trees.store import FileStore, MemoryStore
from treecast.middleware.control.trees.wires import Wire
from treecast.middleware.evaluation.switched import SwitchedNetwork
from treecast.middleware.evaluation.twins import FRAME, switched
from treecast.middleware.routing.network import Network, RoutingError, build
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import request
from treecast.middleware.wire.label_stack import encode_labels


class World:
    """Switches and publishers of one network. After every write and every message to a publisher, each
    publisher sends a packet by what it knows; it must arrive once at every receiver and nowhere else."""

    def __init__(self, network: Network, run: SwitchedNetwork, rng: Random) -> None:
        self.network, self.run, self.rng = network, run, rng
        self.told: dict[int, Mapping[int, int]] = {node: {} for node in network.hosts}
        self.versions: list[int] = []
        self.writes = 0
        self.fails_at = 0  # the number of the write to refuse
        self.deaf = False
        self.live = False  # set from the first message to publishers on

    def switch(self, number: int) -> _Switch:
        return _Switch(self, number)

    def check(self) -> None:
        for source, trees in self.told.items() if self.live else ():
            rules = RuleBase(self.network, 1 << 20)
            rules.trees = dict(trees)
            others = [host for host in self.network.hosts if host != source]
            receivers = self.rng.sample(others, self.rng.randint(1, len(others)))
            found = Encoder(self.network, rules).encode(request(self.network, source, receivers))
            carried = self.run.send(source, FRAME + encode_labels(found.labels) + b"data")
            got = [head for link in carried.frames if self.network.is_host[head := self.network.heads[link]]]
            assert sorted(got) == sorted(receivers)
            assert all(len(frames) == 1 for frames in carried.frames.values())

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        assert not self.versions or version >= self.versions[-1]
        self.versions.append(version)
        self.live = True
        told, rules = read_trees(write_trees(network, trees))
        assert (told.names, told.ends) == (network.names, network.ends)
        for source in self.told:
            if self.deaf and source == self.network.hosts[-1]:
                raise SwitchRefused("a publisher does not answer")
            self.told[source] = rules.trees
            self.check()

    async def sleep(self, seconds: float) -> None:
        self.check()


class _Switch:
    open = True

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number

    async def read(self) -> SwitchState:
        return self._world.run.read(self._number)

    async def bring_to(self, desired: SwitchState) -> int:
        world = self._world
        world.writes += 1
        if world.writes == world.fails_at:
            raise SwitchRefused("a switch is full")
        count = world.run.bring(self._number, desired)
        world.check()
        return count


def made(seed: int, nodes: int, limit: int) -> tuple[World, TreeManager, MemoryStore]:
    network = random_network(seed, nodes, nodes // 2, hosts=True)
    run = switched("virtual_trees")
    run.become(network, {switch: SwitchState.of() for switch in network.switches})
    world, store = World(network, run, Random(seed)), MemoryStore()
    return world, manager_of(world, store, limit), store


def manager_of(world: World, store: MemoryStore, limit: int) -> TreeManager:
    switches = {number: world.switch(number) for number in world.network.switches}
    return TreeManager(world.network, switches, world, store, limit=limit, sleep=world.sleep)


def some_trees(world: World) -> list[int]:
    return list(random_rules(world.network, world.rng, 6).trees.values())


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), limit=st.integers(1, 4))
def test_nothing_is_lost_or_doubled_while_trees_change(seed: int, limit: int) -> None:
    world, manager, _ = made(seed, 4, limit)

    async def run() -> None:
        await manager.start()
        known: dict[int, int] = {}
        for _ in range(3):
            rules = await manager.update(some_trees(world))
            rules.check_invariants()
            assert all(known.setdefault(number, edges) == edges for number, edges in rules.trees.items())
            assert {frozenset(trees.items()) for trees in world.told.values()} == {
                frozenset(rules.trees.items())
            }
            assert manager._kept.held == rules.trees

    asyncio.run(run())


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), fails_at=st.integers(4, 14), restart=st.booleans(), deaf=st.booleans())
def test_an_update_that_fails_is_taken_up_again(seed: int, fails_at: int, restart: bool, deaf: bool) -> None:
    world, manager, store = made(seed, 3, 3)

    async def run() -> None:
        await manager.start()
        await manager.update(some_trees(world))
        before = store.kept.next
        world.fails_at = 0 if deaf else world.writes + fails_at - 3
        world.deaf = deaf
        try:
            await manager.update(some_trees(world))
        except SwitchRefused:
            world.check()
        world.fails_at, world.deaf = 0, False
        again = manager_of(world, store, 3) if restart else manager
        if restart:
            await again.start()
        rules = await again.update(some_trees(world))
        assert again._kept.held == rules.trees
        assert store.kept.next >= before

    asyncio.run(run())


def test_the_store_is_a_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "trees.json")
    assert store.load() == Kept()
    links = {n: Wire((f"s{n}", f"s{n + 1}"), (2, 1)) for n in (0, 1, 3, 199, 200)}
    kept = Kept(3, 8, {5: 0b1011, 7: 1 << 200 | 1 << 199}, frozenset({7}), links)
    store.save(kept)
    assert FileStore(tmp_path / "trees.json").load() == kept
    (tmp_path / "trees.json").write_text("{")
    with pytest.raises(ValueError, match="restore"):
        store.load()


def test_what_publishers_are_told_is_checked() -> None:
    network = build(["a", "b", "c", "d"], [(0, 1), (1, 2), (2, 3)], hosts=[0, 3])
    read, rules = read_trees(write_trees(network, {2: 0b110, 9: 0b111}))
    assert (read.names, read.ends, read.hosts) == (network.names, network.ends, network.hosts)
    assert rules.trees == {2: 0b110, 9: 0b111}
    for spoil in (
        lambda m: m.ends.append(1),
        lambda m: m.ends.extend([0, 1]),
        lambda m: m.ends.extend([7, 1]),
        lambda m: m.hosts.append(9),
        lambda m: m.trees.add(id=3, edges=[0, 2]),
        lambda m: m.trees.add(id=3, edges=[55]),
        lambda m: m.trees.add(id=2, edges=[0, 1]),
        lambda m: m.trees.add(id=0, edges=[0, 1]),
    ):
        spoiled = pb.VirtualTrees.FromString(write_trees(network, {2: 0b110}))
        spoil(spoiled)
        with pytest.raises(RoutingError):
            read_trees(spoiled.SerializeToString())
    with pytest.raises(ValueError, match="no virtual trees"):
        read_trees(b"\xff")
