"""A plain blocking MQTT 5 connection. It keeps no state across disconnections."""

from __future__ import annotations

import socket
import time

from treecast.shims.mqtt.codec import V5
from treecast.shims.mqtt.codec_packets import Connack, Connect, Packet, decode, encode
from treecast.shims.mqtt.codec_properties import Properties
from treecast.shims.mqtt.codec_read import read_length

EXPIRY_S = 100_000


class Broken(OSError):
    """The connection ended, for example because the daemon was killed."""


class Link:
    """One connection of a persistent session. `present`: the daemon still had the session."""

    def __init__(self, address: tuple[str, int], client_id: str, timeout: float = 20.0) -> None:
        self._buffer = b""
        self._socket = socket.create_connection(address, timeout)
        self.send(Connect(V5, client_id, False, properties=Properties(session_expiry=EXPIRY_S)))
        deadline = time.monotonic() + timeout
        while not (found := self.receive(0.2)):
            if time.monotonic() > deadline:
                raise Broken("no CONNACK")
        connack, *self._early = found
        if not isinstance(connack, Connack) or connack.reason:
            raise Broken(f"instead of a CONNACK: {connack}")
        self.present = connack.session_present

    def send(self, *packets: Packet) -> None:
        try:
            self._socket.sendall(b"".join(encode(packet, V5) for packet in packets))
        except OSError as error:
            raise Broken(str(error)) from error

    def receive(self, wait: float) -> list[Packet]:
        """Returns the packets that arrive within `wait` seconds."""
        early = getattr(self, "_early", None)
        if early:
            self._early = []
            return early
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

    def _cut(self, data: bytes) -> list[Packet]:
        found, position = [], 0
        while position < len(data):
            size, body = read_length(data, position, len(data))
            if size < 0 or body + size > len(data):
                break
            found.append(decode(data[position], data[body : body + size], V5))
            position = body + size
        self._buffer = data[position:]
        return found

    def close(self) -> None:
        self._socket.close()
