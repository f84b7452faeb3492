"""Trials as executors run them, and the advice that follows from them. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, RoutingError, numbered
from treecast.middleware.routing.virtual.candidates import (
    PRESENT,
    Judged,
    Trial,
    Weights,
    best,
    judge,
    receivers_of,
)
from treecast.middleware.routing.virtual.rules import RuleBase

from .planning import Plan

LIVE, REPLAY = "live", "replay"


class SentSet(Struct, frozen=True, order=True):
    """Packets of one host to one set, by names, of which `held_out` judge."""

    host: str
    receivers: tuple[str, ...]
    packets: int
    held_out: int


class Problem(Struct, frozen=True):
    """A network, and what was sent in it: all that its trials need."""

    network: str
    topology: bytes  # a `NetworkTopology`
    sets: tuple[SentSet, ...]
    strategy: str = ""  # the operator's; empty: any

    @property
    def packets(self) -> int:
        return sum(one.packets for one in self.sets)


def network_of(topology: pb.NetworkTopology) -> Network:
    """Returns the network of a record. Raises RoutingError if it is none."""
    ends = list(topology.ends)
    if len(ends) % 2 or any(host >= len(topology.names) for host in topology.hosts):
        raise RoutingError(f"the topology of {topology.network!r} is damaged")
    edges = list(zip(ends[::2], ends[1::2], strict=True))
    return numbered(list(topology.names), edges, list(topology.hosts))


def rules_of(topology: pb.NetworkTopology) -> RuleBase:
    """Returns the installed trees, with other ids. Raises RoutingError if they are none of this network."""
    rules = RuleBase(network_of(topology), topology.rule_limit)
    for tree in topology.trees:
        rules.add(mask_of(tree.edges))
    return rules


def weights_of(network: Network, sets: Iterable[SentSet], *, held_out: bool) -> Weights:
    """Returns packets by publisher and receivers; of the judging intervals, or of the others. Leaves out
    hosts that the network has not, which labels cannot reach.
    """
    at = {network.names[node]: node for node in network.clients}
    found: dict[tuple[int, tuple[int, ...]], float] = {}
    for one in sets:
        packets = one.held_out if held_out else one.packets - one.held_out
        source = at.get(one.host)
        receivers = () if source is None else receivers_of(network, one.receivers, source)
        if source is not None and receivers and packets > 0:
            found[source, receivers] = found.get((source, receivers), 0.0) + packets
    return found


class Bench:
    """The trials of one problem, for an executor: what they share is computed once."""

    def __init__(self, problem: Problem) -> None:
        topology = topics.decode(pb.NetworkTopology, problem.topology)
        self._rules = rules_of(topology)
        network = self._rules.network
        self._sent = weights_of(network, problem.sets, held_out=False)
        self._held_out = weights_of(network, problem.sets, held_out=True)

    def run(self, trial: Trial) -> Judged:
        return judge(self._rules, self._sent, self._held_out, trial, random.Random(trial.seed))

    @property
    def why_not(self) -> str:
        """Returns why no advice can follow; empty if some can."""
        if not self._sent:
            return "nothing was sent by labels in the intervals to learn from"
        return "" if self._held_out else "nothing was sent by labels in the intervals that judge"


def advice_of(
    plan: Plan, pipeline: str, problem: Problem, judged: Sequence[Judged], absent: Sequence[str], source: str
) -> pb.TreeAdvice | None:
    """Returns the advice, or None if no trial was possible. The present trees may be the best."""
    chosen, present = best(judged), [one for one in judged if one.trial.strategy == PRESENT and not one.fault]
    if chosen is None or not present:
        return None
    topology = topics.decode(pb.NetworkTopology, problem.topology)
    ranges = [
        pb.OffsetRange(topic=one.topic, partition=one.partition, first=one.first, end=one.end)
        for one in plan.ranges
    ]
    return pb.TreeAdvice(
        v=topics.VERSION,
        network=problem.network,
        epoch=plan.epoch,
        window_start=plan.window_start,
        window_end=plan.window_end,
        input=[*ranges, *_of_topology(plan, problem.network)],
        seed=chosen.trial.seed,
        topology_version=topology.version,
        base_rule_version=topology.rule_version,
        hosts_missing=sorted(absent),
        hosts_expected=len(topology.hosts),
        strategy=chosen.trial.strategy,
        threshold=chosen.trial.threshold,
        trees=[pb.AdvisedTree(edges=members(edges)) for edges in chosen.trees],
        labels_now=present[0].labels,
        labels_expected=chosen.labels,
        rule_writes=chosen.writes,
        valid_until=plan.valid_until,
        source=source,
        packets=problem.packets,
        pipeline=pipeline,
    )


def _of_topology(plan: Plan, network: str) -> list[pb.OffsetRange]:
    return [
        pb.OffsetRange(topic=topics.TOPOLOGY, partition=one.partition, first=one.offset, end=one.offset + 1)
        for one in plan.topologies
        if one.network == network
    ]


def content_digest(advice: pb.TreeAdvice) -> str:
    """Returns the digest of an advice, equal for live and replayed."""
    same = pb.TreeAdvice()
    same.CopyFrom(advice)
    same.source = ""
    return topics.digest(topics.encode(same))
