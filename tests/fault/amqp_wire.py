"""A blocking AMQP client that can send what no library sends. Frames are pamqp's, not those of the face."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TypeVar

from pamqp import base, body, commands, frame, header, heartbeat

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
PATIENCE_S = 600.0
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
M = TypeVar("M", bound=base.Frame)
CAPABLE = {"connection.blocked": True, "consumer_cancel_notify": True, "authentication_failure_close": True}

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue


def raw_frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + end


def method(one: base.Frame, channel: int = 1) -> bytes:
    return frame.marshal(one, channel)


def head(size: int, channel: int = 1, kind: int = 60) -> bytes:
    """Returns a content header without properties."""
    payload = kind.to_bytes(2, "big") + b"\0\0" + size.to_bytes(8, "big") + b"\0\0"
    return raw_frame(HEADER, channel, payload)


def content(data: bytes, channel: int = 1, **properties: object) -> bytes:
    given = Basic.Properties(**properties)  # type: ignore[arg-type]
    out = frame.marshal(header.ContentHeader(0, len(data), given), channel)
    return out + (raw_frame(BODY, channel, data) if data else b"")


def publish(key: str, data: bytes, exchange: str = "", channel: int = 1, **properties: object) -> bytes:
    asked = Basic.Publish(exchange=exchange, routing_key=key)
    return method(asked, channel) + content(data, channel, **properties)


class Refused(Exception):
    """The server closed the channel or the connection: `channel` (0: the connection), code and text."""

    def __init__(self, channel: int, code: int, text: str) -> None:
        super().__init__(f"{'channel' if channel else 'connection'} closed: {code} {text}")
        self.channel = channel
        self.code = code


class Wire:
    """One connection. `read` returns frame by frame; heartbeats are passed over."""

    def __init__(self, address: tuple[str, int], *, receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small frames go in a row
        self.begun = b""  # what came of the next frame

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> tuple[int, object]:
        """Returns (channel, frame). Raises EOFError where the server has closed."""
        while True:
            size = int.from_bytes(self.begun[3:7], "big") + 8
            if len(self.begun) >= 8 and len(self.begun) >= size:
                _, channel, one = frame.unmarshal(self.begun[:size])
                self.begun = self.begun[size:]
                if not isinstance(one, heartbeat.Heartbeat):
                    return channel, one
                continue
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise EOFError
            self.begun += piece

    def expect(self, kind: type[M]) -> M:
        """Returns the next method, which has to be a `kind`. Raises `Refused` where it is a close."""
        channel, one = self.read()
        if isinstance(one, Channel.Close | Connection.Close):
            raise Refused(channel, one.reply_code, one.reply_text)
        assert isinstance(one, kind), one
        return one

    def ask(self, one: base.Frame, kind: type[M], channel: int = 1) -> M:
        self.send(method(one, channel))
        return self.expect(kind)

    def open(
        self, *channels: int, frame_max: int = 131072, every: int = 0, capabilities: object = CAPABLE
    ) -> Wire:
        self.send(PROTOCOL_HEADER)
        self.expect(Connection.Start)
        given = {"capabilities": capabilities}
        tune = self.ask(Connection.StartOk(given, "PLAIN", "\0guest\0guest"), Connection.Tune, 0)  # type: ignore[arg-type]
        self.send(method(Connection.TuneOk(tune.channel_max, frame_max, every), 0))
        self.ask(Connection.Open("/"), Connection.OpenOk, 0)
        for channel in channels or (1,):
            self.ask(Channel.Open(), Channel.OpenOk, channel)
        return self

    def declare(self, name: str, arguments: Mapping[str, object] | None = None) -> None:
        asked = Queue.Declare(queue=name, durable=True, arguments=dict(arguments or {}))  # type: ignore[arg-type]
        self.ask(asked, Queue.DeclareOk)

    def delete(self, name: str) -> None:
        self.ask(Queue.Delete(queue=name), Queue.DeleteOk)

    def consume(self, queue: str, *, no_ack: bool = True) -> None:
        self.ask(Basic.Consume(queue=queue, consumer_tag=queue, no_ack=no_ack), Basic.ConsumeOk)

    def message(self) -> tuple[Basic.Deliver, bytes]:
        """Returns the next delivery and its body."""
        return self.expect(Basic.Deliver), self.content()

    def get(self) -> tuple[Basic.GetOk, bytes]:
        """Returns the message that a `basic.get` returned, and its body."""
        return self.expect(Basic.GetOk), self.content()

    def content(self) -> bytes:
        """Returns the body behind a method that carries one."""
        return self.properties_and_body()[1]

    def properties_and_body(self) -> tuple[Basic.Properties, bytes]:
        """Returns the content behind a method that carries one."""
        head = self._content_header()
        data = b""
        while len(data) < head.body_size:
            _, one = self.read()
            assert isinstance(one, body.ContentBody)
            data += one.value
        return head.properties, data

    def content_size(self) -> int:
        return int(self._content_header().body_size)

    def _content_header(self) -> header.ContentHeader:
        _, one = self.read()
        assert isinstance(one, header.ContentHeader), one
        return one


def outcome(wire: Wire, data: bytes, *, closes: bool, probe: int = 9) -> tuple[int, int] | None:
    """Sends bytes and returns what the server made of them: (channel, code) of a close, with channel 0 for
    the connection; None if a channel opened after them is accepted; (-1, 0) if it only hangs up.

    `closes`: a close is waited for. RabbitMQ may answer another channel before it.
    """
    try:
        wire.send(data)
        if not closes:
            wire.send(method(Channel.Open(), probe))
        while True:
            channel, one = wire.read()
            if isinstance(one, Connection.Close | Channel.Close):
                return channel, one.reply_code
            if isinstance(one, Channel.OpenOk) and channel == probe:
                return None
    except (EOFError, ConnectionError):
        return -1, 0
