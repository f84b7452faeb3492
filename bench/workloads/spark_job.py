"""One Spark session that reads, writes and streams: `spark_job.py JSON`. Prints one line of JSON.

The topic `rows` is there, with values of one size and no keys; `out` is empty. Both connectors are asked in
the same words, as their options are the same.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from treecast.spark_connectors.workers import quick_start

WARM_UP = 20_000  # rows
ATTEMPTS = 3
SLOW = "failed to connect back"  # Spark gives a Python worker 10 s to start, whatever the machine does
BATCH_ROWS = 1000  # of a micro-batch


class Job:
    """`asked`: address, connector, jars, rows, size, batches."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        if asked["jars"]:
            builder = builder.config("spark.jars", ",".join(asked["jars"]))
        self.spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.options = {"kafka.bootstrap.servers": asked["address"]}

    def read(self, rows: int) -> float:
        """Seconds for all columns of `rows` rows."""
        ending = json.dumps({"rows": {"0": rows // 2, "1": rows // 2}})
        reader = self.spark.read.format(self.asked["connector"]).options(**self.options, subscribe="rows")
        frame = reader.option("startingOffsets", "earliest").option("endingOffsets", ending).load()
        return timed(frame)

    def generate(self, rows: int) -> float:
        """Seconds to make what `write` writes, without writing it."""
        return timed(self._made(rows))

    def write(self, rows: int) -> float:
        writer = self._made(rows).write.format(self.asked["connector"]).mode("append")
        begun = time.monotonic()
        writer.options(**self.options, topic="out").save()
        return time.monotonic() - begun

    def _made(self, rows: int) -> DataFrame:
        text = f"cast(lpad(cast(id as string), {self.asked['size']}, 'x') as binary) as value"
        return self.spark.range(rows, numPartitions=2).selectExpr(text)

    def latency(self, sink: str) -> float:
        """The median ms of a micro-batch of `BATCH_ROWS` rows, into nothing or into `out`."""
        for attempt in range(ATTEMPTS):
            try:
                return self._latency(sink)
            except RuntimeError as error:
                if SLOW not in str(error) or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("there are attempts")

    def _latency(self, sink: str) -> float:
        source = self.spark.readStream.format(self.asked["connector"]).options(
            **self.options, subscribe="rows"
        )
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH_ROWS))
        frame = source.load().select("value")
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = frame.writeStream.option("checkpointLocation", checkpoint)
            if sink == "noop":
                writer = writer.format("noop")
            else:
                writer = writer.format(self.asked["connector"]).options(**self.options, topic="out")
            query = writer.start()
            wanted = self.asked["batches"]
            while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < wanted:
                time.sleep(0.05)
            times = [
                one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]
            ]
            query.stop()
            if query.exception():
                raise RuntimeError(str(query.exception()))
        return statistics.median(times[len(times) // 4 :])  # the first ones warm up

    def run(self) -> dict[str, float]:
        rows = self.asked["rows"]
        self.read(min(rows, WARM_UP))
        self.write(min(rows, WARM_UP))
        self.generate(min(rows, WARM_UP))
        found = {"read": rows / self.read(rows)}
        making, writing = self.generate(rows), self.write(rows)
        found |= {"write": rows / writing, "making": making / rows * 1e6}
        return found | {"latency": self.latency("noop"), "latency through": self.latency("connector")}


def timed(frame: DataFrame) -> float:
    begun = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - begun


if __name__ == "__main__":
    quick_start()
    job = Job(json.loads(Path(sys.argv[1]).read_text()))
    print("FOUND " + json.dumps(job.run()))
