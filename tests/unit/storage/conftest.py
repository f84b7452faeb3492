"""The kit of the storage tests: batches, logs, a plain reference log, and a disk that can fail."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from tests.unit.storage.resting import House

from treecast.middleware.model.counters import StorageCounters
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.log import LogAppend, PartitionLog
from treecast.middleware.storage.segment import SharedFiles
from treecast.middleware.storage.settings import LogSettings
from treecast.middleware.wire.record_batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    build_batch,
    control_marker,
    read_header,
    read_records,
)


class Crash(BaseException):
    """The process is killed here. No `except Exception` stops it."""


class QuickDisk(Disk):
    """A disk that counts syncs instead of waiting for them.

    Logs are left as a kill leaves them, without being closed. `close_all` then closes the descriptors of all
    such disks, as the end of a process does.
    """

    opened: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        self.syncs = 0

    def open(self, path: str, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        self.opened.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self.opened.discard(descriptor)
        super().close(descriptor)

    @classmethod
    def close_all(cls) -> None:
        while cls.opened:
            os.close(cls.opened.pop())

    def sync(self, descriptor: int) -> None:
        self.syncs += 1

    def sync_path(self, path: str) -> None:
        os.stat(path)
        self.syncs += 1

    def sync_directory(self, path: str) -> None:
        os.stat(path)


class FaultyDisk(QuickDisk):
    """A disk that fails when a test says so.

    `room`: bytes that may still be written to .log files, then ENOSPC (a short write first, as the kernel
    does). `fail`: names of calls that raise EIO. `crash_at`: the number of the changing call at which the
    process is killed, counted in `calls`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None
        self.fail: set[str] = set()
        self.crash_at: int | None = None
        self.calls = 0
        self.truncated: list[int] = []

    def _step(self, name: str) -> None:
        if self.crash_at is not None and self.calls >= self.crash_at:
            raise Crash(name)
        self.calls += 1
        if name in self.fail:
            raise OSError(5, "Input/output error")

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        self._step("write")
        if self.room is not None:
            if self.room == 0 and len(data):
                raise OSError(28, "No space left on device")
            data = memoryview(data)[: self.room]
            self.room -= len(data)
        return super().write(descriptor, data, position)

    def open(self, path: str, *, create: bool = False) -> int:
        if create:
            self._step("create")
        return super().open(path, create=create)

    def truncate(self, descriptor: int, size: int) -> None:
        self._step("truncate")
        self.truncated.append(size)
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        super().sync(descriptor)

    def rename(self, old: str, new: str) -> None:
        self._step("rename")
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._step("unlink")
        super().unlink(path)


@dataclass
class ReferenceLog:
    """The plain reference of a log: a list of its batches."""

    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0

    def append(self, data: bytes) -> None:
        """`data`: the stored bytes, with offsets assigned."""
        position = 0
        while position < len(data):
            header = read_header(data, position)
            self.batches.append((header, data[position : position + header.size]))
            position += header.size
            self.end_offset = header.next_offset

    def read(self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool) -> bytes:
        out: list[bytes] = []
        size = 0
        for header, data in self.batches:
            if header.last_offset < offset:
                continue
            if header.last_offset >= limit:
                break
            if size + len(data) > max_bytes and not (at_least_one and size == 0):
                break
            out.append(data)
            size += len(data)
        return b"".join(out)

    def records(self) -> list[Record]:
        return [
            record
            for header, data in self.batches
            if not header.control
            for record in read_records(data, 0, header)
        ]


