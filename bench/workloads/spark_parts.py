"""The cost of Python in reading and writing, without Spark: `spark_parts.py ADDRESS ROWS SIZE`.

Microseconds of a core per row, step by step: a task's fetch, its decoding into columns and Arrow; and the
encoding of Arrow into records. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from treecast.middleware.load.frames import LoadError
from treecast.middleware.wire.record_batch import seal_batch
from treecast.spark_connectors.servers import Servers
from treecast.spark_connectors.sink.rows import Pending
from treecast.spark_connectors.sink.tables import Contents, Router, Rows
from treecast.spark_connectors.source.arrow import ArrowMaker, schema_of
from treecast.spark_connectors.source.columns import Columns
from treecast.spark_connectors.source.fetch import Answer, Decoder, PartitionReader
from treecast.spark_connectors.source.offsets import Partition
from treecast.spark_connectors.source.packed import Packed
from treecast.spark_connectors.source.planning import Range

ARROW_ROWS = 10_000  # of a batch that Spark hands over


class _Raw(Decoder):
    """Goes over batches and decodes none."""

    def decode(self, answer: Answer) -> Iterator[Columns | Packed]:
        for _, header in answer.headers():
            self.next = max(self.next, header.next_offset)
        yield Packed()


def fetched(servers: Servers, rows: int) -> float:
    """Seconds of a core to fetch a partition, with nothing done with it."""
    reader = PartitionReader(Range(Partition("rows", 0), 0, rows), servers)
    decoder = _Raw(Range(Partition("rows", 0), 0, rows), committed=False, with_headers=False)
    begun = time.process_time()
    try:
        for _ in reader._answers(decoder):
            pass
    except (OSError, LoadError) as error:
        raise SystemExit(f"the partition cannot be read: {error}") from error
    took = time.process_time() - begun
    reader.close()
    return took


def decoded(servers: Servers, rows: int) -> Iterator[Columns | Packed]:
    yield from PartitionReader(Range(Partition("rows", 0), 0, rows), servers, packed=True).read()


def encoded(rows: int, size: int) -> float:
    """Seconds of a core from Arrow to sealed batches."""
    values = pa.array([b"%0*d" % (size, n) for n in range(ARROW_ROWS)], pa.binary())
    batch = pa.RecordBatch.from_arrays([values], ["value"])

    def seal(taken: list[tuple[Partition, Pending]]) -> None:
        for _, pending in taken:
            seal_batch(pending.body(), pending.count, pending.base_time, pending.max_time)

    router, contents = Router("out", lambda topic: 2, 0), Contents("out")
    begun = time.process_time()
    for _ in range(rows // ARROW_ROWS):
        table = Rows(batch)
        contents.add(table)
        router.take(table, seal)
    seal(router.taken())
    return time.process_time() - begun


def main() -> None:
    servers, rows, size = Servers.parse(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rows -= rows % ARROW_ROWS
    raw = fetched(servers, rows)
    begun = time.process_time()
    for _ in decoded(servers, rows):
        pass
    plain = time.process_time() - begun
    maker = ArrowMaker(schema_of(include_headers=False), "rows", 0)
    begun = time.process_time()
    for columns in decoded(servers, rows):
        maker.make(columns)
    whole = time.process_time() - begun
    found = {"fetch": raw, "decode": plain - raw, "Arrow": whole - plain, "encode": encoded(rows, size)}
    print("FOUND " + json.dumps({name: seconds / rows * 1e6 for name, seconds in found.items()}))


if __name__ == "__main__":
    main()
