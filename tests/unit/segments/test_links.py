"""Links that go down or are full, and controllers that die at any step: with real routers in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, random_network
from tests.unit.segments.site import Site, address, some_groups

from treecast.middleware.control.links.probes import ANSWERED, MISSED, Probes
from treecast.middleware.control.segments.manager import Group, SegmentManager
from treecast.middleware.control.segments.probing import SidProbes
from treecast.middleware.control.segments.traffic import Traffic
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, Unreachable, described
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.ways import Pin, Ways
from treecast.middleware.routing.topologies import isp

STREAM: Group = ("h2", ("h5", "h7", "h8"))
MBIT = 1e6


def ring() -> Network:
    """Four routers in a ring, with a host each."""
    pairs = [("a", "r1"), ("b", "r2"), ("c", "r3"), ("d", "r4")]
    pairs += [("r1", "r2"), ("r2", "r3"), ("r3", "r4"), ("r4", "r1")]
    return described(("r1", "r2", "r3", "r4"), "abcd", pairs)


def some_links(network: Network, rng: Random) -> int:
    """Both directions of a few links between routers."""
    inner = [e for e, pair in enumerate(network.ends) if not any(network.is_host[node] for node in pair)]
    return mask_of(
        [2 * e + way for e in rng.sample(inner, rng.randint(0, min(3, len(inner)))) for way in (0, 1)]
    )


def reached(network: Network, groups: set[Group], down: int) -> set[Group]:
    """Returns the groups all of whose receivers can be reached."""
    paths, found = Paths(network), set()
    for root, receivers in groups:
        leaves = mask_of([network.node(name) for name in receivers])
        if paths.reachable(network.node(root), leaves, down):
            found.add((root, receivers))
    return found


@settings(max_examples=10, deadline=None)
@example(random_network(5, 6, 1, hosts=True), 1270)  # the fourth change leaves the only tree as it is
@given(networks(7, hosts=True, least=3), st.integers(0, 10**6))
def test_trees_follow_links_that_go_down_and_come_up(network: Network, seed: int) -> None:
    asyncio.run(follow(network, seed))


async def follow(network: Network, seed: int) -> None:
    rng, site = Random(seed), Site(network)
    manager = site.manager(1)
    await manager.start()
    for _ in range(5):
        groups, down = some_groups(network, rng), some_links(network, rng)
        # Trees over links that have just gone down lose packets: none are sent.
        before, site.told, versions = site.told, {}, len(site.versions)
        site.cut = down
        avoid = {group: some_links(network, rng) for group in groups}
        await manager.update(groups, down=down, avoid=avoid)
        if len(site.versions) == versions:  # what was told before holds, so nothing is told
            site.told = before
        told = {(root, receivers) for root, trees in site.told.items() for receivers in trees}
        assert told == reached(network, groups, down)
        assert site.held() == len(manager.forest.segments)
        await manager.update(groups, down=down)  # the links to avoid carry packets: none is lost meanwhile
        unicast(site, network, down)


def unicast(site: Site, network: Network, down: int) -> None:
    """Checks that every host reaches every other that it can."""
    paths = Paths(network)
    for start in network.hosts:
        for target in network.hosts:
            if start != target and paths.reachable(start, 1 << target, down):
                ends = address(start).to_bytes(16) + address(target).to_bytes(16)
                packet = b"\x60\0\0\0\0\x08\x11\x40" + ends + bytes(8)
                carried = site.carry(start, bytes(12) + b"\x86\xdd" + packet, Counter())
                assert [node for node, _ in carried] == [target]


class Dies(Exception):
    """The controller's end."""


class Mortal:
    """A site's routers and hosts for one controller, which dies at a given step of its work."""

    def __init__(self, site: Site, left: int) -> None:
        self.site = site
        self.left = left

    def step(self) -> None:
        if self.left == 0:
            raise Dies
        self.left -= 1

    async def announce(self, version: int, told: object) -> None:
        self.step()
        await self.site.announce(version, told)  # type: ignore[arg-type]
        self.step()

    async def sleep(self, seconds: float) -> None:
        self.step()
        await self.site.sleep(seconds)

    def manager(self, run: int) -> SegmentManager:
        routers = {node: MortalRouter(router, self) for node, router in self.site.routers.items()}
        return SegmentManager(self.site.plan(run), routers, self, sleep=self.sleep)


