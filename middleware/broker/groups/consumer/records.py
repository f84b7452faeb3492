"""The rows of groups of type consumer in the durable tables. Values are msgpack arrays, keys are text.

| table              | key                                             | value                  |
| ------------------ | ----------------------------------------------- | ---------------------- |
| `consumer-groups`  | group id                                        | `ConsumerGroupRecord`  |
| `consumer-members` | length of group id `:` group id `:` member id   | `ConsumerMemberRecord` |

A group has its own row and those of its members. Rows that belong together are written together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

import msgspec

from treecast.middleware.broker.values import Places
from treecast.middleware.model.identity import TopicId
from treecast.middleware.storage.tables import Change

from .members import ClassicSide, Member
from .state import Standing

CONSUMER_GROUPS = "consumer-groups"
CONSUMER_MEMBERS = "consumer-members"

_SavedPlaces = tuple[tuple[bytes, tuple[int, ...]], ...]


class ConsumerGroupRecord(msgspec.Struct, array_like=True, frozen=True):
    """A group's own row. `topics`: a digest of the topics that its members read, as of the target.
    `since_ms`: wall clock of the write.
    """

    epoch: int
    assigned_epoch: int
    assignor: str
    topics: bytes
    since_ms: int = 0


class ConsumerMemberRecord(msgspec.Struct, array_like=True, frozen=True):
    """A member's row. Time-outs in seconds. `protocols` is None for members that speak the new protocol."""

    instance_id: str | None
    rack_id: str
    client_id: str
    client_host: str
    rebalance_timeout: float
    topics: tuple[str, ...]
    regex: str
    assignor: str
    session_timeout: float
    protocols: tuple[tuple[str, bytes], ...] | None
    epoch: int
    previous_epoch: int
    standing: str
    assigned: _SavedPlaces
    revoking: _SavedPlaces
    target: _SavedPlaces


class Rows(msgspec.Struct, frozen=True):
    """An effect: rows of a group to write. A record None removes the row. `group_changed`: whether the
    group's own row is included.

    The writer passes `stamp` to `Effects.written` after success or failure.
    """

    group_id: str
    group: ConsumerGroupRecord | None
    group_changed: bool
    members: tuple[tuple[str, ConsumerMemberRecord | None], ...]
    stamp: int

    def changes(self, now_ms: int) -> list[Change]:
        found = [
            Change(
                CONSUMER_MEMBERS,
                member_key(self.group_id, member_id),
                None if record is None else encode(record),
            )
            for member_id, record in self.members
        ]
        if self.group_changed:
            group = (
                None if self.group is None else encode(msgspec.structs.replace(self.group, since_ms=now_ms))
            )
            found.insert(0, Change(CONSUMER_GROUPS, self.group_id, group))
        return found


def by_topic(places: Places) -> Mapping[TopicId, list[int]]:
    """Returns sorted partition numbers by topic."""
    found: dict[TopicId, list[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, []).append(number)
    return found


def _saved(places: Places) -> _SavedPlaces:
    return tuple((topic.bytes, tuple(numbers)) for topic, numbers in by_topic(places).items())


def _read(saved: Iterable[tuple[bytes, tuple[int, ...]]]) -> Places:
    return frozenset((uuid.UUID(bytes=topic), number) for topic, numbers in saved for number in numbers)


def record_of(member: Member) -> ConsumerMemberRecord:
    return ConsumerMemberRecord(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout,
        tuple(sorted(member.topics)),
        member.regex,
        member.assignor,
        0.0 if member.classic is None else member.classic.session_timeout,
        None if member.classic is None else member.classic.protocols,
        member.epoch,
        member.previous_epoch,
        member.standing.value,
        _saved(member.assigned),
        _saved(member.revoking),
        _saved(member.target),
    )


def member_of(member_id: str, record: ConsumerMemberRecord) -> Member:
    """Returns the member of a row. Raises ValueError if the row is invalid."""
    classic = None if record.protocols is None else ClassicSide(record.session_timeout, record.protocols)
    return Member(
        member_id,
        record.instance_id,
        record.rack_id,
        record.client_id,
        record.client_host,
        record.rebalance_timeout,
        frozenset(record.topics),
        record.regex,
        record.assignor,
        classic,
        record.epoch,
        record.previous_epoch,
        Standing(record.standing),
        _read(record.assigned),
        _read(record.revoking),
        _read(record.target),
    )


def member_key(group_id: str, member_id: str) -> str:
    return f"{len(group_id)}:{group_id}:{member_id}"


def parse_member_key(key: str) -> tuple[str, str]:
    length, _, rest = key.partition(":")
    return rest[: int(length)], rest[int(length) + 1 :]


encode = msgspec.msgpack.Encoder().encode
decode_group = msgspec.msgpack.Decoder(ConsumerGroupRecord).decode
decode_member = msgspec.msgpack.Decoder(ConsumerMemberRecord).decode
