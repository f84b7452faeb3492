"""The view of a response that is compared: everything but what servers choose freely."""

from __future__ import annotations

import struct
import uuid
from typing import Any, Final, NamedTuple

from kafka import codec
from kafka.record.default_records import DefaultRecordBatch

from .steps.base import Named, Step
from .steps.consumers import SHARED
from .steps.topics import SETTINGS

LEFT_OUT: Final = frozenset(
    {
        *("throttle_time_ms", "error_message", "cluster_id", "brokers", "controller_id", "node_endpoints"),
        *("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"),
        *("replica_nodes", "isr_nodes", "offline_replicas", "leader_id", "preferred_read_replica"),
        *("node_id", "host", "port", "client_host", "documentation", "synonyms", "session_id"),
        *("transaction_start_time_ms", "last_timestamp", "coordinator_epoch", "retention_time_ms"),
        *("heartbeat_interval_ms", "subscribed_topic_regex"),
        "log_append_time_ms",  # Kafka gives one for repeated batches
    }
)
BESIDE_AN_ERROR: Final = frozenset({"error_code", "partition_index", "partition", "index"})  # of the numbers
NULL_IF_EMPTY: Final = frozenset({"configs"})  # with errors
EPOCHS: Final = frozenset(
    {"member_epoch", "group_epoch", "assignment_epoch"}
)  # of groups: from the first one on
UNORDERED: Final = frozenset(
    {
        *("topics", "partitions", "transaction_states", "active_producers", "members", "topic_partitions"),
        "subscribed_topic_names",
    }
)
IDS: Final = frozenset({"member_id", "leader", "producer_id", "topic_id"})
NOBODY: Final = uuid.UUID(int=0)
OFFSETS: Final = "__consumer_offsets"  # in a transaction of Kafka; a daemon has no such topic
LATER: Final = 10  # ms after a sequence begins: no record is so late, but markers are
BROKERS: Final = (3, 4)  # sources of a setting: the cluster, a file of the broker
DEFAULT: Final = 5
CODEC: Final = DefaultRecordBatch.CODEC_MASK
DECODED: Final = (bytes, codec.gzip_decode, codec.snappy_decode, codec.lz4_decode, codec.zstd_decode)


