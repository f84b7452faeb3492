"""Calls about partitions, methods 40-59 of the channel, and their messages. See docs/fabric.md.

A partition is named by its topic's id and its number. A host that does not lead it refuses with NOT_LEADER; a
host that does not know the topic, or not yet, refuses with UNKNOWN_TOPIC_ID. Bodies are whole record batches.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treecast.middleware.broker.values import AbortedTransaction, ActiveProducer, Isolation, OffsetAtTime
from treecast.middleware.fabric.channel import Method, Natural, Nothing
from treecast.middleware.model.identity import ProducerIdentity, TopicId


class PartitionRef(Struct, frozen=True, array_like=True):
    topic_id: TopicId
    partition: Natural


class EpochStart(Struct, frozen=True, array_like=True):
    leader_epoch: int
    start: int


# --- following


class ReceivingStream(Struct, frozen=True, array_like=True):
    """A stream that the caller receives.

    `report`: the body of a report segment with the caller's counts so far.
    """

    stream: int
    epoch: int
    report: bytes = b""


class FollowRequest(Struct, frozen=True, array_like=True):
    """Asks to receive the partition's records from now on, or to continue receiving them.

    When the answer is sent, the caller is a receiver of the stream. `end`: end offset of the replica; 0 if
    there is none. `epochs`: of the replica, oldest first. `tail`: whether a replica without records begins at
    the log's end instead of its start. `receiving`: the stream that the caller already receives, if any.
    `agreed`: the `directory` of the leader with which the replica agreed last; empty if unknown.
    """

    partition: PartitionRef
    end: int = 0
    epochs: tuple[EpochStart, ...] = ()
    tail: bool = False
    receiving: ReceivingStream | None = None
    agreed: str = ""


class FollowResponse(Struct, frozen=True, array_like=True):
    """The answer to `FollowRequest`.

    `kept`: the caller continues to receive the stream unchanged. `begin`: offset of the stream's first record
    for the caller; the replica discards its records from there on. `restart`: the replica discards all its
    records. `end`: end offset of the leader's log. `directory`: names the leader's data directory and its
    run. `knows`: whether that directory has been in the state with which the replica agreed last.
    """

    stream: int = 0
    epoch: int = 0
    kept: bool = False
    begin: int = 0
    restart: bool = False
    log_start: int = 0
    end: int = 0
    leader_epoch: int = 0
    directory: str = ""
    knows: bool = False


class LogStartNotice(Struct, frozen=True, array_like=True):
    """Notifies followers that the start of the leader's log has advanced."""

    partition: PartitionRef
    log_start: int


FOLLOW: Final = Method(40, FollowRequest, FollowResponse)
UNFOLLOW: Final = Method(41, PartitionRef, Nothing)
LOG_START: Final = Method(49, LogStartNotice, Nothing)
CUT: Final = Method(55, PartitionRef, Nothing)  # tells followers that the leader's log was cut: follow again


# --- served by the leader as for its own clients


class ProduceRequest(Struct, frozen=True, array_like=True):
    partition: PartitionRef
    acks: int
    transactional_id: str | None = None


class ProduceResponse(Struct, frozen=True, array_like=True):
    """`log_append_time`: ms, or -1 if the producer's time applies."""

    base_offset: int
    log_append_time: int
    log_start: int
    leader_epoch: int


class FetchRequest(Struct, frozen=True, array_like=True):
    """Reads what is readable now; does not wait for records."""

    partition: PartitionRef
    offset: int
    max_bytes: Natural
    isolation: Isolation
    at_least_one: bool


class FetchResponse(Struct, frozen=True, array_like=True):
    high_watermark: int
    last_stable: int
    log_start: int
    leader_epoch: int
    aborted: tuple[AbortedTransaction, ...] = ()


class WatchRequest(Struct, frozen=True, array_like=True):
    """Answered with the readable end once it is greater than `beyond`, or after a time-out.

    `beyond`: the known high watermark, or with READ_COMMITTED the known last stable offset.
    """

    partition: PartitionRef
    beyond: int
    isolation: Isolation


class OffsetRequest(Struct, frozen=True, array_like=True):
    """ListOffsets. `timestamp`: ms, or -1 latest, -2 earliest, -3 the largest timestamp."""

    partition: PartitionRef
    timestamp: int
    isolation: Isolation


class EpochEndRequest(Struct, frozen=True, array_like=True):
    """OffsetForLeaderEpoch; answered with the epoch and its end offset."""

    partition: PartitionRef
    leader_epoch: int


class DeleteRequest(Struct, frozen=True, array_like=True):
    """DeleteRecords; answered with the new log start. `before`: -1 for the high watermark."""

    partition: PartitionRef
    before: int


class MarkerRequest(Struct, frozen=True, array_like=True):
    """Ends a producer's transaction."""

    partition: PartitionRef
    producer: ProducerIdentity
    committed: bool
    coordinator_epoch: int


PRODUCE: Final = Method(42, ProduceRequest, ProduceResponse)
FETCH: Final = Method(43, FetchRequest, FetchResponse)
WATCH: Final = Method(44, WatchRequest, int)
OFFSET: Final = Method(45, OffsetRequest, OffsetAtTime)
EPOCH_END: Final = Method(46, EpochEndRequest, tuple[int, int])
DELETE: Final = Method(47, DeleteRequest, int)
MARKER: Final = Method(48, MarkerRequest, Nothing)
PRODUCERS: Final = Method(54, PartitionRef, tuple[ActiveProducer, ...])


# --- copies, and operators' commands about them


class HoldsResponse(Struct, frozen=True, array_like=True):
    """The called host's copy of a partition, led or not.

    `copy`: whether it has a log, which may be empty. `heard`: the highest end of the leader's log that the
    host has learnt of. `current`: it followed the leader until that was gone, has all that it heard of, and
    heard for a while before that nothing was written.
    """

    copy: bool
    epochs: tuple[EpochStart, ...]
    start: int
    end: int
    heard: int
    leads: bool
    current: bool = False


class CopyRequest(Struct, frozen=True, array_like=True):
    """Reads a piece of such a log, from a copy or the leader. The answer's body holds whole batches."""

    partition: PartitionRef
    offset: int
    max_bytes: Natural


class CopyResponse(Struct, frozen=True, array_like=True):
    """The current bounds of the log."""

    start: int
    end: int


class OperatorRequest(Struct, frozen=True, array_like=True):
    """An operator's command, forwarded to the host that it concerns (docs/operating.md).

    Answered with a sentence that describes what was done.
    """

    partition: PartitionRef
    accept_loss: bool = False


HOLDS: Final = Method(50, PartitionRef, HoldsResponse)
COPY: Final = Method(51, CopyRequest, CopyResponse)
PROMOTE: Final = Method(52, OperatorRequest, str)
REBUILD: Final = Method(53, OperatorRequest, str)
