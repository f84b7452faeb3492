"""The way of messages published by MQTT clients to recorded topics, up to the partitions' leaders.

The messages of one turn of the event loop for one partition form one record batch. Batches of messages with
QoS 1 or 2 are spooled: the journal owes them, under a name that no topic has, until the leader has appended
them. They carry a producer id and sequence numbers, so the leader drops repeated batches. This includes those
repeated after a restart, because the same bytes are sent.

    topic of a spooled batch: U+0000 | "record " | topic | "-" | partition

A record that its topic would refuse is refused before it is spooled, so that a face does not acknowledge it.
Afterwards only a change of the topic can make the leader refuse it.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections import deque
from functools import partial
from typing import Final

from msgspec.structs import replace

from treecast.middleware.broker.batch_sizes import most_of, stored_codec, surely_most_of
from treecast.middleware.broker.cluster import Cluster
from treecast.middleware.broker.pubsub import Creditor, Message, Owed, PubSub
from treecast.middleware.broker.values import Appended, Topic
from treecast.middleware.model.complaints import Complaints
from treecast.middleware.model.counters import BridgeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity
from treecast.middleware.model.logs import Log
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records

_log = Log(__name__)

Place = tuple[str, int]  # topic, partition
_NAME: Final = "\0record"
_PREFIX: Final = b"\0record "
_WRAP: Final = 1 << 31
_BATCH_BYTES: Final = 16 << 20
BATCH_HEAD: Final = 61  # bytes of a batch before its records
_RECORD_HEAD: Final = 30  # the most that a record has besides its key, value and headers
_LASTING: Final = frozenset(
    {
        Fault.UNKNOWN_TOPIC,
        Fault.UNKNOWN_TOPIC_ID,
        Fault.BATCH_TOO_LARGE,
        Fault.INVALID_RECORD,
        Fault.INVALID_TIMESTAMP,
        Fault.CORRUPT_BATCH,
        Fault.POLICY_VIOLATION,
    }
)
_FORGOTTEN: Final = frozenset(
    {
        Fault.OUT_OF_ORDER_SEQUENCE,
        Fault.UNKNOWN_PRODUCER,
        Fault.INVALID_PRODUCER_EPOCH,
        Fault.DUPLICATE_SEQUENCE,
    }
)


class Batch:
    """A record batch to append. `spooled`: the message that the journal owes; None if it may be lost.
    `late`: its records have the time of a repetition, as the topic refused that of the publish."""

    __slots__ = ("data", "late", "records", "spooled")

    def __init__(self, data: bytes, records: int, spooled: Message | None) -> None:
        self.data = data
        self.records = records
        self.spooled = spooled
        self.late = False


class Gathered:
    """The records of one turn for a partition, in batches of at most `most` bytes. A record that is larger
    has a batch of its own."""

    __slots__ = ("_most", "_size", "batches")

    def __init__(self, most: int) -> None:
        self.batches: list[list[Record]] = [[]]
        self._most = most
        self._size = BATCH_HEAD

    def add(self, record: Record, size: int) -> None:
        if self.batches[-1] and self._size + size > self._most:
            self.batches.append([])
            self._size = BATCH_HEAD
        self.batches[-1].append(record)
        self._size += size


class Queue:
    """The batches of one partition to append, in order. At most one at a time is sent to the leader."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.batches: deque[Batch] = deque()
        self.bytes = 0
        self.sequence = 0  # of the next record
        self.busy = False


