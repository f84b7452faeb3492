"""Parses consecutive publishes of a chunk as one run.

A publish is a method frame, a content header and, unless its body is empty, body frames, all on one
channel. Publishes become one `Run`, in the layout of `broker.queues`, if their method frames are identical,
they are complete in the chunk, and they are handled identically. Routing, queueing and confirming are then
done once for all of them. From the first publish that differs, processing continues frame by frame; tests
verify that both ways are equivalent.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from . import codec
from .codec_content import ContentScan
from .codec_properties import Seen

_MORE_KEYS: Final = (b"\x02CC", b"\x03BCC")  # encoded names of the headers with further routing keys


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
