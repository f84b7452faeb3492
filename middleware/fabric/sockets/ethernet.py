"""Ethernet frames of one type on one interface, through a packet socket. Linux, CAP_NET_RAW."""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from treecast.middleware.model.counters import FabricCounters

from .interfaces import Interface

HEADER: Final = 14
# Locally administered group address. Label switches ignore it; Ethernet switches flood it.
GROUP: Final = bytes.fromhex("030000009999")
_SOL_PACKET: Final = 263
_ADD_MEMBERSHIP: Final = 1
_MR_MULTICAST: Final = 0
_IGNORE_OUTGOING: Final = 23


def open_ethernet(interface: Interface, ether_type: int, *, receive_buffer: int) -> socket.socket:
    """Returns a non-blocking socket that is a member of the group. Raises OSError if it cannot be opened."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0)
    try:
        # Packet sockets otherwise receive what this host sends.
        sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.bind((interface.name, ether_type))
        member = struct.pack("=iHH8s", interface.index, _MR_MULTICAST, len(GROUP), GROUP)
        sock.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, member)
    except OSError:
        sock.close()
        raise
    return sock


class EthernetSocket:
    """Sends to the group. Queues frames while the kernel's buffer is full, as `udp.UdpSocket` does."""

    def __init__(
        self,
        sock: socket.socket,
        ether_type: int,
        counters: FabricCounters,
        *,
        queue_bytes: int,
        want_write: Callable[[bool], None],
    ) -> None:
        self.sock = sock
        self.queued = 0  # bytes
        name = sock.getsockname()
        self.address = f"{name[0]} {name[4].hex(':')}"
        self._header = GROUP + name[4] + ether_type.to_bytes(2)
        self._counters = counters
        self._queue_bytes = queue_bytes
        self._want_write = want_write
        self._queue: deque[bytes] = deque()

    def send(self, datagrams: list[bytes]) -> None:
        """Sends the datagrams in order. Drops and counts those that the kernel refuses."""
        for datagram in datagrams:
            frame = self._header + datagram
            if self._queue or not self._try(frame):
                self._wait(frame)

    def _try(self, frame: bytes) -> bool:
        """Sends a frame. Returns False if the kernel's buffer is full, True if it was sent or refused."""
        counters = self._counters
        try:
            self.sock.send(frame)
        except BlockingIOError:
            return False
        except OSError as error:
            # The device's queue is full, which is as temporary as a full socket buffer.
            if error.errno == errno.ENOBUFS:
                return False
            name = errno.errorcode.get(error.errno or 0, "UNKNOWN")
            counters.send_errors[name] = counters.send_errors.get(name, 0) + 1
            counters.dropped_packets += 1
            return True
        counters.send_calls += 1
        counters.sent_packets += 1
        counters.sent_bytes += len(frame)
        return True

    def _wait(self, frame: bytes) -> None:
        if self.queued + len(frame) > self._queue_bytes:
            self._counters.dropped_packets += 1
            return
        if not self._queue:
            self._counters.deferred += 1
            self._want_write(True)
        self._queue.append(frame)
        self.queued += len(frame)

    def flush(self) -> None:
        """Sends queued frames until the kernel's buffer is full."""
        while self._queue:
            if not self._try(self._queue[0]):
                return
            # Removed only once it was sent: a frame that finds no room stays first.
            self.queued -= len(self._queue.popleft())
        self._want_write(False)

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        """Receives a frame and returns its length twice, as (bytes, size of one datagram).

        Raises BlockingIOError if there is none.
        """
        length = self.sock.recv_into(buffer)
        counters = self._counters
        counters.receive_calls += 1
        counters.received_bytes += length
        counters.received_packets += 1
        return length, length

    def close(self) -> None:
        self._queue.clear()
        self.queued = 0
        self.sock.close()
