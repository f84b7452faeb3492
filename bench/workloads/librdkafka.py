"""librdkafka through confluent-kafka, with its default settings.

A workload of the harness; run as a program, the load process itself (see `bench.core.load`).
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from typing import Any

from bench.core.load import run_load
from bench.core.measure import CLIENT_THROUGHPUT, SERVER_CPU, Values, Workload
from bench.core.peer import Server
from treecast.middleware.load.connection import Connection

COMMAND = (sys.executable, "-m", "bench.workloads.librdkafka")


class _Librdkafka(Workload[Server]):
    kind = ""

    def __init__(self, records: int, size: int) -> None:
        self._records, self._size = records, size
        self.name = f"librdkafka {self.kind}, {size} B"

    def missing(self) -> str:
        return "" if importlib.util.find_spec("confluent_kafka") else "confluent-kafka is not installed"

    def _order(self, peer: Server, kind: str, topic: str) -> dict[str, Any]:
        bootstrap = f"{peer.address[0]}:{peer.address[1]}"
        return {
            "kind": kind,
            "bootstrap": bootstrap,
            "topic": topic,
            "records": self._records,
            "size": self._size,
        }

    def _measure(self, peer: Server, topic: str) -> Values:
        run = run_load(peer, self._order(peer, self.kind, topic), COMMAND)
        rate = run.result["records"] / run.result["seconds"]
        return {CLIENT_THROUGHPUT: rate, SERVER_CPU: run.cpu_per_record}


class LibrdkafkaProduce(_Librdkafka):
    kind = "produce"

    def run(self, peer: Server, number: int) -> Values:
        topic = f"librdkafka-{self._size}"
        with Connection(*peer.address) as connection:
            connection.create_topic(topic, 1)
        return self._measure(peer, topic)


class LibrdkafkaConsume(_Librdkafka):
    """Reads the records of LibrdkafkaProduce, by assignment, from the beginning.

    One setting differs from the default: librdkafka stops fetching for 1 s whenever its queue is full, and
    the measurement would then depend on how often this happened.
    """

    kind = "consume"

    def run(self, peer: Server, number: int) -> Values:
        topic = f"librdkafka-consume-{self._size}"
        with Connection(*peer.address) as connection:
            connection.create_topic(topic, 1)
        run_load(peer, self._order(peer, "produce", topic), COMMAND)
        return self._measure(peer, topic)


# -- the load process --------------------------------------------------------------------------------------


def _produce(order: dict[str, Any]) -> float:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": order["bootstrap"]})
    producer.list_topics(order["topic"], timeout=30)
    topic, value, records = order["topic"], b"x" * order["size"], order["records"]
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    _ready()
    began = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1000:
            producer.poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    if failed or left:
        raise RuntimeError(f"{len(failed)} records were refused and {left} are left: {failed[:1]}")
    return seconds


def _consume(order: dict[str, Any]) -> float:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": order["bootstrap"], "group.id": "bench"}
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": 5})
    left = order["records"]
    _ready()
    began = time.perf_counter()
    consumer.assign([TopicPartition(order["topic"], 0, 0)])
    while left > 0:
        messages = consumer.consume(10_000, timeout=30)
        if not messages:
            raise RuntimeError(f"nothing came for 30 s, {left} records are missing")
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
        left -= len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def _ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main() -> int:
    order = json.loads(sys.stdin.readline())
    try:
        seconds = (_produce if order["kind"] == "produce" else _consume)(order)
    except Exception as error:
        print(json.dumps({"error": f"librdkafka {order['kind']}: {error}"}), flush=True)
        return 1
    print(json.dumps({"result": {"records": order["records"], "seconds": seconds}}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
