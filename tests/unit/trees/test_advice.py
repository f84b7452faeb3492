"""Advice on trees: every rule that stops it, once per epoch, the kill switch, and trees that follow it in the
emulator while packets are in flight."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import Found, NotReached
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.control.advice.following import Advised
from treecast.middleware.control.advice.place import AdviceFile
from treecast.middleware.control.advice.rules import Adviser, Decision, KeptAdvice, Limits, Situation
from treecast.middleware.control.trees.advised import InstalledTrees, ManagedTrees, description, trees_of
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.evaluation.label_network import LabelNetwork
from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.strategies import STRATEGIES, Knowledge, install

NOW = 1_000_000_000
RINGS = [*((n, (n + 1) % 4) for n in range(4)), *((4 + n, 4 + (n + 1) % 4) for n in range(4)), (3, 4)]
LIMIT = 4


def rings() -> Network:
    return with_hosts(build([f"s{n}" for n in range(8)], RINGS))


NETWORK = rings()
BARE = RuleBase(NETWORK, LIMIT)
VERSION = description("lab", 0, BARE, 0).version


def some_trees(seed: int) -> list[int]:
    return list(install(NETWORK, LIMIT, STRATEGIES["random"], Knowledge(), Random(seed)).trees.values())


def advice(epoch: int = 1, laid: list[int] | None = None, **changed: Any) -> pb.TreeAdvice:
    message = pb.TreeAdvice(
        v=1,
        network="lab",
        epoch=epoch,
        topology_version=VERSION,
        base_rule_version=3,
        hosts_expected=8,
        trees=[pb.AdvisedTree(edges=members(edges)) for edges in (some_trees(1) if laid is None else laid)],
        labels_now=10.0,
        labels_expected=5.0,
        valid_until=NOW + 60_000_000,
        pipeline="p",
    )
    for name, value in changed.items():
        field = getattr(message, name)
        if isinstance(value, list):
            field.extend(value)
        else:
            setattr(message, name, value)
    return message


def here(rules: RuleBase = BARE, version: int = 3, now: int = NOW) -> Situation:
    return Situation("lab", VERSION, version, InstalledTrees(rules), now)


def adviser(**limits: Any) -> Adviser:
    return Adviser(Limits(**limits), KeptAdvice())


def test_sound_advice_is_applied_once() -> None:
    one = adviser()
    value = topics.encode(advice())
    verdict = one.weigh(5, value, here())
    assert verdict.decision is Decision.APPLIED
    assert verdict.accepted is not None
    assert trees_of(verdict.accepted) == some_trees(1)
    expected = RuleBase(NETWORK, LIMIT)
    for edges in some_trees(1):
        expected.add(edges)
    assert verdict.rule_writes == expected.total
    assert (one.kept.next, one.kept.epoch) == (6, 1)
    again = one.weigh(6, value, here())
    assert (again.decision, again.accepted) == (Decision.REFUSED, None)
    assert "not above the last one" in again.reason
    restarted = Adviser(Limits(), one.kept)
    assert restarted.weigh(6, value, here()).decision is Decision.REFUSED
    assert restarted.weigh(7, topics.encode(advice(2)), here()).decision is Decision.APPLIED


CYCLE = [pb.AdvisedTree(edges=[0, 1, 2, 3])]
BEYOND = [pb.AdvisedTree(edges=[0, 5000])]
STOPPED: list[tuple[dict[str, Any], Decision, str]] = [
    ({"network": "other"}, Decision.REFUSED, "for network 'other'"),
    ({"kind": "segments"}, Decision.REFUSED, "for a network of segments, and this is one of label switches"),
    ({"valid_until": NOW - 2_500_000}, Decision.EXPIRED, r"until 2\.5 s ago"),
    ({"topology_version": "0" * 32}, Decision.REFUSED, "for topology 00000000"),
    ({"base_rule_version": 2}, Decision.REFUSED, "starts from version 2, and publishers use 3"),
    ({"hosts_missing": [f"h{n}" for n in range(5)]}, Decision.REFUSED, "5 of 8 hosts were missing"),
    ({"labels_expected": float("nan")}, Decision.REFUSED, "labels per packet"),
    ({"labels_now": float("inf")}, Decision.REFUSED, "labels per packet"),
    ({"labels_expected": -1.0}, Decision.REFUSED, "labels per packet"),
    ({"trees": CYCLE}, Decision.REFUSED, "cannot be installed: .*circle"),
    ({"trees": BEYOND}, Decision.REFUSED, "an edge that there is not"),
    ({"labels_expected": 9.6}, Decision.KEPT, r"4\.0 % of labels; 5 % are worth"),
    ({"labels_expected": 12.0}, Decision.KEPT, r"-20\.0 %"),
    ({"labels_now": 0.0}, Decision.KEPT, "worth an update"),
]


@pytest.mark.parametrize(("changed", "decision", "reason"), STOPPED)
def test_every_rule_says_why_it_stops_advice(
    changed: dict[str, Any], decision: Decision, reason: str
) -> None:
    laid = [] if "trees" in changed else None
    verdict = adviser().weigh(0, topics.encode(advice(1, laid, **changed)), here())
    assert (verdict.decision, verdict.accepted) == (decision, None)
    assert re.search(reason, verdict.reason), verdict.reason


def test_a_kill_switch_holds_over_restarts_until_an_operator_resumes() -> None:
    one = adviser()
    assert one.weigh(0, topics.encode(advice(1)), here()).decision is Decision.APPLIED
    assert one.holds(NOW)
    assert one.weigh(1, None, here()).decision is Decision.OFF
    assert not one.holds(NOW)  # `adapt` takes over
    again = Adviser(Limits(), one.kept)
    stopped = again.weigh(2, topics.encode(advice(2)), here())
    assert stopped.decision is Decision.REFUSED
    assert "kill switch at offset 1" in stopped.reason
    again.resume()
    assert again.weigh(3, topics.encode(advice(3)), here()).decision is Decision.APPLIED


def test_two_pipelines_do_not_contradict_each_other_while_one_is_valid() -> None:
    one = adviser()
    assert one.weigh(0, topics.encode(advice(1)), here()).decision is Decision.APPLIED
    other = topics.encode(advice(2, pipeline="q"))
    refused = one.weigh(1, other, here(now=NOW + 20_000_000))
    assert refused.decision is Decision.REFUSED
    assert "advice of p is valid for 40 s" in refused.reason
    late = advice(3, pipeline="q", valid_until=NOW + 200_000_000)
    assert one.weigh(2, topics.encode(late), here(now=NOW + 61_000_000)).decision is Decision.APPLIED


def test_rule_writes_of_a_minute_are_bounded() -> None:
    cost = adviser().weigh(0, topics.encode(advice()), here()).rule_writes
    one = adviser(rule_writes=cost + 1)
    first = one.weigh(0, topics.encode(advice(1)), here())
    one.spent(NOW, first.rule_writes)
    second = one.weigh(1, topics.encode(advice(2, some_trees(2))), here(now=NOW + 1_000_000))
    assert second.decision is Decision.REFUSED
    assert "of a minute" in second.reason
    later = here(now=NOW + 59_999_999)
    assert one.weigh(2, topics.encode(advice(3, some_trees(2))), later).decision is Decision.REFUSED
    later = here(now=NOW + 60_000_000)
    assert one.weigh(3, topics.encode(advice(4, some_trees(2))), later).decision is Decision.APPLIED


def test_a_restart_does_not_renew_the_budget() -> None:
    cost = adviser().weigh(0, topics.encode(advice()), here()).rule_writes
    before = adviser(rule_writes=cost + 1)
    before.weigh(0, topics.encode(advice(1)), here())
    before.spent(NOW, cost)
    one = Adviser(before.limits, before.kept)
    value = topics.encode(advice(2, some_trees(2)))
    assert one.weigh(1, value, here(now=NOW + 1_000_000)).decision is Decision.REFUSED
    set_back = here(now=NOW - 100_000_000)  # the clock: what is far ahead of it counts no longer
    assert one.weigh(1, value, set_back).decision is Decision.APPLIED


def test_the_operators_strategy_refuses_trees_of_others() -> None:
    mine = replace(here(), strategy="hybrid")
    verdict = adviser().weigh(0, topics.encode(advice(strategy="learned")), mine)
    assert verdict.decision is Decision.REFUSED
    assert verdict.reason == "its trees are those of 'learned', and the operator's strategy is 'hybrid'"
    for strategy in ("hybrid", "present"):
        one = adviser().weigh(0, topics.encode(advice(strategy=strategy)), mine)
        assert one.decision is Decision.APPLIED


def test_a_dry_run_writes_nothing_and_leaves_adapt_alone() -> None:
    one = adviser(dry_run=True)
    verdict = one.weigh(0, topics.encode(advice()), here())
    assert (verdict.decision, verdict.accepted) == (Decision.DRY_RUN, None)
    assert verdict.rule_writes > 0
    assert not one.holds(NOW)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_advice_change_nothing(value: bytes) -> None:
    one = adviser()
    verdict = one.weigh(0, value, here())
    assert (verdict.accepted, one.kept.epoch) == (None, 0)
    assert verdict.reason


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=30))
def test_an_epoch_is_applied_at_most_once_whenever_the_manager_restarts(
    steps: list[tuple[int, bool]],
) -> None:
    one, applied = adviser(), []
    for offset, (epoch, restart) in enumerate(steps):
        verdict = one.weigh(offset, topics.encode(advice(epoch)), here())
        if verdict.accepted is not None:
            applied.append(epoch)
        if restart:
            one = Adviser(Limits(), one.kept)
    assert applied == sorted(set(applied))


def test_what_is_kept_survives_and_a_foreign_file_is_refused(tmp_path: Path) -> None:
    file = AdviceFile(tmp_path / "trees.advice")
    assert file.load() == KeptAdvice()
    kept = KeptAdvice(7, 9, 3, "p", NOW)
    file.save(kept)
    assert file.load() == kept
    (tmp_path / "trees.advice").write_text("[]")
    with pytest.raises(ValueError, match="says nothing about advice"):
        file.load()


class Topics:
    """The internal topics in memory."""

    def __init__(self) -> None:
        self.records: dict[str, list[Found]] = {}
        self.away = False

    def ensure(self, names: Iterable[str]) -> None:
        for name in names:
            self.records.setdefault(name, [])

    def put(self, topic: str, key: str, value: bytes | None) -> int:
        if self.away:
            raise NotReached("nobody answers")
        there = self.records.setdefault(topic, [])
        there.append(Found(len(there), key.encode(), value))
        return len(there) - 1

    def after(self, topic: str, offset: int) -> list[Found]:
        if self.away:
            raise NotReached("nobody answers")
        return self.records[topic][offset:]

    def applied(self) -> list[pb.AppliedAdvice]:
        return [topics.decode(pb.AppliedAdvice, one.value or b"") for one in self.records[topics.APPLIED]]

    def topology(self) -> pb.NetworkTopology:
        return topics.decode(pb.NetworkTopology, self.records[topics.TOPOLOGY][-1].value or b"")


class Kept:
    def __init__(self) -> None:
        self.kept = KeptAdvice()

    def save(self, kept: KeptAdvice) -> None:
        self.kept = kept


def with_advice(
    told: Callable[[pb.NetworkTopology, int], pb.TreeAdvice],
) -> tuple[LabelNetwork, Topics, TreeManager]:
    """Runs a manager through three epochs of advice, a kill switch and a daemon that is away."""
    cloud, own, kept = LabelNetwork(NETWORK, 5), Topics(), Kept()
    cloud.wanted = [(NETWORK.hosts[0], NETWORK.hosts[2:6]), (NETWORK.hosts[7], NETWORK.hosts[1:3])]
    manager = TreeManager(
        NETWORK, cloud.switches(), cloud, MemoryStore(), limit=LIMIT, life=0.1, sleep=cloud.sleep
    )

    async def run() -> None:
        await manager.start()
        advised = Advised(
            "lab", ManagedTrees(manager), Adviser(Limits(), kept.kept), own, kept, lambda: NOW / 1e6
        )
        await advised.begin()
        for epoch in (1, 2, 3):
            cloud.pass_time(0.3, 20)
            own.put(topics.ADVICE, "lab", topics.encode(told(own.topology(), epoch)))
            own.put(topics.ADVICE, "elsewhere", b"for another manager")
            await advised.look()
        own.put(topics.ADVICE, "lab", None)
        await advised.look()
        own.away = True
        with pytest.raises(NotReached):
            await advised.look()
        own.away = False
        cloud.pass_time(0.3, 20)

    asyncio.run(run())
    return cloud, own, manager


def test_trees_follow_advice_and_no_packet_is_lost() -> None:
    def told(topology: pb.NetworkTopology, epoch: int) -> pb.TreeAdvice:
        return advice(epoch, some_trees(epoch), base_rule_version=topology.rule_version)

    cloud, own, manager = with_advice(told)
    assert set(manager.rules.trees.values()) == set(some_trees(3))
    written = own.applied()
    assert [(one.epoch, one.decision) for one in written] == [
        *((epoch, "applied") for epoch in (1, 2, 3)),
        (0, "off"),
    ]
    assert written[2].rule_version == manager.version == own.topology().rule_version
    assert {tree.id: list(tree.edges) for tree in written[2].trees} == {
        number: members(edges) for number, edges in manager.rules.trees.items()
    }
    assert cloud.under_way > 0
    assert cloud.got() == cloud.sent
    assert cloud.run.carried.astray == []


def test_stale_advice_leaves_the_trees_and_is_written_down() -> None:
    cloud, own, manager = with_advice(lambda topology, epoch: advice(epoch, base_rule_version=0))
    assert manager.rules.trees == {}
    assert {one.decision for one in own.applied()} == {"refused", "off"}
    assert "starts from version 0" in own.applied()[0].reason
    assert cloud.got() == cloud.sent


def test_of_several_that_wait_the_last_counts() -> None:
    own, kept = Topics(), Kept()
    cloud = LabelNetwork(NETWORK, 1)
    manager = TreeManager(
        NETWORK, cloud.switches(), cloud, MemoryStore(), limit=LIMIT, life=0.1, sleep=cloud.sleep
    )
    cloud.wanted = [(NETWORK.hosts[0], NETWORK.hosts[2:6])]

    async def run() -> None:
        await manager.start()
        advised = Advised(
            "lab", ManagedTrees(manager), Adviser(Limits(), kept.kept), own, kept, lambda: NOW / 1e6
        )
        await advised.begin()
        for epoch in (1, 2):
            told = advice(epoch, some_trees(epoch), base_rule_version=manager.version)
            own.put(topics.ADVICE, "lab", topics.encode(told))
        await advised.look()

    asyncio.run(run())
    assert [(one.epoch, one.decision) for one in own.applied()] == [(1, "superseded"), (2, "applied")]
    assert (kept.kept.next, kept.kept.epoch) == (2, 2)
