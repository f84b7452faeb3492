"""The few AMQP 0-9-1 methods that a load generator sends, encoded once, and the parsing of their answers.

Deliberately not the codec of our face: a generator that shared it would share its mistakes. A frame is type
(1 byte: 1 method, 2 header, 3 body, 8 heartbeat), channel (2), size (4), payload, 0xCE; a method is class
(2), method (2) and its fields (AMQP 0-9-1, section 4.2). Confirms are RabbitMQ's extension.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from treecast.middleware.load.frames import LoadError

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
HEAD = struct.Struct(">BHI")
TWO = struct.Struct(">HH")

START, START_OK = (10, 10), (10, 11)
TUNE, TUNE_OK = (10, 30), (10, 31)
OPEN, OPEN_OK = (10, 40), (10, 41)
CONNECTION_CLOSE, CHANNEL_CLOSE = (10, 50), (20, 40)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = (40, 10), (40, 11)
QUEUE_DECLARE, QUEUE_DECLARE_OK = (50, 10), (50, 11)
QUEUE_BIND, QUEUE_BIND_OK = (50, 20), (50, 21)
QUEUE_PURGE, QUEUE_PURGE_OK = (50, 30), (50, 31)
QUEUE_DELETE, QUEUE_DELETE_OK = (50, 40), (50, 41)
QOS, QOS_OK = (60, 10), (60, 11)
CONSUME, CONSUME_OK = (60, 20), (60, 21)
PUBLISH, DELIVER, ACK, NACK = (60, 40), (60, 60), (60, 80), (60, 120)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)

_PERSISTENT = struct.pack(">HB", 1 << 12, 2)  # the flag of delivery-mode, and its value
_ACK = struct.Struct(">QB")


def frame(kind: int, channel: int, body: bytes) -> bytes:
    return HEAD.pack(kind, channel, len(body)) + body + bytes((END,))


def method(name: tuple[int, int], fields: bytes = b"", channel: int = 1) -> bytes:
    return frame(METHOD, channel, TWO.pack(*name) + fields)


def short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


def start_ok(user: str, password: str) -> bytes:
    """Returns start-ok: PLAIN, without client properties, so without notices of blocked connections and
    consumer cancels.
    """
    answer = f"\0{user}\0{password}".encode()
    fields = struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", len(answer)) + answer + short("en_US")
    return method(START_OK, fields, 0)


def tune_ok(channels: int, frame_max: int) -> bytes:
    """Returns tune-ok without heartbeats: a silent load ends by itself."""
    return method(TUNE_OK, struct.pack(">HIH", channels, frame_max, 0), 0)


def publish(exchange: str, body: bytes, key: str = "", persistent: bool = True) -> bytes:
    """Returns a message: method, header and one body frame."""
    fields = struct.pack(">H", 0) + short(exchange) + short(key) + b"\0"
    header = TWO.pack(60, 0) + struct.pack(">Q", len(body)) + (_PERSISTENT if persistent else b"\0\0")
    return method(PUBLISH, fields) + frame(HEADER, 1, header) + frame(BODY, 1, body)


def consume(queue: str, tag: str = "", acknowledges: bool = True) -> bytes:
    """Returns basic.consume; without a `tag` the server picks one."""
    flags = b"\0" if acknowledges else b"\2"
    return method(CONSUME, struct.pack(">H", 0) + short(queue) + short(tag) + flags + struct.pack(">I", 0))


def declare_exchange(exchange: str, kind: str) -> bytes:
    """Returns exchange.declare of a durable exchange."""
    fields = struct.pack(">H", 0) + short(exchange) + short(kind) + b"\2" + struct.pack(">I", 0)
    return method(EXCHANGE_DECLARE, fields)


def declare_queue(queue: str, arguments: Mapping[str, str]) -> bytes:
    """Returns queue.declare of a durable queue."""
    table = b"".join(
        short(name) + b"S" + struct.pack(">I", len(value)) + value.encode()
        for name, value in arguments.items()
    )
    fields = struct.pack(">H", 0) + short(queue) + b"\2" + struct.pack(">I", len(table)) + table
    return method(QUEUE_DECLARE, fields)


def bind(queue: str, exchange: str, key: str) -> bytes:
    fields = struct.pack(">H", 0) + short(queue) + short(exchange) + short(key) + b"\0"
    return method(QUEUE_BIND, fields + struct.pack(">I", 0))


def delete(queue: str) -> bytes:
    return method(QUEUE_DELETE, struct.pack(">H", 0) + short(queue) + b"\0")


def qos(prefetch: int) -> bytes:
    return method(QOS, struct.pack(">IHB", 0, prefetch, 0))


def purge(queue: str) -> bytes:
    return method(QUEUE_PURGE, struct.pack(">H", 0) + short(queue) + b"\0")


def ack(tag: int) -> bytes:
    """Returns an acknowledgement of all deliveries up to `tag`."""
    return method(ACK, _ACK.pack(tag, 1))


def read_ack(data: bytes | bytearray, position: int) -> tuple[int, bool]:
    """Returns the tag and `multiple` of a basic.ack whose payload begins at `position`."""
    tag, multiple = _ACK.unpack_from(data, position + TWO.size)
    return tag, bool(multiple & 1)


def walk(data: bytes | bytearray, filled: int) -> Iterator[tuple[int, int, int]]:
    """Yields the whole frames among the first `filled` bytes, as (type, where the payload begins, its
    end).
    """
    position, unpack = 0, HEAD.unpack_from
    while position + 8 <= filled:
        kind, _, size = unpack(data, position)
        end = position + 7 + size
        if end >= filled:
            return
        if data[end] != END:
            raise LoadError("a frame does not end where its length says")
        yield kind, position + 7, end
        position = end + 1


def refusal(data: bytes | bytearray, start: int, end: int) -> str:
    """Returns the text of a connection.close or channel.close."""
    code, length = struct.unpack_from(">HB", data, start + TWO.size)
    text = bytes(data[start + 7 : min(start + 7 + length, end)]).decode(errors="replace")
    return f"{code} {text}"
