"""Adoption of a standalone host: its topics, with their ids and settings, are handed to the coordinator.

This host leads the topics; their logs stay in place. The hand-over can be repeated after a crash at any
point: the coordinator recognises a topic by its id. After the hand-over the entries are deleted from the
host's own tables; from then on the coordinator is their only source.
"""

from __future__ import annotations

from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.broker.topics import TOPICS
from treecast.middleware.broker.transactions.producer_ids import PRODUCER_IDS
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.tables import Change

from .link import Link

_log = Log(__name__)


class Adoption:
    """The hand-over of one host, at its start.

    Raises TOPIC_EXISTS if the cluster has another topic of the same name.
    """

    def __init__(self, parts: LocalParts, link: Link) -> None:
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
