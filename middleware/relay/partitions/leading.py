"""At a partition's leader: its stream to the following hosts, and where each of them begins.

A stream is created for the first follower, or at the start if a follower's account is still open. Its log is
the partition's log. Its epoch is the host's run number, and its id is unique within the run. Accounts
continue across runs (`accounts`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator

from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.channel import Methods, Nothing
from treecast.middleware.fabric.core.accounting import Ledger
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.model.runs import DirectoryState
from treecast.middleware.storage.epochs import divergence
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.wire.segment import SegmentError, part_size
from treecast.middleware.wire.segment_bodies import Report

from . import calls
from .accounts import Accounts, Place
from .ports import LedLookUp, LedPartition, Topics
from .stream_log import LedStream, PartitionStreamLog, StreamMemory

_log = Log(__name__)

Reply = tuple[calls.FollowResponse, Buffer]


class Led:
    """Looks up the partitions that this host leads, by the references used between hosts."""

    def __init__(self, partitions: LedLookUp, topics: Topics) -> None:
        self._partitions = partitions
        self._topics = topics
        self._found: dict[calls.PartitionRef, LedPartition] = {}

    def find(self, ref: calls.PartitionRef) -> LedPartition:
        """Returns the partition. Raises UNKNOWN_TOPIC_ID or NOT_LEADER."""
        known = self._found.get(ref)
        if known is not None and known.here:
            return known
        self._found.pop(ref, None)
        self._found[ref] = self._find(self.topic(ref), ref.partition)
        return self._found[ref]

    def topic(self, ref: calls.PartitionRef) -> Topic:
        return self._topics.topic_by_id(ref.topic_id)

    def _find(self, topic: Topic, index: int) -> LedPartition:
        found = self._partitions.find(topic.name, index)
        if found is None:
            raise TreecastError(Fault.NOT_LEADER, f"{topic.name}-{index} has another leader")
        return found


class Leading:
    """The streams of the partitions that this host leads. All calls come from the event loop."""

    def __init__(
        self,
        run: int,
        led: Led,
        fabric: Fabric,
        methods: Methods,
        stream_ids: Iterator[int],
        accounts: Accounts,
        directory: DirectoryState,
    ) -> None:
        """`run`: this host's run number, the epoch of the streams. `stream_ids`: unused stream ids.

        `directory`: the data directory from which this host leads.
        """
        self.on_followers: Callable[[Topic], None] | None = None  # called when a topic's followers change
        self._run = run
        self._directory = directory
        self._led = led
        self._fabric = fabric
        self._methods = methods
        self._stream_ids = stream_ids
        self._streams: dict[TopicPartition, LedStream] = {}
        self._memory = StreamMemory()
        self._accounts = accounts
        methods.register(calls.FOLLOW, self.follow)
        methods.register(calls.UNFOLLOW, self.unfollow)

    def __iter__(self) -> Iterator[LedStream]:
        """Iterates over a copy of the streams."""
        return iter(list(self._streams.values()))

    def start(self) -> None:
        """Resumes the accounts of earlier runs. Topics must be known and led partitions open."""
        for place in self._accounts.start(self._ledgers):
            ref = calls.PartitionRef(place.topic_id, place.number)
            try:
                self._stream(self._led.topic(ref), self._led.find(ref))
            except TreecastError as error:
                _log.info("account of a partition led elsewhere is discarded", error=error)
                self._accounts.forget(place)

    def _ledgers(self) -> Iterable[tuple[Place, Ledger]]:
        return [(stream.place, stream.origin.sender.ledger) for stream in self]

    def of_topic(self, topic: str) -> list[LedStream]:
        return [stream for stream in self._streams.values() if stream.name.topic == topic]

    def follow(self, host: int, request: calls.FollowRequest, body: memoryview) -> Reply | Awaitable[Reply]:
        """Adds `host` to the stream's receivers, from the offset given in the answer."""
        partition = self._led.find(request.partition)
        topic = self._led.topic(request.partition)
        stream = self._stream(topic, partition)
        begin, restart = beginning(partition.log, stream.log, request)
        kept = self._receives(stream, host, request) and begin == request.end and not restart
        if not kept:
            ledger = stream.origin.sender.ledger
            # First its own counts: a new beginning expires what its account still has open.
            _resume(ledger, host, request, partition.log.end_offset)
            if not restart:
                ledger.taken(host, begin)
            stream.origin.add_receiver(host, begin)
            if self.on_followers is not None:
                self.on_followers(topic)
        _, number, epoch = stream.origin.key
        answer = calls.FollowResponse(
            stream=number,
            epoch=epoch,
            kept=kept,
            begin=begin,
            restart=restart,
            log_start=partition.log.start_offset,
            end=partition.log.end_offset,
            leader_epoch=partition.leader_epoch,
            directory=self._directory.name,
            knows=self._directory.knows(request.agreed),
        )
        return (answer, b"") if kept else self._begun(stream, answer)

    async def _begun(self, stream: LedStream, answer: calls.FollowResponse) -> Reply:
        """Persists the new start before replying: on this reply the follower discards its old position."""
        await self._accounts.begun(stream.place, stream.origin.sender.ledger)
        return answer, b""

    def _receives(self, stream: LedStream, host: int, request: calls.FollowRequest) -> bool:
        if request.receiving is None or not stream.follows(host):
            return False
        said = (request.receiving.stream, request.receiving.epoch)
        return said == stream.origin.key[1:]

    def _stream(self, topic: Topic, partition: LedPartition) -> LedStream:
        stream = self._streams.get(partition.name)
        if stream is not None:
            return stream
        one_segment = part_size(self._fabric.stream_settings.mtu)
        # Records that are in the log already go only to those that begin there, later ones to all.
        log = PartitionStreamLog(partition.log, self._memory, join_bytes=one_segment)
        self._memory.add(log)
        origin = self._fabric.originate(
            next(self._stream_ids), self._run, log=log, live_from=log.end, name=str(partition.name)
        )
        stream = LedStream(topic, partition, log, origin, self._moved, self._ended)
        for host, account in self._accounts.known(stream.place).items():
            origin.sender.ledger.restore(host, account)
        self._streams[partition.name] = stream
        partition.tap(stream)
        return stream

    def unfollow(self, host: int, ref: calls.PartitionRef, body: memoryview) -> tuple[Nothing, Buffer]:
        partition = self._led.find(ref)
        stream = self._streams.get(partition.name)
        if stream is not None:
            self._remove(stream, [host])
        return Nothing(), b""

    def begin_anew(self, partition: LedPartition) -> None:
        """Ends the stream of a partition whose log was cut, and has its followers ask where theirs parts."""
        stream = self._streams.get(partition.name)
        if stream is None:
            return
        partition.tap(None)
        hosts = stream.hosts()
        self._ended(stream)
        ref = calls.PartitionRef(stream.topic.topic_id, stream.name.partition)
        for host in hosts:
            self._methods.tell(host, calls.CUT, ref)

    def host_left(self, host: int) -> None:
        """Removes a host that has left the cluster from all streams."""
        for stream in self:
            self._remove(stream, [host])

    def _remove(self, stream: LedStream, hosts: Iterable[int]) -> None:
        for host in hosts:
            if stream.follows(host):
                stream.origin.remove_receiver(host)
                if self.on_followers is not None:
                    self.on_followers(stream.topic)

    def _moved(self, stream: LedStream) -> None:
        """Notifies followers that the log's start has advanced.

        After a lost notice, the next notice or the next Follow carries the start.
        """
        ref = calls.PartitionRef(stream.topic.topic_id, stream.name.partition)
        notice = calls.LogStartNotice(ref, stream.partition.log.start_offset)
        for host in stream.hosts():
            self._methods.tell(host, calls.LOG_START, notice)

    def _ended(self, stream: LedStream) -> None:
        """Ends the stream of a partition that was deleted or is led elsewhere."""
        self._forget(stream)
        self._accounts.forget(stream.place)

    def _forget(self, stream: LedStream) -> None:
        if self._streams.get(stream.name) is stream:
            del self._streams[stream.name]
        self._memory.remove(stream.log)
        stream.origin.forget()

    def close(self) -> None:
        self._accounts.close()
        for stream in self:
            stream.partition.tap(None)
            self._forget(stream)


def _resume(ledger: Ledger, host: int, request: calls.FollowRequest, end: int) -> None:
    """Resumes the account of `host` with its own counts of the stream that it receives or received."""
    if request.receiving is None or not request.receiving.report:
        return
    try:
        report = Report.decode(request.receiving.report)
    except SegmentError as error:
        raise TreecastError(Fault.INVALID_REQUEST, f"the report cannot be read: {error}") from error
    ledger.resume(host, report, end)


def beginning(
    log: PartitionLog, stream_log: PartitionStreamLog, request: calls.FollowRequest
) -> tuple[int, bool]:
    """Returns (the offset at which the stream to a replica begins, whether the replica discards its log).

    The replica's records before that offset agree with the leader's `log`; it discards those from there on.
    """
    start, end = stream_log.first_at(log.start_offset), request.end
    if end < 0:
        return (log.end_offset if request.tail else start), True
    entries = [(entry.leader_epoch, entry.start) for entry in request.epochs]
    if not entries:  # the replica has no records
        begin = end if start <= end <= log.end_offset else start
        return begin, begin != end
    parted = divergence(entries, end, log.epoch_entries, log.end_offset)
    return (start, True) if parted < start else (parted, False)
