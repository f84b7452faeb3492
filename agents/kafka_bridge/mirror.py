"""Records of MirrorMaker 2's internal topics, so that its tools and users' scripts go on. Pure.

Source: Kafka's connect/mirror and connect/mirror-client: OffsetSync, Checkpoint, Heartbeat. Strings are those
of Kafka's protocol: int16 length, UTF-8.

    topic                                cluster           key                         value
    mm2-offset-syncs.TARGET.internal     source            topic, partition int32      upstream, downstream
    mm2-offset-syncs.SOURCE.internal     target            the same, where it is asked for there
    SOURCE.checkpoints.internal          target            group, topic, partition     0 int16, upstream,
                                                                                       downstream, metadata
    heartbeats                           both              source, target              0 int16, ms int64

Offsets are int64. The topic of a sync is named as at the source, that of a checkpoint as at the target.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from treecast.middleware.model.records import Record

_OFFSETS: Final = struct.Struct(">qq")
_CHECKED: Final = struct.Struct(">hqq")
_BEAT: Final = struct.Struct(">hq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_VERSION: Final = 0


class Checkpoint(Struct, frozen=True):
    """A group's place: `upstream` at the source, `downstream` at the target. `topic`: as at the target."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""


def offset_syncs_topic(other: str) -> str:
    """`other`: the alias of the cluster that does not hold it."""
    return f"mm2-offset-syncs.{other}.internal"


def checkpoints_topic(source: str) -> str:
    return f"{source}.checkpoints.internal"


def offset_sync(topic: str, partition: int, upstream: int, downstream: int, now_ms: int) -> Record:
    key = _text(topic) + _INT32.pack(partition)
    return Record(key, _OFFSETS.pack(upstream, downstream), (), now_ms)


def checkpoint(one: Checkpoint, now_ms: int) -> Record:
    key = _text(one.group) + _text(one.topic) + _INT32.pack(one.partition)
    value = _CHECKED.pack(_VERSION, one.upstream, one.downstream) + _text(one.metadata)
    return Record(key, value, (), now_ms)


def heartbeat(source: str, target: str, now_ms: int) -> Record:
    return Record(_text(source) + _text(target), _BEAT.pack(_VERSION, now_ms), (), now_ms)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw
