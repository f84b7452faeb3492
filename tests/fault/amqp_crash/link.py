"""A plain blocking AMQP connection with one channel, by pamqp. It keeps no state across disconnections."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple, TypeVar

from pamqp import base, body, commands, frame, header

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
M = TypeVar("M", bound=base.Frame)


class Broken(OSError):
    """The connection ended, for example because the daemon was killed."""


class Delivered(NamedTuple):
    tag: int
    redelivered: bool
    body: bytes


def publish(exchange: str, key: str, payload: bytes) -> bytes:
    """Returns a persistent message as frames on channel 1."""
    properties = commands.Basic.Properties(delivery_mode=2)
    return b"".join(
        frame.marshal(one, 1)
        for one in (
            commands.Basic.Publish(exchange=exchange, routing_key=key),
            header.ContentHeader(0, len(payload), properties),
            body.ContentBody(payload),
        )
    )


class Link:
    """One connection and its channel 1."""

    def __init__(self, address: tuple[str, int], timeout: float = 20.0) -> None:
        self._buffer = b""
        self._found: list[base.Frame | Delivered] = []
        self._method: commands.Basic.Deliver | None = None
        self._timeout = timeout
        self._socket = socket.create_connection(address, timeout)
        self._send(PROTOCOL_HEADER)
        self._await(commands.Connection.Start)
        capable = {"capabilities": {"consumer_cancel_notify": True}}
        self.ask(commands.Connection.StartOk(capable, "PLAIN", "\0guest\0guest"), commands.Connection.Tune, 0)
        self.send(commands.Connection.TuneOk(2047, 131072, 0), channel=0)
        self.ask(commands.Connection.Open("/"), commands.Connection.OpenOk, 0)
        self.ask(commands.Channel.Open(), commands.Channel.OpenOk)

    def send(self, *methods: base.Frame, channel: int = 1) -> None:
        self._send(b"".join(frame.marshal(method, channel) for method in methods))

    def send_bytes(self, data: bytes) -> None:
        self._send(data)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Broken(str(error)) from error

    def ask(self, method: base.Frame, kind: type[M], channel: int = 1) -> M:
        """Sends a method and waits for its answer; keeps other frames for `receive`."""
        self.send(method, channel=channel)
        return self._await(kind)

    def _await(self, kind: type[M]) -> M:
        kept: list[base.Frame | Delivered] = []
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            kept += self.receive(0.2)
            for at, one in enumerate(kept):
                if isinstance(one, kind):
                    self._found = kept[:at] + kept[at + 1 :]
                    return one
        raise Broken(f"no {kind.name}")

    def receive(self, wait: float) -> list[base.Frame | Delivered]:
        """Returns the frames and messages that arrive within `wait` seconds."""
        if self._found:
            found, self._found = self._found, []
            return found
        self._socket.settimeout(wait)
        try:
            data = self._socket.recv(262_144)
        except TimeoutError:
            return []
        except OSError as error:
            raise Broken(str(error)) from error
        if not data:
            raise Broken("the daemon closed the connection")
        return self._cut(self._buffer + data)

    def _cut(self, data: bytes) -> list[base.Frame | Delivered]:
        found: list[base.Frame | Delivered] = []
        while len(data) >= 7 and len(data) >= (size := int.from_bytes(data[3:7], "big") + 8):
            _, _, one = frame.unmarshal(data[:size])
            data = data[size:]
            if isinstance(one, commands.Basic.Deliver):
                self._method = one
            elif isinstance(one, body.ContentBody):
                assert self._method is not None
                found.append(
                    Delivered(self._method.delivery_tag or 0, bool(self._method.redelivered), one.value)
                )
            elif isinstance(one, commands.Connection.Close | commands.Channel.Close):
                raise Broken(f"closed: {one.reply_text}")
            elif isinstance(one, base.Frame):
                found.append(one)
        self._buffer = data
        return found

    def close(self) -> None:
        self._socket.close()

    def leave(self) -> None:
        """Closes the connection in order, so that the broker has handled everything sent before."""
        self.ask(commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk, 0)
        self.close()
