"""Entries as messages of coordinator.proto and back: the form on the wire is the form on the disk."""

from __future__ import annotations

import uuid

from google.protobuf.message import DecodeError

from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError

from .commands import PartitionEnd
from .values import (
    Change,
    Counter,
    CounterEntry,
    Entry,
    HomeEntry,
    HomeKind,
    HostEntry,
    InterestEntry,
    Kind,
    LostRange,
    PartitionEntry,
    Presence,
    StateEntry,
    TopicEntry,
)


def encode_change(change: Change) -> bytes:
    return change_message(change).SerializeToString(deterministic=True)


def decode_change(data: bytes) -> Change:
    """Raises STORAGE for bytes that are no change."""
    try:
        return read_change(pb.EntryChange.FromString(data))
    except (DecodeError, ValueError) as error:
        raise TreecastError(
            Fault.STORAGE, f"the coordinator's store holds a broken entry: {error}"
        ) from error


def change_message(change: Change) -> pb.EntryChange:
    message = pb.EntryChange(kind=pb.EntryKind.Name(change.kind), key=change.key)
    match change.entry:
        case HostEntry() as host:
            message.host.CopyFrom(host_message(host))
        case TopicEntry() as topic:
            message.topic.CopyFrom(topic_message(topic))
        case HomeEntry() as home:
            message.home.CopyFrom(home_message(home))
        case StateEntry() as state:
            message.state.CopyFrom(state_message(state))
        case InterestEntry() as interest:
            message.interest.CopyFrom(_interest_message(interest))
        case CounterEntry() as counter:
            message.counter.CopyFrom(pb.CounterEntry(name=counter.counter.value, value=counter.value))
    return message


def read_change(message: pb.EntryChange) -> Change:
    """ValueError where a number or a name in it means nothing."""
    return Change(Kind(message.kind), message.key, _read_entry(message))


def _read_entry(message: pb.EntryChange) -> Entry | None:
    match message.WhichOneof("value"):
        case "host":
            return _read_host(message.host)
        case "topic":
            return _read_topic(message.topic)
        case "home":
            home = message.home
            return HomeEntry(HomeKind(home.kind), home.id, home.host_id, home.epoch)
        case "state":
            return StateEntry(
                message.state.state_id, tuple(message.state.levels), tuple(message.state.holders)
            )
        case "interest":
            interest = message.interest
            return InterestEntry(
                interest.host_id, interest.incarnation, interest.version, tuple(interest.patterns)
            )
        case "counter":
            return CounterEntry(Counter(message.counter.name), message.counter.value)
    return None


def host_message(host: HostEntry) -> pb.HostEntry:
    return pb.HostEntry(
        host_id=host.host_id,
        name=host.name,
        instance=host.instance,
        address=host.address,
        version=host.version,
        incarnation=host.incarnation,
        presence=pb.HostPresence.Name(host.presence),
        run=host.run,
    )


def _read_host(host: pb.HostEntry) -> HostEntry:
    return HostEntry(
        host.host_id,
        host.name,
        host.instance,
        host.address,
        host.version,
        host.incarnation,
        Presence(host.presence),
        host.run,
    )


def topic_message(topic: TopicEntry) -> pb.TopicEntry:
    return pb.TopicEntry(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        partitions=[_partition_message(entry) for entry in topic.partitions],
        config=dict(topic.config),
    )


def _partition_message(entry: PartitionEntry) -> pb.PartitionEntry:
    lost = [lost_message(lost) for lost in entry.lost]
    return pb.PartitionEntry(
        leader=entry.leader, leader_epoch=entry.leader_epoch, waits=entry.waits, lost=lost
    )


def lost_message(lost: LostRange) -> pb.LostRange:
    return pb.LostRange(
        first=lost.first,
        heard=lost.heard,
        leader_epoch=lost.leader_epoch,
        host=lost.host,
        time_ms=lost.time_ms,
    )


def read_lost(lost: pb.LostRange) -> LostRange:
    return LostRange(lost.first, lost.heard, lost.leader_epoch, lost.host, lost.time_ms)


def _read_partition(entry: pb.PartitionEntry) -> PartitionEntry:
    return PartitionEntry(
        entry.leader, entry.leader_epoch, entry.waits, tuple(read_lost(lost) for lost in entry.lost)
    )


def _read_topic(topic: pb.TopicEntry) -> TopicEntry:
    partitions = tuple(_read_partition(entry) for entry in topic.partitions)
    return TopicEntry(topic.name, uuid.UUID(bytes=topic.topic_id), partitions, dict(topic.config))


def end_message(end: PartitionEnd) -> pb.PartitionEnd:
    return pb.PartitionEnd(
        topic_id=end.topic_id.bytes, partition=end.partition, leader_epoch=end.leader_epoch, end=end.end
    )


def home_message(home: HomeEntry) -> pb.HomeEntry:
    kind = pb.HomeKind.Name(home.kind)
    return pb.HomeEntry(kind=kind, id=home.id, host_id=home.host_id, epoch=home.epoch)


def state_message(state: StateEntry) -> pb.StateEntry:
    return pb.StateEntry(state_id=state.state_id, levels=state.levels, holders=state.holders)


def _interest_message(entry: InterestEntry) -> pb.InterestEntry:
    return pb.InterestEntry(
        host_id=entry.host_id,
        incarnation=entry.incarnation,
        version=entry.version,
        patterns=entry.patterns,
    )