class Recording:
    """All recording of a host. Implements `turn.Departures`.

    `retry`: seconds until a failed append is repeated. `queue_bytes`: limit of waiting bytes per partition.
    """

    def __init__(
        self, hub: PubSub, cluster: Cluster, counters: BridgeCounters, retry: float, queue_bytes: int
    ) -> None:
        self._hub = hub
        self._cluster = cluster
        self._counters = counters
        self._complaints = Complaints(
            counters.refused, _log, "message cannot be recorded", level=logging.ERROR
        )
        self._retry = retry
        self._queue_bytes = queue_bytes
        self._producer = NO_PRODUCER
        self._identifying = False
        self._record: Creditor | None = None
        self._promised: dict[Place, Gathered] = {}
        self._fleeting: dict[Place, Gathered] = {}
        self._queues: dict[Place, Queue] = {}
        self._placed: list[Queue] = []
        self._closed = False
        # `turn.Departures`
        self.waiting = False
        self.placed = False
        self.congested = False  # never, because waiting bytes are bounded per partition

    # --- life

    async def start(self) -> None:
        """Resumes the batches that an earlier run has spooled."""
        self._loop = asyncio.get_running_loop()
        journal = self._hub.journal
        if journal is None:
            return
        for record in list(journal.records.values()):
            if record.client_id == _NAME:
                self._record = record
                for _, owed in sorted(record.owed.items()):
                    self._take_up(owed.message)
        for queue in list(self._queues.values()):
            self._pump(queue)

    def _take_up(self, message: Message) -> None:
        topic, _, partition = message.topic[len(_PREFIX) :].decode().rpartition("-")
        header = read_header(message.payload, 0)
        self._append(self._queue((topic, int(partition))), Batch(message.payload, header.count, message))
        self._counters.sent_again += header.count

    @property
    def identified(self) -> bool:
        """Whether there is a producer id, or one is requested."""
        return self._identifying or self._producer != NO_PRODUCER

    async def identify(self) -> None:
        """Gets a producer id if there is none. With it, batches sent twice are recorded once."""
        if self.identified:
            return
        self._identifying = True
        try:
            self._producer = await self._cluster.new_producer()
        except TreecastError as error:
            _log.warning("MQTT publishes are recorded without a producer id", error=error)
        finally:
            self._identifying = False

    def close(self) -> None:
        """Stops sending. The next run sends what is spooled."""
        self._closed = True

    # --- the turn

    def add(self, topic: Topic, partition: int, record: Record, promised: bool) -> Fault | None:
        """Adds a record to this turn's batch. If the topic does not take it, or too many bytes wait for the
        leader (LEADER_UNAVAILABLE), drops it, and returns why."""
        place = (topic.name, partition)
        size = bound_of(record)
        fault = refusal_of(topic.config, record, size)
        if fault is not None:
            self._complaints.count(fault.name, f"{topic.name}-{partition}: {fault.value}")
            return fault
        if self.full(place):
            self._counters.dropped += 1
            return Fault.LEADER_UNAVAILABLE
        self.waiting = True
        gathered = self._promised if promised else self._fleeting
        if place not in gathered:
            gathered[place] = Gathered(min(surely_most_of(topic.config), _BATCH_BYTES))
        gathered[place].add(record, size)
        return None

    def full(self, place: Place) -> bool:
        """Whether too many bytes wait for a partition's leader."""
        queue = self._queues.get(place)
        return queue is not None and queue.bytes > self._queue_bytes

    def place(self) -> None:
        """Implements `turn.Departures`: makes the turn's batches and spools those with QoS 1 or 2."""
        self.waiting, self.placed = False, True
        fleeting, self._fleeting = self._fleeting, {}
        for place, gathered in fleeting.items():
            queue = self._queue(place)
            for some in gathered.batches:
                self._append(queue, Batch(build_batch(some), len(some), None))
            self._placed.append(queue)
        promised, self._promised = self._promised, {}
        for place, gathered in promised.items():
            queue = self._queue(place)
            for some in gathered.batches:
                self._append(queue, self._spooled(queue, some))
            self._placed.append(queue)

    def _spooled(self, queue: Queue, records: list[Record]) -> Batch:
        producer, sequence = self._producer, -1
        if producer.producer_id >= 0:
            sequence = queue.sequence
            queue.sequence = (sequence + len(records)) % _WRAP
        data = build_batch(records, producer=producer, base_sequence=sequence)
        journal = self._hub.journal
        if journal is None:
            return Batch(data, len(records), None)
        if self._record is None:
            self._record = Creditor(self._hub.routes.next_serial(), _NAME)
            journal.begin(self._record)
        topic, partition = queue.place
        message = Message(_PREFIX + f"{topic}-{partition}".encode(), data, 1)
        journal.owe(self._record, Owed(message, 1, False, ()))
        return Batch(data, len(records), message)

    def send(self) -> None:
        """Implements `turn.Departures`: the journal is stored, so sends the batches to the leaders."""
        placed, self._placed = self._placed, []
        self.placed = False
        for queue in placed:
            self._pump(queue)

    # --- to the leaders

    def _queue(self, place: Place) -> Queue:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = Queue(place)
        return queue

    def _append(self, queue: Queue, batch: Batch) -> None:
        queue.batches.append(batch)
        queue.bytes += len(batch.data)

    def _pump(self, queue: Queue) -> None:
        """Appends batches until an append has to wait for the leader."""
        while queue.batches and not queue.busy and not self._closed:
            batch = queue.batches[0]
            try:
                appended = self._cluster.partition(*queue.place).append(
                    memoryview(bytearray(batch.data)), -1, None
                )
            except TreecastError as error:
                self._refused(queue, error)
                return
            if isinstance(appended, Future):
                queue.busy = True
                appended.add_done_callback(partial(self._answered, queue))
                return
            self._recorded(queue)

    def _answered(self, queue: Queue, done: Future[Appended]) -> None:
        queue.busy = False
        if done.cancelled() or self._closed:
            return
        error = done.exception()
        if error is None:
            self._recorded(queue)
        elif isinstance(error, TreecastError):
            self._refused(queue, error)
            return
        else:
            self._refused(queue, TreecastError(Fault.INTERNAL, str(error)))
            return
        self._pump(queue)

    def _recorded(self, queue: Queue) -> None:
        self._counters.recorded += queue.batches[0].records
        self._settle(queue)

    def _settle(self, queue: Queue) -> None:
        """Removes the first batch, from the journal too."""
        batch = queue.batches.popleft()
        queue.bytes -= len(batch.data)
        journal = self._hub.journal
        if batch.spooled is not None and journal is not None and self._record is not None:
            journal.settled(self._record, batch.spooled)

    def _refused(self, queue: Queue, error: TreecastError) -> None:
        """Drops the first batch if it can never be recorded; otherwise tries again after `retry`."""
        batch = queue.batches[0]
        if error.fault is Fault.INVALID_TIMESTAMP and not batch.late:  # it has waited for longer than allowed
            queue.bytes -= len(batch.data)
            batch.data, batch.late = _at(batch.data, int(self._hub.clock.wall * 1000)), True
            queue.bytes += len(batch.data)
            self._loop.call_soon(self._pump, queue)
            return
        if error.fault in _LASTING:
            topic, partition = queue.place
            self._complaints.count(error.fault.name, f"{topic}-{partition}: {error}", batch.records)
            self._settle(queue)
            self._leave_producer(queue)
            self._loop.call_soon(self._pump, queue)
            return
        if error.fault in _FORGOTTEN:
            self._leave_producer(queue)
        self._loop.call_later(self._retry, self._pump, queue)

    def _leave_producer(self, queue: Queue) -> None:
        """Gives up a producer id whose sequence numbers do not match the leader's, and requests a new one.

        The waiting batches of this partition are sent without a producer.
        """
        for batch in queue.batches:
            batch.data = _anonymous(batch.data)
        queue.sequence = 0
        self._producer = NO_PRODUCER
        for other in self._queues.values():
            other.sequence = 0
        self._loop.create_task(self.identify())


