"""Clients of the scenario `old-copy`, as processes: `copy_client.py ROLE ADDRESS FILE ...`.

commit     commits rising offsets of a topic in --group until its standard input ends; writes each offset and
           when it was acknowledged (s, a steady clock) as a line of FILE
committed  prints the group's committed offset
transact   sends one record to each topic in each transaction until its standard input ends; writes a line of
           FILE for each record of a committed transaction, as `disk_client.py produce` does
some       produces --count records to each topic; writes a line for each, as `disk_client.py produce` does
declare    declares durable queues, whose home is then the host beside it
publish    publishes persistent messages to the queues in turn, with confirms, until its standard input ends;
           writes the number of each confirmed message and when it was confirmed
consume    acknowledges all messages of a queue until its standard input ends; writes publisher and number

All reconnect after each failure, and repeat what was not acknowledged. Each prints a JSON line from time to
time, and at the end an empty ledger with its problems.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parent))

import pika
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from disk_client import Saying, ended
from ledger import Ledger, make_value, read_value
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, UnroutableError

_PAUSE_S = 0.2
_ANSWER_S = 20.0
_LONG_MS = 600_000  # a transaction stays open while hosts are restored
_QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}


# --- Kafka


def _in_group(given: argparse.Namespace) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": given.address,
            "group.id": given.group,
            "enable.auto.commit": False,
            **_QUIET,
        }
    )


def commit(given: argparse.Namespace, file: TextIO, ledger: Ledger) -> None:
    consumer, saying, number = _in_group(given), Saying(), 1
    while not ended():
        try:
            [told] = consumer.commit(
                offsets=[TopicPartition(given.topics[0], 0, number)], asynchronous=False
            ) or [None]
        except KafkaException:
            time.sleep(_PAUSE_S)
            continue
        if told is not None and told.error is None:
            file.write(f"{number} {time.monotonic()}\n")
            file.flush()
            number += 1
        saying.say(acked=number - 1)
        time.sleep(1 / given.rate)
    consumer.close()


def committed(given: argparse.Namespace) -> None:
    """Prints the committed offset. Raises KafkaException if the group's home does not answer in time."""
    consumer = _in_group(given)
    try:
        [found] = consumer.committed([TopicPartition(given.topics[0], 0)], timeout=_ANSWER_S)
        print(json.dumps(found.offset))
    finally:
        consumer.close()


class Transactions:
    """A producer with a transactional id. `fenced` counts the times that another epoch took its place."""

    def __init__(self, given: argparse.Namespace, file: TextIO) -> None:
        self._given = given
        self._file = file
        self._placed: list[tuple[Message, int]] = []
        self._producer: Producer | None = None
        self.sent = self.acked = self.fenced = 0

    def once(self) -> None:
        """Runs one transaction, with another producer after a failure."""
        try:
            producer = self._producer or self._begun()
            self._placed.clear()
            producer.begin_transaction()
            for topic in self._given.topics:
                self._send(producer, topic)
            producer.commit_transaction(_ANSWER_S)
        except KafkaException as error:
            self._failed(error)
            return
        for message, sequence in self._placed:
            place = (message.topic(), message.partition(), message.offset(), sequence, time.monotonic())
            self._file.write(" ".join(map(str, place)) + "\n")
            self.acked += 1
        self._file.flush()

    def _begun(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._given.address,
                "transactional.id": self._given.group,
                "transaction.timeout.ms": _LONG_MS,
                "linger.ms": 0,
                **_QUIET,
            }
        )
        producer.init_transactions(_ANSWER_S)
        self._producer = producer
        return producer

    def _send(self, producer: Producer, topic: str) -> None:
        sequence, self.sent = self.sent, self.sent + 1
        value = make_value(self._given.number, sequence, time.monotonic(), self._given.size)

        def told(error: Any, message: Message) -> None:
            if error is None:
                self._placed.append((message, sequence))

        producer.produce(topic, value, partition=0, on_delivery=told)

    def _failed(self, error: KafkaException) -> None:
        """Goes on with a new producer, which ends the open transaction."""
        self.fenced += "FENCED" in error.args[0].name() or "INVALID_PRODUCER_EPOCH" in error.args[0].name()
        self._producer = None
        time.sleep(_PAUSE_S)


def transact(given: argparse.Namespace, file: TextIO, ledger: Ledger) -> None:
    run, saying = Transactions(given, file), Saying()
    while not ended():
        run.once()
        saying.say(acked=run.acked, fenced=run.fenced)
        time.sleep(1 / given.rate)
    if run.fenced:
        ledger.problems.append(f"the producer {given.group} was fenced {run.fenced} times")


