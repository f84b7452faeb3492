"""Configuration rows for DescribeConfigs: values, their sources and their synonyms (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treecast.middleware.broker import BrokerSettings
from treecast.middleware.model.topic_config import TOPIC_CONFIG_KEYS, ConfigType, TopicConfig, config_key

from ..settings import KafkaSettings

# Config sources
DYNAMIC_TOPIC = 1
STATIC_BROKER = 4
DEFAULT = 5
DYNAMIC_GROUP = 8

Row = dict[str, Any]

# Topic keys whose broker-wide synonym is not `log.` plus the same name (Kafka's TopicConfigSynonyms)
_SYNONYMS = {
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def broker_key(topic_key: str) -> str | None:
    """Returns the broker-wide synonym of a topic's key; None for Treecast's keys and throttled replicas."""
    if topic_key.startswith("treecast.") or topic_key.endswith(".throttled.replicas"):
        return None
    return _SYNONYMS.get(topic_key, f"log.{topic_key}")


def _row(name: str, value: str, source: int, kind: ConfigType, doc: str, *, read_only: bool) -> Row:
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": int(kind),
        "documentation": doc,
    }


def topic_config_rows(config: TopicConfig, defaults: Mapping[str, str]) -> list[Row]:
    """Returns every key of a topic, with its override, else the daemon's default, else Kafka's. Keys of views
    are last."""
    rows: list[Row] = []
    others = {name: key for name in config.overrides if (key := config_key(name)) is not None}
    for name, key in {**TOPIC_CONFIG_KEYS, **others}.items():
        synonyms: list[Row] = []
        wide = broker_key(name)
        if name in config.overrides:
            synonyms.append({"name": name, "value": config.overrides[name], "source": DYNAMIC_TOPIC})
        if name in defaults:
            synonyms.append({"name": wide or name, "value": defaults[name], "source": STATIC_BROKER})
        synonyms.append({"name": wide or name, "value": key.default, "source": DEFAULT})
        row = _row(name, synonyms[0]["value"], synonyms[0]["source"], key.type, key.doc, read_only=False)
        rows.append(row | {"synonyms": synonyms})
    return rows


def group_config_rows(overrides: Mapping[str, str], broker: BrokerSettings) -> list[Row]:
    """Returns the settings of a group: its own values, else the daemon's."""
    defaults = {
        "consumer.heartbeat.interval.ms": (
            broker.group_consumer_heartbeat_interval_ms,
            "how often members are told to send heartbeats",
        ),
        "consumer.session.timeout.ms": (
            broker.group_consumer_session_timeout_ms,
            "how long a member may be silent",
        ),
    }
    rows: list[Row] = []
    for name, (default, doc) in defaults.items():
        own: Row = {"name": name, "value": overrides.get(name), "source": DYNAMIC_GROUP}
        wide: Row = {"name": f"group.{name}", "value": str(default), "source": STATIC_BROKER}
        synonyms = [own, wide] if name in overrides else [wide]
        value, source = str(synonyms[0]["value"]), DYNAMIC_GROUP if name in overrides else STATIC_BROKER
        row = _row(name, value, source, ConfigType.INT, doc, read_only=False)
        rows.append(row | {"synonyms": synonyms})
    return rows


def broker_config_rows(
    node_id: int, address: tuple[str, int], broker: BrokerSettings, face: KafkaSettings
) -> list[Row]:
    """Returns the daemon's settings under the names that Kafka's tools look for. All are read-only."""
    rows = _topic_default_rows(broker.topic_defaults)
    rows += [
        _row(name, value, STATIC_BROKER, kind, doc, read_only=True) | _own_synonym(name, value)
        for name, kind, value, doc in _settings(node_id, address, broker, face)
    ]
    return rows


def _own_synonym(name: str, value: str) -> Row:
    return {"synonyms": [{"name": name, "value": value, "source": STATIC_BROKER}]}


def _topic_default_rows(defaults: Mapping[str, str]) -> list[Row]:
    rows: list[Row] = []
    for name, key in TOPIC_CONFIG_KEYS.items():
        wide = broker_key(name)
        if wide is None:
            continue
        source = STATIC_BROKER if name in defaults else DEFAULT
        value = defaults.get(name, key.default)
        row = _row(wide, value, source, key.type, key.doc, read_only=True)
        rows.append(row | {"synonyms": [{"name": wide, "value": value, "source": source}]})
    return rows


def _settings(
    node_id: int, address: tuple[str, int], broker: BrokerSettings, face: KafkaSettings
) -> list[tuple[str, ConfigType, str, str]]:
    flag, integer, long, text = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.STRING
    listener = f"PLAINTEXT://{address[0]}:{address[1]}"
    minutes = broker.offsets_retention_ms // 60_000
    return [
        ("advertised.listeners", text, listener, "where this client finds the daemon"),
        ("auto.create.topics.enable", flag, _flag(broker.auto_create_topics), "topics come by being used"),
        ("broker.id", integer, str(node_id), "the host's id"),
        ("connections.max.idle.ms", long, str(face.connections_max_idle_ms), "idle connections are closed"),
        ("default.replication.factor", integer, "1", "a partition has one leader"),
        ("delete.topic.enable", flag, "true", "topics can be deleted"),
        ("fetch.max.bytes", integer, str(face.fetch_max_bytes), "largest answer to a fetch"),
        (
            "group.consumer.heartbeat.interval.ms",
            integer,
            str(broker.group_consumer_heartbeat_interval_ms),
            "how often members of the new protocol are told to send heartbeats",
        ),
        (
            "group.consumer.session.timeout.ms",
            integer,
            str(broker.group_consumer_session_timeout_ms),
            "how long a member of the new protocol may be silent",
        ),
        ("group.coordinator.rebalance.protocols", text, "classic,consumer", "the group protocols"),
        (
            "group.initial.rebalance.delay.ms",
            integer,
            str(broker.group_initial_rebalance_delay_ms),
            "how long a new group waits for more members",
        ),
        ("group.max.session.timeout.ms", integer, str(broker.group_max_session_timeout_ms), "upper bound"),
        ("group.max.size", integer, str(broker.group_max_size), "most members of a group"),
        ("group.min.session.timeout.ms", integer, str(broker.group_min_session_timeout_ms), "lower bound"),
        ("log.dirs", text, str(broker.data), "where the logs are"),
        ("node.id", integer, str(node_id), "the host's id"),
        ("num.partitions", integer, str(broker.default_partitions), "partitions of a topic that names none"),
        ("offset.metadata.max.bytes", integer, str(broker.offset_metadata_max_bytes), "beside an offset"),
        ("offsets.retention.minutes", integer, str(minutes), "how long an empty group keeps its offsets"),
        ("socket.request.max.bytes", integer, str(face.max_request_bytes), "largest request"),
        ("transaction.max.timeout.ms", integer, str(broker.transaction_max_timeout_ms), "upper bound"),
        (
            "transactional.id.expiration.ms",
            integer,
            str(broker.transactional_id_expiration_ms),
            "how long an unused transactional id is kept",
        ),
    ]


def _flag(value: bool) -> str:
    return "true" if value else "false"
