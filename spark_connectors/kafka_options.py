"""Options `kafka.*`, as jobs carry them that were written for Spark's Kafka connector. Pure.

Kafka's Java clients have some hundred options. Those with a counterpart here are refused with its name, as
are those that ask for something that does not exist here; those that only tune a client have no effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from .errors import OptionError

PREFIX: Final = "kafka."

Check = Callable[[str], bool]


def _whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _true_or_false(text: str) -> bool:
    return text.lower() in ("true", "false")


def _any(text: str) -> bool:
    return True


_VALUES: Final[dict[Check, str]] = {_whole: "a whole number", _true_or_false: "true or false", _any: ""}

_CLIENT: Final[dict[str, Check]] = {
    **dict.fromkeys(("client.id", "client.dns.lookup", "client.rack", "metadata.recovery.strategy"), _any),
    **dict.fromkeys(
        (
            *("connections.max.idle.ms", "metadata.max.age.ms", "receive.buffer.bytes", "send.buffer.bytes"),
            *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "request.timeout.ms"),
            *("retry.backoff.ms", "retry.backoff.max.ms"),
            *("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
        ),
        _whole,
    ),
}
_CONSUMER: Final[dict[str, Check]] = {
    **_CLIENT,
    "group.id": _any,
    **dict.fromkeys(("allow.auto.create.topics", "check.crcs", "exclude.internal.topics"), _true_or_false),
    **dict.fromkeys(
        (
            *("fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "max.partition.fetch.bytes"),
            *("heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records", "session.timeout.ms"),
        ),
        _whole,
    ),
}
_PRODUCER: Final[dict[str, Check]] = {
    **_CLIENT,
    "acks": _any,
    **dict.fromkeys(("enable.idempotence", "partitioner.ignore.keys"), _true_or_false),
    **dict.fromkeys(
        (
            *("batch.size", "buffer.memory", "delivery.timeout.ms", "linger.ms", "max.block.ms"),
            *("max.in.flight.requests.per.connection", "max.request.size", "metadata.max.idle.ms", "retries"),
        ),
        _whole,
    ),
}

_PLAIN: Final = (
    "connections here have neither TLS nor SASL, as a daemon serves applications of its own host; leave the "
    "option out, or use Spark's own connector for a cluster that asks for it"
)
_JAVA: Final = "it names a Java class, and no Java client runs here; leave it out"
_GROUP: Final = "there is no consumer group: Spark's plan says which task reads what; leave it out"
_OFFSETS: Final = "the query's checkpoint keeps its offsets, and none are committed; leave it out"
_BYTES: Final = "keys and values are bytes in columns, so it is not supported; "
_BOTH: Final[dict[str, str]] = {
    "interceptor.classes": _JAVA,
    "metric.reporters": _JAVA,
    "security.providers": _JAVA,
    "security.protocol": _PLAIN,
}
_READING: Final[dict[str, str]] = {
    **_BOTH,
    "auto.offset.reset": "set startingOffsets to say where a query begins, and failOnDataLoss to say what it "
    "does about records that are gone",
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.commit": _OFFSETS,
    "default.api.timeout.ms": "set readTimeoutMs, which limits each wait",
    "group.instance.id": _GROUP,
    "group.protocol": _GROUP,
    "group.remote.assignor": _GROUP,
    "partition.assignment.strategy": _GROUP,
    "key.deserializer": _BYTES + "decode the column key, for instance with cast('string')",
    "value.deserializer": _BYTES + "decode the column value, or set format and schema",
}
_WRITING: Final[dict[str, str]] = {
    **_BOTH,
    "default.api.timeout.ms": "set writeTimeoutMs, which limits each wait",
    "key.serializer": _BYTES + "make the column key string or binary",
    "value.serializer": _BYTES + "make the column value string or binary",
    "partitioner.class": "rows go where Kafka's default puts their key, or where a column partition says",
    "transactional.id": "the sink names its transactions after query and batch; leave it out",
    "transaction.timeout.ms": "set stagingLeaseMs, which limits how long a batch may be staged",
}
_PREFIXES: Final = {"ssl.": _PLAIN, "sasl.": _PLAIN, "metrics.": _JAVA}


class KafkaOptions(Struct, frozen=True):
    """Kafka's options as a read or a write takes them; names are without `kafka.`."""

    what: str  # source or sink
    effective: tuple[str, ...]
    tuning: Mapping[str, Check]  # have no effect
    refused: Mapping[str, str]  # by reason


SOURCE: Final = KafkaOptions("source", ("bootstrap.servers", "isolation.level"), _CONSUMER, _READING)
SINK: Final = KafkaOptions("sink", ("bootstrap.servers", "compression.type"), _PRODUCER, _WRITING)


def check(known: KafkaOptions, options: Mapping[str, str]) -> list[str]:
    """Returns the given options that have no effect, as they are written. Raises OptionError for one that
    cannot be taken.
    """
    idle: list[str] = []
    for name, value in options.items():
        short = name.lower().removeprefix(PREFIX)
        if not name.lower().startswith(PREFIX) or short in known.effective:
            continue
        if short in known.tuning:
            _check_value(name, value.strip(), known.tuning[short])
            idle.append(name)
        elif (short, value.strip().upper()) != ("security.protocol", "PLAINTEXT"):
            raise OptionError(f"{name}: {_reason(known, short)}")
    return idle


def _check_value(name: str, value: str, right: Check) -> None:
    if not right(value):
        raise OptionError(f"{name} is {_VALUES[right]}, not {value!r}")


def _reason(known: KafkaOptions, short: str) -> str:
    if short in known.refused:
        return known.refused[short]
    for prefix, reason in _PREFIXES.items():
        if short.startswith(prefix):
            return reason
    close = difflib.get_close_matches(short, (*known.effective, *known.tuning), 1)
    advice = f"; did you mean {PREFIX}{close[0]}?" if close else ""
    return (
        f"the {known.what} does not know it; of Kafka's options {_listed(known.effective)} have an effect"
        f"{advice}"
    )


def _listed(names: Iterable[str]) -> str:
    return " and ".join(PREFIX + name for name in names)
