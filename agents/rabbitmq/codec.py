"""Messages of AMQP as they cross the fabric, in runs both ways.

A message is a publish of MQTT 5 with QoS 1 and no properties (`wire.mqtt_publish`), with this payload:

    exchange | routing key | size of properties (4) | properties | body

Exchange and key are short strings. Properties are encoded as in a content header, byte for byte as the
publisher sent them, but for one header more (`hops`).
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i16, i32, i64

from treecast.middleware.wire.mqtt_publish import PUBLISH_1, head_at, uint16_at, write_varint
from treecast.shims.amqp.codec import short
from treecast.shims.amqp.codec_client import publish_head
from treecast.shims.amqp.codec_deliver import write_content
from treecast.shims.amqp.codec_properties import look

from .hops import with_field, with_user_as_header

_LAYOUT_HEAD: Final = 8
_USER_FLAG: Final = 0x10  # in the second byte of a message's flags


class BadPayload(Exception):
    """A payload that no agent has written."""


def names_of(exchange: bytes, key: bytes) -> bytes:
    """Returns the begin of a payload."""
    return short(exchange) + short(key)


def packets_of(topic: bytes, names: bytes, data: bytes, hop: bytes) -> bytes:
    """Returns the messages of `data`, in the layout of `shims.amqp.codec_publish`, as publishes.

    `hop`: the field that is added to the headers of each; empty: they have it already.
    """
    out = BytesWriter()
    between = topic + b"\x00\x01\x00" + names  # packet id 1, no properties
    length = len(topic)
    known, last, made = False, b"", b""  # a publisher's messages often have the same properties
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        size = i64(read_i32_be(data, at))
        body = i64(read_i32_be(data, at + 4))
        at += _LAYOUT_HEAD
        properties = data[at : at + size]
        if hop:
            if not known or properties != last:
                seen = look(properties, 0, size)
                made = with_field(properties, seen.headers_begin, seen.headers_end, hop)
                known, last = True, properties
            properties = made
        out.append(PUBLISH_1)
        write_varint(out, 2 + len(between) + 4 + len(properties) + int(body))
        out.append(length >> 8)
        out.append(length & 0xFF)
        out.write(between)
        write_i32_be(out, i32(len(properties)))
        out.write(properties)
        out.write(data[at + size : at + size + body])
        at += size + body
    return out.getvalue()


def payload_at(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Returns where the payload of the publish at `at` begins and ends. Raises BadPayload."""
    size, body = head_at(data, at, end)
    stop = body + size
    if size < 5 or stop > end:
        raise BadPayload("a publish is cut off")
    begin = body + 2 + uint16_at(data, body) + 3
    if begin > stop:
        raise BadPayload("a publish is too short")
    return begin, stop


class PublishWriter:
    """Writes messages from the fabric as publishes to a server.

    `written`: publishes so far. Left out, and counted: `own`, messages that left this site itself; `unknown`,
    those of exchanges that this site does not have; `bad`, what is no message.
    """

    def __init__(self, channel: int, piece: int, own: bytes, keeps_user: bool) -> None:
        """`piece`: the largest payload of a body frame. `own`: this site's entry among the hops.
        `keeps_user`: the agent's user may publish in the name of others."""
        self.written = 0
        self.own = 0
        self.unknown = 0
        self.bad = 0
        self._channel = channel
        self._piece = piece
        self._own = own
        self._keeps_user = keeps_user
        self._heads: dict[bytes, bytes] = {}  # by exchange and key as in a payload; b"": left out
        self._exchanges: set[bytes] = set()

    def use_exchanges(self, exchanges: set[bytes]) -> None:
        """Sets the exchanges of this site."""
        self._exchanges = exchanges
        self._heads = {}

    def write_run(self, out: BytesWriter, data: bytes) -> None:
        """Writes all messages of a run of publishes of MQTT 5."""
        at: i64 = 0
        end: i64 = len(data)
        while at < end:
            try:
                begin, stop = payload_at(data, at, end)
            except BadPayload:
                self.bad += 1
                return
            self.write(out, data, begin, stop)
            at = stop

    def write(self, out: BytesWriter, data: bytes, begin: i64, stop: i64) -> bool:
        """Writes the message whose payload lies between two offsets. Returns whether it was not left out."""
        at = self._names_end(data, begin, stop)
        if at < 0 or at + 6 > stop:
            self.bad += 1
            return False
        head = self._head(data[begin:at])
        size = i64(read_i32_be(data, at))
        at += 4
        body = stop - at - size
        if size < 2 or body < 0:
            self.bad += 1
            return False
        if not head:
            self.unknown += 1
            return False
        if self._own in data[at : at + size]:
            self.own += 1
            return False
        out.write(head)
        if data[at + 1] & _USER_FLAG and not self._keeps_user:
            properties = with_user_as_header(data[at : at + size])
            content = properties + data[at + size : stop]
            write_content(out, i16(self._channel), i64(self._piece), content, 0, len(properties), body)
        else:
            write_content(out, i16(self._channel), i64(self._piece), data, at, size, body)
        self.written += 1
        return True

    def _names_end(self, data: bytes, at: i64, stop: i64) -> i64:
        """Returns the end of exchange and key, or -1."""
        for _ in range(2):
            if at >= stop:
                return -1
            at += 1 + i64(data[at])
        return at if at <= stop else -1

    def _head(self, names: bytes) -> bytes:
        """Returns the method frame of a publish; b"" if this site has no such exchange."""
        head = self._heads.get(names)
        if head is None:
            size = names[0]
            exchange, key = names[1 : 1 + size], names[2 + size :]
            known = exchange in self._exchanges
            head = publish_head(self._channel, exchange, key) if known else b""
            if len(self._heads) >= 4096:
                self._heads = {}
            self._heads[names] = head
        return head
