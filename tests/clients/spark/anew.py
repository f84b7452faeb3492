"""Restarts of a query: copied and older checkpoints, restarted numbers, recreated topics of the same name.

`reads.py` runs them in its session. Each reads the topic `spark`, 3,000 records, in batches of 1,000.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from writes import error_of

Rows = list[tuple[str, int]]
NOW = {"availableNow": True}


class Anew:
    """The result of each method is checked by a test. `stream` runs a query that writes files, `rows` reads
    them."""

    def __init__(
        self,
        spark: SparkSession,
        address: str,
        folder: str,
        stream: Callable[..., Any],
        rows: Callable[[str], Rows],
    ) -> None:
        self._spark, self._address, self._folder = spark, address, Path(folder)
        self._stream, self._rows = stream, rows
        self._admin = AdminClient({"bootstrap.servers": address})

    # --- the sink

    def copied(self) -> dict[str, Any]:
        """Blue-green: a checkpoint whose last batch is not noted as done is copied, and the copy writes
        elsewhere. Then the first query repeats that batch, and writes it to a new topic of the same name."""
        blue, green = self._topics("blue", "green")
        self._sink("blue", blue)
        self._forget("blue", 2)
        shutil.copytree(self._folder / "blue", self._folder / "green")
        self._sink("green", green)
        self._sink("blue", blue)
        found = {"blue": self._count(blue), "green": self._count(green)}
        self._forget("blue", 2)
        self._make_anew(blue)
        self._sink("blue", blue)
        return found | {"anew": self._count(blue)}

    def restored(self) -> dict[str, Any]:
        """A checkpoint is restored to an earlier state; other rows were already written under its next
        numbers."""
        (topic,) = self._topics("restored")
        self._sink("restored", topic)
        self._forget("restored", 1, 2)
        for number in (1, 2):
            self._drop("restored", "offsets", number)
        error = error_of(lambda: self._sink("restored", topic, rows=500))
        self._sink("restored", topic, delivery="atLeastOnce")
        return {"error": error, "count": self._count(topic)}

    def totals(self) -> dict[str, Any]:
        """Counts by key, with foreachBatch; then the checkpoint is one batch old, and more has arrived."""
        orders, totals = self._topics("orders", "totals")
        checkpoint, copy = self._folder / "totals", self._folder / "totals-copy"
        for _ in range(2):
            copy = shutil.copytree(checkpoint, copy) if checkpoint.exists() else copy
            self._fill(orders, 20)
            self._counted("totals", orders, totals)
        before = self._last(totals)
        shutil.rmtree(checkpoint)
        copy.rename(checkpoint)
        self._fill(orders, 100)
        error = error_of(lambda: self._counted("totals", orders, totals))
        return {"error": error, "before": before, "after": self._last(totals)}

    def each_batch(self) -> dict[str, Any]:
        """foreachBatch, by name and number; again with its last batch forgotten; with a new checkpoint."""
        (topic,) = self._topics("each")
        counts = []
        for checkpoint, rows in (("each-1", 1000), ("each-1", 1000), ("each-2", 500)):
            self._each_batch(checkpoint, topic, rows)
            counts.append(self._count(topic))
            if len(counts) == 1:
                self._forget("each-1", 2)
        return {"counts": counts}

    def named(self) -> dict[str, Any]:
        """Batch writes outside of a stream, identified by name only."""
        (topic,) = self._topics("named")
        self._write(50, topic, 7)
        errors = [error_of(lambda: self._write(60, topic, 7)), error_of(lambda: self._write(50, topic, 6))]
        self._write(50, topic, 7)
        self._write(60, topic, 7, repeatedBatch="skip")
        return {"errors": errors, "count": self._count(topic)}

    def columns(self) -> dict[str, Any]:
        """A column gives the topic, so the name lacks the target: rows of other topics are no repetition."""
        one, two = self._topics("column-1", "column-2")
        self._write(50, one, 3, column=True)
        return {
            "error": error_of(lambda: self._write(50, two, 3, column=True)),
            "counts": [self._count(one), self._count(two)],
        }

    # --- the source

    def recreated(self) -> dict[str, Any]:
        """Checkpoints at 200; then topics of these names are created with fewer records, and with more."""
        found: dict[str, Any] = {}
        for name, size in (("fewer", 10), ("more", 300)):
            (topic,) = self._topics(name)
            options = {"subscribe": topic, "maxOffsetsPerTrigger": "100"}
            self._fill(topic, 200)
            self._stream(name, NOW, **options)
            self._make_anew(topic)
            self._fill(topic, size)
            error = error_of(lambda name=name, options=options: self._stream(name, NOW, **options))
            small = {"driverReadMaxRows": "1000"} if size == 10 else {}
            for _ in range(2):
                self._stream(name, NOW, failOnDataLoss="false", **options, **small)
            after = self._rows(name)
            found[name] = {"error": error, "rows": len(after), "again": [n for _, n in after].count(0)}
        return found

    def without_ids(self) -> dict[str, Any]:
        """The checkpoint is one of an earlier version."""
        (topic,) = self._topics("old")
        self._fill(topic, 200)
        self._stream("old", NOW, subscribe=topic)
        self._strip_ids("old")
        self._make_anew(topic)
        self._fill(topic, 10)
        error = error_of(lambda: self._stream("old", NOW, subscribe=topic))
        self._stream("old", NOW, subscribe=topic, failOnDataLoss="false")
        return {"error": error, "rows": len(self._rows("old"))}

    # --- helpers

    def _topics(self, *names: str) -> list[str]:
        topics = [f"anew-{name}-{self._folder.name}" for name in names]
        self._make(*topics)
        return topics

    def _make(self, *topics: str) -> None:
        for made in self._admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            made.result(60)

    def _make_anew(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(60)
        self._make(topic)

    def _fill(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._address})
        for number in range(count):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(60) == 0

    def _source(self, rows: int) -> Any:
        options = {"kafka.bootstrap.servers": self._address, "subscribe": "spark"}
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
        return self._spark.readStream.format("treecast").options(**options).load()

    def _sink(self, checkpoint: str, topic: str, rows: int = 1000, **options: str) -> None:
        writer = self._source(rows).select("value").writeStream.format("treecast")
        given = {"kafka.bootstrap.servers": self._address, "topic": topic} | options
        self._run(writer.options(**given), checkpoint)

    def _each_batch(self, checkpoint: str, topic: str, rows: int) -> None:
        def write(frame: Any, number: int) -> None:
            self._save(frame.select("value"), topic, number, queryName="each")

        self._run(self._source(rows).writeStream.foreachBatch(write), checkpoint)

    def _run(self, writer: Any, checkpoint: str) -> None:
        place = str(self._folder / checkpoint)
        query = writer.option("checkpointLocation", place).trigger(**NOW).start()
        query.awaitTermination(240)

    def _write(self, count: int, topic: str, number: int, *, column: bool = False, **options: str) -> None:
        frame = self._spark.range(count, numPartitions=2).selectExpr("cast(id as string) as value")
        if column:
            frame = frame.selectExpr("value", f"'{topic}' as topic")
        options["queryName"] = f"daily-{self._folder.name}"
        self._save(frame, "" if column else topic, number, **options)

    def _save(self, frame: Any, topic: str, number: int, **options: str) -> None:
        given = {"kafka.bootstrap.servers": self._address, "batchId": str(number)} | options
        if topic:
            given["topic"] = topic
        frame.write.format("treecast").mode("append").options(**given).save()

    def _counted(self, checkpoint: str, source: str, topic: str) -> None:
        """Writes how many records there are by the last bit of their value, in one batch."""
        options = {
            "kafka.bootstrap.servers": self._address,
            "subscribe": source,
            "startingOffsets": "earliest",
        }
        rows = self._spark.readStream.format("treecast").options(**options).load()
        counts = rows.groupBy((rows.value.cast("string").cast("int") % 2).cast("string").alias("key")).count()

        def save(frame: Any, number: int) -> None:
            self._save(
                frame.selectExpr("key", "cast(count as string) as value"), topic, number, queryName="totals"
            )

        query = counts.writeStream.foreachBatch(save).outputMode("update").trigger(**NOW)
        query.option("checkpointLocation", str(self._folder / checkpoint)).start().awaitTermination(240)

    def _last(self, topic: str) -> dict[str, str]:
        """Returns the last value of each key."""
        rows = (
            self._read(topic).selectExpr("offset", "cast(key as string)", "cast(value as string)").collect()
        )
        return {key: value for _, key, value in sorted(map(tuple, rows))}

    def _count(self, topic: str) -> int:
        return int(self._read(topic).count())

    def _read(self, topic: str) -> Any:
        options = {"kafka.bootstrap.servers": self._address, "subscribe": topic}
        options["kafka.isolation.level"] = "read_committed"
        return self._spark.read.format("treecast").options(**options).load()

    def _forget(self, checkpoint: str, *numbers: int) -> None:
        """Removes Spark's note that these batches are done."""
        for number in numbers:
            self._drop(checkpoint, "commits", number)

    def _drop(self, checkpoint: str, kind: str, number: int) -> None:
        for name in (f"{number}", f".{number}.crc"):
            (self._folder / checkpoint / kind / name).unlink()

    def _strip_ids(self, name: str) -> None:
        for path in (self._folder / f"{name}-checkpoint" / "offsets").iterdir():
            if path.suffix == ".crc":
                path.unlink()
                continue
            *head, last = path.read_text().splitlines()
            offsets = json.loads(last)
            for topic in offsets.values():
                topic.pop("id")
            path.write_text("\n".join([*head, json.dumps(offsets)]))
