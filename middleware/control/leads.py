"""Partitions whose leader lost its disk, and their next leaders; recorded end offsets.

A partition *waits* from the moment its leader attaches with another data directory until that host claims it
(`take_lead`) or an operator gives it to another one. See docs/decisions/2026-11-23-a-lost-disk.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from treecast.middleware.api.entries import (
    HostEntry,
    LostRange,
    PartitionEnd,
    PartitionEntry,
    Presence,
    TopicEntry,
    put,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId

from .cluster_state import ClusterState
from .commands import AcceptLosses, Done, GiveUp, PutEnds, TakeLead
from .decision import Decision
from .hosts import caller
from .values import ItemWrite, ends_home

_HIGHEST_EPOCH: Final = 2**31 - 1
_INDEX: Final = struct.Struct(">I")
_END: Final = struct.Struct(">iq?")  # leader epoch, end offset, whether it was quiet
_EARLIER_END: Final = struct.Struct(">iq")  # of an earlier version
UNKNOWN_END: Final = (-1, -1)  # the record was lost with the coordinator's store


def take_lead(state: ClusterState, command: TakeLead) -> Decision[TopicEntry]:
    host = caller(state, command.session)
    topic = _topic_of(state, command)
    entry = topic.partitions[command.partition]
    if (entry.leader, entry.leader_epoch, entry.waits) == (host.host_id, command.leader_epoch, False):
        return Decision(topic)  # a repeat
    name = f"{topic.name}-{command.partition}"
    if entry.leader_epoch != command.known_epoch:
        raise TreecastError(
            Fault.FENCED_LEADER_EPOCH,
            f"{name} has leader epoch {entry.leader_epoch} now, not {command.known_epoch}: read it again",
        )
    if not entry.leader_epoch < command.leader_epoch <= _HIGHEST_EPOCH:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"leader epoch {command.leader_epoch} of {name} is not above the last one"
        )
    _check_free(state, host, entry, name, promoted=command.promoted)
    lost = entry.lost if command.lost is None else (*entry.lost, command.lost)
    taken = PartitionEntry(
        host.host_id, command.leader_epoch, False, _bounded(lost, state.settings.limits.lost)
    )
    changed = _with(topic, command.partition, taken)
    return Decision(changed, (put(changed),))


def _topic_of(state: ClusterState, command: TakeLead | AcceptLosses) -> TopicEntry:
    topic = state.topic_by_id(command.topic_id)
    if topic is None or command.partition >= len(topic.partitions):
        raise TreecastError(
            Fault.UNKNOWN_TOPIC_ID, f"there is no partition {command.partition} of that topic"
        )
    return topic


def _with(topic: TopicEntry, number: int, entry: PartitionEntry) -> TopicEntry:
    return replace(topic, partitions=(*topic.partitions[:number], entry, *topic.partitions[number + 1 :]))


def _check_free(
    state: ClusterState, host: HostEntry, entry: PartitionEntry, name: str, *, promoted: bool
) -> None:
    """Checks whether the caller may lead the partition. Raises NOT_LEADER or POLICY_VIOLATION."""
    leader = state.host_by_id(entry.leader)
    if not promoted and not (entry.waits and entry.leader == host.host_id):
        raise TreecastError(Fault.NOT_LEADER, f"{name} is not waiting for host {host.name}")
    if promoted and not entry.waits and leader is not None and leader.presence is Presence.ATTACHED:
        raise TreecastError(
            Fault.POLICY_VIOLATION,
            f"host {leader.name} leads {name} and is attached: stop it first, and wait for its lease to end",
        )


def _bounded(lost: tuple[LostRange, ...], limit: int) -> tuple[LostRange, ...]:
    """Merges the oldest two ranges while there are too many; the result covers at least what was lost."""
    while len(lost) > limit:
        one, other, *rest = lost
        both = replace(
            other,
            first=min(one.first, other.first),
            heard=max(one.heard, other.heard),
            unknown=one.unknown or other.unknown,
            accepted=not (one.is_open or other.is_open),
        )
        lost = (both, *rest)
    return lost


def give_up(state: ClusterState, command: GiveUp) -> Decision[TopicEntry]:
    """Marks partitions as waiting. Ignores partitions that the caller does not lead."""
    host = caller(state, command.session)
    topic = state.topic_by_id(command.topic_id)
    if topic is None:
        raise TreecastError(Fault.UNKNOWN_TOPIC_ID, "there is no topic with that id")
    given = set(command.partitions)
    partitions = tuple(
        replace(entry, waits=True) if number in given and entry.leader == host.host_id else entry
        for number, entry in enumerate(topic.partitions)
    )
    changed = replace(topic, partitions=partitions)
    return Decision(changed, (put(changed),) if changed != topic else ())


def accept_losses(state: ClusterState, command: AcceptLosses) -> Decision[TopicEntry]:
    """Marks all that a partition has lost so far as known to an operator."""
    caller(state, command.session)
    topic = _topic_of(state, command)
    entry = topic.partitions[command.partition]
    lost = tuple(replace(one, accepted=True) for one in entry.lost)
    changed = _with(topic, command.partition, replace(entry, lost=lost))
    return Decision(changed, (put(changed),) if changed != topic else ())


def put_ends(state: ClusterState, command: PutEnds) -> Decision[Done]:
    """Records end offsets. Ignores partitions that the caller does not lead (yet)."""
    host = caller(state, command.session)
    limit = state.settings.limits.ends
    if len(command.ends) > limit:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"{len(command.ends)} ends; at most {limit} are accepted at once"
        )
    led = [end for end in command.ends if _leads(state, host.host_id, end)]
    return Decision(Done(), items=tuple(_item(end) for end in led))


def _leads(state: ClusterState, host_id: int, end: PartitionEnd) -> bool:
    topic = state.topic_by_id(end.topic_id)
    if topic is None or end.partition >= len(topic.partitions):
        return False
    entry = topic.partitions[end.partition]
    return entry.leader == host_id and not entry.waits


def _item(end: PartitionEnd) -> ItemWrite:
    value = _END.pack(end.leader_epoch, end.end, end.quiet)
    return ItemWrite(ends_home(end.topic_id), _INDEX.pack(end.partition), value)


def unknown_ends(topics: Iterable[TopicEntry]) -> list[ItemWrite]:
    """Returns what a store without a record says of all logs: that they ended somewhere. Leaders that have
    their logs report the ends.
    """
    return [
        _item(PartitionEnd(topic.topic_id, number, *UNKNOWN_END))
        for topic in topics
        for number in range(len(topic.partitions))
    ]


def read_ends(topic_id: TopicId, items: Iterable[tuple[bytes, bytes]]) -> list[PartitionEnd]:
    """Returns the recorded ends of a topic."""
    found = []
    for key, value in items:
        (index,) = _INDEX.unpack(key)
        earlier = len(value) == _EARLIER_END.size
        found.append(PartitionEnd(topic_id, index, *(_EARLIER_END if earlier else _END).unpack(value)))
    return found
