"""The network controller as advice finds it: the links that trees avoid, and how it comes to others.

Advice names sets of receivers by their hosts, with the links that the tree of each avoids; sets that it does
not name avoid none. Sets come and go all the time, so those that nobody has now are kept for when they come.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.replication import candidates
from treecast.middleware.routing.replication.ways import Ways
from treecast.middleware.storage.whole_file import write_whole

from .manager import Group

_log = Log(__name__)

SAVES: Final = "the busiest link's load"
MOST_WAYS: Final = 5000  # sets that advice may name; daemons have up to 1,024 each

Avoid = dict[Group, int]  # links (bits)


class InstalledWays(msgspec.Struct, frozen=True):
    """`advice.rules.Installed` of SRv6 routers. `groups`: the sets that daemons have now."""

    ways: Ways
    groups: tuple[Group, ...]
    avoid: Mapping[Group, int]
    kind: str = topics.SEGMENTS
    saves: str = SAVES

    def fault(self, advice: pb.TreeAdvice) -> str:
        if len(advice.ways) > MOST_WAYS:
            return f"it names {len(advice.ways)} sets of receivers, above {MOST_WAYS}"
        hosts = {self.ways.network.names[host] for host in self.ways.network.hosts}
        seen: set[Group] = set()
        for one in advice.ways:
            group = (one.root, tuple(one.receivers))
            unknown = sorted({one.root, *one.receivers} - hosts)
            if unknown:
                return f"it names {unknown[0]!r}, which is no host here"
            if group in seen or not one.receivers or list(one.receivers) != sorted(set(one.receivers)):
                return f"it names a set from {one.root!r} twice, empty or out of order"
            if any(link >= 2 * self.ways.network.edge_count for link in one.avoid):
                return "it avoids a link that there is not"
            seen.add(group)
        return ""

    def writes(self, advice: pb.TreeAdvice) -> int:
        """Returns the segments that are written and removed, for the sets of now."""
        network = self.ways.network
        groups = [one for group in self.groups if (one := _by_node(network, group)) is not None]
        before, after = (
            {one: links for group, links in some.items() if (one := _by_node(network, group)) is not None}
            for some in (self.avoid, avoid_of(advice))
        )
        return candidates.writes(self.ways, groups, before, after)[1]


def avoid_of(advice: pb.TreeAdvice) -> Avoid:
    """Returns the links to avoid, of advice without fault."""
    return {(one.root, tuple(one.receivers)): mask_of(one.avoid) for one in advice.ways if one.avoid}


def _by_node(network: Network, group: Group) -> candidates.Group | None:
    """None for a set with a host that the description does not have: there is no tree for it."""
    try:
        root = network.node(group[0])
        receivers = sorted({network.node(name) for name in group[1]} - {root})
    except RoutingError:
        return None
    return root, tuple(receivers)


class ManagedWays:
    """`advice.following.Managed` of the network controller. `groups`: returns the sets that daemons have now;
    `changed`: has trees follow `avoid`.

    `version` rises whenever other links are avoided, by advice or not. `run`: of the controller.
    """

    def __init__(
        self,
        ways: Ways,
        run: int,
        groups: Callable[[], Iterable[Group]],
        changed: Callable[[], Awaitable[object]],
        avoid: Avoid,
        keep: Callable[[Avoid], None] = lambda avoid: None,
    ) -> None:
        self.avoid = avoid
        self._ways = ways
        self._version = run << 32
        self._groups = groups
        self._changed = changed
        self._keep = keep

    @property
    def version(self) -> int:
        return self._version

    def take(self, avoid: Avoid) -> None:
        """Avoids other links from now on."""
        if avoid != self.avoid:
            self.avoid = avoid
            self._version += 1

    def installed(self) -> InstalledWays:
        return InstalledWays(self._ways, tuple(sorted(self._groups())), self.avoid)

    def describe(self, network: str, now: int, strategy: str) -> pb.NetworkTopology:
        there = self._ways.network
        ends = [node for pair in there.ends for node in pair]
        return pb.NetworkTopology(
            v=topics.VERSION,
            network=network,
            version=topics.topology_version(there.names, there.hosts, ends, 0),
            names=there.names,
            hosts=there.hosts,
            ends=ends,
            rule_version=self._version,
            ts=now,
            strategy=strategy,
            kind=topics.SEGMENTS,
            ways=_named(self.avoid),
        )

    def note(self, message: pb.AppliedAdvice) -> None:
        message.ways.extend(_named(self.avoid))

    async def apply(self, advice: pb.TreeAdvice) -> None:
        self.take(avoid_of(advice))
        self._keep(self.avoid)
        await self._changed()


def _named(avoid: Mapping[Group, int]) -> list[pb.AdvisedWay]:
    return [
        pb.AdvisedWay(root=root, receivers=receivers, avoid=members(links))
        for (root, receivers), links in sorted(avoid.items())
        if links
    ]


class _KeptWay(msgspec.Struct, array_like=True):
    root: str
    receivers: tuple[str, ...]
    links: list[tuple[str, str]]  # by the names of both ends, since numbers change with the description


class WaysFile:
    """The links that trees avoid by advice, in JSON: they outlive the controller."""

    def __init__(self, path: Path, network: Network) -> None:
        self._path = path
        self._network = network

    def load(self) -> Avoid:
        """Returns what was kept, without links that there are no more; nothing of a file that is damaged:
        the shortest paths are sound ways too.
        """
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=list[_KeptWay])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            _log.warning(
                "kept ways cannot be read; trees take the shortest paths", file=self._path, error=error
            )
            return {}
        found = {(one.root, one.receivers): self._links(one.links) for one in kept}
        return {group: links for group, links in found.items() if links}

    def _links(self, named: Iterable[tuple[str, str]]) -> int:
        links = 0
        for tail, head in named:
            try:
                links |= 1 << self._network.link(self._network.node(tail), self._network.node(head))
            except (RoutingError, KeyError):
                continue
        return links

    def save(self, avoid: Avoid) -> None:
        names, network = self._network.names, self._network
        kept = [
            _KeptWay(
                root, receivers, [(names[network.tails[a]], names[network.heads[a]]) for a in members(links)]
            )
            for (root, receivers), links in sorted(avoid.items())
        ]
        write_whole(self._path, msgspec.json.encode(kept))
