"""Output of messages: method, content header and body frames for each message of a part, and confirms.

basic.deliver: consumer tag | delivery tag (8) | redelivered (1) | exchange | key
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from . import codec
from .codec import END, FRAME_OVERHEAD, METHOD, frame, short

_CONTENT_HEAD: Final = 12
_LAYOUT_HEAD: Final = 8  # bytes before a message in a run: sizes of properties and body


class Destination:
    """The destination of one consumer's messages: channel, consumer tag and maximum frame size."""

    def __init__(self, channel: int, tag: bytes, frame_max: int) -> None:
        self.channel = channel
        self.piece = frame_max - FRAME_OVERHEAD  # maximum payload of a body frame
        self.head = codec.DELIVER.to_bytes(4, "big") + short(tag)
        self.exchange = self.key = b""  # of the last part, which is often that of the next
        self.names = short(b"") + short(b"")


def write_deliveries(
    out: BytesWriter,
    to: Destination,
    data: bytes,
    first: i64,
    redelivered: bool,
    exchange: bytes,
    key: bytes,
) -> None:
    """Writes each message of `data`, in the layout of a run, with delivery tags from `first` on."""
    if key != to.key or exchange != to.exchange:
        to.exchange, to.key, to.names = exchange, key, short(exchange) + short(key)
    names = bytes((redelivered,)) + to.names
    size: i64 = len(to.head) + 8 + len(names)
    channel = i16(to.channel)
    piece: i64 = to.piece
    head = to.head
    at: i64 = 0
    end: i64 = len(data)
    tag = first
    while at < end:
        properties = i64(read_i32_be(data, at))
        body = i64(read_i32_be(data, at + 4))
        out.append(METHOD)
        write_i16_be(out, channel)
        write_i32_be(out, i32(size))
        out.write(head)
        write_i64_be(out, tag)
        out.write(names)
        out.append(END)
        at += _LAYOUT_HEAD
        write_content(out, channel, piece, data, at, properties, body)
        at += properties + body
        tag += 1


def write_content(
    out: BytesWriter, channel: i16, piece: i64, data: bytes, at: i64, properties: i64, body: i64
) -> None:
    """Writes content header and body frames of the message whose properties begin at `at`."""
    out.append(codec.HEADER)
    write_i16_be(out, channel)
    write_i32_be(out, i32(_CONTENT_HEAD + properties))
    write_i32_be(out, i32(codec.BASIC << 16))
    write_i64_be(out, body)
    middle = at + properties
    out.write(data[at:middle])
    out.append(END)
    while body > 0:
        size = body if body < piece else piece
        out.append(codec.BODY)
        write_i16_be(out, channel)
        write_i32_be(out, i32(size))
        out.write(data[middle : middle + size])
        out.append(END)
        middle += size
        body -= size


def got(channel: int, tag: int, redelivered: bool, exchange: bytes, key: bytes, left: int) -> bytes:
    """Returns the frame of a basic.get-ok. `left` messages remain ready in the queue.

    Exchange and key may be any bytes that clients chose.
    """
    head = codec.GET_OK.to_bytes(4, "big") + tag.to_bytes(8, "big") + bytes((redelivered,))
    return frame(METHOD, channel, head + short(exchange) + short(key) + left.to_bytes(4, "big"))


def returned(channel: int, exchange: bytes, key: bytes) -> bytes:
    """Returns the frame of a basic.return for an unroutable message."""
    head = codec.RETURN.to_bytes(4, "big") + codec.NO_ROUTE.to_bytes(2, "big")
    names = short(codec.NAMES[codec.NO_ROUTE].encode()) + short(exchange) + short(key)
    return frame(METHOD, channel, head + names)


def content(channel: int, frame_max: int, properties: bytes, body: bytes) -> bytes:
    """Returns content header and body frames of one message."""
    out = BytesWriter()
    piece = frame_max - FRAME_OVERHEAD
    write_content(out, i16(channel), piece, properties + body, 0, len(properties), len(body))
    return out.getvalue()


def write_confirm(out: BytesWriter, channel: int, tag: int, multiple: bool, taken: bool) -> None:
    """Writes the confirm of a publish: basic.ack, or basic.nack if it was not taken."""
    out.append(METHOD)
    write_i16_be(out, i16(channel))
    write_i32_be(out, 13)
    write_i32_be(out, i32(codec.ACK if taken else codec.NACK))
    write_i64_be(out, tag)
    out.append(1 if multiple else 0)
    out.append(END)
