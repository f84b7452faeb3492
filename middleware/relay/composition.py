"""Composes the relay of one host: the cluster as a joined broker sees it."""

from __future__ import annotations

import asyncio

from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.broker.topics import TOPICS
from treecast.middleware.broker.transactions.producer_ids import PRODUCER_IDS
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.tables import Change

from .applications import ApplicationNews
from .carrier_group import CarrierSettings
from .cluster import RelayCluster
from .coordinator_link import CoordinatorLink
from .definitions import RelayDefinitions
from .fabric_host import FabricHost
from .homes import Homes, LinkCoordinator
from .neighbours import Endpoint, Neighbours
from .next_hops import NextHops
from .partitions.doubts import Doubts
from .partitions.ports import PartitionSettings
from .partitions.record import LinkRecord
from .partitions.relay_partitions import RelayPartitions
from .queues.known import KnownDefinitions
from .queues.links import QueueLinks
from .view_store import ViewStore

_log = Log(__name__)

FIRST_SECONDS = 10.0  # how long a host with an empty view waits for the coordinator's first update


class Adoption:
    """The hand-over of a host that was alone: its topics, with their ids and settings, go to the coordinator.

    This host leads the topics; their logs stay in place. It can be repeated after a crash at any point: the
    coordinator recognises a topic by its id. Then the entries are deleted from the own tables; from there on
    the coordinator is their only source.

    Raises TOPIC_EXISTS if the cluster has another topic of the same name.
    """

    def __init__(self, parts: LocalParts, link: CoordinatorLink) -> None:
        self._parts = parts
        self._link = link

    async def hand_over(self) -> None:
        """Hands over topics and producer ids. Raises COORDINATOR_UNAVAILABLE if the coordinator is away.

        Until the hand-over has succeeded once, the host cannot start without the coordinator.
        """
        tables = self._parts.tables
        topics = await self._parts.registry.read()
        given_out = tables.load(PRODUCER_IDS)
        if not topics and not given_out:
            return
        for topic in topics.values():
            await self._link.client.create_topic(self._request(topic))
        for end in given_out.values():
            # Ids that this host gave out alone must not be given to another producer of the cluster.
            await self._link.client.producer_ids(self._link.session, 1, at_least=int(end))
        # The view has the topics, and has stored them, before the own entries go: a kill in between loses
        # nothing.
        await self._link.fetch()
        await tables.commit(
            [
                *(Change(TOPICS, name, None) for name in topics),
                *(Change(PRODUCER_IDS, key, None) for key in given_out),
            ]
        )
        _log.info("topics of this host were moved into the cluster, and are led here", topics=len(topics))

    def _request(self, topic: Topic) -> pb.CreateTopicEntryRequest:
        return pb.CreateTopicEntryRequest(
            name=topic.name,
            topic_id=topic.topic_id.bytes,
            partitions=topic.partitions,
            config=dict(topic.config.overrides),
            pinned=[self._parts.host.name],
        )


class Opening:
    """The first life: loads the stored view, hands over the host's own topics and opens led partitions."""

    def __init__(
        self, parts: LocalParts, link: CoordinatorLink, definitions: RelayDefinitions, doubts: Doubts
    ) -> None:
        self._doubts = doubts
        self._parts = parts
        self._link = link
        self._definitions = definitions
        self._adoption = Adoption(parts, link)
        self._late: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._link.load(ViewStore(self._parts.tables))
        # Before definitions start: what is handed over is then a topic of the view like any other.
        await self._adoption.hand_over()
        await self._definitions.start()
        self._link.start()
        if self._link.attached:
            await self._parts.producer_ids.drop_blocks()
            await self._link.first_seen(FIRST_SECONDS)
            await self._definitions.settled()
            if await self._doubts.check():
                await self._definitions.settled()
        else:
            self._link.once_attached(self._attached_late)

    def _attached_late(self) -> None:
        """The coordinator is back: what this host used up to now as its own may not have been."""
        self._late = asyncio.get_running_loop().create_task(self._parts.producer_ids.drop_blocks())

    async def close(self) -> None:
        if self._late is not None:
            await self._late
        await self._definitions.close()
        await self._link.close(detach=True)


def join(parts: LocalParts, link: CoordinatorLink, endpoint: Endpoint) -> RelayCluster:
    """Returns the cluster over the local parts of a joined host.

    It consists of a `FabricHost` and what a broker adds: definitions, led partitions and homes. `Opening`
    starts first, so that led partitions are open before other hosts are answered.
    """
    neighbours = Neighbours(
        endpoint,
        parts.host.host_id,
        parts.run,
        parts.cluster_id,
        link.view,
        parts.counters,
        parts.pubsub.passes,
    )
    homes = Homes(parts, link.view, LinkCoordinator(link), neighbours.methods, neighbours.channels.is_up)
    definitions = RelayDefinitions(
        parts.settings, parts.host.host_id, link, parts.partitions, homes.forget_topic
    )
    record = LinkRecord(link)
    doubts = Doubts(parts.host.host_id, parts.partitions, link.view, record)
    partitions = RelayPartitions(
        parts,
        definitions,
        link.view,
        neighbours.channels,
        neighbours.methods,
        neighbours.fabric,
        PartitionSettings(),
        parts.counters.relay,
        record,
        link.directory,
    )
    host = FabricHost(parts, link, neighbours, partitions, CarrierSettings())
    known = KnownDefinitions(link, neighbours.methods)
    return RelayCluster(
        parts.cluster_id,
        parts.host,
        definitions,
        partitions,
        homes,
        [
            Opening(parts, link, definitions, doubts),
            *host.lives(homes),
            ApplicationNews(link, parts.counters.applications),
        ],
        neighbours,
        host.distribution,
        host.events,
        parts.tables,
        partitions.operator,
        known,
        QueueLinks(parts.host.host_id, parts.run, known, host.distribution, parts.pubsub.turn),
        NextHops(host.distribution, neighbours.fabric, neighbours.methods, link.view, neighbours.trouble),
        parts.counters,
    )
