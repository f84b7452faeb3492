"""Tables by minute and window with a real Spark, in a separate interpreter: `measures.py FOLDER`.

Four hosts write for two hours, once as it should be, and once not: the clock of `b` is ten minutes ahead, an
hour of `c` comes late, an hour of `d` comes twice, and somebody writes bytes that are no telemetry. Both
archives are the same telemetry, so their tables have to be the same; and the same in three parts as in
one. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.network import Network, build
from treecast.spark_connectors.pipeline import tables as t
from treecast.spark_connectors.pipeline.measuring import MeasureSettings
from treecast.spark_connectors.pipeline.planning import Settings
from treecast.spark_connectors.pipeline.running import MEASURES, Pipeline, session
from treecast.spark_connectors.pipeline.windows import Windows

HOSTS = ("a", "b", "c", "d")
ZONES = {"a": "east", "b": "east", "c": "west", "d": "west"}
START = 1_790_000_000 // 7200 * 7200
STEP = 600  # seconds of an interval, and of a minute
COUNT = 12  # intervals: two hours
LATE = range(4, 10)  # an hour of `c` that comes late, and of `d` that comes twice
MEASURED = MeasureSettings(length=3 * STEP, step=STEP, link_mbit=0.001, limit=0.65)

Came = tuple[str, int, float, int]  # host, number, seconds of append, seconds by which the clock is ahead


def ring() -> Network:
    names = ["s0", "s1", "s2", "s3", *HOSTS]
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), *((n, 4 + n) for n in range(4))]
    return build(names, edges, hosts=range(4, 8))


def interval(host: str, seq: int, ahead: int) -> pb.TelemetryInterval:
    """`a` sends ever more to all; the others to one, which is another one in the second hour. A stream of
    `b` is filtered everywhere, and `d` gets half of what `a` sends.
    """
    end = (START + seq * STEP + ahead) * 1_000_000
    message = pb.TelemetryInterval(v=1, host=host, zone=ZONES[host], boot=3, seq=seq, sampled=1.0)
    message.from_us, message.to_us = end - STEP * 1_000_000, end
    others = [one for one in HOSTS if one != host]
    receivers = others if host == "a" else others[:1] if seq <= COUNT // 2 else others[-1:]
    packets = 10 * seq if host == "a" else 10
    message.sets.add(
        carrier="labels",
        receivers=receivers,
        packets=packets,
        bytes=100 * packets,
        header_bytes=10 * packets,
        hop_labels=4 * packets,
    )
    message.packets, message.bytes = packets, 100 * packets
    if host == "a":
        message.streams.add(stream="orders-0", receiver="b", addressed=packets, received=packets)
        message.streams.add(stream="orders-1", receiver="d", addressed=packets, received=packets // 2)
    if host == "b":
        message.streams.add(stream="noise", receiver="c", addressed=7, filtered=7)
    if host == "c":
        add_filters(message, seq)
    if host == "d" and seq == 6:
        message.changes.add(client="sensor", begun=True, pattern="t/+")
    return message


def add_filters(message: pb.TelemetryInterval, seq: int) -> None:
    """`c` filters what `a` and `b` send; of what `b` sends somebody wants all. A client moves from `c` to `d`
    at the sixth interval, and `c` has repaired something.
    """
    message.filters_sampled = 1.0
    for origin, open in (("a", False), ("b", True)):
        one = message.filters.add(
            origin=origin, count=1, open=open, messages=10, passed=3, bytes=1000, passed_bytes=300, cpu_us=50
        )
        one.wishes.add(pattern="t/+", filter="a > 3")
    if seq == 6:
        message.changes.add(client="sensor", begun=False, pattern="t/+")
    message.streams.add(stream="left-0", receiver="a", addressed=10, received=10, repaired=2)
    message.repairs.add(stream="left-0", carrier="udp", packets=2, bytes=200)


def description() -> pb.NetworkTopology:
    network = ring()
    ends = [node for pair in network.ends for node in pair]
    message = pb.NetworkTopology(v=1, network="ring", names=network.names, hosts=network.hosts, ends=ends)
    message.rule_limit, message.rule_version = 3, 1
    message.version = topics.topology_version(message.names, message.hosts, message.ends, 3)
    return message


class Archive:
    """An archive that grows by files, as `bronze` writes them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.tables = t.Tables(folder)
        self._offset = 0

    def put(self, records: Iterable[tuple[str, float, bytes]]) -> None:
        """Adds (topic, append time in seconds, value)."""
        rows = []
        for topic, came, value in records:
            self._offset += 1
            key = b"ring" if topic == topics.TOPOLOGY else b"a host"
            rows.append((key, value, 0, self._offset, int(came * 1_000_000), topic))
        schema = "key binary, value binary, partition int, offset long, came long, topic string"
        stamp = f.timestamp_micros("came")
        frame = self._spark.createDataFrame(rows, schema).withColumns({"timestamp": stamp, "ingested": stamp})
        frame = frame.withColumns({"date": f.to_date("timestamp"), "hour": f.hour("timestamp")}).drop("came")
        frame = frame.coalesce(1)
        frame.write.partitionBy("topic", "date", "hour").mode("append").parquet(self.tables.path(t.BRONZE))

    def intervals(self, came: Iterable[Came]) -> None:
        self.put(
            (topics.SENDS, at, topics.encode(interval(host, seq, ahead))) for host, seq, at, ahead in came
        )

    def content(self, tables: Sequence[str] = (*t.BY_SLOT, *t.BY_WINDOW)) -> dict[str, list[dict[str, Any]]]:
        """Returns the rows of tables, in order."""
        found = {}
        for table in tables:
            frame = self._spark.read.schema(t.SCHEMAS[table]).parquet(self.tables.path(table))
            rows = [row.asDict(recursive=True) for row in frame.collect()]
            found[table] = sorted(rows, key=json.dumps)
        return found


