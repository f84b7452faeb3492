"""Measures a small request from the socket's bytes to the answer's, without sockets.

One producer, idempotent as clients are by default, sends Produce requests of one record each; `--groups`
consumers wait, each with a Fetch of its own. In one turn of the loop `--in-flight` requests come in one
chunk. All else is the daemon's: face, broker, and a log on the disk.

    python -m bench.micro_request                   us of the thread, user and system, for a record
    python -m bench.micro_request --calls           functions of Python that are entered, interpreted
    python -m bench.micro_request --instructions    counted by valgrind: the same whatever else runs
    python -m bench.micro_request --rights 9        us without users and with a user's rights, in turns

With rights, the clients are one user who has 100 rules, and the audit log counts each use.

Instructions are those of the process: what the kernel does for it is not among them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from treecast.middleware.broker import Broker, BrokerSettings, NewTopic
from treecast.middleware.broker.access import (
    Content,
    Identities,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    Rule,
    Trail,
    User,
)
from treecast.middleware.daemon.tuning import new_event_loop
from treecast.middleware.load import frames
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host, ProducerIdentity
from treecast.middleware.model.records import Record
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.kafka import connection as face_connection
from treecast.shims.kafka.connection import Connection
from treecast.shims.kafka.server import KafkaFace
from treecast.shims.kafka.settings import KafkaSettings

TOPIC = "small"
USER = "alice"
_WARM = 500  # records that are not counted
_FEW = 1000  # records of the shorter of two runs whose instructions are compared
_PRODUCER = 4711
_REFS = re.compile(r"Collected\s*:\s*(\d+)")


class Sink(asyncio.Transport):
    """Takes what is written, and keeps the last of it."""

    def __init__(self) -> None:
        super().__init__()
        self.last: bytes | bytearray | memoryview = b""
        self.writes = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.last = data
        self.writes += 1

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Client:
    """One connection; what it is fed has arrived in one chunk."""

    def __init__(self, face: KafkaFace) -> None:
        self.sink = Sink()
        self._connection = Connection(face)
        self._connection.connection_made(self.sink)

    def log_in(self, user: str) -> None:
        assert self._connection.log_in.succeed(user)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        size = len(data)
        self._connection.get_buffer(-1)[:size] = data
        self._connection.buffer_updated(size)


def requests(records: int, size: int) -> Iterator[bytes]:
    """Produce requests of one record each, of one idempotent producer."""
    value = random.Random(1).randbytes(size)
    for number in range(records):
        batch = build_batch(
            [Record(None, value, (), 1_700_000_000_000 + number)],
            producer=ProducerIdentity(_PRODUCER, 0),
            base_sequence=number,
        )
        yield frames.produce_request(TOPIC, 0, bytes(batch), acks=-1)


def with_user() -> Identities:
    """A store with one user, whose last rules give what this bench asks for."""
    others = [
        Rule(USER, Permission.ALLOW, operation, ResourceKind.TOPIC, Pattern.PREFIXED, f"other-{number}.")
        for number in range(49)
        for operation in (Operation.READ, Operation.WRITE)
    ]
    wanted = [
        Rule(USER, Permission.ALLOW, operation, ResourceKind.TOPIC, Pattern.LITERAL, TOPIC)
        for operation in (Operation.READ, Operation.WRITE)
    ]
    made = Identities(Content({USER: User(USER)}, (*others, *wanted)), b"key")
    made.trail = Trail()
    return made


class Turns:
    """A broker and its face; each turn brings so many requests, and answers all consumers."""

    def __init__(self, face: KafkaFace, groups: int) -> None:
        self._producer = Client(face)
        self._consumers = [Client(face) for _ in range(groups)]
        self._fetch = frames.FetchRequest(TOPIC, 0, 1 << 20, 1, 30_000)
        self._offset = 0
        if face.identities.closed:
            for client in (self._producer, *self._consumers):
                client.log_in(USER)

    async def run(self, data: memoryview, each: int, in_flight: int) -> None:
        """`data` is whole requests of `each` bytes."""
        for start in range(0, len(data), each * in_flight):
            fetch = self._fetch.at(self._offset)
            for consumer in self._consumers:
                consumer.feed(fetch)
            self._producer.feed(data[start : start + each * in_flight])
            await asyncio.sleep(0)
            self._offset += in_flight

    def check(self) -> None:
        """Everything was acknowledged and has arrived."""
        found = frames.parse_fetch_head(self._consumers[0].sink.last)
        at = frames.produce_error_position(TOPIC)
        assert self._producer.sink.last[at : at + 2] == b"\0\0", "a request was refused"
        assert found.high_watermark == self._offset, "a consumer has not seen the end"


async def opened(folder: Path, identities: Identities | None = None) -> tuple[Broker, KafkaFace]:
    settings = BrokerSettings(data=folder / "data", fsync=FsyncPolicy.NEVER)
    broker = Broker(settings, Host(1, "bench"), Counters(), clock=time.time, rng=random.Random(1))
    await broker.start()
    await broker.cluster.definitions.create_topic(NewTopic(TOPIC, 1, {}))
    face = KafkaFace(broker, KafkaSettings(port=0), broker.counters.face("kafka"))
    if identities is not None:
        face.identities = identities
    await face.start()
    return broker, face


class Calls:
    """Counts the functions that begin."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: object, event: str, argument: object) -> None:
        if event == "call":
            self.count += 1