class View:
    """A client's view of one server. `tag` begins the names of its topics and groups."""

    def __init__(self, tag: str, now_ms: int) -> None:
        self.stands_for: dict[object, str] = {}  # by id
        self._tag = tag
        self._now_ms = now_ms
        self._group = ""
        self._first_epochs: dict[str, int] = {}  # by group; Kafka begins with 2

    def of(self, step: Step, response: dict[str, Any]) -> Any:
        """Returns what is compared of a response."""
        self._group = _group_of(step)
        return self._of(response)

    def _of(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return self._fields(value)
        if value is None and name in NULL_IF_EMPTY:
            return []
        if name == "records":
            return batches(bytes(value or b""), self._now_ms)
        if isinstance(value, list | tuple):
            rows = [self._of(part, name) for part in value]
            rows = [row for row in rows if not (isinstance(row, dict) and row.get("topic") == OFFSETS)]
            return sorted(rows, key=str) if name in UNORDERED else rows
        if name in IDS and not (isinstance(value, str) and value.startswith(self._tag)):
            return self.stands_for.get(value, value if value in ("", -1, NOBODY, None) else "an id")
        if name == "generation_id" and self._group == SHARED:
            return value > 0
        if name in EPOCHS and value > 0:
            return value - self._first_epochs.setdefault(self._group, value) + 1
        if isinstance(value, str):
            return value.replace(self._tag, "")
        if isinstance(value, bytes):
            if name == "assignment" and self._group == SHARED and value:
                return self._of(classic_assignment(value))
            return value.replace(self._tag.encode(), b"")
        if name == "timestamp" and value > 0:
            return min(value - self._now_ms, LATER)
        return 0 if name == "producer_epoch" and value > 0 else value

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        if "aborted_transactions" in fields:
            fields = fields | _readable(fields)
        failed = fields.get("error_code")
        seen = {
            name: self._of(value, name)
            for name, value in fields.items()
            if name not in LEFT_OUT and not (failed and _is_free_beside_an_error(name, value))
        }
        if isinstance(configs := seen.get("configs"), list):
            seen["configs"] = sorted((_config(row) for row in configs if row["name"] in SETTINGS), key=str)
        return seen


def _group_of(step: Step) -> str:
    """Returns the one group that a request is about; "" if there is none or more."""
    named = step.fields.get("group_id") or next(iter(step.fields.get("group_ids", ())), None)
    return named.name if isinstance(named, Named) else ""


def _readable(partition: dict[str, Any]) -> dict[str, Any]:
    """Returns the last stable offset, which Kafka lets be below the log's start, and the aborted transactions
    before it, because Kafka also names later ones."""
    stable = partition["last_stable_offset"]
    aborted = [one for one in partition["aborted_transactions"] or () if one["first_offset"] < stable]
    return {
        "last_stable_offset": max(stable, partition["log_start_offset"]),
        "aborted_transactions": aborted,
    }


def classic_assignment(data: bytes) -> list[tuple[str, list[int]]]:
    """Returns topics and partitions of a ConsumerProtocolAssignment, sorted: Kafka's order varies."""
    found, at = [], 6
    for _ in range(int.from_bytes(data[2:6], "big")):
        (size,) = struct.unpack_from(">h", data, at)
        name = data[at + 2 : at + 2 + size].decode()
        (count,) = struct.unpack_from(">i", data, at + 2 + size)
        at += 6 + size
        found.append((name, list(struct.unpack_from(f">{count}i", data, at))))
        at += 4 * count
    return sorted(found)


def _is_free_beside_an_error(name: str, value: Any) -> bool:
    if name in ("protocol_name", "protocol_type", "member_id"):
        return True
    return isinstance(value, int) and name not in BESIDE_AN_ERROR


def _config(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the setting as if no file of the broker named its default."""
    return row | {"config_source": DEFAULT} if row.get("config_source") in BROKERS else row


class Batch(NamedTuple):
    """The compared parts of a stored batch. Its attributes say whether `records` are compressed."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_delta: int
    timestamps: tuple[int, int]
    epoch: int
    sequence: int
    count: int
    records: bytes


def batches(data: bytes, now_ms: int) -> list[Batch]:
    """Returns the whole batches of a fetch. Markers of transactions are compared without their times."""
    found, at = [], 0
    while at + 61 <= len(data):
        base, length, leader_epoch = struct.unpack_from(">qii", data, at)
        attributes, last, first_ms, last_ms = struct.unpack_from(">hiqq", data, at + 21)
        _, epoch, sequence, count = struct.unpack_from(">qhii", data, at + 43)
        end = at + 12 + length
        control = attributes & DefaultRecordBatch.CONTROL_MASK
        times = (0, 0) if control else (first_ms - now_ms, last_ms - now_ms)
        records = b"" if control else DECODED[attributes & CODEC](data[at + 61 : end])
        epoch = min(epoch, 0)  # servers count differently
        found.append(Batch(base, leader_epoch, attributes, last, times, epoch, sequence, count, records))
        at = end
    return found


def codes(response: Any) -> set[int]:
    """Returns the error codes of a response: those of partitions, members and so on if it has such rows."""
    if isinstance(response, list):
        return set().union(*map(codes, response))
    if not isinstance(response, dict):
        return set()
    inner: set[int] = set().union(*map(codes, response.values()))
    named = ("error_code", "partition_error_code")
    return inner or {code for name, code in response.items() if name in named}


def differing(one: Any, other: Any) -> tuple[Any, Any]:
    """Returns the parts of two responses that differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        parts = {name: differing(one[name], other[name]) for name in one if one[name] != other[name]}
        return {name: part for name, (part, _) in parts.items()}, {n: part for n, (_, part) in parts.items()}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [differing(a, b) for a, b in zip(one, other, strict=True) if a != b]
        return [a for a, _ in pairs], [b for _, b in pairs]
    return one, other
