"""Clients of the scenario `disk-loss`, as processes: `disk_client.py produce|follow|audit ADDRESS ... FILE`.

produce  sends to all partitions of all topics until its standard input ends, and writes each acknowledgement
         as a line of FILE: topic, partition, offset, sequence, when it was heard (s, a steady clock)
follow   reads all of them, so that its host has replicas, and forgets what it reads
audit    reads each partition from its beginning to its end, and writes a line of FILE for each record: topic,
         partition, offset, producer, sequence

Producers are not idempotent: a record may be stored twice, and an acknowledged record must be at the
acknowledged offset. Each client prints a JSON line from time to time, and at the end an empty ledger with its
problems.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parent))

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from ledger import Ledger, make_value, read_value

_SAY_EVERY_S = 0.2
_SLICE_S = 0.01
_AUDIT_S = 120.0  # an audit gives up after this long without a new record
_RETRY = {"retry.backoff.ms": 50, "retry.backoff.max.ms": 500}
_RECONNECT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}


def ended() -> bool:
    """Returns whether standard input has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0]) and not sys.stdin.readline()


class Saying:
    """Prints a progress line from time to time."""

    def __init__(self) -> None:
        self._last = 0.0

    def say(self, **what: int) -> None:
        now = time.monotonic()
        if now - self._last > _SAY_EVERY_S:
            self._last = now
            print(json.dumps(what), flush=True)


def produce(given: argparse.Namespace, file: TextIO, ledger: Ledger) -> None:
    acked = 0

    def told(error: KafkaError | None, message: Message) -> None:
        nonlocal acked
        if error is not None:
            ledger.problems.append(f"producer {given.number}: {error}")
            return
        _, sequence, _ = read_value(message.value())
        place = (message.topic(), message.partition(), message.offset(), sequence, time.monotonic())
        file.write(" ".join(map(str, place)) + "\n")
        acked += 1

    producer = Producer(
        {
            "bootstrap.servers": given.address,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": 200_000,
            **_RETRY,
            **_RECONNECT,
        }
    )
    places = [(topic, number) for topic in given.topics for number in range(given.partitions)]
    saying, begun, sent = Saying(), time.monotonic(), 0
    while not ended():
        for _ in range(min(int((time.monotonic() - begun) * given.rate) - sent, 1000)):
            topic, partition = places[sent % len(places)]
            value = make_value(given.number, sent, time.monotonic(), given.size)
            try:
                producer.produce(topic, value, partition=partition, on_delivery=told)
            except BufferError:
                break
            sent += 1
        producer.poll(_SLICE_S)
        saying.say(sent=sent, acked=acked)
    while acked < sent and not ledger.problems:
        producer.flush(_SAY_EVERY_S)
        saying.say(sent=sent, acked=acked)


def _consumer(given: argparse.Namespace, **more: Any) -> Consumer:
    settings = {
        "bootstrap.servers": given.address,
        "group.id": "unused",
        "enable.auto.commit": False,
        "fetch.error.backoff.ms": 50,
        **_RECONNECT,
        **more,
    }
    consumer = Consumer(settings)
    consumer.assign(
        [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in given.topics
            for number in range(given.partitions)
        ]
    )
    return consumer


def follow(given: argparse.Namespace, file: TextIO, ledger: Ledger) -> None:
    """Follows all partitions. A reader whose next records are lost is sent to the end of the log."""
    consumer = _consumer(given, **{"auto.offset.reset": "latest", "fetch.wait.max.ms": 200})
    saying, read = Saying(), 0
    while not ended():
        read += sum(message.error() is None for message in consumer.consume(500, 0.05))
        saying.say(read=read)
    consumer.close()


def audit(given: argparse.Namespace, file: TextIO, ledger: Ledger) -> None:
    consumer = _consumer(
        given, **{"auto.offset.reset": "error", "enable.partition.eof": True, "check.crcs": True}
    )
    open_ = {(topic, number) for topic in given.topics for number in range(given.partitions)}
    saying, read, last = Saying(), 0, time.monotonic()
    while open_ and time.monotonic() - last < _AUDIT_S:
        for message in consumer.consume(2000, 0.2):
            error, place = message.error(), (message.topic(), message.partition())
            if error is None:
                producer, sequence, _ = read_value(message.value())
                file.write(" ".join(map(str, (*place, message.offset(), producer, sequence))) + "\n")
                read, last = read + 1, time.monotonic()
            elif error.code() == KafkaError._PARTITION_EOF:
                open_.discard(place)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                ledger.problems.append(str(error))
                open_.clear()
        saying.say(read=read)
    if open_:
        ledger.problems.append(f"the ends of {sorted(open_)} were not reached")
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["produce", "follow", "audit"])
    parser.add_argument("address")
    parser.add_argument("file", type=Path)
    parser.add_argument("--topics", nargs="+", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--size", type=int, default=200)
    given = parser.parse_args()
    ledger = Ledger()
    with given.file.open("w") as file:
        {"produce": produce, "follow": follow, "audit": audit}[given.role](given, file, ledger)
    print(json.dumps({"ledger": ledger.as_json()}), flush=True)


if __name__ == "__main__":
    main()
