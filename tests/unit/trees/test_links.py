"""Links that carry nothing, switches that are not reached, and descriptions that change: packets arrive once
at every step, whatever dies when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.trees.plant import Dies, Plant, random_plant, written

from treecast.middleware.control.links.probes import ANSWERED, MISSED, Probes
from treecast.middleware.control.switches import SwitchRefused
from treecast.middleware.control.trees.manager import Kept, TreeManager
from treecast.middleware.control.trees.probing import StackProbes, controller_id
from treecast.middleware.control.trees.store import FileStore, MemoryStore
from treecast.middleware.control.trees.wires import MOST_LINKS, Wire, allotted, moved, numbered_by
from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import Network, RoutingError, build, check_ports, described
from treecast.middleware.routing.virtual.strategies import STRATEGIES, Knowledge, install
from treecast.middleware.wire.label_stack import LAST_ID

NONCE = b"12345678"


def some_trees(network: Network, rng: Random) -> list[int]:
    """Returns a few trees between hosts that links lead to."""
    found = []
    for _ in range(4):
        rules = install(network, 1, STRATEGIES["broadcast"], Knowledge(), rng)
        found += [edges for edges in rules.trees.values() if rng.random() < 0.7]
    rules = install(network, 3, STRATEGIES["topological"], Knowledge(), rng)
    return [*found, *rng.sample(list(rules.trees.values()), min(2, len(rules.trees)))]


def names_of(kept: Kept) -> dict[int, frozenset[frozenset[str]]]:
    """Returns what each tree means: its links, by names."""
    return {
        number: frozenset(kept.links[edge].name for edge in members(edges))
        for number, edges in kept.held.items()
    }


# --- descriptions that change


@settings(max_examples=12, deadline=None)
@example(seed=183755, switches=5, steps=[1, 11, 0])  # a switch that takes no write once there is room
@given(
    seed=st.integers(0, 10**6),
    switches=st.integers(2, 5),
    steps=st.lists(st.integers(-1, 12), min_size=3, max_size=5),
)
def test_trees_mean_the_same_links_whatever_the_file_becomes(
    tmp_path_factory: pytest.TempPathFactory, seed: int, switches: int, steps: list[int]
) -> None:
    """`steps`: after how many steps a manager dies, and another follows; -1: the same manager takes the
    file."""
    plant = random_plant(seed, switches, 4, 3)
    asyncio.run(change(plant, tmp_path_factory.mktemp("store") / "trees.json", steps))


async def change(plant: Plant, path: Path, steps: list[int]) -> None:
    rng, known = plant.rng, set[frozenset[str]]()
    meaning: dict[int, frozenset[frozenset[str]]] = {}
    manager: TreeManager | None = None
    for left in [-1, *steps]:
        out = {frozenset((one, other)) for (one, _), (other, _) in plant.other.items() if rng.random() < 0.3}
        links = written(
            plant, lambda name, out=out: name not in out, {one for one in known if rng.random() < 0.5}
        )
        plant.left = left
        try:
            if manager is None or left >= 0:
                manager = plant.manager(FileStore(path), links)
            else:
                plant.become(manager, links)
            await manager.update(some_trees(manager.up, rng))
            manager.rules.check_invariants()
            assert manager._kept.held == manager.rules.trees
            assert not manager._left
        except Dies:
            manager = None
        plant.left = -1
        plant.check()
        kept = FileStore(path).load()
        known = {wire.name for wire in kept.links.values()}
        for number, means in names_of(kept).items():
            assert meaning.setdefault(number, means) == means
    assume(plant.checked)  # no packet is sent where each host is alone in its part all the time


def test_a_link_keeps_number_and_port_until_another_is_written() -> None:
    first = described(("s", "t", "u"), (), [("s", "t"), ("s", "u"), ("t", "u")])
    known = allotted({}, wires(first))
    assert known == {0: Wire(("s", "t"), (1, 1)), 1: Wire(("s", "u"), (2, 1)), 2: Wire(("t", "u"), (2, 2))}
    less = described(("u", "s", "t"), (), [("u", "t"), ("s", "u")])
    found = allotted(known, wires(less))
    assert found == known, "the first was taken out, and may still be named"
    assert moved({number: found[number] for number in (1, 2)}, less) == [
        "s-u stays at port 2 of s",
        "s-u stays at port 1 of u",
        "t-u stays at port 2 of t",
        "t-u stays at port 2 of u",
    ]
    again = allotted(
        {1: known[1], 2: known[2]},
        wires(described(("s", "u", "v"), (), [("s", "u:7"), ("s:9", "v")])),
        frozenset({(frozenset("su"), "u"), (frozenset("sv"), "s")}),
    )
    assert again == {0: Wire(("s", "v"), (9, 1)), 1: Wire(("s", "u"), (2, 7)), 2: known[2]}
    with pytest.raises(RoutingError, match="port 2 of s has the links s-w and s-u: write ports"):
        allotted(
            {1: known[1]}, wires(described(("s", "u", "v", "w"), (), [("s", "v"), ("s", "w"), ("s", "u")]))
        )
    with pytest.raises(RoutingError, match=f"more than {MOST_LINKS} links"):
        allotted({number: Wire((f"a{number}", "b"), (1, 1)) for number in range(MOST_LINKS)}, wires(less))


def wires(network: Network) -> Iterable[Wire]:
    return [
        Wire(
            (network.names[one], network.names[other]), (network.ports[2 * edge], network.ports[2 * edge + 1])
        )
        for edge, (one, other) in enumerate(network.ends)
    ]


def test_ports_are_places_in_the_file_or_written() -> None:
    network = described(("s", "t"), ("a",), [("t:5", "s"), ("a", "s:9")])
    assert [network.ports[link] for link in range(4)] == [1, 5, 9, 1]
    assert network.link_at(0, 9) == 2
    assert network.link_at(0, 2) == -1
    with pytest.raises(RoutingError, match="port 1 of s has two links"):
        check_ports(described(("s", "t"), ("a",), [("s", "t"), ("a", "s:1")]))
    with pytest.raises(RoutingError, match="'t:x', which is no host"):
        described(("s", "t"), ("a",), [("s", "t:x"), ("a", "s")])


def test_a_network_without_some_edges_keeps_numbers_and_ports() -> None:
    network = build(["s", "t", "a", "b"], [(0, 1), (0, 2), (1, 3)], hosts=[2, 3])
    less = network.without(0b001)
    assert (less.heads[2:], less.ports[2:]) == (network.heads[2:], network.ports[2:])
    assert [less.part[node] for node in (2, 3)] == [0, 1]
    assert less.out[0] == [2]
    assert network.without(0b010).hosts == [3]


def test_a_store_by_places_is_gone_on_with(tmp_path: Path) -> None:
    """Its trees may mean other links now: new ones are made, and what switches hold of the old stays until
    everybody knows."""
    store = FileStore(tmp_path / "trees.json")
    (tmp_path / "trees.json").write_text('{"version":7,"next":5,"held":{"4":[0,1,2]},"usable":[4]}')
    assert store.load() == Kept(7, 5)
    assert "1 trees are replaced" in store.remark
    plant = random_plant(4, 3, 1, 3)
    links = written(plant, lambda name: True, set())
    asyncio.run(upgraded(plant, store, links))


async def upgraded(plant: Plant, store: FileStore, links: list[tuple[str, str]]) -> None:
    before = plant.manager(MemoryStore(), links)
    await before.update(some_trees(before.up, plant.rng))
    held = before.rules.trees
    assert held
    manager = plant.manager(store, links)
    manager._keep(Kept(7, 1, links=manager._kept.links))  # ids would begin at 1 again
    await manager.update(list(held.values()))
    assert not manager._kept.held.keys() & held.keys()
    assert list(manager._kept.held.values()) == list(held.values())


def test_a_tree_over_a_link_that_is_not_listed_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "trees.json").write_text(
        '{"version":7,"next":5,"links":{"0":["a","b",1,1]},"trees":{"4":[["a","c"]]},"usable":[4]}'
    )
    with pytest.raises(ValueError, match=r"tree 4 has a link a-c, .*restore it"):
        FileStore(tmp_path / "trees.json").load()


# --- links that carry nothing


def probed(plant: Plant, manager: TreeManager, probes: Probes, count: int) -> None:
    """Carries probes as switches do, round after round."""
    for _ in range(count):
        reached = [node for node in manager._switches if manager._switches[node].open]
        for probe in probes.round(reached):
            plant.carry((manager.network.names[probe.node], 510), probe.frame, probes.answer)


def probes_of(manager: TreeManager) -> Probes:
    return Probes(manager.described, StackProbes(manager.described, NONCE))


def down_names(probes: Probes) -> set[frozenset[str]]:
    return {frozenset(name.split(" -> ")) for name in probes.names()}


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), switches=st.integers(3, 6))
def test_trees_and_unicast_leave_links_that_go_down(seed: int, switches: int) -> None:
    asyncio.run(follow(random_plant(seed, switches, 5, 4)))


async def follow(plant: Plant) -> None:
    rng = plant.rng
    manager = plant.manager(MemoryStore(), written(plant, lambda name: True, set()))
    await manager.update(some_trees(manager.up, rng))
    probes = probes_of(manager)
    probed(plant, manager, probes, ANSWERED + 1)
    assert not probes.down
    inner = sorted(
        {frozenset((a, b)) for (a, _), (b, _) in plant.other.items() if {a, b} <= set(plant.boxes)},
        key=sorted,
    )
    for _ in range(4):
        plant.checks = False  # what goes over links that have just gone down is lost
        plant.cut = set(rng.sample(inner, rng.randint(0, min(3, len(inner)))))
        probed(plant, manager, probes, MISSED + 1)
        if len(plant.cut) == len(inner):
            continue  # nothing answers, which says nothing
        assert down_names(probes) == plant.cut
        manager.mark(probes.down)
        trees = some_trees(manager.up, rng)
        await manager.update(trees)
        rules = await manager.update(trees)  # a switch that is alone was written last
        assert manager._kept.held == rules.trees
        plant.checks = True
        plant.check()
        arrive(plant)


def arrive(plant: Plant, apart: frozenset[str] = frozenset()) -> None:
    """Checks that frames without a stack arrive wherever cables lead, except to hosts that are apart."""
    joined = plant.joined()
    for host in plant.hosts:
        for other in plant.hosts:
            if host != other and not {host, other} & apart:
                assert plant.unicast(host, other) == (joined[host] == joined[other])


RING = [("a", "s1"), ("b", "s3"), ("c", "s4"), ("s1", "s2"), ("s2", "s3"), ("s3", "s4"), ("s4", "s1")]


def ring(more: Iterable[tuple[str, str]] = ()) -> Plant:
    """Four switches in a ring, without a host at s2."""
    links = [*RING, *more]
    hosts = ["a", "b", "c"]
    network = described(sorted({name for link in links for name in link} - set(hosts)), hosts, links)
    cables = [
        ((network.names[a], network.ports[2 * edge]), (network.names[b], network.ports[2 * edge + 1]))
        for edge, (a, b) in enumerate(network.ends)
    ]
    return Plant([network.names[node] for node in network.switches], hosts, cables, Random(1))


def broadcast(manager: TreeManager) -> list[int]:
    return list(install(manager.up, 4, STRATEGIES["broadcast"], Knowledge(), Random(1)).trees.values())


async def test_a_dead_switch_and_a_publisher_that_does_not_answer_hold_up_nobody() -> None:
    plant = ring()
    manager = plant.manager(MemoryStore(), RING)
    await manager.update(broadcast(manager))
    probes = probes_of(manager)
    probed(plant, manager, probes, 3)
    plant.checks = False
    plant.deaf = {"c"}
    dead = plant.boxes["s2"]
    dead.works = dead.open = False
    probed(plant, manager, probes, MISSED + 1)
    assert down_names(probes) == {frozenset(("s1", "s2")), frozenset(("s2", "s3"))}
    manager.mark(probes.down)
    with pytest.raises(OSError, match="'c'"):
        await manager.update(broadcast(manager))
    plant.checks = True
    plant.check()
    arrive(plant)
    # Another link goes down while one publisher is still silent: the others move once more.
    held = dict(manager._kept.held)
    plant.checks = False
    plant.cut = {frozenset(("s3", "s4"))}
    probed(plant, manager, probes, MISSED + 1)
    manager.mark(probes.down)
    with pytest.raises(OSError, match="'c'"):
        await manager.update(broadcast(manager))
    assert manager._kept.held.items() >= held.items(), "the silent one may name them"
    plant.checks, plant.cut = True, set()
    probed(plant, manager, probes, ANSWERED + 1)
    manager.mark(probes.down)
    with pytest.raises(OSError, match="'c'"):
        await manager.update(broadcast(manager))
    plant.deaf = set()
    # The switch comes back without what it held.
    dead.empty()
    dead.works = dead.open = True
    manager.rewrite(manager.network.node("s2"))
    plant.checks = False  # what c named last leads through s2
    await manager.update(broadcast(manager))
    plant.checks = True
    plant.check()
    probed(plant, manager, probes, ANSWERED + 1)
    assert not probes.down
    manager.mark(probes.down)
    rules = await manager.update(broadcast(manager))
    assert manager._kept.held == rules.trees
    plant.check()
    arrive(plant)


async def test_a_switch_whose_session_is_lost_goes_on_forwarding() -> None:
    """It is probed by its neighbours. What it holds is not changed, so the others' ways agree with it."""
    plant = ring()
    manager = plant.manager(MemoryStore(), RING)
    await manager.update([])
    probes = probes_of(manager)
    plant.boxes["s2"].open = False
    probed(plant, manager, probes, MISSED + 2)
    assert not probes.down
    plant.checks = False
    plant.cut = {frozenset(("s3", "s4"))}
    probed(plant, manager, probes, MISSED + 1)
    assert down_names(probes) == plant.cut
    manager.mark(probes.down)
    await manager.update(broadcast(manager))
    assert not manager.rules.trees, "s2 has no rule of a new tree; hops lead through it"
    plant.checks = True
    plant.check()
    for host, other in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")):
        assert plant.unicast(host, other)
    plant.boxes["s2"].open = True
    manager.rewrite(manager.network.node("s2"))
    assert (await manager.update(broadcast(manager))).trees
    plant.check()
    arrive(plant)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), switches=st.integers(3, 6))
