"""Trials as executors run them, and the advice that follows from them. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, RoutingError, numbered
from treecast.middleware.routing.replication import candidates as segments
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.ways import Ways
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

from .planning import Plan, Settings

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


def trials_of(problem: Problem, settings: Settings) -> list[Trial]:
    """Returns the trials of a network. One whose operator has chosen a strategy is tried with it alone, and
    with its present trees.
    """
    if topics.decode(pb.NetworkTopology, problem.topology).kind == topics.SEGMENTS:
        return segments.trials(settings.thresholds)
    return [
        one for one in settings.trials() if problem.strategy in ("", one.strategy) or one.strategy == PRESENT
    ]


class Bench:
    """The trials of one problem, for an executor: what they share is computed once. Raises RoutingError and
    `topics.Unreadable` if the network's description is none.
    """

    def __init__(self, problem: Problem) -> None:
        self._topology = topics.decode(pb.NetworkTopology, problem.topology)
        self._rules = rules_of(self._topology)
        network = self._rules.network
        self._sent = weights_of(network, problem.sets, held_out=False)
        self._held_out = weights_of(network, problem.sets, held_out=True)
        self._routers = SegmentBench(self._topology) if self._topology.kind == topics.SEGMENTS else None
        if self._topology.kind not in (topics.LABEL_SWITCHES, topics.SEGMENTS):
            raise RoutingError(f"{self._topology.kind!r} is no kind of network that this version knows")

    def run(self, trial: Trial) -> Judged:
        if self._routers is not None:
            return self._routers.run(self._sent, self._held_out, trial)
        return judge(self._rules, self._sent, self._held_out, trial, random.Random(trial.seed))

    @property
    def why_not(self) -> str:
        """Returns why no advice can follow; empty if some can."""
        by = "SRv6" if self._routers is not None else "labels"
        if not self._sent:
            return f"nothing was sent by {by} in the intervals to learn from"
        return "" if self._held_out else f"nothing was sent by {by} in the intervals that judge"

    def ways(self, chosen: Judged) -> list[pb.AdvisedWay]:
        """Returns the links that sets avoid by a trial; none of label switches."""
        if self._routers is None:
            return []
        return self._routers.named(segment_groups(self._sent, self._held_out), chosen.trees)


def segment_groups(*weights: Weights) -> list[segments.Group]:
    """Returns the sets of some weights, each once, in ascending order."""
    return sorted({group for some in weights for group in some})


class SegmentBench:
    """A network of SRv6 routers, with the links that its trees avoid now."""

    def __init__(self, topology: pb.NetworkTopology) -> None:
        network = network_of(topology)
        self.ways = Ways(network, Paths(network))
        at = {network.names[node]: node for node in network.clients}
        self.present: dict[segments.Group, int] = {}
        for one in topology.ways:
            if one.root in at and all(link < 2 * network.edge_count for link in one.avoid):
                receivers = receivers_of(network, one.receivers, at[one.root])
                self.present[at[one.root], receivers] = mask_of(one.avoid)

    def run(self, sent: Weights, held_out: Weights, trial: Trial) -> Judged:
        groups = segment_groups(sent, held_out)
        return segments.judge(self.ways, groups, self.present, sent, held_out, trial)

    def named(self, groups: Sequence[segments.Group], avoid: Sequence[int]) -> list[pb.AdvisedWay]:
        names = self.ways.network.names
        return [
            pb.AdvisedWay(
                root=names[root], receivers=sorted(names[one] for one in receivers), avoid=members(links)
            )
            for (root, receivers), links in zip(groups, avoid, strict=True)
            if links
        ]


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
        trees=[pb.AdvisedTree(edges=members(edges)) for edges in chosen.trees] if not topology.kind else [],
        labels_now=present[0].labels,
        labels_expected=chosen.labels,
        rule_writes=chosen.writes,
        valid_until=plan.valid_until,
        source=source,
        packets=problem.packets,
        pipeline=pipeline,
        kind=topology.kind,
        ways=Bench(problem).ways(chosen),
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
