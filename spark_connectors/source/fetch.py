"""One partition's record batches: the next fetch is in flight while one is decoded.

`Answer` and `Decoder` do no I/O; `PartitionReader` uses a blocking socket, as a Spark task is a separate
process. Fetch 12, after FetchRequest.json and FetchResponse.json of Apache Kafka.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator
from typing import Final

from treecast.middleware.api.discovery import Address
from treecast.middleware.load import frames
from treecast.middleware.load.connection import Connection
from treecast.middleware.load.frames import ClusterView, LoadError
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.records import Compression
from treecast.middleware.wire.compression import MAX_UNCOMPRESSED_BYTES, decompress
from treecast.middleware.wire.record_batch import (
    ABORT,
    HEADER_SIZE,
    BatchHeader,
    read_control_type,
    read_header,
)

from ..errors import DataLossError, ReadError
from ..fields import Fields, framed, uvarint
from ..links import LINKS, Link
from ..servers import Servers
from .columns import Columns, add_records
from .packed import Packed, add_packed
from .planning import Range, loss_text

_log = Log("treecast.spark")

MAX_BYTES: Final = 4 << 20
COLUMNS_BYTES: Final = 64 << 20  # of records in one Arrow batch, plus those of one batch
_FEW_BYTES: Final = 128 << 10
_RECORD_BYTES: Final = 512  # estimate: small ranges in long logs should not fetch what they do not need
_WAIT_MS: Final = 500
_FILTER_TAG: Final = 0x7463
_PAUSE_S: Final = 0.1
OFFSET_OUT_OF_RANGE: Final = 1
_RETRIABLE: Final = frozenset((3, 5, 6, 7, 9, 13, 74, 75, 76))  # leadership is moving, or not yet known


class Answer:
    """A Fetch answer for one partition: `data[at:end]` are batches, the last of them perhaps cut."""

    def __init__(self, data: bytes) -> None:
        """Reads the head. Raises LoadError if it is invalid."""
        reader = Fields(data)
        reader.skip(4 + 1 + 4)  # correlation id, tags, throttle time
        self.error = reader.number(">h")
        reader.skip(4)
        self.log_start = self.high_watermark = self.stable = -1
        self.aborted: list[tuple[int, int]] = []
        self.data = data
        self.at = self.end = 0
        if self.error or reader.uvarint() != 2:
            return
        reader.skip(reader.uvarint() - 1)
        if reader.uvarint() != 2:
            raise LoadError("Fetch was not answered for one partition")
        reader.skip(4)
        self.error = reader.number(">h")
        self.high_watermark = reader.number(">q")
        self.stable = reader.number(">q")
        self.log_start = reader.number(">q")
        for _ in range(reader.uvarint() - 1):
            self.aborted.append((reader.number(">q"), reader.number(">q")))
            reader.tags()
        reader.skip(4)
        size = reader.uvarint() - 1
        self.at = reader.position
        self.end = self.at + max(size, 0)
        if self.end > len(data):
            raise LoadError("the answer ends before its records do")

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (position, header) of each whole batch."""
        position = self.at
        while position + HEADER_SIZE <= self.end:
            header = read_header(self.data, position)
            if header.size < HEADER_SIZE or position + header.size > self.end:
                return
            yield position, header
            position += header.size


class Decoder:
    """Batches of one range into columns, without records that a reader of committed records must not see."""

    def __init__(
        self, part: Range, *, committed: bool, with_headers: bool = False, packed: bool = False
    ) -> None:
        """`packed`: into Arrow's buffers instead of lists; without headers."""
        self.next = part.first
        self._until = part.until
        self._committed = committed
        self._with_headers = with_headers
        self._packed = packed
        self._aborting: set[int] = set()  # producers whose transaction is aborted at this offset

    def _columns(self) -> Columns | Packed:
        return Packed() if self._packed else Columns(self._with_headers)

    def decode(self, answer: Answer) -> Iterator[Columns | Packed]:
        """Yields the answer's records from `next` on, in one piece unless compression made them small.

        Raises ReadError if they cannot be read.
        """
        columns, size = self._columns(), 0
        waiting = sorted(((first, producer) for producer, first in answer.aborted), reverse=True)
        for position, header in answer.headers():
            if header.base_offset >= self._until:
                self.next = self._until  # the rest was compacted away
                break
            while waiting and waiting[-1][0] <= header.last_offset:
                self._aborting.add(waiting.pop()[1])
            if header.control:
                self._marker(answer.data, position, header)
            elif not (self._committed and header.transactional and header.producer_id in self._aborting):
                size += self._take(columns, answer.data, position, header)
            self.next = max(self.next, header.next_offset)
            if size > COLUMNS_BYTES:
                yield columns
                columns, size = self._columns(), 0
        yield columns

    def _marker(self, data: bytes, position: int, header: BatchHeader) -> None:
        if header.count and read_control_type(data, position, header) == ABORT:
            self._aborting.discard(header.producer_id)

    def _take(self, columns: Columns | Packed, data: bytes, position: int, header: BatchHeader) -> int:
        """Returns how many bytes they are, decompressed."""
        body = data[position + HEADER_SIZE : position + header.size]
        try:
            if header.compression:
                body = decompress(Compression(header.compression), memoryview(body), MAX_UNCOMPRESSED_BYTES)
            if isinstance(columns, Packed):
                add_packed(columns, header, body, self.next, self._until)
            else:
                add_records(columns, header, body, self.next, self._until)
        except (ValueError, TreecastError) as error:
            raise ReadError(f"the batch at offset {header.base_offset} cannot be read: {error}") from error
        return len(body)


