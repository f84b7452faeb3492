"""Sends answers: what is in memory through the transport, what lies in files with sendfile.

The transport keeps its own order, so one rule holds: bytes go straight to the socket only while the
transport has nothing unsent, and nothing goes through the transport while this queue has something.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TypeGuard

from treecast.middleware.model.buffers import BUFFERS, Chunk, FileRange, in_memory
from treecast.middleware.model.errors import TreecastError

JOIN_BYTES = 64 * 1024  # answers up to this size together are sent as one buffer
_NO_SOCKET = -1
_UNKNOWN = -2


class Sender:
    """The writing side of one connection. `resumed` is called when a queue has been sent."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, resumed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._resumed = resumed
        self._socket: socket.socket | None = None  # a duplicate: the transport's own is not to be touched
        self._number = _NO_SOCKET  # its descriptor
        self._own = _UNKNOWN  # the transport's own descriptor: written to, and nothing else
        self._queue: deque[Chunk] = deque()
        self._skip = 0  # bytes of the first chunk that are sent

    @property
    def waiting(self) -> bool:
        """Whether the client has to read before more can be sent; further answers had better wait."""
        return bool(self._queue)

    def send(self, chunks: list[Chunk], size: int) -> None:
        """Takes over `chunks`, `size` bytes together, and sends what can be sent now."""
        if self._queue:
            self._queue.extend(chunks)
        elif size <= JOIN_BYTES:
            first = chunks[0]
            if len(chunks) == 1 and isinstance(first, bytes):
                self._write(first)
            else:
                self._write(b"".join([in_memory(chunk) for chunk in chunks]))
        elif self._may_bypass(chunks):
            self._queue.extend(chunks)
            self._pump(waiting=False)
        else:
            for chunk in chunks:  # cheaper than `writelines`, and copied by neither under uvloop
                self._transport.write(in_memory(chunk))

    def _write(self, data: bytes) -> None:
        """At once where the transport has nothing unsent: by itself it would wait for the end of this turn
        of the loop. What the socket does not take, and its errors, are the transport's.
        """
        if not self._transport.get_write_buffer_size():
            if self._own == _UNKNOWN:
                self._own = _plain_socket(self._transport)
            if self._own != _NO_SOCKET and not self._transport.is_closing():
                try:
                    sent = os.write(self._own, data)
                except OSError:
                    sent = 0
                if sent == len(data):
                    return
                data = data[sent:]
        self._transport.write(data)

    def close(self) -> None:
        """Drops what is unsent. Safe to call twice."""
        self._queue.clear()
        if self._socket is not None:
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _may_bypass(self, chunks: list[Chunk]) -> bool:
        for chunk in chunks:
            if is_in_file(chunk):
                break
        else:
            return False
        if self._transport.get_write_buffer_size():
            return False
        return self._socket is not None or self._duplicate()

    def _duplicate(self) -> bool:
        own = self._transport.get_extra_info("socket")
        number = own.fileno() if own is not None else _NO_SOCKET
        if number == _NO_SOCKET:
            return False
        self._number = os.dup(number)
        self._socket = socket.socket(fileno=self._number)
        self._socket.setblocking(False)
        return True

    # --- the queue

    def _ready(self) -> None:
        self._pump(waiting=True)

    def _pump(self, *, waiting: bool) -> None:
        """Sends until the socket takes no more; `waiting`: as a writer of the loop."""
        assert self._socket is not None
        try:
            while self._queue:
                self._send_some(self._socket)
        except BlockingIOError:
            if not waiting:
                self._loop.add_writer(self._socket, self._ready)
            return
        except (OSError, TreecastError):
            self._transport.abort()  # the client has gone, or the disk refuses amid an answer
            self.close()
            return
        if waiting:
            self._loop.remove_writer(self._socket)
            self._resumed()

    def _send_some(self, target: socket.socket) -> None:
        chunk = self._queue[0]
        left = len(chunk) - self._skip
        if is_in_file(chunk):
            sent = os.sendfile(self._number, chunk.descriptor, chunk.offset + self._skip, left)
            if sent == 0:
                raise OSError("a log file ended early")
        else:
            more = socket.MSG_MORE if len(self._queue) > 1 else 0
            data = in_memory(chunk)
            sent = target.send(memoryview(data)[self._skip :] if self._skip else data, more)
        if sent < left:
            self._skip += sent
        else:
            self._skip = 0
            self._queue.popleft()


def _plain_socket(transport: asyncio.Transport) -> int:
    """The descriptor of the transport's socket, where what is written there is what goes out."""
    own = transport.get_extra_info("socket")
    if own is None or transport.get_extra_info("sslcontext") is not None:
        return _NO_SOCKET
    number: int = own.fileno()
    return number


def is_in_file(chunk: Chunk) -> TypeGuard[FileRange]:
    return not isinstance(chunk, bytes) and not isinstance(chunk, BUFFERS)
