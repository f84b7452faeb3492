"""Writes to a cluster with Spark; `reads.py` runs them in its session."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from treecast.middleware.model.records import Compression
from treecast.spark_connectors.servers import Servers
from treecast.spark_connectors.sink import naming
from treecast.spark_connectors.sink.naming import Batch
from treecast.spark_connectors.sink.producing import Producer

SLOW = "Python worker failed to connect back"  # Spark allows 10 s, however busy the machine is
TOPICS = ("columns", "repeated", "failed", "stream")


class Writes:
    """Each method performs a write, and a test checks its result."""

    def __init__(self, spark: SparkSession, address: str, folder: str) -> None:
        self.spark, self.address, self.folder = spark, address, folder
        self.run = Path(folder).name  # a repeated run has its own topics
        admin = AdminClient({"bootstrap.servers": address})
        made = admin.create_topics([NewTopic(self._topic(name), 3, 1) for name in TOPICS])
        for one in made.values():
            one.result(60)

    def _topic(self, name: str) -> str:
        return f"sink-{name}-{self.run}"

    def _read(self, topic: str, level: str = "read_committed", **options: str) -> Any:
        given = {"kafka.bootstrap.servers": self.address, "subscribe": topic, "kafka.isolation.level": level}
        return self.spark.read.format("treecast").options(**(given | options)).load()

    def _write(self, frame: Any, **options: str) -> None:
        given = {"kafka.bootstrap.servers": self.address} | options
        frame.write.format("treecast").mode("append").options(**given).save()

    def _numbers(self, count: int) -> Any:
        return self.spark.range(count, numPartitions=2)

    def columns(self) -> dict[str, Any]:
        header = "array(named_struct('key', 'h', 'value', cast('12345678' as binary)))"
        frame = self._numbers(300).selectExpr(
            "cast(id as string) as key",
            "concat('v', id) as value",
            "cast(if(id < 3, id, null) as int) as partition",
            f"if(id = 1, {header}, null) as headers",
            "if(id = 2, timestamp_millis(12345), null) as timestamp",
            f"'{self._topic('columns')}' as topic",
        )
        self._write(frame, **{"kafka.compression.type": "lz4"})
        rows = self._read(self._topic("columns"), includeHeaders="true").collect()
        by_key = {bytes(row["key"]).decode(): row for row in rows}
        return {
            "count": len(rows),
            "values": sum(bytes(row["value"]).decode() == f"v{key}" for key, row in by_key.items()),
            "asked": [by_key[str(n)]["partition"] for n in range(3)],
            "by_hash": [[key, row["partition"]] for key, row in by_key.items() if int(key) >= 3],
            "headers": [[h["key"], len(h["value"])] for h in by_key["1"]["headers"]],
            "time": by_key["2"]["timestamp"].timestamp(),
            "now": by_key["3"]["timestamp"].year > 2000,
        }

    def repeated(self) -> dict[str, Any]:
        """Writes the same batch of the same query twice, and one without a name twice."""
        frame = self._numbers(50).selectExpr("cast(id as string) as value")
        for _ in range(2):
            self._write(frame, topic=self._topic("repeated"), queryName=f"daily-{self.run}", batchId="7")
        named = self._read(self._topic("repeated")).count()
        for _ in range(2):
            self._write(frame, topic=self._topic("repeated"))
        return {"named": named, "all": self._read(self._topic("repeated")).count()}

    def failed(self) -> dict[str, Any]:
        """A task fails after something was staged; readers of committed records see later writes."""
        settings = {
            "bootstrap.servers": self.address,
            "group.id": "looks",
            "isolation.level": "read_uncommitted",
        }
        topic = self._topic("failed")

        def fail(n: int) -> str:
            if n == 49_999:
                import confluent_kafka as kafka  # its classes cannot be sent to a task

                looks, deadline = kafka.Consumer(settings), time.monotonic() + 60
                while time.monotonic() < deadline:
                    if any(looks.get_watermark_offsets(kafka.TopicPartition(topic, n))[1] for n in range(3)):
                        break
                    time.sleep(0.05)  # a task gets no notice of another process's writes
                raise ValueError("this task fails")
            return f"{n} " + "." * 500

        frame = self._numbers(50_000).select(f.udf(fail)("id").alias("value"))
        error = error_of(lambda: self._write(frame, topic=self._topic("failed")))
        nothing = self._read(self._topic("failed")).count()
        staged = self._read(self._topic("failed"), "read_uncommitted").count()
        self._write(self._numbers(10).selectExpr("cast(id as string) as value"), topic=self._topic("failed"))
        return {
            "error": "this task fails" in error,
            "nothing": nothing,
            "staged": staged,
            "after": self._read(self._topic("failed")).count(),
        }

    def stream(self) -> dict[str, Any]:
        """Copies the topic `spark`; the driver's note of the last batch is lost once."""
        first = self._run()
        commits = Path(self.folder, "sink-checkpoint", "commits")
        for note in (commits / "2", commits / ".2.crc"):
            note.unlink()
        second = self._run()
        rows = [bytes(row["value"]) for row in self._read(self._topic("stream")).collect()]
        return {
            "batches": [progress["batchId"] for progress in first.recentProgress if progress["numInputRows"]],
            "again": [progress["batchId"] for progress in second.recentProgress if progress["numInputRows"]],
            "same_query": first.id == second.id,
            "count": len(rows),
            "distinct": len(set(rows)),
            "all": self._read(self._topic("stream"), "read_uncommitted").count(),
            "open": [self._is_open(self._batch(str(first.id), batch)) for batch in range(4)],
        }

    def _run(self) -> Any:
        options = {"kafka.bootstrap.servers": self.address}
        source = self.spark.readStream.format("treecast").options(
            **options, subscribe="spark", startingOffsets="earliest", maxOffsetsPerTrigger="1000"
        )
        writer = source.load().drop("topic", "partition").writeStream.format("treecast")
        writer = writer.options(
            **options, topic=self._topic("stream"), checkpointLocation=f"{self.folder}/sink-checkpoint"
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(240)
        return query

    def _batch(self, query: str, number: int) -> Batch:
        producer = self._producer()
        topic = self._topic("stream")
        where = naming.target(topic, producer.topic_id(topic))
        producer.close()
        return naming.of_stream(query, number, where)

    def _is_open(self, batch: Batch) -> bool:
        """Returns whether the daemon would let a task start to stage a part of this batch."""
        producer = self._producer()
        try:
            return producer.begin(batch.part(secrets.token_hex(4)))
        finally:
            producer.close()

    def _producer(self) -> Producer:
        servers, compression = Servers.parse(self.address), Compression.NONE
        return Producer(servers, lease_ms=1000, compression=compression, timeout=30)

    def wrong(self) -> dict[str, Any]:
        frame = self._numbers(3).selectExpr("cast(id as string) as value")
        many = frame.selectExpr("value", "9 as partition")
        over = frame.write.format("treecast").mode("overwrite").option("topic", "x")
        nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "writeTimeoutMs": "300"}
        return {
            "option": error_of(lambda: self._write(frame, topc="x")),
            "column": error_of(lambda: self._write(frame.selectExpr("value as v"), topic="x")),
            "topic": error_of(lambda: self._write(frame, topic="absent")),
            "partition": error_of(lambda: self._write(many, topic=self._topic("columns"))),
            "nobody": error_of(lambda: self._write(frame, topic="x", **nobody)),
            "mode": error_of(over.save),
        }


def error_of(action: Callable[[], object]) -> str:
    """Returns the error of an action. If a worker started too slowly, the error is raised and the run
    repeated."""
    try:
        action()
    except Exception as error:
        if SLOW in str(error):
            raise
        return str(error)
    return "no error"
