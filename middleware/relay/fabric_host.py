"""`FabricHost`: the parts that every host of the fabric has, with or without a broker.

    link          the coordinator: hosts, topics and their leaders (`view`)
    neighbours    the two paths to other hosts: channels and the fabric
    replicas      partitions of other hosts; with a broker, also the led partitions
    distribution  interest in both directions, carriers of streams, and after `join_events` event streams

`composition.join` adds the parts of a joined broker; `brokerless` is a host without a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treecast.middleware.broker.pubsub_host import HostPubSub
from treecast.middleware.model.counters import Counters

from .carrier_group import CarrierSettings
from .cluster import Life
from .coordinator_link import CoordinatorLink
from .distribution import Distribution
from .events.events import Events
from .events.ports import EventSettings
from .events.shares import LinkHomes
from .interest import InterestSettings
from .neighbours import ChannelLife, FabricLife, Neighbours
from .partitions.replicas import OwnParts, Replicas


class FabricHostParts(OwnParts, Protocol):
    """The local parts of a host, a subset of `broker.parts.LocalParts`."""

    @property
    def pubsub(self) -> HostPubSub: ...

    @property
    def counters(self) -> Counters: ...


class FabricHost:
    """The parts that every host has.

    `lives` are started in order and closed in reverse. `events` join `distribution` once the initial
    subscriptions are known.
    """

    def __init__(
        self,
        parts: FabricHostParts,
        link: CoordinatorLink,
        neighbours: Neighbours,
        replicas: Replicas,
        carriers: CarrierSettings,
        agent: bool = False,
        events: EventSettings | None = None,
    ) -> None:
        """`agent`: see `events.wishes.Wishes`. `events`: settings of event streams."""
        methods, fabric, counters = neighbours.methods, neighbours.fabric, parts.counters
        self.link = link
        self.neighbours = neighbours
        self.replicas = replicas
        self.distribution = Distribution(
            link, methods, fabric, replicas, InterestSettings(), carriers, counters.relay
        )
        self.events = Events(
            parts.pubsub.hub,
            parts.pubsub.turn,
            parts.run,
            self.distribution.interest,
            methods,
            fabric,
            counters.events,
            parts.clock,
            LinkHomes(link),
            events,
            tables=parts.tables,
            agent=agent,
        )
        neighbours.on_moved.append(lambda here: link.move(str(here.announced)))
        neighbours.channels.on_up = self._up
        neighbours.channels.on_down = self.distribution.host_down

    def _up(self, host: int, incarnation: int) -> None:
        self.neighbours.accepted(host, incarnation)
        self.distribution.host_up(host, incarnation)

    def lives(self, *more: Life) -> Sequence[Life]:
        """Returns the lives in starting order: the fabric, the parts that answer other hosts with `more` of
        them, and the channels.

        Parts that answer other hosts register their methods and make no calls before the channels start.
        """
        fabric, channels = FabricLife(self.neighbours), ChannelLife(self.neighbours)
        return [fabric, self.replicas, self.distribution, *more, channels, self.neighbours.place]
