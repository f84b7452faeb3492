"""A tree manager as advice finds it: its installed trees, and how it comes to others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import RoutingError
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.update import StepKind, plan

from .manager import TreeManager

SAVES: Final = "labels"


class InstalledTrees(Struct, frozen=True):
    """`advice.rules.Installed` of label switches."""

    rules: RuleBase
    kind: str = topics.LABEL_SWITCHES
    saves: str = SAVES

    def fault(self, advice: pb.TreeAdvice) -> str:
        alone = RuleBase(self.rules.network, self.rules.limit)
        try:
            for tree in advice.trees:
                if any(edge >= alone.network.edge_count for edge in tree.edges):
                    return "a tree has an edge that there is not"
                alone.add(mask_of(tree.edges))
        except RoutingError as error:
            return f"its trees cannot be installed: {error}"
        return ""

    def writes(self, advice: pb.TreeAdvice) -> int:
        """Returns the rules that are written and removed."""
        steps = plan(self.rules, trees_of(advice)).steps
        return sum(len(step.rules) for step in steps if step.kind in (StepKind.INSTALL, StepKind.REMOVE))


class ManagedTrees:
    """`advice.following.Managed` of a tree manager. `apply`: brings trees (edges as bits) about; by default
    the manager's `update`.
    """

    def __init__(
        self, manager: TreeManager, apply: Callable[[list[int]], Awaitable[object]] | None = None
    ) -> None:
        self._manager = manager
        self._apply = apply or manager.update

    @property
    def version(self) -> int:
        return self._manager.version

    def installed(self) -> InstalledTrees:
        return InstalledTrees(self._manager.base)

    def describe(self, network: str, now: int, strategy: str) -> pb.NetworkTopology:
        return description(network, self._manager.version, self._manager.rules, now, strategy)

    def note(self, message: pb.AppliedAdvice) -> None:
        message.trees.extend(_trees(self._manager.rules.trees.items()))

    async def apply(self, advice: pb.TreeAdvice) -> None:
        await self._apply(trees_of(advice))


def trees_of(advice: pb.TreeAdvice) -> list[int]:
    """Returns the trees of advice (edges as bits)."""
    return [mask_of(tree.edges) for tree in advice.trees]


def description(
    name: str, rule_version: int, rules: RuleBase, now: int, strategy: str = ""
) -> pb.NetworkTopology:
    """Returns the description of a network with its trees. `strategy`: the only one that advice may have."""
    network = rules.network
    ends = [node for pair in network.ends for node in pair]
    return pb.NetworkTopology(
        v=topics.VERSION,
        network=name,
        version=topics.topology_version(network.names, network.hosts, ends, rules.limit),
        names=network.names,
        hosts=network.hosts,
        ends=ends,
        rule_limit=rules.limit,
        rule_version=rule_version,
        trees=_trees(rules.trees.items()),
        ts=now,
        strategy=strategy,
    )


def _trees(trees: Iterable[tuple[int, int]]) -> list[pb.AdvisedTree]:
    return [pb.AdvisedTree(id=number, edges=members(edges)) for number, edges in sorted(trees)]
