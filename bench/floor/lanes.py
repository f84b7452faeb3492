"""Connections and the poll of the bare loops for AMQP and MQTT: what both need of a client's bytes.

A lane knows the length of its publishes once one has come, and returns them whole. What precedes the first
publish, each protocol answers itself.
"""

from __future__ import annotations

import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

CHUNK = 256 * 1024


class Lane(ABC):
    """A connection. `packet`: the length of its publishes, once one has come."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.consumes = False
        self.packet = 0
        self._buffer = bytearray(CHUNK)
        self._filled = 0

    def receive(self) -> memoryview | None:
        """Returns whole publishes, valid until the next call; empty if none arrived, None if the client is
        gone.
        """
        view = memoryview(self._buffer)
        try:
            count = self.socket.recv_into(view[self._filled :])
        except ConnectionError:
            return None
        if not count:
            return None
        self._filled += count
        if self.consumes:
            self._filled = 0  # its acknowledgements
            return view[:0]
        if not self.packet:
            self._begin(view)
        return view[: self._filled // self.packet * self.packet] if self.packet else view[:0]

    @abstractmethod
    def _begin(self, view: memoryview) -> None:
        """Sends the answers to earlier methods or packets. Sets `packet` once the first publish has come."""

    def keep(self, used: int) -> None:
        """Moves the remaining bytes to the front."""
        left = self._filled - used
        self._buffer[:left] = bytes(self._buffer[used : self._filled])
        self._filled = left


L = TypeVar("L", bound=Lane)


class Poll(Generic[L]):
    """All connections of a listener. `others`: callbacks for further sockets, by number."""

    def __init__(self, listener: socket.socket, make: Callable[[socket.socket], L]) -> None:
        self.lanes: dict[int, L] = {}
        self._listener = listener
        self._make = make
        self._others: dict[int, Callable[[], None]] = {listener.fileno(): self._accept}
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)

    def add(self, other: socket.socket, arrived: Callable[[], None]) -> None:
        """Calls `arrived` when `other` has something to read."""
        self._others[other.fileno()] = arrived
        self._poll.register(other, select.EPOLLIN)

    def wait(self) -> list[tuple[L, memoryview]]:
        """Returns the publishes that one poll brings, by lane."""
        came: list[tuple[L, memoryview]] = []
        for number, _ in self._poll.poll():
            if number in self._others:
                self._others[number]()
            elif (publishes := self.lanes[number].receive()) is None:
                self._gone(number)
            elif publishes:
                came.append((self.lanes[number], publishes))
        return came

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lanes[connection.fileno()] = self._make(connection)
        self._poll.register(connection, select.EPOLLIN)

    def _gone(self, number: int) -> None:
        self._poll.unregister(number)
        self.lanes.pop(number).socket.close()