class Kit:
    """Makes batches and logs for tests. Times are small numbers of ms."""

    Crash = Crash
    FaultyDisk = FaultyDisk
    ReferenceLog = ReferenceLog

    @contextmanager
    def directory(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as path:
            yield Path(path) / "t-0"
            QuickDisk.close_all()

    def config(self, overrides: Mapping[str, object] | None = None, **more: object) -> TopicConfig:
        """Keys are Kafka's; keywords have `_` for `.`."""
        keys = {**(overrides or {}), **{name.replace("_", "."): value for name, value in more.items()}}
        return TopicConfig.of({name: str(value) for name, value in keys.items()})

    def open(
        self,
        path: Path,
        config: TopicConfig | None = None,
        settings: LogSettings | None = None,
        *,
        disk: Disk | None = None,
        shared: SharedFiles | None = None,
        now_ms: int = 1000,
    ) -> PartitionLog:
        return PartitionLog.open(
            path,
            config or self.config(),
            settings or LogSettings(),
            StorageCounters(),
            now_ms,
            shared or SharedFiles(disk or QuickDisk(), open_files=16),
        )

    def batch(
        self,
        records: int = 1,
        *,
        value: bytes = b"value",
        timestamp: int = 1000,
        producer: ProducerIdentity = NO_PRODUCER,
        sequence: int = -1,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
    ) -> bytes:
        """Makes a batch of `records` records with keys k0, k1 and so on, 1 ms apart."""
        return build_batch(
            [Record(b"k%d" % i, value, (), timestamp + i) for i in range(records)],
            producer=producer,
            base_sequence=sequence,
            transactional=transactional,
            compression=compression,
        )

    def keyed(
        self, *pairs: tuple[bytes | None, bytes | None], timestamp: int = 1000, **more: object
    ) -> bytes:
        records = [Record(key, value, (), timestamp) for key, value in pairs]
        return build_batch(records, **more)  # type: ignore[arg-type]

    def marker(
        self,
        producer: ProducerIdentity,
        *,
        committed: bool,
        coordinator_epoch: int = 0,
        timestamp: int = 1000,
    ) -> bytes:
        return control_marker(
            COMMIT if committed else ABORT,
            producer,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
        )

    def headers(self, data: bytes | bytearray) -> list[BatchHeader]:
        found: list[BatchHeader] = []
        position = 0
        while position < len(data):
            found.append(read_header(data, position))
            position += found[-1].size
        return found

    def append(self, log: PartitionLog, *batches: bytes, now_ms: int = 1000) -> LogAppend:
        return self.append_bytes(log, b"".join(batches), now_ms)[0]

    def append_bytes(self, log: PartitionLog, data: bytes, now_ms: int = 1000) -> tuple[LogAppend, bytes]:
        """Appends the batches. Returns the result, and the bytes as stored."""
        buffer = bytearray(data)
        stored = log.append(memoryview(buffer), self.headers(data), now_ms)
        return stored, bytes(buffer)

    def read_all(self, log: PartitionLog, max_bytes: int = 1 << 20) -> bytes:
        """Reads everything from the start on, as a consumer does."""
        out = bytearray()
        offset = log.start_offset
        while offset < log.end_offset:
            chunks, size = log.read(offset, max_bytes, log.end_offset, at_least_one=True)
            data = b"".join(map(bytes, chunks))
            assert len(data) == size
            if not data:
                break
            out += data
            offset = self.headers(data)[-1].next_offset
        return bytes(out)

    def read_in_order(self, log: PartitionLog, max_bytes: int) -> list[bytes]:
        """Returns one entry per read by a reader that continues after the last offset it has."""
        found: list[bytes] = []
        offset = log.start_offset
        while offset < log.end_offset:
            chunks, _ = log.read(offset, max_bytes, log.end_offset, at_least_one=True)
            found.append(b"".join(map(bytes, chunks)))
            offset = self.headers(found[-1])[-1].next_offset
        return found

    def records(self, log: PartitionLog) -> list[Record]:
        """Returns all data records."""
        data = self.read_all(log)
        found: list[Record] = []
        position = 0
        for header in self.headers(data):
            if not header.control:
                found += read_records(data, position, header)
            position += header.size
        return found


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    yield
    QuickDisk.close_all()


@pytest.fixture
def house(kit: Kit, tmp_path: Path) -> House:
    return House(kit, tmp_path / "data")
