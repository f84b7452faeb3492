"""The client's end of the hot paths: deliveries read in runs, publishes written in runs.

    basic.deliver: consumer tag | delivery tag (8) | redelivered (1) | exchange | key
    basic.publish: ticket 0 (2) | exchange | key | mandatory, immediate (1)

Both use the layout of runs of `codec_publish`. A run of deliveries has one channel, consumer, exchange and
key, and delivery tags that follow one another.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be
from mypy_extensions import i16, i64

from . import codec
from .codec import END, FRAME_HEAD, FRAME_OVERHEAD, METHOD, frame, short
from .codec_deliver import write_content
from .codec_publish import CONTENT_HEAD, ContentScan

_LAYOUT_HEAD: Final = 8


class DeliveryScan(ContentScan):
    """The deliveries at an offset of a chunk that form one run.

    There are `count` of them, with the delivery tags from `first` on, up to the offset `stop`. If `count` is
    0, the first one is incomplete: all of it is there once the chunk has grown to the offset `wanted`.
    `marked` and `further`: whether the headers of its messages name `mark` and CC. `own`: it is marked, and
    the headers have the bytes `own` too.
    """

    def __init__(self, mark: bytes, own: bytes) -> None:
        """`mark`: a header's name, preceded by its length."""
        super().__init__()
        self._mark = mark
        self._own = own
        self.count = 0
        self.stop = 0
        self.wanted = 0
        self.first = 0
        self.channel = 0
        self.exchange = b""
        self.key = b""
        self.data = b""
        self.marked = False
        self.own = False
        self.further = False

    def look(self, data: bytes, position: i64, end: i64, method_end: i64) -> None:
        """Scans from the delivery at `position`, whose method frame ends at `method_end`.

        Raises FRAME_ERROR if its first message is malformed.
        """
        self.count = 0
        size = method_end - position
        tag_at = i64(FRAME_HEAD + 5) + data[position + FRAME_HEAD + 4]  # from the frame's begin
        if tag_at + 9 >= size or data[method_end - 1] != END:
            raise codec.AmqpError(codec.FRAME_ERROR, "a basic.deliver is malformed", codec.DELIVER)
        self.first = int(read_i64_be(data, position + tag_at))
        head = data[position : position + tag_at]
        tail = data[position + tag_at + 9 : method_end]
        self._names(tail)
        out = BytesWriter()
        count: i64 = 0
        at = position
        tag: i64 = self.first
        while at + size <= end:
            middle = at + tag_at
            if data[at:middle] != head or data[middle + 9 : at + size] != tail:
                break
            if read_i64_be(data, middle) != tag:
                break
            found = self.content(data, at + size, end, out, data[position + 1], data[position + 2])
            if found < 0 or not self._alike(data, count == 0):
                if found >= 0:
                    out.truncate(self.content_at)
                break
            count += 1
            tag += 1
            at = found
        self.count = int(count)
        self.stop = int(at)
        if count:
            self.channel = data[position + 1] << 8 | data[position + 2]
            self.data = out.getvalue()
        else:
            self.wanted = int(self._end_of_first(data, method_end, end))

    def _names(self, tail: bytes) -> None:
        """Reads exchange and key from the rest of a basic.deliver."""
        key_at = 1 + tail[0]
        if len(tail) < key_at + 2 or len(tail) != key_at + 2 + tail[key_at]:
            raise codec.AmqpError(codec.FRAME_ERROR, "a basic.deliver is malformed", codec.DELIVER)
        self.exchange = tail[1:key_at]
        self.key = tail[key_at + 1 : len(tail) - 1]

    def _alike(self, data: bytes, first: bool) -> bool:
        """Whether the last message is handled as the run so far; begins the run with the `first`."""
        seen = self.content_seen
        marked = own = further = False
        if seen.headers_end:
            headers = data[seen.headers_begin : seen.headers_end]
            marked = self._mark in headers
            own = marked and self._own in headers
            further = b"\x02CC" in headers
        if first:
            self.marked = marked
            self.own = own
            self.further = further
            return True
        return marked == self.marked and own == self.own and further == self.further

    def _end_of_first(self, data: bytes, at: i64, end: i64) -> i64:
        """Returns an offset before which the first message does not end. Raises FRAME_ERROR if more than that
        is there already, as it is malformed then."""
        if at + FRAME_HEAD + CONTENT_HEAD > end:
            return end + 1
        if data[at] != codec.HEADER:
            raise codec.AmqpError(codec.FRAME_ERROR, "a delivery has no content header", codec.DELIVER)
        body = read_i64_be(data, at + FRAME_HEAD + 4)
        if body < 0 or body > self.largest:
            raise codec.AmqpError(codec.FRAME_ERROR, f"a delivery has {body} bytes", codec.DELIVER)
        size = i64(read_i32_be(data, at + 3))
        piece = i64(self.frame_max - FRAME_OVERHEAD)
        if size < CONTENT_HEAD + 2 or size > piece:
            raise codec.AmqpError(
                codec.FRAME_ERROR, f"a content header of a delivery has {size} bytes", codec.DELIVER
            )
        frames = (body + piece - 1) // piece
        stop = at + size + FRAME_OVERHEAD + body + frames * FRAME_OVERHEAD
        if stop > end:
            return stop
        return self._cut_finer(data, at, end)

    def _cut_finer(self, data: bytes, at: i64, end: i64) -> i64:
        """As `_end_of_first`, for a body in more frames than needed: walks over the frames that are there."""
        left = read_i64_be(data, at + FRAME_HEAD + 4)
        at += i64(read_i32_be(data, at + 3)) + FRAME_OVERHEAD
        while left > 0:
            if at + FRAME_HEAD > end:
                return end + 1
            size = i64(read_i32_be(data, at + 3))
            if data[at] != codec.BODY or size < 1 or size > left:
                break
            at += size + FRAME_OVERHEAD
            left -= size
            if at > end:
                return at + left
        raise codec.AmqpError(codec.FRAME_ERROR, "the content of a delivery is malformed", codec.DELIVER)


def publish_head(channel: int, exchange: bytes, key: bytes) -> bytes:
    """Returns the frame of a basic.publish that is neither mandatory nor immediate."""
    index = codec.PUBLISH.to_bytes(4, "big")
    return frame(METHOD, channel, index + b"\0\0" + short(exchange) + short(key) + b"\0")


def write_publishes(out: BytesWriter, channel: int, piece: int, head: bytes, data: bytes) -> int:
    """Writes a publish for each message of `data`, in the layout of a run. Returns their number.

    `head`: as `publish_head` returns it. `piece`: the largest payload of a body frame.
    """
    at: i64 = 0
    end: i64 = len(data)
    count = 0
    while at < end:
        properties = i64(read_i32_be(data, at))
        body = i64(read_i32_be(data, at + 4))
        at += _LAYOUT_HEAD
        out.write(head)
        write_content(out, i16(channel), i64(piece), data, at, properties, body)
        at += properties + body
        count += 1
    return count
