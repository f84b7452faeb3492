"""Parses the contents of messages, and consecutive publishes of a chunk as one run.

A content is a content header and, unless its body is empty, body frames, all on one channel. It becomes a
message in the layout of `broker.queues`: size of properties (4) | size of body (4) | properties | body

A publish is a method frame and a content. Publishes become one `Run` if their method frames are identical,
they are complete in the chunk, and they are handled identically. Routing, queueing and confirming are then
done once for all of them. From the first publish that differs, processing continues frame by frame; tests
verify that both ways are equivalent.
"""

from __future__ import annotations

import re
from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be
from mypy_extensions import i32, i64

from treecast.middleware.broker.queues import Run

from . import codec
from .codec import END, FRAME_HEAD, FRAME_OVERHEAD, PRECONDITION_FAILED, PUBLISH, AmqpError
from .codec_properties import Seen, look

CONTENT_HEAD: Final = 12  # bytes of a content header before its properties
FORMAT: Final = 1  # `Run.format` for properties in AMQP 0-9-1 encoding
_BASIC_NO_WEIGHT: Final = codec.BASIC << 16
_MORE_KEYS: Final = (b"\x02CC", b"\x03BCC")  # encoded names of the headers with further routing keys
_LONGEST_MS: Final = 315_360_000_000
_WHOLE: Final = re.compile(rb"[+-]?[0-9]{1,20}")


class ContentScan:
    """Reads contents whose frames all lie in one chunk.

    `content_seen`, `content_size` and `content_at`: the properties and the size of the body of the last one,
    and where it begins in the output. `largest`: the largest body, in bytes.
    """

    def __init__(self) -> None:
        self.largest: int = 1 << 30
        self.frame_max: int = 1 << 30
        self.content_seen = Seen()
        self.content_size = 0
        self.content_at = 0

    def content(self, data: bytes, at: i64, end: i64, out: BytesWriter, high: i64, low: i64) -> i64:
        """Writes one message's properties and body.

        Returns the end of its frames, or -1 if it is incomplete or malformed.
        """
        if at + FRAME_HEAD + CONTENT_HEAD > end or data[at] != codec.HEADER:
            return -1
        if data[at + 1] != high or data[at + 2] != low:
            return -1
        size = i64(read_i32_be(data, at + 3))
        stop = at + size + FRAME_OVERHEAD
        if size < CONTENT_HEAD + 2 or stop > end or size > self.frame_max - FRAME_OVERHEAD:
            return -1
        if data[stop - 1] != END or i64(read_i32_be(data, at + FRAME_HEAD)) != _BASIC_NO_WEIGHT:
            return -1
        body = read_i64_be(data, at + FRAME_HEAD + 4)
        if body < 0 or body > self.largest:
            return -1
        begin = at + FRAME_HEAD + CONTENT_HEAD
        try:
            self.content_seen = look(data, begin, stop - 1)
        except codec.AmqpError:
            return -1
        self.content_at = len(out)
        self.content_size = body
        write_i32_be(out, i32(stop - 1 - begin))
        write_i32_be(out, i32(body))
        out.write(data[begin : stop - 1])
        found = self._bodies(data, stop, end, body, out, high, low)
        if found < 0:
            out.truncate(self.content_at)
        return found

    def _bodies(
        self, data: bytes, at: i64, end: i64, left: i64, out: BytesWriter, high: i64, low: i64
    ) -> i64:
        """Writes the body. Returns the end of its last frame, or -1."""
        while left > 0:
            if at + FRAME_OVERHEAD > end or data[at] != codec.BODY:
                return -1
            if data[at + 1] != high or data[at + 2] != low:
                return -1
            size = i64(read_i32_be(data, at + 3))
            stop = at + size + FRAME_OVERHEAD
            if size < 1 or size > left or stop > end or size > self.frame_max - FRAME_OVERHEAD:
                return -1
            if data[stop - 1] != END:
                return -1
            out.write(data[at + FRAME_HEAD : stop - 1])
            left -= size
            at = stop
        return at


class PublishScan(ContentScan):
    """The publishes at an offset of a chunk that form one run.

    There are `count` of them, up to the offset `stop`; if `count` is 0, the first must be processed by
    itself. `data` is the content of the run, `size` the total size of the bodies.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.stop = 0
        self.size = 0
        self.data = b""
        self.seen = Seen()

    def look(self, data: bytes, position: i64, end: i64, method_end: i64, alike_headers: bool) -> None:
        """Scans from the publish at `position`, whose method frame ends at `method_end`. Never raises.

        `alike_headers` requires identical headers, for exchanges that route by them.
        """
        self.count = 0
        size = method_end - position
        out = BytesWriter()
        head = data[position:method_end]
        bodies: i64 = 0
        count: i64 = 0
        at = position
        first_headers = b""
        while at + size <= end and data[at : at + size] == head:
            found = self.content(data, at + size, end, out, data[position + 1], data[position + 2])
            if found < 0:
                break
            seen = self.content_seen
            headers = data[seen.headers_begin : seen.headers_end] if seen.headers_end else b""
            if not _plain(seen, headers) or (
                count and not (seen.same(self.seen) and (not alike_headers or headers == first_headers))
            ):
                out.truncate(self.content_at)
                break
            if count == 0:
                self.seen = seen
                first_headers = headers
            bodies += self.content_size
            count += 1
            at = found
        self.count = count
        self.stop = at
        self.size = bodies
        if count:
            self.data = out.getvalue()


def _plain(seen: Seen, headers: bytes) -> bool:
    """Whether the properties can be forwarded without further processing."""
    if seen.user is not None or (seen.expiration is not None and not seen.expiration.isdigit()):
        return False
    if seen.reply_to is not None and seen.reply_to.startswith(b"amq.rabbitmq.reply-to"):
        return False
    return not headers or not any(further in headers for further in _MORE_KEYS)


def publish_fields(payload: bytes) -> tuple[bytes, bytes, int]:
    """Returns (exchange, key, flags) of a basic.publish: ticket (2), two short strings, bits.

    Raises SYNTAX_ERROR if it is malformed.
    """
    at = 6
    exchange, at = _short(payload, at)
    key, at = _short(payload, at)
    if at + 1 != len(payload):
        raise codec.AmqpError(codec.SYNTAX_ERROR, "basic.publish has a wrong length", codec.PUBLISH)
    return exchange, key, payload[at]


def _short(data: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(data):
        raise codec.AmqpError(codec.SYNTAX_ERROR, "a string is missing", codec.PUBLISH)
    stop = at + 1 + data[at]
    return data[at + 1 : stop], stop


def run_of(exchange: bytes, key: bytes, data: bytes, count: int, size: int, seen: Seen) -> Run:
    """Creates a run of similar messages. Raises PRECONDITION_FAILED for an invalid expiration."""
    run = Run(
        exchange, key, data, count, size, seen.persistent, seen.priority, _milliseconds(seen.expiration)
    )
    run.format = FORMAT
    return run


def _milliseconds(expiration: bytes | None) -> int:
    if expiration is None:
        return -1
    if not _WHOLE.fullmatch(expiration) or not 0 <= int(expiration) <= _LONGEST_MS:
        given = expiration.decode(errors="replace")
        raise AmqpError(PRECONDITION_FAILED, f"invalid expiration '{given}'", PUBLISH)
    return int(expiration)
