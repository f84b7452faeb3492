"""`RelayCluster`: the cluster as seen by a joined host's faces, control service and transactions.

It delegates look-ups to its collaborators, one for each kind of owned object. Each collaborator implements a
Protocol defined here and can be built and tested alone; `composition` puts them together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Protocol, TypeVar

from treecast.middleware.broker.cluster import Definitions, GroupsAtOnce, Kind, PartitionLeader
from treecast.middleware.broker.pubsub import Reach
from treecast.middleware.broker.queues import Reach as QueueReach
from treecast.middleware.broker.values import GroupListing, TransactionListing
from treecast.middleware.broker.views import Views
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity
from treecast.middleware.storage.tables import Tables

from .distribution import Distribution
from .events.events import Events
from .neighbours import Neighbours
from .next_hops import NextHops
from .partitions.operator import Operator
from .queues.known import KnownDefinitions
from .queues.links import QueueLinks

T = TypeVar("T")


class Life(Protocol):
    """A part that starts with the cluster. Parts are closed in reverse order."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class Partitions(Protocol):
    """The leaders of partitions, and how to reach them."""

    def partition(self, topic: str, index: int) -> PartitionLeader:
        """Returns the partition's leader. Raises UNKNOWN_TOPIC if there is no such partition.

        Never waits: an unreachable leader raises when it is used.
        """


class AllHomes(Protocol):
    """Homes of every kind, and ids for producers without a home."""

    def home(self, kind: Kind[T], id: str) -> T: ...

    def groups_at_once(self, group_id: str) -> GroupsAtOnce | None:
        """Returns what answers the repeated requests of a group; None if its home is not this host."""

    def list_groups(self) -> Awaitable[Sequence[GroupListing]]:
        """Returns the groups of all reachable hosts."""

    def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Awaitable[Sequence[TransactionListing]]:
        """Returns the transactions of all reachable hosts."""

    def new_producer(self) -> Awaitable[ProducerIdentity]: ...


class RelayCluster:
    """Implements `broker.parts.JoinedCluster`."""

    def __init__(
        self,
        cluster_id: str,
        host: Host,
        definitions: Definitions,
        partitions: Partitions,
        homes: AllHomes,
        lives: Sequence[Life],
        neighbours: Neighbours,
        distribution: Distribution,
        events: Events,
        tables: Tables,
        operator: Operator,
        known_definitions: KnownDefinitions,
        queues: QueueLinks,
        ways: NextHops,
        counters: Counters,
    ) -> None:
        """`lives` are started in this order and closed in reverse. `neighbours`: for inspection.

        `events` join `distribution` once the faces have resumed their sessions. `tables`: where the view is
        stored. `operator`: operators' decisions about partitions. `queues`: the way of queues. `ways`: of
        messages, for operators. `counters`: of this host.
        """
        self.neighbours = neighbours
        self.distribution = distribution
        self.tables = tables
        self.operator = operator
        self.ways = ways
        self.known_definitions = known_definitions
        self._queues = queues
        self._events = events
        self._cluster_id = cluster_id
        self._host = host
        self._definitions = definitions
        self._partitions = partitions
        self._homes = homes
        self._views = Views(definitions, self, counters)
        self._lives = lives
        self._started: list[Life] = []

    async def start(self) -> None:
        """Starts all lives in order. `close` also closes a life whose start failed."""
        for life in self._lives:
            self._started.append(life)
            await life.start()

    async def close(self) -> None:
        """Closes all started lives. Safe to call twice."""
        while self._started:
            await self._started.pop().close()

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def host(self) -> Host:
        return self._host

    @property
    def definitions(self) -> Definitions:
        return self._definitions

    def partition(self, topic: str, index: int) -> PartitionLeader:
        try:
            return self._partitions.partition(topic, index)
        except TreecastError:
            found = self._views.partition(topic, index)
            if found is None:
                raise
            return found

    def home(self, kind: Kind[T], id: str) -> T:
        return self._homes.home(kind, id)

    def groups_at_once(self, group_id: str) -> GroupsAtOnce | None:
        return self._homes.groups_at_once(group_id)

    async def list_groups(self) -> Sequence[GroupListing]:
        return await self._homes.list_groups()

    async def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Sequence[TransactionListing]:
        return await self._homes.list_transactions(transactional_ids)

    @property
    def events(self) -> Reach:
        return self._events

    @property
    def queues(self) -> QueueReach:
        return self._queues

    async def begin_events(self) -> None:
        self.distribution.join_events(self._events)

    async def end_events(self) -> None:
        await self.distribution.leave_events()

    async def new_producer(self) -> ProducerIdentity:
        return await self._homes.new_producer()