def test_no_frame_goes_in_a_circle_past_switches_that_cannot_be_written(seed: int, switches: int) -> None:
    asyncio.run(stuck(random_plant(seed, switches, 5, 4)))


async def stuck(plant: Plant) -> None:
    rng = plant.rng
    manager = plant.manager(MemoryStore(), written(plant, lambda name: True, set()))
    inner = sorted(
        {frozenset((a, b)) for (a, _), (b, _) in plant.other.items() if {a, b} <= set(plant.boxes)},
        key=sorted,
    )
    plant.checks = False
    probes = probes_of(manager)
    for _ in range(5):
        for name, box in plant.boxes.items():
            was = box.open
            box.open, box.refuses = rng.random() < 0.7, rng.random() < 0.2
            if box.open and not was:
                manager.rewrite(manager.network.node(name))
        plant.cut = set(rng.sample(inner, rng.randint(0, min(2, len(inner)))))
        probed(plant, manager, probes, MISSED + 1)
        manager.mark(probes.down)
        try:
            await manager.update(some_trees(manager.up, rng))
        except SwitchRefused:
            pass
        for host in plant.hosts:
            for other in plant.hosts:
                if host != other:
                    plant.unicast(host, other)
    for name, box in plant.boxes.items():
        box.open, box.refuses = True, False
        manager.rewrite(manager.network.node(name))
    plant.cut = set()
    await manager.update(some_trees(manager.up, rng))
    probed(plant, manager, probes, ANSWERED + 2)
    manager.mark(probes.down)
    await manager.update(some_trees(manager.up, rng))
    plant.checks = True
    plant.check()
    arrive(plant)


