"""Nanoseconds of the hot functions of `wire` and the Kafka codec, for the package that is imported here.

.venv/bin/python bench/micro_wire.py                                      this one
.venv/bin/python bench/micro_wire.py --beside .venv-compiled/bin/python   and another's, with the ratio
"""

from __future__ import annotations

import argparse
import json
import subprocess
import timeit
from collections.abc import Callable

ROUNDS = 5
RECORDS = 1000


def measure() -> dict[str, float]:
    """Nanoseconds per operation, the best of some rounds."""
    from treecast.middleware.model.records import Compression, Record
    from treecast.middleware.wire import batch as wire_batch
    from treecast.middleware.wire import record_batch
    from treecast.shims.kafka import codec

    records = [Record(None, b"v" * 100, (), 1_700_000_000_000 + i) for i in range(RECORDS)]
    batch = memoryview(bytearray(record_batch.build_batch(records)))
    packed = memoryview(bytearray(record_batch.build_batch(records, compression=Compression.LZ4)))
    payload = bytes(batch[record_batch.HEADER_SIZE :])
    header = record_batch.read_header(batch, 0)
    produce = memoryview(_produce_frame(bytes(batch)))
    fetch = memoryview(_fetch_frame(10))
    written = [codec.ProduceResult("topic-of-some-length", 3, 0, 123_456)]
    read = [
        codec.FetchResult("topic-of-some-length", i, 0, 10, 10, 0, [batch] if i == 0 else [])
        for i in range(10)
    ]
    large = 1 << 30
    found: dict[str, float] = {
        "walk, per record": _best(lambda: wire_batch.walk_records(payload, 0, RECORDS)) / RECORDS,
        "check a batch of 1000 x 100 B, deep": _best(lambda: record_batch.check_batches(batch, large)),
        "check it, not deep": _best(lambda: record_batch.check_batches(batch, large, deep=False)),
        "check it, lz4, deep": _best(lambda: record_batch.check_batches(packed, large)),
        "read a batch header": _best(lambda: wire_batch.read_header(batch, 0)),
        "patch a batch": _best(lambda: record_batch.patch_batch(batch, 0, 5, 0)),
        "read records, per record": _best(lambda: record_batch.read_records(batch, 0, header)) / RECORDS,
        "build a batch, per record": _best(lambda: record_batch.build_batch(records)) / RECORDS,
        "request header": _best(lambda: codec.decode_request_header(produce)),
        "Produce request, 1 partition": _best(lambda: codec.decode_produce_request(produce, 22, 9)),
        "Produce response": _best(lambda: codec.encode_produce_response(1, 9, written)),
        "Fetch request, 10 partitions": _best(lambda: codec.decode_fetch_request(fetch, 22, 12)),
        "Fetch response, 10 partitions": _best(lambda: codec.encode_fetch_response(1, 12, read)),
    }
    found["compiled"] = float(not wire_batch.__file__.endswith(".py"))
    return found


def _best(run: Callable[[], object]) -> float:
    timer = timeit.Timer(run)
    number, _ = timer.autorange()
    return min(timer.repeat(ROUNDS, max(1, number // 4))) / max(1, number // 4) * 1e9


def _header(key: int, version: int) -> bytes:
    return key.to_bytes(2) + version.to_bytes(2) + (7).to_bytes(4) + (11).to_bytes(2) + b"client-name\0"


def _produce_frame(batch: bytes) -> bytearray:
    length = len(batch) + 1
    size = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
    topic = b"\x02\x15topic-of-some-length\x02" + (3).to_bytes(4) + size + batch + b"\0\0\0"
    return bytearray(_header(0, 9) + b"\0\xff\xff" + (30_000).to_bytes(4) + topic)


def _fetch_frame(partitions: int) -> bytearray:
    body = b"\xff\xff\xff\xff" + (500).to_bytes(4) + (1).to_bytes(4) + (1 << 20).to_bytes(4) + bytes(9)
    body += b"\x02\x15topic-of-some-length" + bytes([partitions + 1])
    for partition in range(partitions):
        body += partition.to_bytes(4) + bytes(12) + b"\xff" * 12 + (1 << 20).to_bytes(4) + b"\0"
    return bytearray(_header(1, 12) + body + b"\0\x01\x01\0")


def _measure_in(python: str) -> dict[str, float]:
    run = subprocess.run([python, __file__, "--json"], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def _title(found: dict[str, float]) -> str:
    return "compiled" if found["compiled"] else "interpreted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--beside", metavar="PYTHON")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    here = measure()
    if arguments.json:
        print(json.dumps(here))
        return
    there = _measure_in(arguments.beside) if arguments.beside else {}
    print(
        f"{'ns per operation':40} {_title(here):>12}"
        + (f" {_title(there):>12} {'ratio':>7}" if there else "")
    )
    for name, value in here.items():
        if name != "compiled":
            ratio = f" {there[name]:12,.0f} {value / there[name]:7.1f}" if there else ""
            print(f"{name:40} {value:12,.0f}{ratio}")


if __name__ == "__main__":
    main()