def prompt(host: str, seq: int) -> Came:
    return host, seq, START + seq * STEP + 0.25, 0


def all_intervals() -> list[tuple[str, int]]:
    return [(host, seq) for seq in range(1, COUNT + 1) for host in HOSTS]


def as_it_should_be(archive: Archive) -> None:
    archive.put([(topics.TOPOLOGY, START, topics.encode(description()))])
    archive.intervals(prompt(host, seq) for host, seq in all_intervals())


def first_part(archive: Archive) -> None:
    """Writes all that comes in time."""
    archive.put([(topics.TOPOLOGY, START, topics.encode(description()))])
    archive.put([(topics.SENDS, START + 99, b"\xff no telemetry")])
    in_time = [one for one in all_intervals() if one not in {("c", late) for late in LATE}]
    archive.intervals((host, seq, prompt(host, seq)[2], 600 if host == "b" else 0) for host, seq in in_time)


def second_part(archive: Archive) -> None:
    """Writes the late hour, and the doubled one, long after anything came in time."""
    after = START + (COUNT + 4) * STEP
    archive.intervals(("c", seq, after + seq, 0) for seq in LATE)
    archive.intervals(("d", seq, after + 20 + seq, 0) for seq in LATE)


def pipeline(
    spark: SparkSession, archive: Archive, said: list[str], settings: MeasureSettings = MEASURED
) -> Pipeline:
    return Pipeline(archive.tables, "", Settings(), spark, said.append, settings)


def measured(one: Pipeline) -> None:
    ran = one.round([MEASURES])
    if any(each.fault for each in ran):
        raise SystemExit(f"failed: {ran}")


def main() -> None:
    folder = Path(sys.argv[1])
    spark = session("local[1]", 1)
    spark.sparkContext.setLogLevel("OFF")
    said: list[str] = []
    sound, odd = Archive(spark, folder / "sound"), Archive(spark, folder / "odd")
    as_it_should_be(sound)
    pipeline(spark, sound, said).measures.all()
    whole = sound.content()
    pipeline(spark, sound, [], replace(MEASURED, most=5 * len(HOSTS))).measures.all()
    first_part(odd)
    one = pipeline(spark, odd, [])
    measured(one)
    found: dict[str, Any] = {"early": odd.content([t.MISSING])}
    second_part(odd)
    measured(one)
    found |= {"sound": whole, "in_parts": sound.content(), "odd": odd.content(), "said": said}
    report = Windows(odd.tables, MEASURED.length).report()
    found["report"] = {"window": report.window, "talkers": report.tables[t.TALKERS]}
    print("FOUND " + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
