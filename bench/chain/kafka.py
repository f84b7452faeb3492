"""The Kafka ends of a load: Produce 9 at one broker, long-polling Fetch 12 at another."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from crc32c import crc32c

from bench.core.chain import Route
from treecast.middleware.load.connection import Connection
from treecast.middleware.load.frames import (
    FetchRequest,
    LoadError,
    next_offset,
    parse_fetch_head,
    produce_error_position,
    produce_request,
)
from treecast.middleware.load.payload import make_batch, records_in
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import build_batch

from .committed import committed
from .ends import Reply, Sink, Source, connect
from .stamp import MARK, STAMP, Arrivals, payload

WINDOW = 16  # Produce requests in flight
QUIET = 0.3  # seconds for which the far end must not have grown before a run
_CRC_AT, _CRC_FROM = 17, 21  # in a record batch: the checksum, and the first byte that it covers
_UINT32 = struct.Struct(">I")
_MAX_BYTES = 1 << 20
_WAIT_MS = 500


class KafkaSource(Source):
    """A source whose every frame is a Produce request with one batch; answers arrive in order."""

    def __init__(self, route: Route, batch: bytes, records: int, copies: int, stamped: bool) -> None:
        frame = produce_request(route.source, 0, batch)
        self._error_at = produce_error_position(route.source)
        stamper = make_stamper(frame, batch) if stamped else None
        super().__init__(connect(route.near), frame, records, copies, stamper)

    @classmethod
    def blasting(cls, route: Route, size: int, batch_bytes: int) -> KafkaSource:
        """Returns a source of full batches of records of `size` bytes, WINDOW of them in flight."""
        batch = make_batch(records_in(batch_bytes, size), size, int(time.time() * 1000))
        return cls(route, batch.data, batch.records, WINDOW, False)

    @classmethod
    def stamping(cls, route: Route, size: int, copies: int) -> KafkaSource:
        """Returns a source with one stamped record per request."""
        record = Record(None, payload(size), (), int(time.time() * 1000))
        return cls(route, build_batch([record], compression=Compression.NONE), 1, copies, True)

    def _answers(self, buffer: bytearray, filled: int) -> int:
        position = 0
        while position + 4 <= filled:
            end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if end > filled:
                break
            error = buffer[position + self._error_at : position + self._error_at + 2]
            if error != b"\0\0":
                raise LoadError(
                    f"Produce was answered with error {int.from_bytes(error, 'big', signed=True)}"
                )
            self.acknowledged += 1
            position = end
        return position


def make_stamper(frame: bytes, batch: bytes) -> Callable[[memoryview, int, int], None]:
    """Writes a stamp into the one record of a request's batch, and the checksum that then holds."""
    start = frame.index(batch)
    end = start + len(batch)
    stamp_at = frame.index(MARK) + len(MARK)

    def stamp(slot: memoryview, number: int, due: int) -> None:
        STAMP.pack_into(slot, stamp_at, number, due)
        _UINT32.pack_into(slot, start + _CRC_AT, crc32c(slot[start + _CRC_FROM : end]))

    return stamp


class KafkaSink(Sink):
    """Reads the target from its end at creation time: earlier records are not part of the run."""

    framing = (0, 4)

    def __init__(self, route: Route, arrivals: Arrivals | None = None, quiet: float = QUIET) -> None:
        with Connection(*route.far) as connection:
            self._start = settled_end(connection, route.target, quiet)
        super().__init__(connect(route.far), arrivals, 4 * _MAX_BYTES)
        self._request = FetchRequest(route.target, 0, _MAX_BYTES, 1, _WAIT_MS, committed=route.committed)
        self._markers = route.committed
        self._offset = self._start
        self._answer()
        self.socket.setblocking(False)

    def reply(self) -> Reply:
        return Reply(bytes(self._request.data), self._request.offset_at, self._offset, records_only=False)

    def _answer(self) -> None:
        frame = self._request.at(self._offset)
        if self.socket.send(frame) != len(frame):
            raise LoadError("the socket did not take a request of a hundred bytes")

    def _took(self, count: int, now: int) -> bool:
        self.filled += count
        size = 4 + int.from_bytes(self._buffer[:4], "big") if self.filled >= 4 else 4
        if size > len(self._buffer):
            raise LoadError(f"an answer to Fetch is {size} bytes long, more than was asked for")
        if self.filled < max(size, 5):
            return False
        self.filled = 0
        self._take(now)
        return True

    def _take(self, now: int) -> None:
        answer = parse_fetch_head(self._buffer)
        if answer.error:
            raise LoadError(f"Fetch was answered with error {answer.error}", answer.error)
        after, batches = next_offset(self._buffer, answer.records_at, answer.records_size)
        if not batches:
            return
        self._offset = after
        end = answer.records_at + answer.records_size
        if not self._markers:
            self.records = after - self._start
            self._scan(answer.records_at, end, now)
            return
        for start, size, count in committed(self._buffer, answer.records_at, end, answer.aborted):
            self.records += count
            self._scan(start, start + size, now)

    def _scan(self, start: int, end: int, now: int) -> None:
        if self.arrivals is not None:
            self.arrivals.scan(self._view[start:end], now)


def settled_end(connection: Connection, topic: str, quiet: float, wait: float = 60) -> int:
    """Returns the end of partition 0 once it has not moved for `quiet` seconds."""
    deadline = time.monotonic() + wait
    end, since = connection.offset(topic, 0), time.monotonic()
    while time.monotonic() - since < quiet:
        if time.monotonic() > deadline:
            raise LoadError(f"topic {topic} still grows after {wait:g} s, although nothing is sent")
        time.sleep(0.02)
        if (now := connection.offset(topic, 0)) != end:
            end, since = now, time.monotonic()
    return end
