"""`Notebook`: records that the agent itself writes to one compacted topic of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from treecast.agents.kafka.asking import KafkaOwner
from treecast.agents.kafka.cluster import KafkaCluster
from treecast.agents.kafka.connection import ConnectionLost
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch

from .topics import COMPACTED, make_topic

_ALL: Final = -1  # acks
_ATTEMPTS: Final = 10
_PAUSE: Final = 0.3  # s, for the leader of a topic that was made just now


class Notebook:
    """A topic of one partition, which is made before the first record."""

    def __init__(self, cluster: KafkaCluster, owner: KafkaOwner, topic: str, replicas: int) -> None:
        self._cluster = cluster
        self._owner = owner
        self._name = TopicPartition(topic, 0)
        self._replicas = replicas

    async def write(self, records: Sequence[Record]) -> None:
        """Raises TreecastError if the cluster does not take them."""
        await self._open()
        await self._owner.produce(self._name, build_batch(records), _ALL, None)

    async def _open(self) -> None:
        """Waits for the topic's leader."""
        topic = self._name.topic
        for _ in range(_ATTEMPTS):
            found = self._cluster.leader(topic, 0)
            if found is not None and found.leader >= 0:
                return
            if topic not in self._cluster.found.topics:
                await make_topic(self._cluster, topic, 1, self._replicas, COMPACTED)
            await asyncio.sleep(_PAUSE)
            try:
                await self._cluster.refresh()
            except ConnectionLost as error:
                raise TreecastError(Fault.LEADER_UNAVAILABLE, str(error)) from error
        raise TreecastError(Fault.LEADER_UNAVAILABLE, f"topic {topic} has no leader")