async def test_a_link_whose_switch_was_never_written_is_not_named() -> None:
    plant = ring()
    plant.boxes["s2"].open = False
    manager = plant.manager(MemoryStore(), RING)
    await manager.update(broadcast(manager))
    plant.check()
    arrive(plant)
    assert not any(
        "s2" in (network.names[a], network.names[b])
        for _, network, _ in plant.told.values()
        for a, b in network.ends
        if a != b
    )


async def test_a_publisher_that_was_restarted_is_told_again() -> None:
    plant = ring()
    manager = plant.manager(MemoryStore(), RING)
    await manager.update(broadcast(manager))
    version, _, _ = plant.told.pop("b")
    await manager.update(broadcast(manager))
    assert "b" not in plant.told
    manager.remind()
    await manager.update(broadcast(manager))
    assert plant.told["b"][0] == version


async def test_ids_begin_again_when_all_have_been_used() -> None:
    plant = ring()
    manager = plant.manager(MemoryStore(), RING)
    first, *others = broadcast(manager)
    await manager.update([first])
    manager._keep(replace(manager._kept, next=LAST_ID))
    await manager.update([first, *others])
    await manager.update([first])
    await manager.update([first, *others])
    assert manager._kept.held[1] == first
    assert set(manager._kept.held) == {1, *range(2, 2 + len(others))}
    assert sorted(manager.base.trees.values()) == sorted(manager._kept.held.values())
    manager._left["s1"] = {}
    manager._keep(replace(manager._kept, held=dict.fromkeys(range(1, LAST_ID + 1), first)))
    with pytest.raises(RoutingError, match="lower the limit"):
        manager._free_id(5, {})


