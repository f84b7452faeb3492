"""Sends answers: data in memory through the transport, data in files with sendfile.

The transport has a queue of its own. To keep the order, bytes go directly to the socket only while the
transport has nothing unsent, and nothing goes through the transport while this module's queue is not empty.
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

JOIN_BYTES = 64 * 1024  # answers up to this total size are sent as one buffer
_NO_SOCKET: Final = -1
_UNKNOWN: Final = -2
_MORE: Final = int(socket.MSG_MORE)


class Sender:
    """The writing side of one connection. `resumed` is called when the queue has been sent."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, resumed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._resumed = resumed
        self._socket: socket.socket | None = None  # a duplicate: the transport owns the original
        self._number = _NO_SOCKET  # descriptor of `_socket`
        self._put: Callable[[Buffer, int], int] = _no_socket  # `send` of `_socket`, looked up once
        self._own = _UNKNOWN  # the transport's descriptor, used for writing only
        self._queue: deque[Chunk] = deque()
        self._skip = 0  # bytes of the first chunk that are already sent

    @property
    def waiting(self) -> bool:
        """Whether answers are queued until the client reads. Further answers should wait."""
        return bool(self._queue)

    def send(self, chunks: list[Chunk], size: int) -> None:
        """Takes over `chunks`, of `size` bytes in total, and sends what can be sent now."""
        if self._queue:
            # Behind queued chunks everything is queued: a direct write would overtake them.
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
            for chunk in chunks:  # cheaper than `writelines`; under uvloop neither copies
                self._transport.write(in_memory(chunk))

    def _write(self, data: bytes) -> None:
        """Writes directly to the socket if the transport has nothing unsent, else through the transport.

        The transport by itself would write at the end of this turn of the loop. It also gets what the socket
        does not take, and handles the socket's errors.
        """
        if not self._transport.get_write_buffer_size():
            if self._own == _UNKNOWN:
                self._own = _plain_socket(self._transport)
            if self._own != _NO_SOCKET and not self._transport.is_closing():
                try:
                    sent = os.write(self._own, data)
                except OSError:
                    # The transport meets the same error when it writes, and closes the connection as for any
                    # other.
                    sent = 0
                if sent == len(data):
                    return
                data = data[sent:]
        self._transport.write(data)

    def close(self) -> None:
        """Drops unsent data. Safe to call twice."""
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
            # Bytes sent past the transport would overtake those that it still holds.
            return False
        return self._socket is not None or self._duplicate()

    def _duplicate(self) -> bool:
        own = self._transport.get_extra_info("socket")
        number = own.fileno() if own is not None else _NO_SOCKET
        if number == _NO_SOCKET:
            return False
        # A duplicate, since loops refuse a writer callback on a descriptor that one of their transports owns.
        self._number = os.dup(number)
        self._socket = socket.socket(fileno=self._number)
        self._socket.setblocking(False)
        self._put = self._socket.send
        return True

    # --- the queue

    def _send_now(self, chunks: list[Chunk]) -> None:
        """Sends directly; queues what the socket does not take."""
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
        """Sends from the queue until the socket takes no more. The loop calls it for a writable socket."""
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
        """Aborts the connection: the client has gone, or the disk failed in the middle of an answer."""
        self._transport.abort()
        self.close()

    def _send_some(self, chunk: Chunk, more: bool) -> bool:
        """Sends what the socket takes of the rest of `chunk`. Returns whether all of it is sent.

        `more`: another chunk follows at once, so the kernel may wait for it.
        """
        skip = self._skip
        if isinstance(chunk, FileRange):
            left = chunk.size - skip
            sent = os.sendfile(self._number, chunk.descriptor, chunk.offset + skip, left)
            if sent == 0:
                # The answer's size has been sent already, so the client would take the next answer for the
                # rest of this one.
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
    """Returns the transport's descriptor if its bytes go out unchanged (no TLS), else _NO_SOCKET."""
    own = transport.get_extra_info("socket")
    # Under TLS, the transport encrypts: bytes written to its socket directly would break the stream.
    if own is None or transport.get_extra_info("sslcontext") is not None:
        return _NO_SOCKET
    number: int = own.fileno()
    return number