def some(given: argparse.Namespace) -> None:
    """Produces `count` records to each topic. Raises RuntimeError if one is refused."""
    places: list[Message] = []
    wrong: list[Any] = []

    def told(error: Any, message: Message) -> None:
        (places if error is None else wrong).append(message if error is None else error)

    producer = Producer({"bootstrap.servers": given.address, "message.timeout.ms": 120_000, **_QUIET})
    for topic in given.topics:
        for sequence in range(given.count):
            value = make_value(given.number, sequence, time.monotonic(), given.size)
            producer.produce(topic, value, partition=0, on_delivery=told)
    producer.flush(130)
    if wrong or len(places) < given.count * len(given.topics):
        raise RuntimeError(f"{len(places)} of {given.count} records were acknowledged: {wrong[:1]}")
    with given.file.open("w") as file:
        for message in places:
            _, sequence, _ = read_value(message.value())
            file.write(f"{message.topic()} 0 {message.offset()} {sequence} {time.monotonic()}\n")


# --- AMQP


def _opened(given: argparse.Namespace) -> tuple[pika.BlockingConnection, BlockingChannel]:
    host, _, port = given.address.rpartition(":")
    where = pika.ConnectionParameters(host, int(port), heartbeat=10, blocked_connection_timeout=_ANSWER_S)
    connection = pika.BlockingConnection(where)
    return connection, connection.channel()


def declare(given: argparse.Namespace) -> None:
    connection, channel = _opened(given)
    for queue in given.queues:
        channel.queue_declare(queue, durable=True, passive=given.passive)
    connection.close()


class Publishing:
    def __init__(self, given: argparse.Namespace, file: TextIO) -> None:
        self._given = given
        self._file = file
        self._saying = Saying()
        self.number = 0

    def until_broken(self) -> None:
        """Publishes until standard input ends. Raises AMQPError if the connection breaks."""
        connection, channel = _opened(self._given)
        channel.confirm_delivery()
        lasting = pika.BasicProperties(delivery_mode=2)
        while not ended():
            value = make_value(self._given.number, self.number, time.monotonic(), self._given.size)
            queue = self._given.queues[self.number % len(self._given.queues)]
            try:
                channel.basic_publish("", queue, value, lasting, mandatory=True)
            except UnroutableError:  # the queue is not known here for the moment
                time.sleep(_PAUSE_S)
                continue
            self._file.write(f"{self.number} {time.monotonic()}\n")
            self.number += 1
            self._saying.say(acked=self.number)
            connection.sleep(1 / self._given.rate)
        connection.close()


def publish(given: argparse.Namespace, file: TextIO, ledger: Ledger) -> None:
    run = Publishing(given, file)
    _again(run.until_broken)


class Consuming:
    def __init__(self, given: argparse.Namespace, file: TextIO) -> None:
        self._given = given
        self._file = file
        self._saying = Saying()
        self.read = 0

    def until_broken(self) -> None:
        connection, channel = _opened(self._given)
        channel.basic_qos(prefetch_count=100)
        for method, _, body in channel.consume(self._given.queues[0], inactivity_timeout=_PAUSE_S):
            if method is not None and body is not None:
                publisher, number, _sent = read_value(body)
                self._file.write(f"{publisher} {number}\n")
                channel.basic_ack(method.delivery_tag)
                self.read += 1
            self._file.flush()
            self._saying.say(read=self.read)
            if ended():
                connection.close()
                return
        raise AMQPError("the consumer was cancelled")


def consume(given: argparse.Namespace, file: TextIO, ledger: Ledger) -> None:
    run = Consuming(given, file)
    _again(run.until_broken)


def _again(run: Any) -> None:
    """Calls `run` until it returns."""
    while True:
        try:
            run()
        except (AMQPError, OSError):
            if ended():
                return
            time.sleep(_PAUSE_S)
        else:
            return


ONCE = {"committed": committed, "some": some, "declare": declare}
ROLES = {"commit": commit, "transact": transact, "publish": publish, "consume": consume}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=[*ROLES, *ONCE])
    parser.add_argument("address")
    parser.add_argument("file", type=Path)
    parser.add_argument("--topics", nargs="+", default=[])
    parser.add_argument("--group", default="", help="or the transactional id")
    parser.add_argument("--queues", nargs="+", default=[])
    parser.add_argument("--passive", action="store_true", help="declares nothing, but fails without a queue")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--size", type=int, default=200)
    given = parser.parse_args()
    if given.role in ONCE:
        ONCE[given.role](given)
        return
    ledger = Ledger()
    with given.file.open("w") as file:
        ROLES[given.role](given, file, ledger)
    print(json.dumps({"ledger": ledger.as_json()}), flush=True)


if __name__ == "__main__":
    main()
