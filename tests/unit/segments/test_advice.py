"""Advice on the links that trees of SRv6 avoid: what stops it, and trees that follow it on real routers in
memory while packets are sent at every step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.segments.site import Site
from tests.unit.trees.test_advice import Kept, Topics

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.control.advice.following import Advised
from treecast.middleware.control.advice.place import AdvicePlace
from treecast.middleware.control.advice.rules import Adviser, Decision, KeptAdvice, Limits, Situation
from treecast.middleware.control.segments.advised import ManagedWays, WaysFile, avoid_of
from treecast.middleware.control.segments.controller import Controller
from treecast.middleware.control.segments.description import Described
from treecast.middleware.control.segments.manager import Group, SegmentManager
from treecast.middleware.routing.network import Network, build
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.ways import Ways

NOW = 1_000_000_000
GROUPS: list[Group] = [("h0", ("h1",)), ("h0", ("h1", "h2"))]


def square() -> Network:
    """Returns four routers in a ring, with a host each."""
    edges = [(n, (n + 1) % 4) for n in range(4)] + [(n, 4 + n) for n in range(4)]
    return build([f"r{n}" for n in range(4)] + [f"h{n}" for n in range(4)], edges, hosts=range(4, 8))


NETWORK = square()
FIRST = NETWORK.link(NETWORK.node("r0"), NETWORK.node("r1"))  # of the shortest path from h0 to h1


def way(group: Group, *avoid: int) -> pb.AdvisedWay:
    return pb.AdvisedWay(root=group[0], receivers=group[1], avoid=avoid)


def advice(epoch: int, base: pb.NetworkTopology, *ways: pb.AdvisedWay, **changed: Any) -> pb.TreeAdvice:
    message = pb.TreeAdvice(
        v=1,
        network="ring",
        epoch=epoch,
        topology_version=base.version,
        base_rule_version=base.rule_version,
        hosts_expected=4,
        ways=ways,
        strategy="spread",
        labels_now=1.0,
        labels_expected=0.5,
        valid_until=NOW + 60_000_000,
        pipeline="p",
        kind=topics.SEGMENTS,
    )
    for name, value in changed.items():
        setattr(message, name, value)
    return message


def managed(avoid: dict[Group, int] | None = None) -> ManagedWays:
    async def nothing() -> None:
        return None

    return ManagedWays(Ways(NETWORK, Paths(NETWORK)), 1, lambda: GROUPS, nothing, avoid or {})


def weighed(one: ManagedWays, message: pb.TreeAdvice, **limits: Any) -> tuple[Decision, str, int]:
    base = one.describe("ring", NOW, "")
    at = Situation("ring", base.version, one.version, one.installed(), NOW)
    verdict = Adviser(Limits(**limits), KeptAdvice()).weigh(0, topics.encode(message), at)
    assert (verdict.accepted is not None) == (verdict.decision is Decision.APPLIED)
    return verdict.decision, verdict.reason, verdict.rule_writes


def test_sound_advice_is_applied_and_says_what_it_saves() -> None:
    one = managed()
    decision, reason, writes = weighed(one, advice(1, one.describe("ring", NOW, ""), way(GROUPS[0], FIRST)))
    assert (decision, reason) == (Decision.APPLIED, "it saves 50.0 % of the busiest link's load")
    assert writes > 0


BAD: list[tuple[list[pb.AdvisedWay], str]] = [
    ([way(("h9", ("h1",)), FIRST)], "it names 'h9', which is no host here"),
    ([way(("h0", ("r1",)), FIRST)], "it names 'r1', which is no host here"),
    ([way(GROUPS[0], FIRST), way(GROUPS[0])], "it names a set from 'h0' twice, empty or out of order"),
    ([way(("h0", ()), FIRST)], "it names a set from 'h0' twice, empty or out of order"),
    ([way(("h0", ("h2", "h1")), FIRST)], "it names a set from 'h0' twice, empty or out of order"),
    ([way(GROUPS[0], 16)], "it avoids a link that there is not"),
    ([way(GROUPS[0], FIRST)] * 5001, "it names 5001 sets of receivers, above 5000"),
]


@pytest.mark.parametrize(("ways", "reason"), BAD)
def test_ways_that_cannot_be_are_refused_with_the_reason(ways: list[pb.AdvisedWay], reason: str) -> None:
    one = managed()
    found = weighed(one, advice(1, one.describe("ring", NOW, ""), *ways))
    assert found == (Decision.REFUSED, reason, 0)


def test_advice_for_label_switches_and_for_other_ways_is_refused() -> None:
    one = managed()
    base = one.describe("ring", NOW, "")
    for_labels = advice(1, base, kind=topics.LABEL_SWITCHES)
    assert weighed(one, for_labels)[1] == "it is for a network of label switches, and this is one of segments"
    one.take({GROUPS[0]: 1 << FIRST})  # the controller itself has moved trees meanwhile
    stale = weighed(one, advice(1, base, way(GROUPS[0], FIRST)))
    assert stale[0] is Decision.REFUSED
    assert "it starts from version" in stale[1]


def test_a_budget_a_dry_run_and_ways_that_are_there_already_write_nothing() -> None:
    one = managed()
    told = advice(1, one.describe("ring", NOW, ""), way(GROUPS[0], FIRST))
    assert "would exceed the 0 of a minute" in weighed(one, told, rule_writes=0)[1]
    assert weighed(one, told, dry_run=True)[0] is Decision.DRY_RUN
    there = managed({GROUPS[0]: 1 << FIRST})
    again = advice(1, there.describe("ring", NOW, ""), way(GROUPS[0], FIRST))
    assert weighed(there, again) == (Decision.KEPT, "these trees are installed", 0)


def test_sets_that_nobody_has_cost_no_writes_and_are_kept() -> None:
    one = managed()
    told = advice(1, one.describe("ring", NOW, ""), way(("h3", ("h0",)), FIRST), way(GROUPS[0], FIRST))
    alone = advice(1, one.describe("ring", NOW, ""), way(GROUPS[0], FIRST))
    assert weighed(one, told) == weighed(one, alone)
    asyncio.run(one.apply(told))
    assert one.avoid == avoid_of(told)
    assert ("h3", ("h0",)) in one.avoid


def test_sets_with_hosts_that_the_description_lacks_keep_no_advice_waiting() -> None:
    """Daemons may have receivers that the file does not name: these have no tree, and no rule is for them."""

    async def nothing() -> None:
        return None

    strange: list[Group] = [*GROUPS, ("h0", ("agent",)), ("elsewhere", ("h1",))]
    one = ManagedWays(Ways(NETWORK, Paths(NETWORK)), 1, lambda: strange, nothing, {strange[2]: 1 << FIRST})
    told = advice(1, one.describe("ring", NOW, ""), way(GROUPS[0], FIRST))
    assert weighed(one, told) == weighed(
        managed(), advice(1, managed().describe("ring", NOW, ""), *told.ways)
    )


def test_kept_ways_name_links_and_survive_other_numbers(tmp_path: Path) -> None:
    file, avoid = WaysFile(tmp_path / "net.ways", NETWORK), {GROUPS[0]: 1 << FIRST}
    assert file.load() == {}
    file.save(avoid)
    assert file.load() == avoid
    edges = [*NETWORK.ends][::-1]
    other = build(NETWORK.names, edges, hosts=NETWORK.hosts)
    moved = other.link(other.node("r0"), other.node("r1"))
    assert WaysFile(tmp_path / "net.ways", other).load() == {GROUPS[0]: 1 << moved}
    less = build(NETWORK.names, [end for end in edges if end != (0, 1)], hosts=NETWORK.hosts)
    assert WaysFile(tmp_path / "net.ways", less).load() == {}
    (tmp_path / "net.ways").write_bytes(b"[1, 2")
    assert file.load() == {}


class Edge:
    """A manager of real routers in memory that follows advice."""

    def __init__(self) -> None:
        self.site, self.own, self.kept = Site(NETWORK), Topics(), Kept()
        self.manager: SegmentManager = self.site.manager(1)
        self.managed = ManagedWays(self.manager.ways, 1, lambda: GROUPS, self.update, {})
        self.advised = Advised(
            "ring", self.managed, Adviser(Limits(), KeptAdvice()), self.own, self.kept, lambda: NOW / 1e6
        )

    async def update(self) -> None:
        await self.manager.update(GROUPS, avoid=self.managed.avoid)

    async def told(self, epoch: int, *ways: pb.AdvisedWay, **changed: Any) -> None:
        message = advice(epoch, self.own.topology(), *ways, **changed)
        self.own.put(topics.ADVICE, "ring", topics.encode(message))
        await self.advised.look()
        self.site.check()

    def crossed(self, group: Group) -> int:
        """Returns the copies of a packet to a set on the link from r0 to r1."""
        sid = self.site.told[group[0]][group[1]]
        return self.site.send(NETWORK.node(group[0]), sid)[1][FIRST]


async def test_trees_leave_a_link_by_advice_and_stay_when_later_advice_is_bad() -> None:
    one = Edge()
    await one.manager.start()
    await one.update()
    await one.advised.begin()
    assert one.crossed(GROUPS[0]) == 1
    await one.told(1, way(GROUPS[0], FIRST))
    assert one.crossed(GROUPS[0]) == 0
    assert list(one.own.topology().ways) == [way(GROUPS[0], FIRST)]
    await one.told(2, way(GROUPS[0], 99))
    await one.told(3, base_rule_version=5)
    await one.told(4, valid_until=NOW - 1_000_000)
    await one.told(5, pipeline="q")
    one.own.put(topics.ADVICE, "ring", b"\xff\xff")
    await one.advised.look()
    assert one.crossed(GROUPS[0]) == 0
    one.own.put(topics.ADVICE, "ring", None)
    await one.advised.look()
    await one.told(6)
    written = one.own.applied()
    assert [each.decision for each in written] == [
        *("applied", "refused", "refused", "expired", "refused", "refused", "off", "refused")
    ]
    assert list(written[0].ways) == [way(GROUPS[0], FIRST)]
    assert "kill switch" in written[-1].reason
    one.advised.resume()
    await one.told(7)
    assert one.own.applied()[-1].decision == "applied"
    assert one.crossed(GROUPS[0]) == 1
    assert one.site.versions == sorted(one.site.versions)


class Slow(Topics):
    """The topics of a daemon that does not answer yet."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()

    def ensure(self, names: Iterable[str]) -> None:
        self.answers.wait(30)
        super().ensure(names)


async def test_trees_leave_a_dead_link_while_the_daemon_with_advice_does_not_answer(tmp_path: Path) -> None:
    site, own = Site(NETWORK), Slow()
    described = Described(
        links=[(NETWORK.names[one], NETWORK.names[other]) for one, other in NETWORK.ends],
        routers={NETWORK.names[node]: "" for node in NETWORK.switches},
        advice=AdvicePlace(kafka="in memory", network="ring", every=0.0),
    )
    one = Controller(described, site.plan(1), "", folder=tmp_path, opened=lambda _: own)
    one.manager = site.manager(1)
    await one.manager.start()
    for _ in range(3):
        await one._look(urgent=False)
    looks = one._following
    assert looks is not None
    assert not looks.done()
    one._wanted = dict.fromkeys(GROUPS, 0)
    one.probes.down = 1 << FIRST
    await one._look(urgent=True)
    site.cut = 1 << FIRST
    site.check()
    assert not looks.done()
    own.answers.set()
    await looks
    assert own.topology().kind == topics.SEGMENTS
    await one.close()
