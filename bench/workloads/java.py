"""Kafka's own performance tools, with the Java client's default settings."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

from bench.core.measure import (
    ACK_P50,
    ACK_P99,
    ACK_P999,
    CLIENT_THROUGHPUT,
    CORE_WAIT,
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_P999,
    REACHED,
    SERVER_CPU,
    Metric,
    Values,
    Workload,
)
from bench.core.peer import Server
from bench.core.process import waited_seconds
from bench.peers.kafka import missing_tools, run_tool
from treecast.middleware.load.connection import Connection

_SUMMARY = re.compile(
    r"(\d+)(?: steady state)? records sent, ([\d.]+) records/sec .*? ([\d.]+) ms avg latency,"
    r" ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th"
)


def parse_producer(output: str) -> dict[str, float]:
    """Returns the last summary line of kafka-producer-perf-test, or that of the steady state if there is one:
    records, rate, and latencies in ms.
    """
    found = _SUMMARY.findall(output)
    if not found:
        raise RuntimeError(f"kafka-producer-perf-test printed no summary:\n{output[-2000:]}")
    records, rate, _, _, p50, _, p99, p999 = found[-1]
    return {
        "records": int(records),
        "rate": float(rate),
        "p50": float(p50),
        "p99": float(p99),
        "p999": float(p999),
    }


def parse_consumer(output: str) -> tuple[int, float]:
    """Returns the last CSV line of kafka-consumer-perf-test: records, and records a second without the
    rebalance.

    start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s.
    """
    for line in reversed(output.strip().splitlines()):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10 and fields[4].isdigit():
            return int(fields[4]), float(fields[9])
    raise RuntimeError(f"kafka-consumer-perf-test printed no result:\n{output[-2000:]}")


def _prepare(peer: Server, topic: str) -> str:
    with Connection(*peer.address) as connection:
        connection.create_topic(topic, 1)
    return f"{peer.address[0]}:{peer.address[1]}"


class _Java(Workload[Server]):
    def missing(self) -> str:
        tools = missing_tools()
        return f"no {' and no '.join(tools)} on the PATH" if tools else ""


class JavaProduce(_Java):
    """kafka-producer-perf-test without a limit (acks=all, idempotent: the client's defaults) or at a rate.

    The first half of the records warms the client's own JVM up and doesn't count for rate and latency. At a
    rate the client doesn't linger: its default of 5 ms (since Kafka 4.0) would be most of any latency.
    """

    def __init__(self, records: int, size: int, rate: int = -1) -> None:
        self._records, self._size, self._rate = records, size, rate
        limit = f" at {rate:,}/s" if rate > 0 else ""
        self.name = f"Java producer-perf-test{limit}, {size} B"

    def run(self, peer: Server, number: int) -> Values:
        topic = f"java-{self._size}-{max(self._rate, 0)}"
        bootstrap = _prepare(peer, topic)
        before = peer.cpu_seconds()
        done = run_tool(
            "kafka-producer-perf-test",
            *("--topic", topic, "--num-records", str(self._records), "--record-size", str(self._size)),
            *("--throughput", str(self._rate), "--bootstrap-server", bootstrap),
            *("--warmup-records", str(self._records // 2)),
            *(("--command-property", "linger.ms=0") if self._rate > 0 else ()),
            timeout=600,
        )
        used = peer.cpu_seconds() - before
        found = parse_producer(done.stdout)
        values: dict[Metric, float] = {SERVER_CPU: 1e6 * used / self._records}
        if self._rate < 0:
            return {CLIENT_THROUGHPUT: found["rate"], **values}
        latencies = {ACK_P50: found["p50"], ACK_P99: found["p99"], ACK_P999: found["p999"]}
        return {**latencies, REACHED: found["rate"], **values}


class JavaConsume(_Java):
    """Runs kafka-consumer-perf-test on the output of an unlimited producer-perf-test."""

    def __init__(self, records: int, size: int) -> None:
        self._records, self._size = records, size
        self.name = f"Java consumer-perf-test, {size} B"

    def run(self, peer: Server, number: int) -> Values:
        topic = f"java-consume-{self._size}"
        bootstrap = _prepare(peer, topic)
        run_tool(
            "kafka-producer-perf-test",
            *("--topic", topic, "--num-records", str(self._records), "--record-size", str(self._size)),
            *("--throughput", "-1", "--bootstrap-server", bootstrap),
            timeout=600,
        )
        before = peer.cpu_seconds()
        done = run_tool(
            "kafka-consumer-perf-test",
            *("--topic", topic, "--num-records", str(self._records), "--bootstrap-server", bootstrap),
            timeout=600,
        )
        used = peer.cpu_seconds() - before
        records, rate = parse_consumer(done.stdout)
        return {CLIENT_THROUGHPUT: rate, SERVER_CPU: 1e6 * used / records}


# Latencies have to be at most the peer's.
CLIENT_P50, CLIENT_P99, CLIENT_P999 = (
    replace(m, target=1.0) for m in (DELIVERY_P50, DELIVERY_P99, DELIVERY_P999)
)


class JavaPaced(_Java):
    """A Java producer that doesn't linger, at a rate, and a Java consumer for each of `groups`: Paced.java.

    Latencies count from when a record was due, to its answer and to its arrival.
    """

    def __init__(self, rate: int, size: int, seconds: float, groups: int = 1) -> None:
        self._rate, self._size, self._seconds, self._groups = rate, size, seconds, groups
        readers = "one consumer" if groups == 1 else f"{groups} groups"
        self.name = f"Java at {rate:,}/s, {size} B, linger 0, {readers}"

    def missing(self) -> str:
        return super().missing() or ("" if shutil.which("javac") else "no javac on the PATH")

    def run(self, peer: Server, number: int) -> Values:
        topic = f"paced-{self._rate}-{self._size}-{self._groups}"
        bootstrap = _prepare(peer, topic)
        warm_up = self._seconds / 2
        cpu, waited = peer.cpu_seconds(), waited_seconds(peer.pids())
        done = run_tool(
            "Paced.java",
            *(bootstrap, topic, str(self._rate), str(self._size), str(self._seconds), str(warm_up)),
            str(self._groups),
            timeout=600,
        )
        used, waited = peer.cpu_seconds() - cpu, waited_seconds(peer.pids()) - waited
        found = json.loads(done.stdout)
        records = self._rate * (self._seconds + warm_up)
        return {
            **dict(zip((ACK_P50, ACK_P99, ACK_P999), found["ack"], strict=True)),
            **dict(zip((CLIENT_P50, CLIENT_P99, CLIENT_P999), found["arrival"], strict=True)),
            REACHED: found["rate"],
            SERVER_CPU: 1e6 * used / records,
            CORE_WAIT: 1e6 * waited / records,
        }