class MortalRouter:
    def __init__(self, router: object, mortal: Mortal) -> None:
        self.router = router
        self.mortal = mortal

    async def read(self):  # type: ignore[no-untyped-def]
        return await self.router.read()  # type: ignore[attr-defined]

    async def bring_to(self, desired):  # type: ignore[no-untyped-def]
        self.mortal.step()
        count = await self.router.bring_to(desired)  # type: ignore[attr-defined]
        self.mortal.site.check()
        return count


async def test_a_controller_that_dies_between_make_and_break_is_replaced() -> None:
    """It dies after each of its steps: packets arrive at every moment, and the next one cleans up."""
    network, steps = ring(), 0
    before: set[Group] = {("a", ("b", "c", "d")), ("c", ("b", "d"))}
    after: set[Group] = {("a", ("b", "c", "d")), ("c", ("a", "b", "d"))}
    while True:
        site = Site(network)
        await site.manager(1).start()
        first = site.manager(2)
        await first.start()
        await first.update(before)
        mortal = Mortal(site, steps)
        dying = mortal.manager(3)
        try:
            await dying.start()
            await dying.update(after)
            break
        except Dies:
            site.check()
        following = site.manager(4)
        await following.start()
        site.check()
        await following.update(after)
        assert site.held() == len(following.forest.segments)
        assert set(site.told) == {"a", "c"}
        steps += 1
    assert steps > 2 * len(network.switches), "it died at every step"


# --- probes


def rounds(site: Site, probes: Probes, count: int, *, without: int = -1) -> None:
    """Carries probes as routers do; what comes to port 510 is their controller's."""
    network = site.network
    for _ in range(count):
        for probe in probes.round([node for node in site.routers if node != without]):
            waiting = [(probe.node, 510, probe.frame)]
            for node, port, data in waiting:
                for out in site.routers[node].switch.receive(port, data, 0.0):
                    if out.port == 510:
                        probes.answer(out.packet)
                        continue
                    link = network.link_at(node, out.port)
                    if not site.cut >> link & 1 and network.heads[link] != without:
                        waiting.append((network.heads[link], network.ports[link ^ 1], out.packet))


async def test_probes_find_links_that_carry_nothing() -> None:
    network = ring()
    site = Site(network)
    manager = site.manager(1)
    await manager.start()
    probes = Probes(network, SidProbes(manager._plan))
    rounds(site, probes, 10)
    assert not probes.down
    link = network.link(network.node("r3"), network.node("r2"))
    site.cut = 1 << link  # one direction is enough
    rounds(site, probes, MISSED)
    assert not probes.down, "it may be late"
    rounds(site, probes, 1)
    assert members(probes.down) == sorted([link, link ^ 1])
    assert probes.names() == ["r2 -> r3"]
    site.cut = 0
    rounds(site, probes, ANSWERED + 1)
    assert not probes.down
    site.cut = (1 << 2 * network.edge_count) - 1  # nothing at all: the controller may be cut off itself
    rounds(site, probes, 10)
    assert not probes.down


async def test_a_router_that_is_gone_takes_its_links_with_it() -> None:
    network = ring()
    site = Site(network)
    manager = site.manager(1)
    await manager.start()
    probes, gone = Probes(network, SidProbes(manager._plan)), network.node("r2")
    rounds(site, probes, MISSED + 2, without=gone)
    found = set(members(probes.down))
    inner = [link for link in network.out[gone] if not network.is_host[network.heads[link]]]
    assert found == {one for link in inner for one in (link, link ^ 1)}
    manager.ways.down = probes.down
    assert manager.ways.alone() == [gone]


def test_packets_that_are_no_answers_are_ignored() -> None:
    plan = Site(ring()).plan(1)
    probes = Probes(plan.network, SidProbes(plan))
    for packet in (b"", bytes(66), bytes(54) + b"treecast" + bytes(3), bytes(54) + b"treecast" + b"\xff" * 4):
        probes.answer(packet)
    assert not probes._answered


# --- paths that are kept


