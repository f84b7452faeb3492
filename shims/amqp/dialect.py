"""`AmqpDialect`: the part of AMQP that the host's queues need, also while the face is off.

It reads the headers of their messages, keeps streams as topics, and connects `amq.topic` with the topics of
the other faces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from treecast.middleware.broker import Cluster, HostPubSub, HostQueues
from treecast.middleware.broker.queues import Run, messages
from treecast.middleware.model.records import Record

from .bridge import TopicBridge, topic_of
from .codec_methods import read_table
from .codec_properties import HEADERS_BIT, values
from .records import headers_of
from .stream_logs import StreamLogs


class AmqpHeaders:
    """Reads messages published over AMQP."""

    def headers(self, run: Run) -> Mapping[str, object]:
        (properties, _), *_ = messages(run.data)
        table = values(properties).get(HEADERS_BIT)
        return read_table(table) if table is not None else {}

    def record(self, run: Run) -> Record:
        ((properties, body),) = messages(run.data)
        return Record(None, body, tuple(headers_of(properties)))

    def topic(self, key: bytes) -> str:
        return (topic_of(key) or key).decode(errors="replace")


class AmqpDialect:
    """Implements `queues.host.Dialect`."""

    def __init__(self, cluster: Cluster, pubsub: HostPubSub, queues: HostQueues) -> None:
        self.reader = AmqpHeaders()
        self.streams = StreamLogs(cluster, pubsub, queues.edge.act)
        self._hub = pubsub.hub
        self._vhosts = queues.hosts.vhosts
        self._bridge: TopicBridge | None = None

    def begin(self) -> None:
        self._bridge = TopicBridge(self._hub, self._vhosts["/"], asyncio.get_running_loop().time)

    async def close(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None
        await self.streams.close()
