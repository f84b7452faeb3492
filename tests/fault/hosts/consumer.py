"""A consumer as a process: `consumer.py ADDRESS TOPIC PARTITIONS [--watch PRODUCER]`.

Reads all partitions from the beginning with librdkafka. Prints a JSON line from time to time: {"read": n,
"samples": [[when a record of the watched producer was sent, in s; its latency in ms], ...]}, with the samples
since the last line. A line `expect N` on its standard input tells it the number of records; once it has them,
and no more have come for a moment, it prints its ledger and ends. `end` ends it at once.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from ledger import Ledger, read_value

_SAY_EVERY_S = 0.2
_QUIET_S = 0.5
_WAIT_S = 0.003
_AT_ONCE = 2000


class Reading:
    """One consumer and its ledger."""

    def __init__(self, address: str, topic: str, partitions: int, watched: int | None) -> None:
        self.ledger = Ledger()
        self.read = 0
        self.last = time.monotonic()
        self.watched = watched
        self.samples: list[tuple[float, float]] = []
        self._consumer = Consumer(
            {
                "log_level": 0,  # daemons are killed on purpose
                "bootstrap.servers": address,
                "group.id": "host",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 200,
                "fetch.error.backoff.ms": 50,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "check.crcs": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def step(self) -> None:
        messages = self._come()
        now = time.monotonic()
        for message in messages:
            error = message.error()
            if error is not None:
                self._told(error)
                continue
            try:
                producer, sequence, sent = read_value(message.value())
            except ValueError as invented:
                self.ledger.problems.append(f"{message.topic()} {message.offset()}: {invented}")
                continue
            place = f"{message.topic()}-{message.partition()}"
            self.ledger.lane(producer, place).note(sequence, message.offset())
            if producer == self.watched:
                self.samples.append((round(sent, 6), round((now - sent) * 1e3, 3)))
            self.read += 1
            self.last = now

    def _come(self) -> list[Message]:
        """Returns messages as soon as there are some: `consume` alone would gather until its time-out."""
        first = self._consumer.poll(_WAIT_S)
        return [] if first is None else [first, *self._consumer.consume(_AT_ONCE, 0)]

    def _told(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.ledger.problems.append(str(error))

    def say(self) -> None:
        print(json.dumps({"read": self.read, "samples": self.samples}), flush=True)
        self.samples.clear()

    def close(self) -> None:
        self._consumer.close()


def asked() -> list[str]:
    """Returns the words of the next line; `end` once standard input has ended."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        return []
    return (sys.stdin.readline() or "end").split()


def run(address: str, topic: str, partitions: int, watched: int | None) -> Ledger:
    reading = Reading(address, topic, partitions, watched)
    expected: int | None = None
    said = time.monotonic()
    while True:
        match asked():
            case ["expect", number]:
                expected = int(number)
            case ["end"]:
                break
        reading.step()
        now = time.monotonic()
        if now - said > _SAY_EVERY_S:
            reading.say()
            said = now
        if expected is not None and reading.read >= expected and now - reading.last > _QUIET_S:
            break
        if reading.ledger.problems:
            break  # a reader that was sent to another offset reads no more, and nobody need wait for it
    reading.close()
    return reading.ledger


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--watch", type=int, help="the producer whose records are timed")
    options = parser.parse_args()
    ledger = run(options.address, options.topic, options.partitions, options.watch)
    print(json.dumps({"ledger": ledger.as_json()}), flush=True)


if __name__ == "__main__":
    main()
