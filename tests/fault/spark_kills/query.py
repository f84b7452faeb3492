"""The driver that gets killed: `query.py ADDRESS CHECKPOINT STOP TOPIC`.

Copies the topic `in` to TOPIC, each record with the place it came from. A query that fails is begun
again on its checkpoint. Ends when the file STOP is there, or nobody waits for it any more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from treecast.spark_connectors.workers import quick_start

ROWS = 4000  # of a batch at most


def begun(spark: SparkSession, address: str, checkpoint: str, topic: str) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": address}
    source = spark.readStream.format("treecast").options(
        **options, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS)
    )
    copied = source.load().selectExpr(
        "key", "concat(partition, ':', offset, ':', cast(value as string)) as value"
    )
    writer = copied.writeStream.format("treecast").options(**options, topic=topic)
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="50 milliseconds").start()


def main() -> None:
    address, checkpoint, stop, topic = sys.argv[1:]
    quick_start()
    spark = (
        SparkSession.builder.master("local[2,8]")  # a task may fail seven times
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    above = os.getppid()
    while not Path(stop).exists() and os.getppid() == above:
        query = begun(spark, address, checkpoint, topic)
        print("begun", flush=True)
        try:
            while not query.awaitTermination(1) and not Path(stop).exists() and os.getppid() == above:
                pass
            query.stop()
        except StreamingQueryException as error:
            print(f"failed: {' '.join(str(error)[:600].split())}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
