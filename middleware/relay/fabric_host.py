"""`FabricHost`: what makes a host of the fabric of anybody, with a broker or without.

    link          the coordinator: who is there, which topics, who leads them (`view`)
    neighbours    the two ways to the others: channels and the fabric
    replicas      partitions of others; where there is a broker, also what it leads
    sharing       interest both ways, the carriers of streams, and event streams once `join_events` was called

`composition.join` adds what makes a cluster member of a broker; `brokerless` is a host without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treecast.middleware.broker.pubsub_host import HostPubSub
from treecast.middleware.model.counters import Counters

from .carrier_choice import CarrierSettings
from .cluster import Life
from .events.events import Events
from .events.shares import LinkHomes
from .interest import InterestSettings
from .link import Link
from .neighbours import ChannelLife, FabricLife, Neighbours
from .partitions.replicas import OwnParts, Replicas
from .sharing import Sharing


class FabricHostParts(OwnParts, Protocol):
    """What a host has of its own: `broker.parts.LocalParts` is more than that."""

    @property
    def pubsub(self) -> HostPubSub: ...

    @property
    def counters(self) -> Counters: ...


class FabricHost:
    """The parts that every host has. `lives` are started in order, and closed in reverse; `events` join
    `sharing` when what is subscribed to from the first moment on is known."""

    def __init__(
        self,
        parts: FabricHostParts,
        link: Link,
        neighbours: Neighbours,
        replicas: Replicas,
        carriers: CarrierSettings,
    ) -> None:
        methods, fabric, counters = neighbours.methods, neighbours.fabric, parts.counters
        self.link = link
        self.neighbours = neighbours
        self.replicas = replicas
        self.sharing = Sharing(link, methods, fabric, replicas, InterestSettings(), carriers, counters.relay)
        self.events = Events(
            parts.pubsub.hub,
            parts.pubsub.turn,
            parts.run,
            self.sharing.interest,
            methods,
            fabric,
            counters.events,
            parts.clock,
            LinkHomes(link),
            tables=parts.tables,
        )
        neighbours.channels.on_up = self._up
        neighbours.channels.on_down = self.sharing.host_down

    def _up(self, host: int, incarnation: int) -> None:
        self.neighbours.accepted(host)
        self.sharing.host_up(host, incarnation)

    def lives(self, *more: Life) -> Sequence[Life]:
        """The fabric, who answers other hosts (they register their calls and ask nobody yet) and `more` of
        these, the channels."""
        fabric, channels = FabricLife(self.neighbours), ChannelLife(self.neighbours)
        return [fabric, self.replicas, self.sharing, *more, channels]
