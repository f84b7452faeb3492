"""Many slow clients of librdkafka, beside one that brings as much alone: what a record costs the server.

As a workload of the harness, and, run as a program, as the load process itself (see `bench.core.load`).
"""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
import time
from typing import Any

from bench.core.load import run_load
from bench.core.measure import REACHED, SERVER_CPU, Metric, Values, Workload
from bench.core.peer import Server
from treecast.middleware.load.connection import Connection

COMMAND = (sys.executable, "-m", "bench.workloads.many")
ALONE = Metric("server CPU, one producer and one consumer", "µs/record", False)
DEARER = Metric("many to one", "x", False)
_NUMBER = struct.Struct(">q")
_WARM = 3.0  # seconds: connections are made, consumers find where to begin
_LATE = 60.0  # seconds after which a record is missing


class ManyClients(Workload[Server]):
    """`clients` producers and as many consumers, over `partitions`, bring `rate` records a second together.

    Each client has its own share of the partitions, and the defaults of librdkafka. One producer and one
    consumer of one partition bring the same rate before it.
    """

    def __init__(self, clients: int, partitions: int, rate: int, size: int, seconds: float) -> None:
        self._clients, self._partitions = clients, partitions
        self._rate, self._size, self._seconds = rate, size, seconds
        self.name = (
            f"{2 * clients} connections, {partitions:,} partitions, {rate:,}/s of {size} B (librdkafka)"
        )

    def missing(self) -> str:
        return "" if importlib.util.find_spec("confluent_kafka") else "confluent-kafka is not installed"

    def run(self, peer: Server, number: int) -> Values:
        alone, _ = self._measure(peer, 1, 1)
        many, rate = self._measure(peer, self._clients, self._partitions)
        return {SERVER_CPU: many, ALONE: alone, DEARER: many / alone, REACHED: rate}

    def _measure(self, peer: Server, clients: int, partitions: int) -> tuple[float, float]:
        """Microseconds of the server for a record, and the rate."""
        topic = f"many-{clients}-{partitions}"
        with Connection(*peer.address) as connection:
            connection.create_topic(topic, partitions)
        order = {
            "bootstrap": f"{peer.address[0]}:{peer.address[1]}",
            "topic": topic,
            "clients": clients,
            "partitions": partitions,
            "rate": self._rate,
            "size": self._size,
            "records": round(self._rate * self._seconds),
        }
        run = run_load(peer, order, COMMAND)
        return run.cpu_per_record, run.result["records"] / run.result["seconds"]


# -- the load process --------------------------------------------------------------------------------------


class Clients:
    """All of them, driven by one thread; librdkafka's own threads do the rest."""

    def __init__(self, order: dict[str, Any]) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        clients, self._partitions = order["clients"], order["partitions"]
        self._topic, self._rest = order["topic"], b"x" * (order["size"] - _NUMBER.size)
        self._interval = 1 / order["rate"]
        server = {"bootstrap.servers": order["bootstrap"]}
        self._producers = [Producer(server) for _ in range(clients)]
        self._consumers = []
        for number in range(clients):
            consumer = Consumer({**server, "group.id": f"many-{number}"})
            own = range(number, self._partitions, clients)
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in own])
            self._consumers.append(consumer)
        self._seen: set[int] = set()
        self.refused: list[str] = []

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.refused.append(str(error))

    def send(self, first: int, count: int) -> None:
        """So many records when they are due, and takes what comes. RuntimeError: one is missing."""
        began = time.perf_counter()
        for number in range(count):
            pause = began + number * self._interval - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            self._send(first + number)
            if number % 50 == 0:
                self._take()
        ends = time.perf_counter() + _LATE
        while len(self._seen) < first + count and time.perf_counter() < ends:
            self._take()
            time.sleep(0.005)
        if self.refused or len(self._seen) < first + count:
            missing = first + count - len(self._seen)
            raise RuntimeError(f"{missing} records are missing; refused: {self.refused[:1]}")

    def _send(self, number: int) -> None:
        partition = number % self._partitions
        producer = self._producers[number % len(self._producers)]
        value = _NUMBER.pack(number) + self._rest
        producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)

    def _take(self) -> None:
        for producer in self._producers:
            producer.poll(0)
        for consumer in self._consumers:
            for message in consumer.consume(1000, timeout=0):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                self._seen.add(_NUMBER.unpack_from(message.value())[0])


def main() -> int:
    order = json.loads(sys.stdin.readline())
    try:
        clients = Clients(order)
        warm = round(order["rate"] * _WARM)
        clients.send(0, warm)
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        clients.send(warm, order["records"])
        seconds = time.perf_counter() - began
    except Exception as error:
        print(json.dumps({"error": f"librdkafka: {error}"}), flush=True)
        return 1
    print(json.dumps({"result": {"records": order["records"], "seconds": seconds}}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
