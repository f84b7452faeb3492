"""The logs of streams: each is the only partition of a topic, which Kafka's clients can write and read too.

A stream queue is a topic whose name is the queue's as a routing key spells it (`model.topics`): the queue
`orders.eu` is the topic `orders.eu`. Declaring the queue creates the topic, with one partition, led by this
host; the topic is then deleted with the queue. A topic that exists already becomes the log if it has one
partition; it stays when the queue is deleted.

Messages go the way of other faces' messages to topics (`broker.bridge.recording`): stored in the journal with
the turn, before their confirm, until the partition has them, once each. Consumers read what is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from treecast.middleware.broker import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Cluster,
    HostPubSub,
    NewTopic,
    PartitionLeader,
    PartitionReading,
    Topic,
    committed_offset,
    read_at,
    surely_most_of,
)
from treecast.middleware.broker.queues import (
    Cursor,
    QueueArguments,
    Reason,
    Refusal,
    Run,
    StartKind,
    StreamQueue,
)
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.records import Record
from treecast.middleware.model.topics import TopicName
from treecast.middleware.wire.record_batch import read_header

from .records import records_of, runs_of

_log = Log("treecast.amqp")

_CHUNK: Final = 256 * 1024  # bytes of one read
_RETRY: Final = 0.5  # seconds after a failed read
_SEGMENT_BYTES: Final = 500_000_000  # RabbitMQ's default
_MOST: Final = 2**31 - 1
_RECORD_TIMES: Final = 8  # a record is at most so many times larger than its message,
_RECORD_MORE: Final = 4096  # and has so many bytes more
_SHARED: Final = b"amq.topic"  # its messages are recorded by the bridge

Then = Callable[[Refusal | None], None]


class StreamLogs:
    """Implements `queues.Streams` for one host."""

    def __init__(self, cluster: Cluster, pubsub: HostPubSub, act: Callable[[], None]) -> None:
        """`act`: writes what connections got."""
        self.cluster = cluster
        self.pubsub = pubsub
        self.act = act
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        return self.loop.time()

    def log(self, vhost: str, name: bytes, arguments: QueueArguments) -> TopicLog:
        return TopicLog(self, topic_of(vhost, name), name)

    def prepare(self, vhost: str, name: bytes, arguments: QueueArguments, then: Then) -> None:
        """Makes the log of a stream exist, then calls `then` with None or the refusal."""
        self.keep(self._prepare(topic_of(vhost, name), arguments, then))

    def exists(self, topic: str) -> bool:
        found = self.find(topic)
        return found is not None and found.partitions == 1

    def find(self, topic: str) -> Topic | None:
        return self.cluster.definitions.topics().get(topic)

    async def _prepare(self, topic: str, arguments: QueueArguments, then: Then) -> None:
        refusal = None
        try:
            if self.find(topic) is None:
                alone = self.cluster.queues is None
                leaders = () if alone else (self.cluster.host.name,)
                new = NewTopic(topic, 1, config_of(arguments), leaders)
                await self.cluster.definitions.create_topic(new)
            await self.pubsub.identify()
        except TreecastError as error:
            if error.fault is not Fault.TOPIC_EXISTS:
                refusal = Refusal(Reason.PRECONDITION_FAILED, f"the stream's log cannot be made: {error}")
        found = self.find(topic)
        if refusal is None and found is not None and found.partitions != 1:
            detail = f"topic '{topic}' has {found.partitions} partitions, and a stream is one"
            refusal = Refusal(Reason.PRECONDITION_FAILED, detail)
        then(refusal)
        self.act()

    def delete(self, topic: str) -> None:
        """Deletes a topic that a stream has made."""
        found = self.find(topic)
        if found is not None and found.config.stream:
            self.keep(self._delete(topic))

    async def _delete(self, topic: str) -> None:
        try:
            await self.cluster.definitions.delete_topic(topic)
        except TreecastError as error:
            _log.warning("topic of a deleted stream remains", topic=topic, error=error)

    def keep(self, running: Coroutine[None, None, None]) -> None:
        """Keeps a reference to a task until it is done."""
        task = self.loop.create_task(running, name="stream")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class TopicLog:
    """Implements `queues.StreamLog` over the partition of a topic."""

    def __init__(self, streams: StreamLogs, topic: str, name: bytes) -> None:
        self._streams = streams
        self.topic = topic
        self._name = name
        self._readers: dict[Cursor, StreamReader] = {}

    def append(self, run: Run) -> list[int]:
        if run.exchange == _SHARED and self._recorded(run):
            return []
        topic = self._streams.find(self.topic)
        if topic is None or topic.partitions != 1:
            return list(range(run.count))
        now_ms = int(self._streams.pubsub.hub.clock.wall * 1000)
        refused = []
        for index, record in enumerate(records_of(run, now_ms)):
            if not self._streams.pubsub.record(self.topic, record):
                refused.append(index)
        return refused

    def refusals(self, run: Run) -> list[int]:
        if run.exchange == _SHARED and self._recorded(run):
            return []
        topic = self._streams.find(self.topic)
        if topic is None or topic.partitions != 1:
            return list(range(run.count))
        config, bound = topic.config, _RECORD_TIMES * len(run.data) + _RECORD_MORE
        if bound < surely_most_of(config) and not config.cleanup_compact:
            return []
        takes = self._streams.pubsub.takes
        return [index for index, one in enumerate(records_of(run, 0)) if not takes(self.topic, one)]

    def full(self) -> bool:
        return self._streams.pubsub.full(self.topic)

    def _recorded(self, run: Run) -> bool:
        """Whether a message of `amq.topic` comes from this very log, or goes there by the bridge."""
        recorder = self._streams.pubsub.hub.routes.recorder
        for key in run.keys:
            try:
                name = TopicName.from_amqp(key.decode())
                if name.to_kafka() == self.topic:
                    return recorder is not None and recorder.records(name.to_mqtt().encode())
            except (TreecastError, UnicodeDecodeError):
                continue
        return False

    def read(self, queue: StreamQueue, cursor: Cursor) -> None:
        reader = self._readers.get(cursor)
        if reader is None:
            reader = self._readers[cursor] = StreamReader(self._streams, self.topic, queue, cursor)
        reader.wanted.set()

    def close(self, cursor: Cursor) -> None:
        reader = self._readers.pop(cursor, None)
        if reader is not None:
            reader.stop()

    def delete(self) -> None:
        self._streams.delete(self.topic)


class StreamReader:
    """Reads a partition for one consumer, as it has room. Implements `broker.Taker`."""

    def __init__(self, streams: StreamLogs, topic: str, queue: StreamQueue, cursor: Cursor) -> None:
        self.wanted = asyncio.Event()
        self._streams = streams
        self._topic = topic
        self._queue = queue
        self._cursor = cursor
        self._reading = PartitionReading(
            f"consumer of {topic}", lambda: streams.cluster.partition(topic, 0), self, _CHUNK, _RETRY
        )

    def stop(self) -> None:
        self._reading.stop()

    async def room(self) -> None:
        await self.wanted.wait()

    def take(self, records: list[Record], offset: int) -> None:
        self._cursor.offset = offset
        if not records:
            return
        self.wanted.clear()
        self._cursor.reading = False
        self._queue.arrived(self._cursor, runs_of(records, self._queue.name), self._streams.now())
        self._streams.act()

    def failed(self, error: TreecastError) -> None:
        _log.info("stream is read again later", topic=self._topic, error=error)

    def ended(self) -> None:
        self._queue.ended(self._cursor)
        self._streams.act()

    # --- where it starts

    async def begin(self, leader: PartitionLeader) -> int:
        start = self._cursor.start
        if start.kind is StartKind.FIRST:
            return await committed_offset(leader, EARLIEST_TIMESTAMP)
        if start.kind is StartKind.OFFSET:
            return await self.beyond(leader, start.value)
        end = await committed_offset(leader, LATEST_TIMESTAMP)
        if start.kind is StartKind.TIME:
            found = await committed_offset(leader, max(start.value, 0))
            return found if found >= 0 else end
        return await self._last(leader, end) if start.kind is StartKind.LAST else end

    async def beyond(self, leader: PartitionLeader, offset: int) -> int:
        """Returns the offset, or the nearest that the log has."""
        first = await committed_offset(leader, EARLIEST_TIMESTAMP)
        return min(max(offset, first), max(await committed_offset(leader, LATEST_TIMESTAMP), first))

    async def _last(self, leader: PartitionLeader, end: int) -> int:
        """Returns where the last batch of records begins."""
        at = end
        while at > await committed_offset(leader, EARLIEST_TIMESTAMP):
            found = await read_at(leader, at - 1, _CHUNK)
            if not found.size:
                return end
            header = read_header(b"".join(map(in_memory, found.chunks)), 0)
            if not header.control:
                return header.base_offset
            at = header.base_offset
        return end


def topic_of(vhost: str, name: bytes) -> str:
    """Returns the topic of a stream. Refuses names that no topic can have."""
    if vhost != "/":
        raise Refusal(Reason.PRECONDITION_FAILED, f"streams are in vhost '/' only, and this is '{vhost}'")
    try:
        return TopicName.from_amqp(name.decode()).to_kafka()
    except (TreecastError, UnicodeDecodeError) as error:
        raise Refusal(Reason.PRECONDITION_FAILED, f"no topic can have the stream's name: {error}") from error


def config_of(arguments: QueueArguments) -> dict[str, str]:
    """Returns the settings of the topic that a stream makes."""
    segment = arguments.segment_bytes if arguments.segment_bytes > 0 else _SEGMENT_BYTES
    return {
        "treecast.stream": "true",
        "max.message.bytes": str(_MOST),
        "retention.bytes": str(arguments.max_bytes),
        "retention.ms": str(arguments.max_age * 1000 if arguments.max_age >= 0 else -1),
        "segment.bytes": str(min(max(segment, 14), _MOST)),
    }