# --- probes


async def test_one_direction_is_enough() -> None:
    plant = ring()
    manager = plant.manager(MemoryStore(), RING)
    await manager.update([])
    probes = probes_of(manager)
    probed(plant, manager, probes, ANSWERED + 1)
    del plant.other[
        next(place for place, other in plant.other.items() if place[0] == "s3" and other[0] == "s2")
    ]
    probed(plant, manager, probes, MISSED)
    assert not probes.down, "it may be late"
    probed(plant, manager, probes, 1)
    assert down_names(probes) == {frozenset(("s2", "s3"))}


async def test_what_says_nothing_changes_nothing() -> None:
    plant = ring()
    manager = plant.manager(MemoryStore(), RING)
    await manager.update([])
    probes = probes_of(manager)
    probed(plant, manager, probes, ANSWERED + 1)
    for box in plant.boxes.values():
        box.works = False  # nothing at all: the manager may be cut off itself
    probed(plant, manager, probes, 2 * MISSED)
    assert not probes.down
    for packet in (b"", bytes(30), bytes(14) + b"\0\0" + NONCE, bytes(14) + b"\0\0" + bytes(8) + bytes(4)):
        probes.answer(packet)
    probes.answer(bytes(14) + b"\0\0" + NONCE + b"\xff" * 4)
    assert not probes._answered


