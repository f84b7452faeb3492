"""Reading, writing and micro-batches by Spark, each combination in a session of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.core.measure import Metric, Values, Workload
from bench.core.peer import Peer
from bench.peers.spark import Combination
from treecast.middleware.load import frames
from treecast.middleware.load.connection import Connection
from treecast.middleware.load.payload import make_batch

READ = Metric("reading", "rows/s", True, 1.0)
WRITE = Metric("writing", "rows/s", True, 1.0)
LATENCY = Metric("micro-batch, read", "ms", False, 1.0)
THROUGH = Metric("micro-batch, read and write", "ms", False, 1.0)
MAKING = Metric("making the rows that are written", "µs/row", False)
READ_COST = Metric("a row read, per core", "µs/row", False)
WRITE_COST = Metric("a row written, per core", "µs/row", False)
PARTS = {
    "fetch": Metric("Python: fetch", "µs/row", False),
    "decode": Metric("Python: decode into columns", "µs/row", False),
    "Arrow": Metric("Python: columns to Arrow", "µs/row", False),
    "encode": Metric("Python: Arrow to batches", "µs/row", False),
}
CORES = 2  # local[2]
PARTITIONS = 2
BATCH_ROWS = 1000  # of a micro-batch, and of a record batch
_AHEAD = 8
HERE = Path(__file__).resolve().parent


class SparkJob(Workload[Any]):
    """`rows` of `size` bytes each. `modules` goes before the packages of Spark's Python side."""

    def __init__(self, rows: int, size: int, batches: int, modules: str = "") -> None:
        self.name = f"{rows:,} rows of {size} B"
        self._rows = rows - rows % (2 * BATCH_ROWS)
        self._size = size
        self._batches = batches
        self._modules = modules

    def run(self, peer: Peer, number: int) -> Values:
        assert isinstance(peer, Combination)
        fill(peer.address, self._rows, self._size)
        jars = [str(jar) for jar in peer.jars()]
        address = f"{peer.address[0]}:{peer.address[1]}"
        asked = {"address": address, "connector": peer.connector, "jars": jars, "reading": reading(peer)}
        found = self._spark(asked | {"rows": self._rows, "size": self._size, "batches": self._batches})
        values = {
            READ: found["read"],
            WRITE: found["write"],
            LATENCY: found["latency"],
            THROUGH: found["latency through"],
            READ_COST: CORES * 1e6 / found["read"],
            WRITE_COST: CORES * 1e6 / found["write"],
            MAKING: CORES * found["making"],
        }
        if peer.connector == "treecast":
            values |= self._parts(address)
        return values

    def _spark(self, asked: Mapping[str, Any]) -> Mapping[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "asked.json")
            path.write_text(json.dumps(asked))
            return self._ask("spark_job.py", str(path))

    def _parts(self, address: str) -> Values:
        rows = min(self._rows // 2, 1_000_000)
        found = self._ask("spark_parts.py", address, str(rows), str(self._size))
        return {PARTS[name]: value for name, value in found.items()}

    def _ask(self, script: str, *arguments: str) -> Mapping[str, float]:
        command = [sys.executable, str(HERE / script), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(self._modules)
        )
        for line in done.stdout.splitlines():
            if line.startswith("FOUND "):
                found: dict[str, float] = json.loads(line.removeprefix("FOUND "))
                return found
        raise RuntimeError(f"{script} found nothing: {done.stdout[-1000:]}{done.stderr[-3000:]}")


def reading(peer: Combination) -> Mapping[str, str]:
    """Options of a query of micro-batches."""
    return {"maxOffsetsPerTrigger": str(BATCH_ROWS), **peer.reading}


def environment(modules: str) -> Mapping[str, str]:
    """Returns a Spark session's environment; `modules` precedes the packages of its Python side, which also
    has `bench`.
    """
    path = os.pathsep.join(filter(None, (modules, str(HERE.parents[1]))))
    return os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}


def fill(address: tuple[str, int], rows: int, size: int) -> None:
    """Makes the topics `rows` and `out`, and writes `rows` rows into the first, in batches of a thousand."""
    batch = make_batch(BATCH_ROWS, size, int(time.time() * 1000))
    with Connection(*address) as connection:
        for topic in ("rows", "out"):
            connection.create_topic(topic, PARTITIONS)
        on_the_way = 0
        for number in range(rows // BATCH_ROWS):
            connection.send(frames.produce_request("rows", number % PARTITIONS, batch.data))
            on_the_way += 1
            if on_the_way == _AHEAD:
                connection.receive()
                on_the_way -= 1
        for _ in range(on_the_way):
            connection.receive()
        for partition in range(PARTITIONS):
            if connection.offset("rows", partition) != rows // PARTITIONS:
                raise RuntimeError("the rows could not be written")
