"""The internal topics `_treecast.*`, and the records in them (`proto/treecast/v1/telemetry.proto`).

| topic | key | written by | read by |
| --- | --- | --- | --- |
| `_treecast.telemetry.sends` | host | every daemon with telemetry | the pipeline |
| `_treecast.topology` | network | managers | the pipeline |
| `_treecast.advice.trees` | network | the pipeline | managers |
| `_treecast.advice.applied` | network | managers | people; `treecast pipeline explain` |
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from treecast.middleware.model.topics import OWN_PREFIX

from .v1 import telemetry_pb2 as pb

VERSION: Final = 1  # of all these schemas
# Kinds of networks: of label switches, and of SRv6 routers with replication segments.
LABEL_SWITCHES: Final = ""
SEGMENTS: Final = "segments"
SENDS: Final = f"{OWN_PREFIX}telemetry.sends"
TOPOLOGY: Final = f"{OWN_PREFIX}topology"
ADVICE: Final = f"{OWN_PREFIX}advice.trees"
APPLIED: Final = f"{OWN_PREFIX}advice.applied"

_DAY_MS: Final = 86_400_000
# The append time, since clocks of hosts differ: readers judge lateness by it.
_SENDS_CONFIG: Final = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(7 * _DAY_MS)}
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    SENDS: _SENDS_CONFIG,
    TOPOLOGY: {"cleanup.policy": "compact"},
    # A kill switch stays for a day below later advice: a manager that was away finds it.
    ADVICE: {"cleanup.policy": "compact", "min.compaction.lag.ms": str(_DAY_MS)},
    APPLIED: {"retention.ms": str(90 * _DAY_MS)},
}
PARTITIONS: Final[Mapping[str, int]] = {SENDS: 4, TOPOLOGY: 1, ADVICE: 1, APPLIED: 1}

M = TypeVar("M", bound=Message)


class Unreadable(ValueError):
    """A record that does not belong in its topic, or has a newer schema. The text states which."""


def encode(message: Message) -> bytes:
    """Returns a record's value; equal messages have equal bytes."""
    return message.SerializeToString(deterministic=True)


def decode(kind: type[M], value: bytes) -> M:
    """Returns the message. Raises Unreadable."""
    found = kind()
    try:
        found.ParseFromString(value)
    except DecodeError as error:
        raise Unreadable(f"{len(value)} bytes are no {kind.__name__}: {error}") from error
    version = found.v  # type: ignore[attr-defined]  # all messages of telemetry.proto have it; no type says so
    if not 0 < version <= VERSION:
        raise Unreadable(f"{kind.__name__} has schema version {version}, and this reads up to {VERSION}")
    return found


def digest(value: bytes) -> str:
    """Returns the name of a record's content, in 32 hexadecimal digits."""
    return hashlib.blake2s(value, digest_size=16).hexdigest()


def place_of(host: str, places: int) -> int:
    """Returns a host's place among some, always the same."""
    return zlib.crc32(host.encode()) % places


def hashed(name: str, key: bytes) -> str:
    """Returns a name that only holders of `key` can guess from a list; equal names stay equal."""
    return hashlib.blake2s(name.encode(), key=key[:32], digest_size=16).hexdigest()


def measure_of(kind: str) -> str:
    """Returns what the numbers of advice for a network of this kind are, in words."""
    return "of packets on the busiest link" if kind == SEGMENTS else "labels per packet"


def topology_version(names: Sequence[str], hosts: Sequence[int], ends: Sequence[int], rule_limit: int) -> str:
    """Returns a digest of what trees are computed for."""
    same = pb.NetworkTopology(names=names, hosts=hosts, ends=ends, rule_limit=rule_limit)
    return digest(encode(same))