async def test_a_stub_that_is_not_reached_is_not_taken_for_dead() -> None:
    """Only its own controller could tell."""
    plant = ring([("s4", "s9")])
    links = [*RING, ("s4", "s9")]
    manager = plant.manager(MemoryStore(), links)
    await manager.update([])
    probes = probes_of(manager)
    plant.boxes["s9"].open = False
    probed(plant, manager, probes, 2 * MISSED)
    assert not probes.down


def test_probes_of_another_network_keep_what_is_known() -> None:
    network = described(("s", "t", "u"), (), [("s", "t"), ("t", "u")])
    probes = Probes(network, StackProbes(network, NONCE))
    for _ in range(MISSED + 1):
        probes.round([0, 1, 2])
        probes.answer(bytes(14) + b"\0\0" + NONCE + (0).to_bytes(4))
        probes.answer(bytes(14) + b"\0\0" + NONCE + (1).to_bytes(4))
    probes.round([0, 1, 2])
    assert members(probes.down) == [2, 3]
    probes.become(network, StackProbes(network, NONCE))
    assert members(probes.down) == [2, 3]
    less = network.without(0b10)
    probes.become(less, StackProbes(less, NONCE))
    assert not probes.down


def test_labels_of_controllers_are_no_links() -> None:
    assert controller_id(0) > 2 * MOST_LINKS
    with pytest.raises(RoutingError, match="nodes: use a smaller network"):
        controller_id(1 << 14)


def test_nodes_that_are_not_described_any_more_follow() -> None:
    network = described(("s", "t"), ("a",), [("s", "t"), ("a", "s")])
    found = numbered_by(
        network, {0: Wire(("s", "t"), (1, 1)), 1: Wire(("a", "s"), (1, 2)), 4: Wire(("s", "gone"), (3, 1))}
    )
    assert found.names == ["s", "t", "a", "gone"]
    assert found.ends[2:] == [(0, 0), (0, 0), (0, 3)]
    assert found.ports[8:] == [3, 1]