@given(networks(8, hosts=True, least=2), st.integers(0, 10**6))
def test_one_sid_keeps_packets_on_a_path(network: Network, seed: int) -> None:
    """Routers' own paths to the SID and from it are the path."""
    rng, paths = Random(seed), Paths(network)
    ways = Ways(network, paths)
    start, end = rng.sample(network.switches, 2) if len(network.switches) > 1 else network.switches * 2
    try:
        way = paths.path(start, end, some_links(network, rng))
        pin = ways.pin(way, end)
    except Unreachable:
        return
    if pin is None:
        assert way == paths.path(start, end)
    elif pin.link < 0:
        assert way == paths.path(start, pin.node) + paths.path(pin.node, end)
    else:
        assert way == (*paths.path(start, pin.node), pin.link, *paths.path(network.heads[pin.link], end))


async def test_the_papers_tree_leaves_a_full_link_and_returns() -> None:
    """Fig. 10: load by counters; one SID keeps the tree on the path by r4; no step loses a packet."""
    network = isp()
    site = Site(network)
    manager = site.manager(1)
    await manager.start()
    await manager.update({STREAM})
    traffic = Traffic(network, manager.ways, 100 * MBIT)
    full = network.link(network.node("r12"), network.node("r16"))
    sent = dict.fromkeys(range(2 * network.edge_count), 0)
    moved = []
    for second, background in enumerate((0, 48, 49, 49, 120, 60, 34, 33, 33, 33)):
        for link in members(manager.forest.links_of(next(iter(manager.forest.groups)))):
            sent[link] += int(17 * MBIT / 8)
        sent[full] += int(background * MBIT / 8)
        traffic.count(float(second), sent)
        await manager.update({STREAM}, avoid=traffic.avoid({STREAM: 17 * MBIT}))
        links = manager.forest.links_of(next(iter(manager.forest.groups)))
        moved.append(not links >> full & 1)
        held = [kept.segment for kept in manager.forest.segments.kept.values()]
        pins = [manager.ways.pinned(branch) for segment in held for branch in segment.branches]
        assert (Pin(network.node("r4")) in pins) is moved[-1]
        assert len(manager.forest.segments) == 2
    assert moved == [False, False, True, True, True, True, True, False, False, False]


async def test_a_full_link_of_a_host_keeps_no_tree_on_another_full_link() -> None:
    """The other traffic ends at a receiver of the tree: its link is full as well, and cannot be left."""
    network = isp()
    manager = Site(network).manager(1)
    await manager.start()
    await manager.update({STREAM})
    traffic = Traffic(network, manager.ways, 100 * MBIT)
    full = network.link(network.node("r12"), network.node("r16"))
    last = network.out[network.node("h8")][0] ^ 1
    (tree,) = manager.forest.groups
    assert {full, last} <= set(members(manager.forest.links_of(tree)))
    sent = dict.fromkeys(range(2 * network.edge_count), 0)
    traffic.count(0.0, sent)
    assert traffic.avoid({STREAM: 17 * MBIT})[STREAM] == 0
    for link in (full, last):
        sent[link] += int(107 * MBIT / 8)
    traffic.count(1.0, sent)
    assert traffic.avoid({STREAM: 17 * MBIT})[STREAM] == 1 << full


def test_a_counter_that_starts_again_is_no_load() -> None:
    network = isp()
    traffic = Traffic(network, Ways(network, Paths(network)), 100 * MBIT)
    traffic.count(0.0, {0: 10**12})
    assert traffic.load is None
    traffic.count(1.0, {0: 1000})
    assert traffic.load is not None
    assert traffic.load[0] == 8000


def test_balancing_goes_on_from_the_ways_that_others_have_left() -> None:
    """Also those of a set that has come meanwhile; a set that the network lacks is left out."""
    network = isp()
    traffic = Traffic(network, Ways(network, Paths(network)), 100 * MBIT)
    full = network.link(network.node("r12"), network.node("r16"))
    rates = {STREAM: 17.0 * MBIT, ("h2", ("nobody",)): 1.0}
    traffic.count(0.0, {})
    traffic.take({STREAM: 1 << full}, rates)
    assert traffic.avoid(rates) == {STREAM: 1 << full}


async def test_a_tree_needs_a_router_that_is_not_written() -> None:
    site = Site(ring())
    manager = site.manager(1)
    await manager.start()
    router = site.routers[site.network.node("r2")]
    router.broken = True
    group: Group = ("a", ("b", "c"))
    with pytest.raises(OSError, match="broken"):
        await manager.update({group})
    assert not site.told
    router.broken = False
    await manager.update({group})
    assert set(site.told) == {"a"}
