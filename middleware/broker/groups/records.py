"""Rows of groups and offsets in the durable tables. Values are msgpack arrays, keys are text.

| table             | key                                | value                |
| ----------------- | ---------------------------------- | -------------------- |
| `groups`          | group id                           | `GroupRecord`        |
| `offsets`         | length of group id `:` group id `:` partition `:` topic | `OffsetRecord` |
| `pending-offsets` | producer id `:` group id           | `PendingRecord`      |
| `group-configs`   | group id                           | the group's own settings, name to value |
"""

from __future__ import annotations

import msgspec

from treecast.middleware.broker.values import CommittedOffset
from treecast.middleware.model.identity import TopicPartition

GROUPS = "groups"
OFFSETS = "offsets"
PENDING = "pending-offsets"
CONFIGS = "group-configs"


class MemberRecord(msgspec.Struct, array_like=True, frozen=True):
    """A member of a stable generation. Time-outs in seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes
    former_epoch: int | None = None  # epoch in the group of the new protocol that it was before


class GroupRecord(msgspec.Struct, array_like=True, frozen=True):
    """The last stable or empty state of a group. `since_ms`: wall clock of the write; for an empty group,
    the time when its last member left."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberRecord, ...]
    since_ms: int = 0


class OffsetRecord(msgspec.Struct, array_like=True, frozen=True):
    """A committed offset. `order` rises with every commit of the host, `committed_ms` is wall clock."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    order: int

    @classmethod
    def of(cls, value: CommittedOffset, now_ms: int, order: int) -> OffsetRecord:
        return cls(value.offset, value.leader_epoch, value.metadata, now_ms, order)

    def value(self) -> CommittedOffset:
        return CommittedOffset(self.offset, self.leader_epoch, self.metadata)


class PendingRecord(msgspec.Struct, array_like=True, frozen=True):
    """The offsets of a producer's open transaction. If empty, only the epoch is remembered."""

    epoch: int
    touched_ms: int
    offsets: tuple[tuple[str, int, OffsetRecord], ...]  # topic, partition, offset


def offset_key(group_id: str, partition: TopicPartition) -> str:
    return f"{len(group_id)}:{group_id}:{partition.partition}:{partition.topic}"


def parse_offset_key(key: str) -> tuple[str, TopicPartition]:
    length, _, rest = key.partition(":")
    group_id = rest[: int(length)]
    partition, _, topic = rest[int(length) + 1 :].partition(":")
    return group_id, TopicPartition(topic, int(partition))


def pending_key(group_id: str, producer_id: int) -> str:
    return f"{producer_id}:{group_id}"


def parse_pending_key(key: str) -> tuple[str, int]:
    producer_id, _, group_id = key.partition(":")
    return group_id, int(producer_id)


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_group = msgspec.msgpack.Decoder(GroupRecord).decode
decode_offset = msgspec.msgpack.Decoder(OffsetRecord).decode
decode_pending = msgspec.msgpack.Decoder(PendingRecord).decode
decode_config = msgspec.msgpack.Decoder(dict[str, str]).decode
