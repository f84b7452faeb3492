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
from typing import Final

from treecast.middleware.model.buffers import Buffer, Chunk, FileRange, in_memory
from treecast.middleware.model.errors import TreecastError

JOIN_BYTES = 64 * 1024  # answers up to this size together are sent as one buffer
_NO_SOCKET: Final = -1
_UNKNOWN: Final = -2
_MORE: Final = int(socket.MSG_MORE)


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
        self._put: Callable[[Buffer, int], int] = _no_socket  # its `send`, looked up once
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
            self._send_now(chunks)
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
            self._put = _no_socket

    def _may_bypass(self, chunks: list[Chunk]) -> bool:
        for chunk in chunks:
            if isinstance(chunk, FileRange):
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
        self._put = self._socket.send
        return True

    # --- the queue

    def _send_now(self, chunks: list[Chunk]) -> None:
        """Sends without a queue, which gets what the socket does not take."""
        index, last = 0, len(chunks) - 1
        try:
            while index <= last:
                if self._send_some(chunks[index], index < last):
                    index += 1
        except BlockingIOError:
            self._queue.extend(chunks[index:])
            assert self._socket is not None
            self._loop.add_writer(self._socket, self._send_queue)
        except (OSError, TreecastError):
            self._give_up()

    def _send_queue(self) -> None:
        """Sends until the socket takes no more: a writer of the loop."""
        queue = self._queue
        try:
            while queue:
                if self._send_some(queue[0], len(queue) > 1):
                    queue.popleft()
        except BlockingIOError:
            return
        except (OSError, TreecastError):
            self._give_up()
            return
        if self._socket is not None:
            self._loop.remove_writer(self._socket)
        self._resumed()

    def _give_up(self) -> None:
        """The client has gone, or the disk refuses amid an answer."""
        self._transport.abort()
        self.close()

    def _send_some(self, chunk: Chunk, more: bool) -> bool:
        """Sends what the socket takes of `chunk`, of which `skip` bytes are sent; True when all are.

        `more` says that something follows at once, for which the kernel may wait.
        """
        skip = self._skip
        if isinstance(chunk, FileRange):
            left = chunk.size - skip
            sent = os.sendfile(self._number, chunk.descriptor, chunk.offset + skip, left)
            if sent == 0:
                raise OSError("a log file ended early")
        else:
            left = len(chunk) - skip
            sent = self._put(memoryview(chunk)[skip:] if skip else chunk, _MORE if more else 0)
        if sent < left:
            self._skip = skip + sent
            return False
        self._skip = 0
        return True


def _no_socket(data: Buffer, flags: int) -> int:
    raise OSError("there is no socket")


def _plain_socket(transport: asyncio.Transport) -> int:
    """The descriptor of the transport's socket, where what is written there is what goes out."""
    own = transport.get_extra_info("socket")
    if own is None or transport.get_extra_info("sslcontext") is not None:
        return _NO_SOCKET
    number: int = own.fileno()
    return number
