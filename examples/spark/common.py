"""Shared by both examples: a separate daemon, a Spark session, topics that are written and read back."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from treecast.middleware.daemon.process import DaemonProcess

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

PARTITIONS = 2
ATTEMPTS = 4


@contextmanager
def daemon(topics: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Runs a daemon with `topics`: yields the address of its Kafka face, and a folder that is removed with
    it.
    """
    with tempfile.TemporaryDirectory(prefix="treecast-example-") as name, _running(Path(name)) as running:
        wanted = [NewTopic(topic, PARTITIONS, 1) for topic in topics]
        made = AdminClient({"bootstrap.servers": running.kafka}).create_topics(wanted) if wanted else {}
        for one in made.values():
            one.result(60)
        yield running.kafka, Path(name)


def _running(folder: Path) -> DaemonProcess:
    return DaemonProcess(folder / "data", ["--admin", "off", "--control", "off"])


def session(name: str) -> Any:
    from pyspark.sql import SparkSession

    from treecast.spark_connectors.workers import quick_start

    quick_start()
    spark = (
        SparkSession.builder.appName(name)
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def feed(address: str, topic: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> int:
    """Writes (key, JSON object) in order; how many there were."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "enable.idempotence": True})
    count = 0
    for key, value in rows:
        producer.produce(topic, json.dumps(value).encode(), key.encode())
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the daemon did not take all records")
    return count


def source(spark: Any, address: str, topic: str, schema: str, **options: str) -> Any:
    """Returns a stream of a topic's JSON objects from its beginning."""
    reader = spark.readStream.format("treecast").option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("format", "json")
    return reader.option("schema", schema).options(**options).load()


def run(frame: Any, address: str, topic: str, checkpoint: Path) -> list[Any]:
    """Writes a stream into a topic until all existing data is processed. Returns Spark's progress of its
    batches.

    A failed query is restarted on its checkpoint, which does not change the output: on a busy machine Spark
    gives its Python workers too little time to start.
    """
    from pyspark.errors import StreamingQueryException

    writer = frame.selectExpr("key", "to_json(struct(* except (key))) AS value").writeStream
    writer = writer.format("treecast").option("kafka.bootstrap.servers", address).option("topic", topic)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    progress: list[Any] = []
    for attempt in range(ATTEMPTS):
        query = writer.start()
        try:
            query.awaitTermination()
            return [*progress, *query.recentProgress]
        except StreamingQueryException:
            progress += query.recentProgress
            if attempt == ATTEMPTS - 1:
                raise
    return progress


def read_back(spark: Any, address: str, topic: str, schema: str) -> list[Any]:
    """Returns the committed records as rows."""
    reader = spark.read.format("treecast").option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
    return list(reader.option("format", "json").option("schema", schema).load().collect())
