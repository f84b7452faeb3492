"""Parses the content of a message, a content header and body frames, into the layout of a run.

size of properties (4) | size of body (4) | properties | body
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be
from mypy_extensions import i32, i64

from . import codec
from .codec import END, FRAME_HEAD, FRAME_OVERHEAD
from .codec_properties import Seen, look

CONTENT_HEAD: Final = 12  # bytes of a content header before its properties
_BASIC_NO_WEIGHT: Final = codec.BASIC << 16


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
