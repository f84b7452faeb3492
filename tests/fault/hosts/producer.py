"""A producer as a process: `producer.py ADDRESS TOPIC PARTITIONS NUMBER --size --rate [--count]`.

An idempotent librdkafka producer that retries forever. It sends `count` records, or until its standard input
ends, then waits for every acknowledgement. Prints a JSON line from time to time, {"sent": n, "acked": n}, and
its ledger at the end.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from ledger import Ledger, make_value, read_value

_SLICE_S = 0.01
_SAY_EVERY_S = 0.2
_RUN = 16  # consecutive records to one partition


class Sending:
    """One producer and its acknowledgements."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.ledger = Ledger()
        self.sent = 0
        self.next = [0] * options.partitions
        self.producer = Producer(
            {
                "log_level": 0,  # daemons are killed on purpose
                "bootstrap.servers": options.address,
                "enable.idempotence": True,
                "linger.ms": options.wait_ms,
                "batch.size": options.batch,
                "message.timeout.ms": 0,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "queue.buffering.max.messages": 200_000,
                "error_cb": self._error,
            }
        )

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.ledger.problems.append(f"producer {self.options.number}: {error}")

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.problems.append(f"producer {self.options.number}: {error}")
            return
        _, sequence, _ = read_value(message.value())
        place = f"{message.topic()}-{message.partition()}"
        self.ledger.lane(self.options.number, place).note(sequence, message.offset())

    def send(self, count: int) -> None:
        options = self.options
        for _ in range(count):
            partition = (self.sent // _RUN) % options.partitions
            value = make_value(options.number, self.next[partition], time.monotonic(), options.size)
            try:
                self.producer.produce(options.topic, value, partition=partition, on_delivery=self._told)
            except BufferError:
                self.producer.poll(0.05)
                return
            self.next[partition] += 1
            self.sent += 1

    def say(self) -> None:
        print(json.dumps({"sent": self.sent, "acked": self.ledger.count}), flush=True)


def ended() -> bool:
    """Returns whether standard input has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0]) and not sys.stdin.readline()


def run(options: argparse.Namespace) -> Ledger:
    sending = Sending(options)
    begun = said = time.monotonic()
    while not ended() and sending.sent < options.count:
        now = time.monotonic()
        due = int((now - begun) * options.rate) - sending.sent if options.rate else 2000
        sending.send(max(0, min(due, 5000, options.count - sending.sent)))
        try:
            sending.producer.poll(_SLICE_S if options.rate else 0)
        except KafkaException as error:
            sending.ledger.problems.append(f"producer {options.number}: {error}")
        if now - said > _SAY_EVERY_S:
            sending.say()
            said = now
    while sending.ledger.count < sending.sent and not sending.ledger.problems:
        sending.producer.flush(_SAY_EVERY_S)
        sending.say()
    return sending.ledger


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("number", type=int)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=0.0, help="records per second, 0: full speed")
    parser.add_argument("--count", type=int, default=2**62)
    parser.add_argument("--wait-ms", type=int, default=2, help="time that a batch waits for more records")
    parser.add_argument("--batch", type=int, default=1_000_000, help="bytes at which a batch is sent")
    print(json.dumps({"ledger": run(parser.parse_args()).as_json()}), flush=True)


if __name__ == "__main__":
    main()
