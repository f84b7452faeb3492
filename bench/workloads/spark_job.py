"""One Spark session that reads, writes and streams: `spark_job.py JSON`. Prints one line of JSON.

The topic `rows` exists, with values of one size and no keys; `out` is empty. Both connectors get the same
options.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from treecast.spark_connectors.workers import quick_start

WARM_UP = 20_000  # rows
ATTEMPTS = 3
SLOW = "failed to connect back"  # Spark gives a Python worker 10 s to start, whatever the machine does


class Job:
    """`asked`: address, connector, jars, rows, size, batches."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.spark = session(asked["jars"])
        self.options = {"kafka.bootstrap.servers": asked["address"]}

    def read(self, rows: int) -> float:
        """Seconds for all columns of `rows` rows."""
        ending = json.dumps({"rows": {"0": rows // 2, "1": rows // 2}})
        reader = self.spark.read.format(self.asked["connector"]).options(**self.options, subscribe="rows")
        frame = reader.option("startingOffsets", "earliest").option("endingOffsets", ending).load()
        return timed(frame)

    def generate(self, rows: int) -> float:
        """Returns the seconds to create `write`'s rows without writing them."""
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
        """Returns the median ms of a micro-batch, into nothing or into `out`."""
        connector, batches = self.asked["connector"], self.asked["batches"]
        found = micro_batches(self.spark, connector, self.options, sink, batches, self.asked["reading"])
        return float(statistics.median(one["triggerExecution"] for one in warm(found)))

    def run(self) -> dict[str, float]:
        rows = self.asked["rows"]
        self.read(min(rows, WARM_UP))
        self.write(min(rows, WARM_UP))
        self.generate(min(rows, WARM_UP))
        found = {"read": rows / self.read(rows)}
        making, writing = self.generate(rows), self.write(rows)
        found |= {"write": rows / writing, "making": making / rows * 1e6}
        return found | {"latency": self.latency("noop"), "latency through": self.latency("connector")}


Durations = Mapping[str, int]  # ms of a batch's phases, as Spark names them


def micro_batches(
    spark: SparkSession,
    connector: str,
    options: Mapping[str, str],
    sink: str,
    batches: int,
    reading: Mapping[str, str],
) -> list[Durations]:
    """Returns the durations of a query over `rows`, into nothing (`noop`) or by the same connector into
    `out`, in `batches` batches.

    `options` are of reads and writes, `reading` of reads alone.
    """
    source = spark.readStream.format(connector).options(**options, **reading, subscribe="rows")
    frame = source.option("startingOffsets", "earliest").load().select("value")
    written = {} if sink == "noop" else {**options, "topic": "out"}
    for attempt in range(ATTEMPTS):
        try:
            return _batches_of(frame, "noop" if sink == "noop" else connector, written, batches)
        except RuntimeError as error:
            if SLOW not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("there are attempts")


def warm(batches: Sequence[Durations]) -> Sequence[Durations]:
    """Returns the batches without the first ones, in which a query starts."""
    return batches[len(batches) // 4 :]


def _batches_of(frame: DataFrame, sink: str, options: Mapping[str, str], batches: int) -> list[Durations]:
    """Returns the durations of a query of `frame` into `sink`. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(sink).options(**options)
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < batches:
            time.sleep(0.05)
        found = [one["durationMs"] for one in query.recentProgress if one["numInputRows"]]
        query.stop()
        if query.exception():
            raise RuntimeError(str(query.exception()))
    return found


def session(jars: Sequence[str]) -> SparkSession:
    """Returns a session with two cores, as for all compared connectors."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def timed(frame: DataFrame) -> float:
    begun = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - begun


if __name__ == "__main__":
    quick_start()
    job = Job(json.loads(Path(sys.argv[1]).read_text()))
    print("FOUND " + json.dumps(job.run()))