async def measure(data: memoryview, records: int, chosen: argparse.Namespace) -> str:
    """Serves the requests in `data`; what one record cost."""
    each = 4 + struct.unpack_from(">i", data)[0]
    with tempfile.TemporaryDirectory() as folder:
        broker, face = await opened(Path(folder))
        turns = Turns(face, chosen.groups)
        await turns.run(data[: _WARM * each], each, chosen.in_flight)
        calls = Calls()
        if chosen.calls:
            sys.setprofile(calls)
        began = time.thread_time_ns()
        await turns.run(data[_WARM * each : (_WARM + records) * each], each, chosen.in_flight)
        took = (time.thread_time_ns() - began) / 1000 / records
        sys.setprofile(None)
        turns.check()
        await face.close(0)
        await broker.close()
    return f"{calls.count / records:.1f} calls" if chosen.calls else f"{took:.1f} us"


async def compare(data: memoryview, records: int, chosen: argparse.Namespace) -> str:
    """Serves the requests by turns without users and with a user's rights; what both cost for a record, and
    the median share of the rights.
    """
    each = 4 + struct.unpack_from(">i", data)[0]
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * chosen.rights):
        # A B, B A: what grows with time falls on both.
        with_rights = number % 4 in (1, 2)
        with tempfile.TemporaryDirectory() as folder:
            broker, face = await opened(Path(folder), with_user() if with_rights else None)
            turns = Turns(face, chosen.groups)
            await turns.run(data[: _WARM * each], each, chosen.in_flight)
            began = time.thread_time_ns()
            await turns.run(data[_WARM * each : (_WARM + records) * each], each, chosen.in_flight)
            found[with_rights].append((time.thread_time_ns() - began) / 1000 / records)
            turns.check()
            await face.close(0)
            await broker.close()
    share = median(more / less for less, more in zip(*found, strict=True)) - 1
    best = min(found[1]) / min(found[0]) - 1
    times = f"{median(found[0]):.1f} us without users, {median(found[1]):.1f} us with rights"
    return f"{times} ({share:+.1%}; the best rounds {best:+.1%})"


def instructions(path: Path, chosen: argparse.Namespace) -> float:
    """For a record, from the difference between a short run and a longer one."""
    found: list[int] = []
    for records in (_FEW, chosen.records):
        command = [
            *("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable),
            *("-m", "bench.micro_request", "--requests", str(path), "--records", str(records)),
            *("--in-flight", str(chosen.in_flight), "--groups", str(chosen.groups)),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "0"}
        )
        match = _REFS.search(done.stderr)
        assert match, done.stderr
        found.append(int(match[1]))
    more: int = chosen.records - _FEW
    return (found[1] - found[0]) / more


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--rights", type=int, default=0, metavar="ROUNDS")
    parser.add_argument("--requests", type=Path, help="a file with the requests, encoded before")
    chosen = parser.parse_args(words)
    form = "interpreted" if str(face_connection.__file__).endswith(".py") else "compiled"
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.requests or Path(folder, "requests")
        if chosen.requests is None:
            path.write_bytes(b"".join(requests(chosen.records + _WARM, chosen.size)))
        if chosen.instructions:
            found = f"{instructions(path, chosen):,.0f} instructions"
        else:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                data = memoryview(path.read_bytes())
                found = runner.run((compare if chosen.rights else measure)(data, chosen.records, chosen))
    print(f"{form}, {chosen.size} B, {chosen.in_flight} in a turn, {chosen.groups} groups: {found} a record")


if __name__ == "__main__":
    main()
