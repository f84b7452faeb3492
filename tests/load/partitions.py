"""Many partitions on one host: the cost of creation, start-up and metrics.

    python -m tests.load.partitions --count 100000
    python -m tests.load.partitions --count 100000 --records 3 --shape partitions
    python -m tests.load.partitions --count 5000 --shape topics --hosts 2 --json

An ordinary admin client (confluent-kafka) makes them in batches: as topics of one partition each, and as one
topic that grows. With `--records` each gets some. Then the daemon is killed right after all of them were
written and started, stopped and started, killed and started, and scraped. After a write to every hundredth it
is killed and started again. The exit code is 1 if a bound is missed. The data goes to a temporary directory,
or with `--data` to one that is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.protocol.producer import ProduceRequest

from tests.fault.crash import wire
from treecast.middleware.daemon.process import DaemonProcess

SHAPES = ("topics", "partitions")
CALL_SECONDS = 60.0  # librdkafka's default for a request
PATIENCE_SECONDS = 300.0  # for a start, so that a slow one is measured and not guessed
WRITTEN_TOGETHER = 200  # partitions in one request
DATA_FLAGS = ("--default-partitions", "1")

# A short run, of a few thousand, has the same limits: none of them may depend on the number.
MOST_MS_EACH = 2.0
MOST_START_SECONDS = 10.0
MOST_METRICS_BYTES = 4 << 20


@dataclass(frozen=True)
class Row:
    """The cost of one shape. Seconds, bytes, and ms if the name says so."""

    shape: str
    partitions: int
    hosts: int
    create_ms_each: float
    first_ms_each: float  # for the first tenth
    last_ms_each: float  # for the last tenth
    slowest_batch: float
    records: int  # per partition
    write: float  # all records, acknowledged
    empty_memory: int  # of the daemon before
    memory: int  # with all partitions
    start_after_kill_at_once: float  # the daemon was killed right after the last record was written
    stop: float
    start_after_stop: float
    second_stop: float  # the daemon was idle before
    start_after_kill: float
    start_after_kill_of_few: float  # one of a hundred partitions was written just before
    memory_after_start: int
    open_files: int
    idle_cpu_percent: float
    first_use: float  # a record and its reply, to a partition unused since the start
    second_use: float  # a second record
    metadata: float  # the reply to an admin client that asks for all topics
    metrics_bytes: int
    metrics: float
    metrics_left_out: int

    def missed(self) -> list[str]:
        """Returns the bounds that it misses."""
        found = []
        if self.create_ms_each > MOST_MS_EACH:
            found.append(f"{self.create_ms_each:.2f} ms for each is more than {MOST_MS_EACH:g}")
        for name, seconds in (
            ("stop", self.start_after_stop),
            ("kill", self.start_after_kill),
            ("kill of few", self.start_after_kill_of_few),
        ):
            if seconds > MOST_START_SECONDS:
                found.append(f"a start of {seconds:.1f} s after a {name} is more than {MOST_START_SECONDS:g}")
        if self.metrics_bytes > MOST_METRICS_BYTES:
            found.append(f"/metrics of {self.metrics_bytes:,} bytes is more than {MOST_METRICS_BYTES:,}")
        return [f"{self.shape}: {each}" for each in found]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    shapes = SHAPES if options.shape == "both" else (options.shape,)
    folder = Path(options.data) if options.data else Path(tempfile.mkdtemp(prefix="treecast-partitions-"))
    rows = []
    try:
        for shape in shapes:
            rows.append(_Run(shape, options, folder / shape).measure())
    finally:
        if not options.data:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else table(rows))
    missed = [text for row in rows for text in row.missed()]
    for text in missed:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if missed else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="tests.load.partitions",
    )
    parser.add_argument("--count", type=int, default=2000, help="partitions to make (default: 2000)")
    parser.add_argument(
        "--shape",
        choices=(*SHAPES, "both"),
        default="both",
        help="topics with one partition, or one topic with many",
    )
    parser.add_argument("--batch", type=int, default=500, help="topics or partitions per request")
    parser.add_argument(
        "--hosts", type=int, default=0, help="number of joined hosts; 0: a single host without a cluster"
    )
    parser.add_argument("--records", type=int, default=0, help="records to write to each partition")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemons")
    parser.add_argument("--data", help="folder for the data, which is kept")
    parser.add_argument(
        "--flag", action="append", default=[], help="additional flag of the daemons; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--idle", type=float, default=5.0, help="seconds in which an idle daemon's processor time is measured"
    )
    return parser


class _Run:
    """One shape, on daemons of its own."""

    def __init__(self, shape: str, options: argparse.Namespace, folder: Path) -> None:
        self._shape, self._options = shape, options
        self._daemons: list[DaemonProcess] = []
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(max(options.hosts, 1)):
            flags = [*DATA_FLAGS, *options.flag]
            self._daemons.append(DaemonProcess(folder / f"host-{number + 1}", flags, python=options.python))

    def measure(self) -> Row:
        try:
            return self._measured()
        finally:
            for daemon in self._daemons:
                daemon.clean_up()

    def _measured(self) -> Row:
        self._start_all()
        first = self._daemons[0]
        empty = memory(first.pid)
        batches = list(self._batches())
        size = self._options.batch
        made, tenth = len(batches) * size, max(len(batches) // 10, 1)
        places = list(self._names())
        write = timed(lambda: _write_to_each(first.kafka, places, self._options.records))
        sizes = memory(first.pid)
        first.kill()
        at_once = _start(first)
        stop = timed(lambda: first.stop(timeout=PATIENCE_SECONDS))
        start_after_stop = _start(first)
        second_stop = timed(lambda: first.stop(timeout=PATIENCE_SECONDS))
        _start(first)
        first.kill()
        start_after_kill = _start(first)
        after = memory(first.pid)
        files, idle = len(os.listdir(f"/proc/{first.pid}/fd")), _idle_cpu(first.pid, self._options.idle)
        first_use, second_use = _used(first.kafka, places[:2])
        metadata = timed(lambda: self._admin().list_topics(timeout=PATIENCE_SECONDS))
        seconds, body = _scraped(first)
        _write_to_each(first.kafka, places[::100], min(self._options.records, 1))
        first.kill()
        of_few = _start(first)
        return Row(
            shape=self._shape,
            partitions=made,
            hosts=self._options.hosts,
            create_ms_each=sum(batches) / made * 1000,
            first_ms_each=sum(batches[:tenth]) / (tenth * size) * 1000,
            last_ms_each=sum(batches[-tenth:]) / (tenth * size) * 1000,
            slowest_batch=max(batches),
            records=self._options.records,
            write=write,
            empty_memory=empty,
            memory=sizes,
            start_after_kill_at_once=at_once,
            stop=stop,
            start_after_stop=start_after_stop,
            second_stop=second_stop,
            start_after_kill=start_after_kill,
            start_after_kill_of_few=of_few,
            memory_after_start=after,
            open_files=files,
            idle_cpu_percent=idle,
            first_use=first_use,
            second_use=second_use,
            metadata=metadata,
            metrics_bytes=len(body),
            metrics=seconds,
            metrics_left_out=left_out(body),
        )

    def _start_all(self) -> None:
        first, *others = self._daemons
        if self._options.hosts:
            first.flags += ["--name", "host-1", "--fabric", "127.0.0.1:0"]
        first.start()
        first.pin_ports()
        for number, daemon in enumerate(others, start=2):
            daemon.flags += ["--name", f"host-{number}", "--fabric", "127.0.0.1:0", "--join", first.control]
            daemon.flags += ["--join-token", f"@{first.data / 'join-token'}"]
            daemon.start()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._daemons[0].kafka, "log_level": 0})

    def _names(self) -> Iterator[tuple[str, int]]:
        """Yields topic and number of each partition."""
        for number in range(self._options.count):
            yield ("load.many", number) if self._shape == "partitions" else (f"load.topic-{number}", 0)

    def _batches(self) -> Iterator[float]:
        """Makes all partitions; yields the seconds of each batch."""
        admin, size = self._admin(), self._options.batch
        for begin in range(0, self._options.count, size):
            if self._shape == "topics":
                topics = [NewTopic(f"load.topic-{number}", 1, 1) for number in range(begin, begin + size)]
                yield timed(lambda asked=topics: _done(admin.create_topics(asked, **_WAIT)))
            elif begin == 0:
                yield timed(lambda: _done(admin.create_topics([NewTopic("load.many", size, 1)], **_WAIT)))
            else:
                more = [NewPartitions("load.many", begin + size)]
                yield timed(lambda asked=more: _done(admin.create_partitions(asked, **_WAIT)))
            print(f"{self._shape}: {begin + size:,}", end="\r", file=sys.stderr)


_WAIT = {"request_timeout": CALL_SECONDS, "operation_timeout": CALL_SECONDS}


def _done(futures: dict[str, Any]) -> None:
    for future in futures.values():
        future.result(CALL_SECONDS + 5)


def _write_to_each(kafka: str, partitions: Sequence[tuple[str, int]], count: int) -> None:
    """Writes this many acknowledged records to each; each round covers all partitions before the next. A
    plain client is used: librdkafka scans all partitions of a topic repeatedly, and writes 60 a second to
    100,000 of them."""
    connection, batch = wire.Connection(kafka), wire.build_batch([(None, b"value")])
    try:
        for _ in range(count):
            for first in range(0, len(partitions), WRITTEN_TOGETHER):
                reply = connection.ask(_produce(partitions[first : first + WRITTEN_TOGETHER], batch))
                for topic in reply.responses:
                    for one in topic.partition_responses:
                        if one.error_code:
                            raise RuntimeError(f"{topic.name}-{one.index}: error {one.error_code}")
    finally:
        connection.close()


def _produce(partitions: Sequence[tuple[str, int]], batch: bytes) -> ProduceRequest:
    """Returns a request with one batch for each partition."""
    of_topic = ProduceRequest.TopicProduceData
    places: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        one = of_topic.PartitionProduceData(version=9, index=partition, records=batch)
        places.setdefault(topic, []).append(one)
    data = [of_topic(version=9, name=name, partition_data=some) for name, some in places.items()]
    return ProduceRequest(version=9, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=data)


def _used(kafka: str, places: Sequence[tuple[str, int]]) -> tuple[float, float]:
    """Times two records to the second partition, one after the other, each over its own connection."""
    _write_to_each(kafka, places[:1], 1)
    return timed(lambda: _write_to_each(kafka, places[1:], 1)), timed(
        lambda: _write_to_each(kafka, places[1:], 1)
    )


def timed(call: Callable[[], Any]) -> float:
    """Returns the seconds that a call takes."""
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def _start(daemon: DaemonProcess) -> float:
    """Returns the seconds until the ready line."""

    def started() -> None:
        daemon.start(wait=False)
        daemon.wait_ready(PATIENCE_SECONDS)

    return timed(started)


def _scraped(daemon: DaemonProcess) -> tuple[float, bytes]:
    url = f"http://{daemon.admin}/metrics"
    urllib.request.urlopen(url, timeout=PATIENCE_SECONDS).read()  # the first request loads the server
    begin = time.monotonic()
    body = urllib.request.urlopen(url, timeout=PATIENCE_SECONDS).read()
    return time.monotonic() - begin, body


def left_out(metrics: bytes) -> int:
    """Returns the number of series that the daemon reports as left out."""
    found = re.findall(rb"^treecast_metrics_left_out(?:\{[^}]*\})? ([0-9.e+]+)$", metrics, re.MULTILINE)
    return int(sum(map(float, found)))


def memory(pid: int) -> int:
    """Returns resident bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _idle_cpu(pid: int, seconds: float) -> float:
    """Returns an idle daemon's use of one processor in per cent."""
    before = _cpu(pid)
    time.sleep(seconds)  # the window of the measurement
    return (_cpu(pid) - before) / seconds * 100


def _cpu(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def table(rows: Sequence[Row]) -> str:
    """Returns a table with one line for each number, and one column for each shape."""
    names = [field.name for field in fields(Row)]
    lines = []
    for name in names:
        cells = [_cell(name, getattr(row, name)) for row in rows]
        lines.append(f"{name.replace('_', ' '):26}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def _cell(name: str, value: float | int | str) -> str:
    if "memory" in name or name.endswith("_bytes"):
        return f"{value / 2**20:,.1f} MiB"
    if name.endswith("_use"):
        return f"{value * 1000:.2f} ms"
    if name.endswith("_each"):
        return f"{value:.2f} ms"
    if name.endswith("_percent"):
        return f"{value:.1f} %"
    return f"{value:.2f} s" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