def bound_of(record: Record) -> int:
    """Returns a number of bytes that a record does not exceed in a batch."""
    headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in record.headers)
    return _RECORD_HEAD + len(record.key or b"") + len(record.value or b"") + headers


def refusal_of(config: TopicConfig, record: Record, bound: int) -> Fault | None:
    """Returns why a topic would refuse a record; None if it takes it. `bound`: of `bound_of`."""
    if config.cleanup_compact and record.key is None:
        return Fault.INVALID_RECORD
    if bound + BATCH_HEAD > surely_most_of(config) and _largest(config, record) > most_of(config):
        return Fault.BATCH_TOO_LARGE
    return None


def _largest(config: TopicConfig, record: Record) -> int:
    """Returns the size of a record's own batch, as it is sent or as the topic stores it."""
    codecs = {Compression.NONE, stored_codec(config) or Compression.NONE}
    return max(len(build_batch([record], compression=codec)) for codec in codecs)


def _anonymous(data: bytes) -> bytes:
    """Returns the batch without a producer."""
    return build_batch(read_records(data, 0, read_header(data, 0)), producer=ProducerIdentity(-1, -1))


def _at(data: bytes, now_ms: int) -> bytes:
    """Returns the batch with another time of its records. It repeats the same sequence numbers."""
    header = read_header(data, 0)
    records = [replace(record, timestamp=now_ms) for record in read_records(data, 0, header)]
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    return build_batch(records, producer=producer, base_sequence=header.base_sequence)
