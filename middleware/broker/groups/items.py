"""Items that a group's home keeps in the coordinator's store for the next home.

| item                         | is                                                              |
| ---------------------------- | --------------------------------------------------------------- |
| `g`                          | `GroupRecord` without members, which join again at the new home |
| `o` partition `:` topic      | `OffsetRecord`, a committed offset                              |
| `p` producer id              | `PendingRecord`, offsets of an open transaction                 |
| `c`                          | `ConsumerGroupRecord`, of a group of type consumer              |
| `m` member id                | `ConsumerMemberRecord`: these members continue at the new home  |
| `s`                          | the group's own settings                                        |

Keys are UTF-8, values those of the durable tables (`records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.tables import Change

from .consumer.records import CONSUMER_GROUPS, CONSUMER_MEMBERS, member_key, parse_member_key
from .consumer.records import decode_group as decode_consumers
from .records import (
    CONFIGS,
    GROUPS,
    OFFSETS,
    PENDING,
    GroupRecord,
    decode_group,
    encode,
    offset_key,
    parse_offset_key,
    parse_pending_key,
    pending_key,
)

Items = Mapping[bytes, bytes]

_GROUP, _OFFSET, _PENDING, _CONSUMERS, _MEMBER, _CONFIG = b"g", b"o", b"p", b"c", b"m", b"s"


def item_of(change: Change) -> tuple[bytes, bytes | None]:
    """Returns the item for a change of the group's rows, and its value."""
    if change.table == OFFSETS:
        partition = parse_offset_key(change.key)[1]
        return _OFFSET + f"{partition.partition}:{partition.topic}".encode(), change.value
    if change.table == PENDING:
        return _PENDING + str(parse_pending_key(change.key)[1]).encode(), change.value
    if change.table == CONSUMER_GROUPS:
        return _CONSUMERS, change.value
    if change.table == CONSUMER_MEMBERS:
        return _MEMBER + parse_member_key(change.key)[1].encode(), change.value
    if change.table == CONFIGS:
        return _CONFIG, change.value
    assert change.table == GROUPS, change.table
    return _GROUP, None if change.value is None else encode(without_members(decode_group(change.value)))


def items_of(rows: Iterable[Change]) -> dict[bytes, bytes]:
    """Returns all rows of a group as items."""
    items = (item_of(row) for row in rows)
    return {key: value for key, value in items if value is not None}


def rows_of(group_id: str, items: Items, now_ms: int) -> list[Change]:
    """Returns the rows of a group that a host takes over at `now_ms`. Raises ValueError for a bad item."""
    return [_row(group_id, key, value, now_ms) for key, value in items.items()]


def _row(group_id: str, key: bytes, value: bytes, now_ms: int) -> Change:
    kind, rest = key[:1], key[1:].decode()
    if kind == _OFFSET:
        partition, _, topic = rest.partition(":")
        return Change(OFFSETS, offset_key(group_id, TopicPartition(topic, int(partition))), value)
    if kind == _PENDING:
        return Change(PENDING, pending_key(group_id, int(rest)), value)
    if kind == _MEMBER:
        return Change(CONSUMER_MEMBERS, member_key(group_id, rest), value)
    if key == _CONFIG:
        return Change(CONFIGS, group_id, value)
    if key == _CONSUMERS:
        record = replace(decode_consumers(value), since_ms=now_ms)
        return Change(CONSUMER_GROUPS, group_id, encode(record))
    if key != _GROUP:
        raise ValueError(f"unknown item {key!r} of a group")
    # The group counts as empty from now on: retention starts now unless its members rejoin.
    return Change(GROUPS, group_id, encode(replace(decode_group(value), since_ms=now_ms)))


def without_members(record: GroupRecord) -> GroupRecord:
    return replace(record, protocol="", leader="", members=())
