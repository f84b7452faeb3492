"""Calls about partitions, methods 40-59 of the channel, and what they say. See docs/fabric.md.

A partition is named by its topic's id and its number. Who does not lead it refuses with NOT_LEADER, who does
not know the topic (yet) with UNKNOWN_TOPIC_ID. Bodies are whole record batches.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treecast.middleware.broker.values import AbortedTransaction, Isolation, OffsetAtTime
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
    """`report`: the body of a segment of kind report: what the caller has counted in it so far."""

    stream: int
    epoch: int
    report: bytes = b""


class FollowRequest(Struct, frozen=True, array_like=True):
    """The caller wants to have the partition's records from now on, or to go on having them. When it is
    answered, the stream is being sent to the caller.

    `end`: of the replica; 0 where there is none. `epochs`: of the replica, oldest first. `tail`: a replica
    without records begins at the log's end, not at its start. `receiving`: the stream that the caller
    receives already, if it does.
    """

    partition: PartitionRef
    end: int = 0
    epochs: tuple[EpochStart, ...] = ()
    tail: bool = False
    receiving: ReceivingStream | None = None


class FollowResponse(Struct, frozen=True, array_like=True):
    """`kept`: the caller goes on receiving as it does. `begin`: the stream's first record for the caller;
    what the replica has from there on goes. `restart`: all that the replica has goes. `end`: of the leader's
    log. `directory`: the id of the data directory that the leader leads with.
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


class LogStartNotice(Struct, frozen=True, array_like=True):
    """To followers: the leader's log begins later than before."""

    partition: PartitionRef
    log_start: int


FOLLOW: Final = Method(40, FollowRequest, FollowResponse)
UNFOLLOW: Final = Method(41, PartitionRef, Nothing)
LOG_START: Final = Method(49, LogStartNotice, Nothing)


# --- at the leader, as for clients of its own


class ProduceRequest(Struct, frozen=True, array_like=True):
    partition: PartitionRef
    acks: int
    transactional_id: str | None = None


class ProduceResponse(Struct, frozen=True, array_like=True):
    """`log_append_time`: ms, -1 where the producer's time counts."""

    base_offset: int
    log_append_time: int
    log_start: int
    leader_epoch: int


class FetchRequest(Struct, frozen=True, array_like=True):
    """What is there now."""

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
    """Answered with what can be read when that is more than before `beyond`, or after a while.

    `beyond`: the high watermark, or with READ_COMMITTED the last stable offset, that is known.
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
    """OffsetForLeaderEpoch: answered with the epoch and its end offset."""

    partition: PartitionRef
    leader_epoch: int


class DeleteRequest(Struct, frozen=True, array_like=True):
    """DeleteRecords, answered with the new log start. `before` -1: the high watermark."""

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


# --- copies, and the operator's word about them


class HoldsResponse(Struct, frozen=True, array_like=True):
    """What the host that is asked has of a partition, led or not. `copy`: it has a log, which may be empty.
    `heard`: the leader's log was at least so long, as far as this host has heard."""

    copy: bool
    epochs: tuple[EpochStart, ...]
    start: int
    end: int
    heard: int
    leads: bool


class CopyRequest(Struct, frozen=True, array_like=True):
    """A piece of such a log, from a copy or its leader. The answer's body: whole batches."""

    partition: PartitionRef
    offset: int
    max_bytes: Natural


class CopyResponse(Struct, frozen=True, array_like=True):
    """Of the log now."""

    start: int
    end: int


class OperatorRequest(Struct, frozen=True, array_like=True):
    """An operator's word, brought to the host that it is about: see docs/operating.md. Answered with what
    was done, in a sentence."""

    partition: PartitionRef
    accept_loss: bool = False


HOLDS: Final = Method(50, PartitionRef, HoldsResponse)
COPY: Final = Method(51, CopyRequest, CopyResponse)
PROMOTE: Final = Method(52, OperatorRequest, str)
REBUILD: Final = Method(53, OperatorRequest, str)
