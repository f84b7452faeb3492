"""The driver that gets killed: `query.py ADDRESS CHECKPOINT STOP TOPIC`.

Copies the topic `in` to TOPIC, each record with its source position. A failed query is restarted on its
checkpoint, and so is one when the file `accept-loss` beside STOP appears or disappears: while it exists, the
query has failOnDataLoss=false. Ends when the file STOP exists, or its parent process is gone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from treecast.spark_connectors.workers import quick_start

ROWS = 4000  # maximum of a batch
_PLAN = "=== Streaming Query ==="  # in an error, the query's plan follows it


def begun(spark: SparkSession, address: str, checkpoint: str, topic: str, strict: bool) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": address}
    reading = {"failOnDataLoss": str(strict).lower(), "maxOffsetsPerTrigger": str(ROWS)}
    source = spark.readStream.format("treecast").options(
        **options, **reading, subscribe="in", startingOffsets="earliest"
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
        # it does not end its lines, so other output would follow it
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    above, accept_loss = os.getppid(), Path(stop).with_name("accept-loss")
    while not Path(stop).exists() and os.getppid() == above:
        strict = not accept_loss.exists()
        query = begun(spark, address, checkpoint, topic, strict)
        print("begun", flush=True)
        try:
            while not query.awaitTermination(0.5) and strict is not accept_loss.exists():
                if Path(stop).exists() or os.getppid() != above:
                    break
            query.stop()
        except StreamingQueryException as error:
            print(f"failed: {' '.join(str(error).split(_PLAN)[0].split())}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
