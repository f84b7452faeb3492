"""`treecast consume`: prints the records of a topic, one per line."""

from __future__ import annotations

import base64
import sys
import time as clock
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from treecast.middleware.api.quiet import quiet
from treecast.middleware.model.errors import Fault, TreecastError

from .kafka import BOOTSTRAP_MS, KAFKA_LOGS, explained
from .options import INT31, INT63, Kafka, KafkaPassword, KafkaUser, kafka_at, kafka_log_in
from .output import CommandError, json_line, plain_text
from .times import milliseconds, time_text

POLL_MS = 200


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    beginning: Annotated[bool, typer.Option("--beginning", help="From the first record.")] = False,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, max=INT63, help="From this offset.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="From the first at or after: ISO 8601, or ms.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="As a member of this group, which shares partitions."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=INT31, help="Only this one.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many; 0: never.")] = 0,
    idle: Annotated[
        float,
        typer.Option("--idle", min=0, metavar="SECONDS", help="End when none came for so long; 0: never."),
    ] = 0,
    keys: Annotated[bool, typer.Option("--keys", help="Print key, tab, value.")] = False,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out records of open and aborted transactions.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    kafka: Kafka = None,
    user: KafkaUser = None,
    password_file: KafkaPassword = None,
) -> None:
    """Prints records as they arrive, by default from the topic's present end."""
    if (beginning, offset is not None, time is not None).count(True) > 1:
        raise CommandError("give one of --beginning, --offset, --time")
    if group is not None and (offset is not None or time is not None or partition is not None):
        raise CommandError("a group reads from its committed offsets; move them with `treecast groups reset`")
    log_in = kafka_log_in(user, password_file)
    at_ms = milliseconds(time, "--time") if time is not None else None
    with quiet(KAFKA_LOGS), explained(address := kafka_at(kafka)):
        from treecast.shims.kafka import KafkaConsumer

        consumer = KafkaConsumer(
            bootstrap_servers=str(address),
            **log_in,
            group_id=group,
            auto_offset_reset="earliest" if beginning else "latest",
            enable_auto_commit=False,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        try:
            if group is not None:
                consumer.subscribe([topic])
            else:
                _assign(consumer, topic, partition)
                _seek(consumer, beginning=beginning, offset=offset, at_ms=at_ms)
            _print_all(consumer, group, count, idle, _as_json if json else _as_pair if keys else _as_value)
        finally:
            consumer.close(autocommit=False)


def _assign(consumer: Any, topic: str, partition: int | None) -> None:
    from kafka.structs import TopicPartition

    found = consumer.partitions_for_topic(topic)
    if not found:
        raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {topic!r}")
    if partition is not None and partition not in found:
        raise CommandError(f"topic {topic!r} has no partition {partition}, but 0 to {max(found)}")
    chosen = sorted(found) if partition is None else [partition]
    consumer.assign([TopicPartition(topic, number) for number in chosen])


def _seek(consumer: Any, *, beginning: bool, offset: int | None, at_ms: int | None) -> None:
    assigned = sorted(consumer.assignment())
    if offset is not None:
        for partition in assigned:
            consumer.seek(partition, offset)
    elif at_ms is not None:
        for partition, found in consumer.offsets_for_times(dict.fromkeys(assigned, at_ms)).items():
            if found is None:
                consumer.seek_to_end(partition)
            else:
                consumer.seek(partition, found.offset)
    elif beginning:
        consumer.seek_to_beginning(*assigned)
    else:
        consumer.seek_to_end(*assigned)


def _print_all(consumer: Any, group: str | None, count: int, idle: float, line: Any) -> None:
    """Prints until `count` or `idle` is reached. A group member commits what it printed."""
    out = sys.stdout.buffer
    to_person = sys.stdout.isatty()  # who is shown records, and not handed their bytes
    printed = 0
    for records in _polls(consumer, idle):
        wanted = records[: count - printed] if count else records
        for record in wanted:
            found = line(record)
            out.write((plain_text(found.decode(errors="replace")).encode() if to_person else found) + b"\n")
        out.flush()
        printed += len(wanted)
        if group is not None and wanted:
            consumer.commit(_positions(wanted))
        if count and printed >= count:
            return


def _polls(consumer: Any, idle: float) -> Iterator[list[Any]]:
    last = clock.monotonic()
    while True:
        polled = consumer.poll(timeout_ms=POLL_MS)
        records = [record for records in polled.values() for record in records]
        if records:
            last = clock.monotonic()
            yield records
        elif idle and clock.monotonic() - last >= idle:
            return


def _positions(records: list[Any]) -> dict[Any, Any]:
    """Returns the offsets after the last printed record of each partition."""
    from kafka.structs import OffsetAndMetadata, TopicPartition

    return {
        TopicPartition(record.topic, record.partition): OffsetAndMetadata(record.offset + 1, "", -1)
        for record in records
    }


def _as_value(record: Any) -> bytes:
    return record.value if record.value is not None else b""


def _as_pair(record: Any) -> bytes:
    return (record.key or b"") + b"\t" + _as_value(record)


def _as_json(record: Any) -> bytes:
    """Returns a record as JSON. Bytes that are not UTF-8 are in `key_base64` and `value_base64`."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": time_text(record.timestamp) if record.timestamp >= 0 else None,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }
    return json_line(shown).encode()


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
