"""Reads of a cluster with Spark, in a separate interpreter: `reads.py ADDRESS FOLDER`.

The topic `spark` holds, on each of 3 partitions, 1,000 JSON records {"n": 0...2999} with a header each;
`spark-loss` 10 records in one partition. Prints one line of JSON with the result of each read.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

sys.path.insert(0, str(Path(__file__).resolve().parent))

from anew import Anew
from cuts import Cuts
from writes import Writes, error_of

from treecast.spark_connectors.workers import quick_start

SCHEMA = (
    "n int, s string, o struct<x:int,y:string>, l array<int>, m map<string,int>, t timestamp, "
    "d date, p decimal(5,2), b boolean, many array<struct<x:int,y:int>>, w timestamp_ntz"
)
VALUES = (
    '{"t":"2026-07-01T12:00:00","n":1,"w":"2026-07-01T12:00:00"}',
    '{"t":"2026-03-08T02:30:00"}',
    '{"t":"2026-11-01T01:30:00"}',
    '{"t":"2026-07-01T12:00:00Z","o":{"x":1,"y":"z"}}',
    '{"n":"x","s":"keep","t":"2026-01-01 12:00:00"}',
    '{"o":{"x":"bad","y":"ok"},"n":1}',
    '{"l":[1,"x",3],"m":{"k":"bad"},"n":1}',
    '{"many":[{"x":1,"y":"bad"},{"x":2}],"n":1}',
    '{"d":"2026-13-01","p":99999.1,"b":"true","n":99999999999,"s":"k"}',
    '{"p":1.235,"n":null}',
    "[1]",
    "no JSON",
)


class Reads:
    """One session; each method performs a read, and a test checks its result."""

    def __init__(self, address: str, folder: str) -> None:
        self.address, self.folder = address, folder
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")

    def _batch(self, **options: str) -> Any:
        given = {"kafka.bootstrap.servers": self.address, "subscribe": "spark"} | options
        return self.spark.read.format("treecast").options(**given).load()

    def batch(self) -> dict[str, Any]:
        frame = self._batch(includeHeaders="true")
        first = frame.where("partition = 1 and offset = 7").collect()[0]
        return {
            "columns": frame.columns,
            "count": frame.count(),
            "distinct": frame.select("partition", "offset").distinct().count(),
            "key": bytes(first["key"]).decode(),
            "value": bytes(first["value"]).decode(),
            "headers": [(header["key"], bytes(header["value"]).decode()) for header in first["headers"]],
            "type": first["timestampType"],
            "year": first["timestamp"].year,
        }

    def bounds(self) -> dict[str, Any]:
        some = self._batch(
            startingOffsets='{"spark": {"0": 990, "1": -1, "2": -2}}',
            endingOffsets='{"spark": {"0": -1, "1": -1, "2": 10}}',
        )
        return {"rows": sorted((row["partition"], row["offset"]) for row in some.collect())}

    def split(self) -> dict[str, Any]:
        frame = self._batch(minPartitions="7")
        return {"tasks": frame.rdd.getNumPartitions(), "count": frame.count()}

    def filtered(self) -> dict[str, Any]:
        rows = self._batch(filter="n < 4 or headers.h == h2999").collect()
        return {"values": sorted(json.loads(bytes(row["value"]))["n"] for row in rows)}

    def _stream(self, name: str, trigger: dict[str, Any], **options: str) -> Any:
        given = {"kafka.bootstrap.servers": self.address, "subscribe": "spark", "startingOffsets": "earliest"}
        source = self.spark.readStream.format("treecast").options(**(given | options)).load()
        writer = source.writeStream.format("parquet").option("path", f"{self.folder}/{name}")
        query = (
            writer.option("checkpointLocation", f"{self.folder}/{name}-checkpoint").trigger(**trigger).start()
        )
        query.awaitTermination(240)
        return query

    def _written(self, name: str) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(f"{self.folder}/{name}").select("partition", "offset").collect()
        return sorted((row["partition"], row["offset"]) for row in rows)

    def _rows(self, name: str) -> list[tuple[str, int]]:
        rows = self.spark.read.parquet(f"{self.folder}/{name}").select("topic", "offset").collect()
        return sorted((row["topic"], row["offset"]) for row in rows)

    def available_now(self) -> dict[str, Any]:
        query = self._stream("now", {"availableNow": True}, maxOffsetsPerTrigger="1000")
        batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        again = self._stream("now", {"availableNow": True}, maxOffsetsPerTrigger="1000")
        return {
            "batches": batches,
            "written": len(self._written("now")),
            "distinct": len(set(self._written("now"))),
            "again": sum(progress["numInputRows"] for progress in again.recentProgress),
        }

    def small(self) -> dict[str, Any]:
        """Batches read beside the driver go to one task each, larger ones to one task per partition."""
        found = {}
        for rows in ("300", "1500"):
            name = f"small-{rows}"
            self._stream(name, {"availableNow": True}, maxOffsetsPerTrigger=rows, driverReadMaxRows="300")
            written = self._written(name)
            files = len(self.spark.read.parquet(f"{self.folder}/{name}").inputFiles())
            found[rows] = {"written": len(written), "distinct": len(set(written)), "tasks": files}
        return found

    def loss(self) -> dict[str, Any]:
        """A checkpoint at offset 10; then there are 100 records, and those before 60 are deleted."""
        now, one = {"availableNow": True}, {"subscribe": "spark-loss"}
        self._stream("loss", now, **one)
        before = self._written("loss")
        producer = Producer({"bootstrap.servers": self.address})
        for n in range(90):
            producer.produce("spark-loss", b"%d" % n, partition=0)
        producer.flush(60)
        part = TopicPartition("spark-loss", 0, 60)
        admin = AdminClient({"bootstrap.servers": self.address})
        for done in admin.delete_records([part]).values():
            done.result(60)
        error = error_of(lambda: self._stream("loss", now, **one))
        self._stream("loss", now, failOnDataLoss="false", **one)
        return {"before": before[-1], "error": error, "after": self._written("loss")[len(before) :]}

    def other_checkpoint(self) -> dict[str, Any]:
        return {
            "error": error_of(lambda: self._stream("now", {"availableNow": True}, subscribe="spark-loss"))
        }

    def grows(self) -> dict[str, Any]:
        """A query by pattern reads a topic; another topic, and a partition of the first, are added while it
        runs."""
        run = Path(self.folder).name  # a repeated run has its own topics
        first, second = f"grow-{run}-a", f"grow-{run}-b"
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(first, 1, 1)])[first].result(60)
        self._put((first, 0))
        options = {"kafka.bootstrap.servers": self.address, "subscribePattern": f"grow-{run}-.*"}
        source = self.spark.readStream.format("treecast").options(**options, startingOffsets="earliest")
        writer = source.load().writeStream.format("memory").queryName("grown")
        writer = writer.option("checkpointLocation", f"{self.folder}/grown")
        query = writer.trigger(processingTime="100 milliseconds").start()
        self._await_rows(query, 5)
        admin.create_topics([NewTopic(second, 1, 1)])[second].result(60)
        admin.create_partitions([NewPartitions(first, 2)])[first].result(60)
        self._put((first, 0), (first, 1), (second, 0))
        self._await_rows(query, 20)
        query.stop()
        rows = self.spark.table("grown").select("topic", "partition", "offset").collect()
        return {"rows": sorted([row["topic"][-1], row["partition"], row["offset"]] for row in rows)}

    def _put(self, *places: tuple[str, int]) -> None:
        """Writes five records into each partition."""
        producer = Producer({"bootstrap.servers": self.address})
        for topic, partition in places:
            for n in range(5):
                producer.produce(topic, b"%d" % n, partition=partition)
        assert producer.flush(60) == 0

    def _await_rows(self, query: Any, count: int) -> None:
        """Waits until the query reports this many rows."""
        deadline = time.monotonic() + 300
        while sum(progress["numInputRows"] for progress in query.recentProgress) < count:
            if query.exception() is not None:
                raise query.exception()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the query has not read {count} records")
            time.sleep(0.1)

    def many(self) -> dict[str, Any]:
        """A topic of a thousand partitions, three of which have records."""
        query = self._stream("many", {"availableNow": True}, subscribe="spark-many")
        (end,) = [progress["sources"][0]["endOffset"] for progress in query.recentProgress]
        return {
            "written": self._written("many"),
            "partitions": sum(key.isdecimal() for key in json.loads(end)["spark-many"]),
        }

    def decoded(self) -> dict[str, Any]:
        schema = "n bigint, absent string, _offset bigint, _headers array<struct<key:string,value:binary>>"
        given = {"format": "json", "schema": schema}
        row = self._batch(**given).where("n = 22").collect()[0]
        strict = self._batch(format="json", schema="n string")
        kept = self._batch(format="json", schema="n string, _offset bigint", mode="PERMISSIVE")
        return {
            "row": [row["n"], row["absent"], row["_offset"], row["_headers"][0]["key"]],
            "failed": error_of(strict.collect),
            "dropped": self._batch(format="json", schema="n string", mode="DROPMALFORMED").count(),
            "kept": kept.where("n is null").count(),
            "layout": error_of(self._batch(format="fixed", layout="<ii", schema="n int").count),
        }

    def json(self) -> dict[str, Any]:
        """Values that do not fit, as parsed by us and by Spark, in a session that is not in UTC."""
        topic = f"json-{Path(self.folder).name}"
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
        producer = Producer({"bootstrap.servers": self.address})
        for value in VALUES:
            producer.produce(topic, value.encode())
        assert producer.flush(60) == 0
        self.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            plain = self._batch(subscribe=topic)
            theirs = plain.select("offset", f.from_json(plain.value.cast("string"), SCHEMA).alias("v"))
            given = {"subscribe": topic, "format": "json", "mode": "PERMISSIVE"}
            ours = self._batch(schema=f"{SCHEMA}, _offset bigint", **given).drop("_offset")
            named = self._batch(schema="t timestamp", timeZone="UTC", **given)
            return {
                "theirs": [row[0] for row in theirs.orderBy("offset").select(f.to_json("v")).collect()],
                "ours": [row[0] for row in ours.select(f.to_json(f.struct("*"))).collect()],
                "named": named.select(f.to_json(f.struct("*"))).head()[0],
            }
        finally:
            self.spark.conf.set("spark.sql.session.timeZone", "UTC")

    def wrong(self) -> dict[str, Any]:
        nobody = {"kafka.bootstrap.servers": "127.0.0.1:1"}
        return {
            "option": error_of(lambda: self._batch(subscribePatern="x").count()),
            "topic": error_of(lambda: self._batch(subscribe="absent").count()),
            "nobody": error_of(lambda: self._batch(**nobody).count()),
        }


def _all(doer: Reads | Cuts | Writes | Anew) -> dict[str, Any]:
    """Returns the results of all methods, in their order."""
    names = [name for name in vars(type(doer)) if not name.startswith("_")]
    return {name: getattr(doer, name)() for name in names}


def main() -> None:
    quick_start()
    reads = Reads(*sys.argv[1:])
    writes = Writes(reads.spark, reads.address, reads.folder)
    cuts = Cuts(reads.address, reads.folder, reads._stream, reads._rows)
    anew = Anew(reads.spark, reads.address, reads.folder, reads._stream, reads._rows)
    found = _all(reads) | _all(cuts) | {f"sink_{name}": value for name, value in _all(writes).items()}
    found |= {f"anew_{name}": value for name, value in _all(anew).items()}
    print("FOUND " + json.dumps(found))


if __name__ == "__main__":
    main()
