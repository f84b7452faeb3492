"""Kafka: idempotent producers, transactions with offsets, commits, and topics made, deleted and cut."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from treecast.middleware.daemon.process import DaemonProcess

from .facts import Facts, Outcome
from .loads import Workers

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None, "socket.timeout.ms": 10_000}
CALL_S = 10.0
READ_S = 60.0
PARTITIONS = 2
FIXED = ("plain", "paid", "trimmed")
IN_TRANSACTION = 4


class KafkaLoad:
    """Implements `loads.Load`."""

    def __init__(self) -> None:
        self.facts = Facts()
        self._number = itertools.count(1)
        self._cycle = 0

    # --- the load

    def begin(self, daemon: DaemonProcess, cycle: int) -> None:
        self._cycle = cycle
        self._workers = Workers()
        self._servers = {**QUIET, "bootstrap.servers": daemon.kafka}
        self._admin = AdminClient(self._servers)
        for topic in FIXED:
            with suppress(KafkaException):  # it exists
                self._make(topic)
        self._producer = Producer({**self._servers, "enable.idempotence": True, "linger.ms": 5})
        self._payer = self._new_payer()
        self._committer = Consumer({**self._servers, "group.id": "readers", "enable.auto.commit": False})
        for name, step in (
            ("produce", self._produce),
            ("pay", self._pay),
            ("commit", self._commit),
            ("define", self._define),
            ("trim", self._trim),
        ):
            self._workers.start(name, step)

    def halt(self) -> None:
        self._workers.halt()
        for producer in (self._producer, self._payer):
            producer.purge()

    def _make(self, topic: str) -> None:
        made = self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=CALL_S)
        made[topic].result(CALL_S)
        self.facts.add("topics", topic)

    def _new_payer(self) -> Producer:
        payer = Producer({**self._servers, "transactional.id": "payer", "transaction.timeout.ms": 30_000})
        payer.init_transactions(CALL_S * 3)
        return payer

    def _value(self) -> bytes:
        return b"%d-%d" % (self._cycle, next(self._number))

    def _produce(self) -> None:
        for _ in range(10):
            number = next(self._number)
            value = b"%d-%d" % (self._cycle, number)
            self._producer.produce(
                "plain", value, partition=number % PARTITIONS, on_delivery=partial(self._stored, value)
            )
        self._producer.poll(0.02)

    def _stored(self, value: bytes, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.facts.add("records", ("plain", message.partition(), message.offset()), value)

    def _pay(self) -> None:
        """One transaction; every fifth is aborted."""
        number = next(self._number)
        values = [b"%d-%d-%d" % (self._cycle, number, index) for index in range(IN_TRANSACTION)]
        offsets = [TopicPartition("plain", 0, number)]
        self._payer.begin_transaction()
        for index, value in enumerate(values):
            self._payer.produce("paid", value, partition=index % PARTITIONS)
        if number % 5 == 0:
            self._payer.flush(CALL_S)
            self._payer.abort_transaction(CALL_S)
            self.facts.add("aborted transactions", tuple(values))
            return
        group = Consumer({**self._servers, "group.id": "payers"})
        self._payer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), CALL_S)
        group.close()
        self._payer.commit_transaction(CALL_S)
        self.facts.add("transactions", tuple(values))
        self.facts.add("transactions' offsets", ("payers", number), number)
        time.sleep(0.02)

    def _commit(self) -> None:
        offset = next(self._number)
        self._committer.commit(offsets=[TopicPartition("plain", 1, offset)], asynchronous=False)
        self.facts.add("offsets", ("readers", offset), offset)
        time.sleep(0.02)

    def _define(self) -> None:
        name = f"made-{self._cycle}-{next(self._number)}"
        self._make(name)
        time.sleep(0.3)
        if self._number.__next__() % 2:
            self.facts.drop("topics", name)
            self._admin.delete_topics([name], operation_timeout=CALL_S)[name].result(CALL_S)
            self.facts.add("deleted topics", name)

    def _trim(self) -> None:
        """Deletes records of a topic from time to time."""
        end: list[int] = []
        for _ in range(5):
            self._producer.produce(
                "trimmed", self._value(), partition=0, on_delivery=lambda e, m: end.append(m.offset())
            )
        while len(end) < 5 and not self._workers.over.is_set():
            time.sleep(0.02)
        before = TopicPartition("trimmed", 0, end[-1] - 2)
        self._admin.delete_records([before])[before].result(CALL_S)
        self.facts.add("deleted records", before.offset, before.offset)
        time.sleep(0.3)

    # --- what is left

    def audit(self, daemon: DaemonProcess, horizon: float, *, whole: bool) -> tuple[list[Outcome], list[str]]:
        self._servers = {**QUIET, "bootstrap.servers": daemon.kafka}
        there = set(AdminClient(self._servers).list_topics(timeout=CALL_S).topics)
        outcomes = [
            self.facts.settle("topics", horizon, lambda key, _: key in there),
            self.facts.settle("deleted topics", horizon, lambda key, _: key not in there),
        ]
        problems: list[str] = []
        if "plain" in there:
            outcomes += self._records(horizon, problems)
        if "paid" in there:
            outcomes += self._paid(horizon, problems, whole=whole)
        if "trimmed" in there:
            outcomes.append(self._trimmed(horizon))
        for kind, group, partition in (("offsets", "readers", 1), ("transactions' offsets", "payers", 0)):
            found = self._committed(group, partition)
            held = partial(_reaches, found)
            outcomes.append(self.facts.settle(kind, horizon, held))
        return outcomes, problems

    def _records(self, horizon: float, problems: list[str]) -> list[Outcome]:
        found = self._read("plain", "read_uncommitted")
        twice = len(found) - len(set(found.values()))
        if twice:
            problems.append(f"{twice} records of an idempotent producer are there twice")
        return [self.facts.settle("records", horizon, lambda key, value: found.get(key) == value)]

    def _paid(self, horizon: float, problems: list[str], *, whole: bool) -> list[Outcome]:
        self._new_payer()  # ends what its predecessor left open
        found = set(self._read("paid", "read_committed").values())
        some = [values for values in self.facts.of("transactions") if found.intersection(values)]
        parted = [values for values in some if not found.issuperset(values)]
        if parted and whole:
            problems.append(f"{len(parted)} transactions are there in part, such as {parted[0]}")
        return [
            self.facts.settle("transactions", horizon, lambda key, _: found.issuperset(key)),
            self.facts.settle("aborted transactions", horizon, lambda key, _: found.isdisjoint(key)),
        ]

    def _trimmed(self, horizon: float) -> Outcome:
        consumer = Consumer({**self._servers, "group.id": "none"})
        low, _ = consumer.get_watermark_offsets(TopicPartition("trimmed", 0), timeout=CALL_S)
        consumer.close()
        return self.facts.settle("deleted records", horizon, lambda _, offset: offset <= low)

    def _committed(self, group: str, partition: int) -> int:
        consumer = Consumer({**self._servers, "group.id": group})
        (found,) = consumer.committed([TopicPartition("plain", partition)], timeout=CALL_S)
        consumer.close()
        return int(found.offset)

    def _read(self, topic: str, isolation: str) -> dict[tuple[str, int, int], bytes]:
        """Returns all records of a topic by place. Raises TimeoutError if the daemon gives no end."""
        settings = {"group.id": "none", "isolation.level": isolation, "enable.partition.eof": True}
        consumer = Consumer({**self._servers, **settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        found: dict[tuple[str, int, int], bytes] = {}
        ended: set[int] = set()
        deadline = time.monotonic() + READ_S
        while len(ended) < PARTITIONS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} could not be read to its end in {READ_S:g} s ({isolation})")
            for message in consumer.consume(500, timeout=0.5):
                if message.error() is None:
                    found[topic, message.partition(), message.offset()] = message.value()
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        consumer.close()
        return found


def _reaches(found: int, _: object, offset: int) -> bool:
    """Offsets only grow: a later one stands for all earlier ones."""
    return found >= offset
