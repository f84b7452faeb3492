"""The driver: `job.py EXECUTORS ADDRESS JAVA_HOME ROWS SIZE`. Reads commands as lines, answers with lines of
JSON.

`write` puts ROWS rows of SIZE bytes, numbers, into the topic `rows`, evenly over its partitions. `read true`
reads them with `localDaemon`, `read false` without. The answer states how many rows each executor has read at
which host, and whether each row came once. Any other line ends it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow

TASKS = 2  # per executor; the topic has as many partitions
ATTEMPTS = 3
SLOW = "failed to connect back"  # Spark allows a Python worker 10 s to start, however busy the machine is


def session(executors: int, host: str, java_home: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": host,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # all executors register before the first task
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.sql.shuffle.partitions": "1",
        "spark.executorEnv.JAVA_HOME": java_home,
    }
    builder = SparkSession.builder.master(f"local-cluster[{executors},1,512]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_here(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Runs in an executor: returns its number (the name of its folder), its host, and the values it has
    read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count, lowest, highest, total = 0, 2**62, -1, 0
    for batch in batches:
        numbers = pc.cast(pc.cast(batch.column(0), pa.string()), pa.int64())
        if len(numbers):
            count += len(numbers)
            total += pc.sum(numbers).as_py()
            lowest = min(lowest, pc.min(numbers).as_py())
            highest = max(highest, pc.max(numbers).as_py())
    found = {
        "executor": Path.cwd().name,
        "host": os.uname().nodename,
        "count": count,
        "lowest": lowest,
        "highest": highest,
        "total": total,
    }
    yield pa.RecordBatch.from_pylist([found])


class Job:
    def __init__(self, executors: str, address: str, java_home: str, rows: str, size: str) -> None:
        self.tasks, self.rows, self.size = TASKS * int(executors), int(rows), int(size)
        self.options = {"kafka.bootstrap.servers": address}
        self.spark = session(int(executors), address.partition(":")[0], java_home)

    def write(self) -> dict[str, Any]:
        value = f"lpad(cast(id as string), {self.size}, '0') as value"
        frame = self.spark.range(self.rows, numPartitions=self.tasks)
        frame = frame.selectExpr(value, f"cast(id % {self.tasks} as int) as partition")
        frame.write.format("treecast").mode("append").options(**self.options, topic="rows").save()
        return {"written": self.rows}

    def read(self, local: str) -> dict[str, Any]:
        reader = self.spark.read.format("treecast").options(**self.options, subscribe="rows")
        reader = reader.option("kafka.isolation.level", "read_committed").option("localDaemon", local)
        schema = "executor string, host string, count bigint, lowest bigint, highest bigint, total bigint"
        found = reader.load().select("value").mapInArrow(read_here, schema).collect()
        executors: dict[str, tuple[str, int]] = {}
        for row in found:
            executors[row["host"]] = row["executor"], row["count"] + executors.get(row["host"], ("", 0))[1]
        sums = {
            "count": sum(row["count"] for row in found),
            "total": sum(row["total"] for row in found),
            "lowest": min(row["lowest"] for row in found),
            "highest": max(row["highest"] for row in found),
        }
        return {"executors": executors, "sums": sums}


def patiently(action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Repeats an action if Spark gave up on a Python worker that started slowly."""
    for attempt in range(ATTEMPTS):
        try:
            return action()
        except Exception as error:
            if SLOW not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("there are attempts")


def main() -> None:
    job = Job(*sys.argv[1:])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        match line.split():
            case ["write"]:
                found = patiently(job.write)
            case ["read", local]:
                found = patiently(lambda local=local: job.read(local))
            case _:
                break
        print(json.dumps(found), flush=True)
    job.spark.stop()


if __name__ == "__main__":
    main()