class PartitionReader:
    """Reads one range. Raises ReadError if that takes longer than `timeout` seconds without progress."""

    def __init__(
        self,
        part: Range,
        servers: Servers,
        *,
        committed: bool = False,
        with_headers: bool = False,
        packed: bool = False,
        text: str | None = None,
        topic_id: str = "",
        fail_on_data_loss: bool = True,
        timeout: float = 60,
    ) -> None:
        """`topic_id`: of the intended topic; empty: any of this name."""
        self._part = part
        self._servers = servers
        self._committed = committed
        self._with_headers = with_headers
        self._packed = packed
        self._text = text
        self._topic_id = topic_id
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout = timeout
        self._deadline = math.inf  # for progress; each record moves it
        self._link: Link | None = None

    def read(self) -> Iterator[Columns | Packed]:
        """Columns with at least one row each, in order of offsets."""
        part = self._part
        decoder = Decoder(
            part, committed=self._committed, with_headers=self._with_headers, packed=self._packed
        )
        try:
            yield from self._all(decoder)
            if self._link is not None:
                LINKS.give(self._link)  # all that was asked is answered
                self._link = None
        finally:
            self.close()

    def _all(self, decoder: Decoder) -> Iterator[Columns | Packed]:
        """Yields everything, over as many connections as needed. No pause after the first, which may have
        been idle.
        """
        pause = 0.0
        self._advanced()
        confirmed = begun = False
        while not confirmed:
            try:
                for columns in self._answers(decoder):
                    if columns:
                        begun = True
                        yield columns
                confirmed = self._confirmed()
            except _MadeAnew as error:
                self._lost(str(error))
                if begun:
                    raise ReadError(f"while it was read, {error}. Start the query again") from error
                return
            except (OSError, LoadError, _Moved) as error:
                if self._link is not None:
                    LINKS.failed(self._link.address)
                self.close()
                if time.monotonic() > self._deadline:
                    raise self._stalled(decoder, str(error)) from error
                time.sleep(pause)
                pause = _PAUSE_S

    def _answers(self, decoder: Decoder) -> Iterator[Columns | Packed]:
        """Yields answers as long as the connection lives. Decodes one while the next is in flight."""
        if decoder.next >= self._part.until:
            return
        connection = self._connected()
        connection.send(self._request(decoder.next))
        while decoder.next < self._part.until:
            answer = Answer(connection.receive())
            if answer.error:
                self._refused(answer, decoder)
                self._advanced()
                if decoder.next < self._part.until:
                    connection.send(self._request(decoder.next))
                continue
            before = decoder.next
            after = max((header.next_offset for _, header in answer.headers()), default=decoder.next)
            self._check_end(answer, after)
            if after < self._part.until:
                connection.send(self._request(after))
            yield from decoder.decode(answer)
            if decoder.next > before:
                self._advanced()
            elif time.monotonic() > self._deadline:
                raise self._stalled(decoder, self._why(answer, before))

    def _advanced(self) -> None:
        self._deadline = time.monotonic() + self._timeout

    def _stalled(self, decoder: Decoder, why: str) -> ReadError:
        return ReadError(
            f"{self._part.partition} at {self._servers}: no progress at offset {decoder.next} for "
            f"{self._timeout:g} s (readTimeoutMs): {why}"
        )

    def _why(self, answer: Answer, offset: int) -> str:
        """Returns what an answer without records means."""
        if answer.high_watermark > offset:
            return f"a transaction is open since offset {answer.stable}, or records are not sent"
        return f"it ends at {answer.high_watermark}, and is to be read up to {self._part.until}"

    def _check_end(self, answer: Answer, after: int) -> None:
        if answer.high_watermark < min(self._part.until, after):
            self._lost(f"{self._part.partition} ends at {answer.high_watermark} now")

    def _refused(self, answer: Answer, decoder: Decoder) -> None:
        partition = self._part.partition
        if answer.error == OFFSET_OUT_OF_RANGE:
            start = self._connected().offset(partition.topic, partition.number, frames.EARLIEST)
            end = self._connected().offset(partition.topic, partition.number)
            gone = min(start, self._part.until) if decoder.next < start else self._part.until
            self._lost(
                f"{partition}: offsets {decoder.next} to {gone - 1} are gone ({start} to {end} are there)"
            )
            decoder.next = gone
            return
        if answer.error in _RETRIABLE:
            raise _Moved(f"error {answer.error}")
        raise ReadError(f"{partition} at {self._servers}: Fetch was answered with error {answer.error}")

    def _lost(self, text: str) -> None:
        if self._fail_on_data_loss:
            raise DataLossError(loss_text([text]))
        _log.warning("records are lost; the query continues, because failOnDataLoss is false", detail=text)

    def _request(self, offset: int) -> bytes:
        return fetch_request(self._part, offset, committed=self._committed, text=self._text)

    def _connected(self) -> Connection:
        """Returns a connection to the partition's leader from Metadata; a daemon names itself."""
        if self._link is None:
            with LINKS.lent_any(self._servers, self._timeout) as first:
                leader = self._leader(first)
            self._link = LINKS.take(leader, self._timeout)
        return self._link.connection

    def _leader(self, link: Link) -> Address:
        partition = self._part.partition
        view = link.view(partition.topic, topic_id=self._topic_id)
        self._check_topic(view)
        error, leaders = view.topics.get(partition.topic, (3, {}))
        leader = view.brokers.get(leaders.get(partition.number, -1))
        if leader is None:
            raise _Moved(f"nobody leads it (error {error})")
        return Address(*leader)

    def _check_topic(self, view: ClusterView) -> None:
        """Raises _MadeAnew if the topic of that name is another one."""
        topic = self._part.partition.topic
        now = view.ids.get(topic, "")
        if self._topic_id and now and now != self._topic_id:
            raise _MadeAnew(
                f"{topic} was deleted and created again: offsets {self._part.first} to {self._part.until - 1}"
                f" of {self._part.partition} were of the topic with id {self._topic_id}, now there"
                f" is one with id {now}"
            )

    def _confirmed(self) -> bool:
        """Returns True after a request following the last record: as an id is never reused, everything read
        before is of the intended topic. Raises _MadeAnew if there is another one, whose records may have been
        read.
        """
        if self._topic_id:
            self._connected()
            assert self._link is not None
            self._check_topic(self._link.metadata([self._part.partition.topic]))
        return True

    def close(self) -> None:
        """Closes its link, which may still wait for answers. A later read takes another."""
        if self._link is not None:
            self._link.close()
            self._link = None


class _MadeAnew(Exception):
    """There is another topic of the same name."""


class _Moved(Exception):
    """Another leader must be found, or this one is temporarily not ready."""


def fetch_request(
    part: Range, offset: int, *, committed: bool, text: str | None, wait_ms: int = _WAIT_MS
) -> bytes:
    """Returns Fetch 12 of one partition from `offset`; `text` is a filter for a daemon (docs/filters.md)."""
    topic = part.partition.topic.encode()
    most = MAX_BYTES
    if text is None:  # filtered-out records cost nothing
        most = min(most, max(_FEW_BYTES, (part.until - offset) * _RECORD_BYTES))
    body = struct.pack(">iiiibii", -1, wait_ms, 1, most, int(committed), 0, -1)
    body += b"\x02" + uvarint(len(topic) + 1) + topic + b"\x02"
    body += struct.pack(">iiqiqi", part.partition.number, -1, offset, -1, -1, most) + b"\0\0"
    body += b"\x01\x01"  # nothing forgotten, no rack
    if text is None:
        body += b"\0"
    else:
        raw = text.encode()
        body += b"\x01" + uvarint(_FILTER_TAG) + uvarint(len(raw)) + raw
    return framed(1, 12, body)
