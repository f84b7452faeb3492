"""Per-topic configuration: one table of keys, each with type, default and bounds.

Names, defaults and meanings are Kafka's (its topic-level configuration reference), so that admin tools work
unchanged. Keys of our own begin with `treecast.`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from .errors import Fault, TreecastError
from .topic_schema import LONGEST_SCHEMA, SCHEMA

# Python's int() and float() accept more than Kafka's tools do: 1_000, digits of other scripts, nan.
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
# Bounded: `[0-9]+\.?[0-9]*` tries every split of a long row of digits.
_DECIMAL = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})(e[+-]?[0-9]{1,3})?", re.IGNORECASE)

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


WISHED_COPIES = "treecast.copies.wished"
VIEW: Final = "treecast.view."  # before the name of a view; the value is its filter
LONGEST_VIEW: Final = 1000  # characters of the filter, as of any value that the coordinator keeps
_VIEW_NAME = re.compile(
    r"[A-Za-z0-9_-]{1,100}"
)  # without a dot: the last one of the topic's name is before it


class ConfigType(enum.IntEnum):
    """The type codes of DescribeConfigs responses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


Value = bool | int | float | str | tuple[str, ...]


class ConfigKey(Struct, frozen=True):
    """One key. `low` and `high` bound numbers; `choices` bounds strings and list items."""

    name: str
    type: ConfigType
    default: str
    doc: str
    low: float = 0
    high: float = INT64_MAX
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Value:
        """Returns the typed value of `text`. Raises INVALID_CONFIG."""
        try:
            return self._convert(text.strip())
        except ValueError as error:
            raise TreecastError(
                Fault.INVALID_CONFIG, f"invalid value {text!r} for {self.name}: {error}"
            ) from error

    def _convert(self, text: str) -> Value:
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError("expected true or false")
            return text.lower() == "true"
        if self.type is ConfigType.LIST:
            items = tuple(item.strip() for item in text.split(",") if item.strip())
            for item in items:
                self._choose(item)
            return items
        if self.type is ConfigType.STRING:
            return self._choose(text)
        whole = self.type is not ConfigType.DOUBLE
        if not (_WHOLE if whole else _DECIMAL).fullmatch(text):
            raise ValueError("expected a whole number" if whole else "expected a number")
        number = int(text) if whole else float(text)
        if not self.low <= number <= self.high:
            raise ValueError(f"expected {self.low:g} to {self.high:g}")
        return number

    def _choose(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise ValueError(f"expected one of {', '.join(self.choices)}")
        return text


_LONG, _INT, _BOOL, _STR = ConfigType.LONG, ConfigType.INT, ConfigType.BOOLEAN, ConfigType.STRING

_TABLE = (
    ConfigKey(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "delete old segments, compact by key, both, or keep everything if empty",
        choices=("delete", "compact"),
    ),
    ConfigKey(
        "compression.type",
        _STR,
        "producer",
        "the stored compression; 'producer' keeps what was sent",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    ConfigKey("compression.gzip.level", _INT, "-1", "kept for clients", low=-1, high=9),
    ConfigKey("compression.lz4.level", _INT, "9", "kept for clients", low=1, high=17),
    ConfigKey("compression.zstd.level", _INT, "3", "kept for clients", low=-131072, high=22),
    ConfigKey("delete.retention.ms", _LONG, "86400000", "how long a compacted log keeps tombstones"),
    ConfigKey("file.delete.delay.ms", _LONG, "60000", "how long a deleted segment's file stays"),
    ConfigKey("flush.messages", _LONG, str(INT64_MAX), "fsync after this many records", low=1),
    ConfigKey("flush.ms", _LONG, str(INT64_MAX), "fsync after this time"),
    ConfigKey("follower.replication.throttled.replicas", ConfigType.LIST, "", "kept for clients"),
    ConfigKey("index.interval.bytes", _INT, "4096", "bytes between two index entries", high=INT32_MAX),
    ConfigKey("leader.replication.throttled.replicas", ConfigType.LIST, "", "kept for clients"),
    ConfigKey("local.retention.bytes", _LONG, "-2", "kept for clients; no tiers", low=-2),
    ConfigKey("local.retention.ms", _LONG, "-2", "kept for clients; no tiers", low=-2),
    ConfigKey(
        "max.compaction.lag.ms", _LONG, str(INT64_MAX), "longest time a record stays uncompacted", low=1
    ),
    ConfigKey("max.message.bytes", _INT, "1048588", "largest record batch that is taken", high=INT32_MAX),
    ConfigKey(
        "message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "how far a record's timestamp may lie in the future",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        _LONG,
        str(INT64_MAX),
        "how far a record's timestamp may lie in the past",
    ),
    ConfigKey(
        "message.timestamp.type",
        _STR,
        "CreateTime",
        "whose clock stamps records",
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "share of uncompacted bytes that starts compaction",
        high=1,
    ),
    ConfigKey("min.compaction.lag.ms", _LONG, "0", "shortest time a record stays uncompacted"),
    ConfigKey(
        "min.insync.replicas", _INT, "1", "kept for clients; one leader acknowledges", low=1, high=INT32_MAX
    ),
    ConfigKey("preallocate", _BOOL, "false", "kept for clients"),
    ConfigKey(
        "retention.bytes",
        _LONG,
        "-1",
        "size that old segments are deleted down to; negative: no bound",
        low=-INT64_MAX - 1,
    ),
    ConfigKey("retention.ms", _LONG, "604800000", "age at which segments are deleted; -1: never", low=-1),
    ConfigKey(
        "segment.bytes", _INT, "1073741824", "size at which a segment is rolled", low=14, high=INT32_MAX
    ),
    ConfigKey(
        "segment.index.bytes", _INT, "10485760", "size at which a full index rolls", low=4, high=INT32_MAX
    ),
    ConfigKey("segment.jitter.ms", _LONG, "0", "random share taken off segment.ms"),
    ConfigKey("segment.ms", _LONG, "604800000", "age at which a segment is rolled", low=1),
    ConfigKey("unclean.leader.election.enable", _BOOL, "false", "kept for clients; leadership never moves"),
    ConfigKey(
        WISHED_COPIES,
        _INT,
        "1",
        "the replication factor that was asked for: a wish; each partition is at its leader, and at each host"
        " that reads it",
        low=1,
        high=INT16_MAX,
    ),
    ConfigKey(
        "treecast.replica",
        _STR,
        "whole",
        "what a host with readers keeps: the whole log, the tail from joining, or none and asks the leader",
        choices=("whole", "tail", "none"),
    ),
    ConfigKey(
        SCHEMA,
        _STR,
        "",
        "the declared fields of the topic's records; `treecast schema` writes it",
    ),
    ConfigKey(
        "treecast.stream",
        _BOOL,
        "false",
        "made by a stream queue of AMQP, and deleted with it",
    ),
)

TOPIC_CONFIG_KEYS: Mapping[str, ConfigKey] = MappingProxyType({key.name: key for key in _TABLE})


def longest_value(name: str) -> int:
    """Returns how many characters the coordinator keeps of a setting's value."""
    return LONGEST_SCHEMA if name == SCHEMA else LONGEST_VIEW


def config_key(name: str) -> ConfigKey | None:
    """Returns the key with this name, also that of a view; None if there is none."""
    known = TOPIC_CONFIG_KEYS.get(name)
    if known is None and name.startswith(VIEW) and _VIEW_NAME.fullmatch(name[len(VIEW) :]):
        return ConfigKey(name, _STR, "", "the filter of a read-only view of the topic")
    return known


class TopicConfig(Struct, frozen=True):
    """A topic's configuration: the overrides as text, every key as a typed attribute of `of()`."""

    overrides: Mapping[str, str]
    cleanup_delete: bool
    cleanup_compact: bool
    compression_type: str
    delete_retention_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    log_append_time: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_ms: int
    rolled_after_ms: int  # the maximum age of a log's last segment, which compaction skips
    replica: str  # whole, tail or none
    stream: bool  # made by a stream queue, and deleted with it
    views: Mapping[str, str]  # names of views -> filters
    schema: str = ""  # the setting of `topic_schema`

    @classmethod
    def of(
        cls, overrides: Mapping[str, str] | None = None, defaults: Mapping[str, str] | None = None
    ) -> TopicConfig:
        """Parses every key: an override, else the daemon's default, else Kafka's. Raises INVALID_CONFIG."""
        overrides, defaults = dict(overrides or {}), defaults or {}
        for name in overrides:
            if config_key(name) is None:
                raise TreecastError(Fault.INVALID_CONFIG, f"unknown topic config name: {name}")
        values: dict[str, Value] = {}
        for name, key in TOPIC_CONFIG_KEYS.items():
            values[name] = key.parse(overrides.get(name, defaults.get(name, key.default)))
        policy = values["cleanup.policy"]
        assert isinstance(policy, tuple)
        segment_ms, lag_ms = _int(values["segment.ms"]), _int(values["max.compaction.lag.ms"])
        return cls(
            overrides=MappingProxyType(overrides),
            cleanup_delete="delete" in policy,
            cleanup_compact="compact" in policy,
            compression_type=str(values["compression.type"]),
            delete_retention_ms=_int(values["delete.retention.ms"]),
            flush_messages=_int(values["flush.messages"]),
            flush_ms=_int(values["flush.ms"]),
            index_interval_bytes=_int(values["index.interval.bytes"]),
            max_compaction_lag_ms=lag_ms,
            max_message_bytes=_int(values["max.message.bytes"]),
            timestamp_after_max_ms=_int(values["message.timestamp.after.max.ms"]),
            timestamp_before_max_ms=_int(values["message.timestamp.before.max.ms"]),
            log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            min_cleanable_dirty_ratio=float(str(values["min.cleanable.dirty.ratio"])),
            min_compaction_lag_ms=_int(values["min.compaction.lag.ms"]),
            retention_bytes=_int(values["retention.bytes"]),
            retention_ms=_int(values["retention.ms"]),
            segment_bytes=_int(values["segment.bytes"]),
            segment_index_bytes=_int(values["segment.index.bytes"]),
            segment_ms=segment_ms,
            rolled_after_ms=min(segment_ms, lag_ms) if "compact" in policy else segment_ms,
            replica=str(values["treecast.replica"]),
            stream=values["treecast.stream"] is True,
            views=MappingProxyType(_views(overrides)),
            schema=str(values[SCHEMA]),
        )


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _views(overrides: Mapping[str, str]) -> dict[str, str]:
    views = {key.removeprefix(VIEW): text for key, text in overrides.items() if key.startswith(VIEW)}
    for name, text in views.items():
        if not text.strip() or len(text) > LONGEST_VIEW:
            raise TreecastError(
                Fault.INVALID_CONFIG, f"the filter of view {name} has 1 to {LONGEST_VIEW:,} characters"
            )
    return views
