"""Loads of links by packets, and the time when a link will be full. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import RoutingError
from treecast.middleware.routing.replication.candidates import planned
from treecast.middleware.routing.rooted import children
from treecast.middleware.routing.virtual.candidates import receivers_of
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.stacks import request

from .advising import SegmentBench, rules_of

_SETS: Final = 100_000  # whose links are remembered
FAR: Final = 7 * 24.0  # hours beyond which nothing is foretold
_FIT: Final = 0.5  # the share of a link's changes that growth must explain (r squared)


class SetLoad(Struct, frozen=True):
    """Packets of a host to some receivers. `size`: bytes with stacks."""

    host: str
    receivers: tuple[str, ...]
    packets: int
    size: int


class Loads:
    """The links of one network, with its present trees. Raises RoutingError for a damaged description."""

    def __init__(self, topology: pb.NetworkTopology) -> None:
        self._rules = rules_of(topology)
        self._network = self._rules.network
        self._encoder = Encoder(self._network, self._rules)
        self._at = {self._network.names[node]: node for node in self._network.clients}
        self._routers = SegmentBench(topology) if topology.kind == topics.SEGMENTS else None
        self._known = lru_cache(_SETS)(self._links)

    def links(self, one: SetLoad) -> tuple[str, ...]:
        """Returns the links that a packet to this set travels, each once; none if labels cannot reach it."""
        return self._known(one.host, one.receivers)

    def _links(self, host: str, receivers: tuple[str, ...]) -> tuple[str, ...]:
        network, source = self._network, self._at.get(host)
        nodes = () if source is None else receivers_of(network, receivers, source)
        if source is None or not nodes:
            return ()
        try:
            found = (
                self._by_routers(source, nodes)
                if self._routers is not None
                else self._by_labels(source, nodes)
            )
        except RoutingError:
            return ()  # a part of the network that is cut off
        names = network.names
        return tuple([f"{names[network.tails[link]]}-{names[network.heads[link]]}" for link in found])

    def _by_labels(self, source: int, nodes: tuple[int, ...]) -> list[int]:
        asked = request(self._network, source, list(nodes))
        tree = children(self._network, self._encoder.encode(asked).edges | asked.access, source)
        return [link for below in tree.values() for link in below]

    def _by_routers(self, source: int, nodes: tuple[int, ...]) -> list[int]:
        assert self._routers is not None
        avoid = self._routers.present.get((source, nodes), 0)
        return members(planned(self._routers.ways, (source, nodes), avoid)[0].links)


class Trend(Struct, frozen=True):
    """The load of a link over some windows, as a straight line (least squares). `share`: of what the link can
    carry, in the last window; `growth`: of it per hour; `fit`: r squared.
    """

    network: str
    link: str
    share: float
    growth: float
    fit: float
    windows: int


class Sums(Struct, frozen=True):
    """Sums over points (x, y), all whole numbers."""

    count: int
    x: int
    y: int
    xx: int
    xy: int
    yy: int

    @property
    def line(self) -> tuple[float, float]:
        """Returns the slope of the straight line of least squares, and r squared; 0 for fewer than two x."""
        across = self.count * self.xx - self.x * self.x
        along = self.count * self.yy - self.y * self.y
        both = self.count * self.xy - self.x * self.y
        if not across:
            return 0.0, 0.0
        return both / across, both * both / (across * along) if along else 1.0


def hours_until(trend: Trend, limit: float) -> float | None:
    """Returns the hours until a link reaches `limit` of what it can carry: 0 if it has; None if nothing tells
    that it will within a week.
    """
    if trend.share >= limit:
        return 0.0
    if trend.windows < 3 or trend.growth <= 0 or trend.fit < _FIT:
        return None
    hours = (limit - trend.share) / trend.growth
    return hours if hours <= FAR else None


def forecast(trend: Trend, limit: float) -> str:
    """Returns a sentence about a link; empty if there is nothing to be said."""
    hours = hours_until(trend, limit)
    if hours is None:
        return ""
    if hours == 0.0:
        return f"link {trend.link} is at {trend.share:.0%}, above {limit:.0%}"
    time = (
        f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
    )
    return f"link {trend.link} reaches {limit:.0%} in {time} at this growth"
