"""A UDP socket that sends and receives in bursts, and the inlets that hand the received bursts of a host's
sockets to its streams. Linux; one datagram at a time without UDP_SEGMENT and UDP_GRO.

A UDP_SEGMENT call takes one buffer and a size. The kernel cuts the buffer into datagrams of that size; the
last may be shorter. A call takes at most 64 datagrams, and no more bytes than a single datagram can have.

An inlet delivers a single message without first asking the kernel for more. That question costs as much as a
receive, and the loop calls again if there is more.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.segment import Datagram, Parted

from ..core.streams import Streams, Unwraps

_log = Log(__name__)

_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_IP_MTU_DISCOVER: Final = 10
_IPV6_MTU_DISCOVER: Final = 23
_IP_PMTUDISC_DONT: Final = 0
_PMTUDISC_PROBE: Final = (
    3  # of IPv4 and IPv6: no fragments, and the kernel's knowledge of the path is ignored
)
_MTU_DISCOVER: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, _IP_MTU_DISCOVER),
    socket.AF_INET6: (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER),
}
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33
_SEGMENT_SIZE: Final = struct.Struct("=H")
_GRO_SIZE: Final = struct.Struct("=i")
_ANCILLARY: Final = socket.CMSG_SPACE(_GRO_SIZE.size)
_COST: Final = 100  # memory overhead of a queued burst in bytes
BUFFER_BYTES: Final = 1 << 16
MOST_DATAGRAMS: Final = 64  # UDP_MAX_SEGMENTS of kernels before 6.9; later ones take 128
MOST_BYTES: Final = 65_507 - 20  # of a burst, leaving room for an IPv6 header

_LARGE: Final = 8192  # bytes of a message that takes longer than asking whether there is more
_LOOK_EVERY: Final = 8  # after this many single messages, ask for more anyway
_BURST_LEAST: Final = (
    2048  # bytes that a burst counts as: reports and naks are small, and each costs a receive
)

# The kernel, path or device cannot segment the burst. Its datagrams may still pass one by one.
_NO_OFFLOAD: Final = frozenset({errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMSGSIZE})

SocketAddress = tuple[str, int] | tuple[str, int, int, int]


def shown(address: SocketAddress) -> str:
    """Returns HOST:PORT, or [HOST]:PORT for IPv6."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Burst:
    """Datagrams for one call. All have `size` bytes, except that the last may be shorter."""

    __slots__ = ("datagrams", "length", "size")

    def __init__(self, datagram: Datagram) -> None:
        self.datagrams: list[Datagram] = [datagram]
        self.size = len(datagram)
        self.length = len(datagram)

    def add(self, datagram: Datagram) -> bool:
        """Adds a datagram if it fits: not after a shorter one, not a longer one, within the limits."""
        size = len(datagram)
        count = len(self.datagrams)
        whole = self.length == count * self.size
        if not whole or size > self.size or count >= MOST_DATAGRAMS or self.length + size > MOST_BYTES:
            return False
        self.datagrams.append(datagram)
        self.length += size
        return True

    def pieces(self) -> list[bytes | memoryview]:
        """Returns its bytes as they lie in memory."""
        found: list[bytes | memoryview] = []
        for datagram in self.datagrams:
            if isinstance(datagram, Parted):
                found += (datagram.head, datagram.part)
            else:
                found.append(datagram)
        return found


def bursts(datagrams: Sequence[Datagram]) -> list[Burst]:
    """Groups datagrams into as few bursts as their order allows."""
    found: list[Burst] = []
    last: Burst | None = None
    for datagram in datagrams:
        if last is None or not last.add(datagram):
            last = Burst(datagram)
            found.append(last)
    return found


class UdpSocket:
    """Owns a bound, non-blocking socket.

    Calls `want_write(True)` when bursts start to wait for the kernel, and `want_write(False)` when none waits
    any longer. In between, the owner calls `flush` whenever the socket is writable.
    """

    def __init__(
        self,
        sock: socket.socket,
        counters: FabricCounters,
        *,
        offload: bool,
        queue_bytes: int,
        want_write: Callable[[bool], None],
    ) -> None:
        self.sock = sock
        self.gso = offload
        self.gro = offload and _set_gro(sock)
        self.queued = 0  # bytes
        self.without_offload: set[SocketAddress] = set()
        self._counters = counters
        self._queue_bytes = queue_bytes
        self._want_write = want_write
        self._queue: deque[tuple[Burst, SocketAddress, int]] = deque()  # with its share of `queued`

    def send(self, datagrams: Sequence[Datagram], address: SocketAddress) -> None:
        """Sends the datagrams in order. Drops and counts those that the kernel refuses."""
        for burst in bursts(datagrams):
            # Behind what waits already: order saves receivers requests for what only was overtaken.
            if self._queue or not self._try(burst, address):
                self._wait(burst, address)

    def send_unfragmented(self, datagram: bytes, address: SocketAddress) -> None:
        """Sends one datagram that nobody may cut into fragments, whatever is known of the path.

        It is lost if the kernel does not take it: if it is longer than the interface's MTU, for example.
        """
        level, option = _MTU_DISCOVER[self.sock.family]
        before = self.sock.getsockopt(level, option)
        try:
            self.sock.setsockopt(level, option, _PMTUDISC_PROBE)
            self.sock.sendto(datagram, address)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "UNKNOWN")
            self._counters.send_errors[name] = self._counters.send_errors.get(name, 0) + 1
            return
        finally:
            self.sock.setsockopt(level, option, before)
        self._counters.send_calls += 1
        self._counters.sent_packets += 1
        self._counters.sent_bytes += len(datagram)

    def flush(self) -> None:
        """Sends queued bursts until the kernel's buffer is full."""
        while self._queue:
            burst, address, charged = self._queue[0]
            if not self._try(burst, address):
                return
            self._queue.popleft()
            self.queued -= charged
        self._want_write(False)

    def _wait(self, burst: Burst, address: SocketAddress) -> None:
        charged = burst.length + _COST
        if self.queued + charged > self._queue_bytes:
            self._counters.dropped_packets += len(burst.datagrams)
            return
        if not self._queue:
            self._counters.deferred += 1
            self._want_write(True)
        self._queue.append((burst, address, charged))
        self.queued += charged

    def _try(self, burst: Burst, address: SocketAddress) -> bool:
        """Sends a burst. Returns False if the kernel's buffer is full, True if it was sent or refused."""
        count = len(burst.datagrams)
        try:
            only = burst.datagrams[0]
            if count == 1 and isinstance(only, Parted):
                self.sock.sendmsg((only.head, only.part), (), 0, address)
            elif count == 1:
                self.sock.sendto(bytes(only), address)
            elif not self.gso or address in self.without_offload:
                return self._one_by_one(burst, address)
            else:
                size = _SEGMENT_SIZE.pack(burst.size)
                self.sock.sendmsg(burst.pieces(), [(socket.IPPROTO_UDP, _UDP_SEGMENT, size)], 0, address)
        except BlockingIOError:
            return False
        except OSError as error:
            return self._refused(burst, address, error)
        counters = self._counters
        counters.send_calls += 1
        counters.sent_packets += count
        counters.sent_bytes += burst.length
        return True

    def _refused(self, burst: Burst, address: SocketAddress, error: OSError) -> bool:
        if len(burst.datagrams) > 1 and error.errno in _NO_OFFLOAD:
            # By address: the refusal may come from this one's device or path, and others keep their bursts.
            self.without_offload.add(address)
            self._counters.offload_refused += 1
            return self._one_by_one(burst, address)
        name = errno.errorcode.get(error.errno or 0, "UNKNOWN")
        self._counters.send_errors[name] = self._counters.send_errors.get(name, 0) + 1
        self._counters.dropped_packets += len(burst.datagrams)
        return True

    def _one_by_one(self, burst: Burst, address: SocketAddress) -> bool:
        """Like `_try`, for single datagrams. Unsent datagrams stay in the burst."""
        while burst.datagrams:
            if not self._try(Burst(burst.datagrams[0]), address):
                return False
            burst.length -= len(burst.datagrams.pop(0))
        return True

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        """Receives a burst and returns (bytes, size of one datagram). Raises BlockingIOError if there is
        none.

        A burst is one datagram or, with UDP_GRO, several of one sender, of which the last may be shorter.
        """
        length, ancillary, _, _ = self.sock.recvmsg_into([buffer], _ANCILLARY)
        size = length
        for level, kind, data in ancillary:
            if level == socket.IPPROTO_UDP and kind == _UDP_GRO:
                size = _GRO_SIZE.unpack(data[:4])[0]
        counters = self._counters
        counters.receive_calls += 1
        counters.received_bytes += length
        counters.received_packets += -(-length // size) if size else 1
        return length, size

    def move(self, sock: socket.socket) -> None:
        """Goes on with another bound, non-blocking socket, and closes the one so far."""
        self.sock.close()
        self.sock = sock
        self.gro = self.gro and _set_gro(sock)
        # The new address may leave by another device.
        self.without_offload.clear()

    def close(self) -> None:
        self._queue.clear()
        self.queued = 0
        self.sock.close()


def _set_gro(sock: socket.socket) -> bool:
    try:
        sock.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError:
        return False
    return True


def open_udp(family: int, *, receive_buffer: int, send_buffer: int) -> socket.socket:
    """Returns a non-blocking UDP socket with the requested buffers, as far as the kernel allows."""
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    if family == socket.AF_INET6:
        # A host may have a fabric on the same port of IPv4.
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    else:  # let routers fragment: slower, but packets survive paths that filter ICMP
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DONT)
    for force, option, size in (
        (_SO_RCVBUFFORCE, socket.SO_RCVBUF, receive_buffer),
        (_SO_SNDBUFFORCE, socket.SO_SNDBUF, send_buffer),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, size)
        except OSError:  # the FORCE options need CAP_NET_ADMIN
            sock.setsockopt(socket.SOL_SOCKET, option, size)
    return sock


# --- inlets


class OtherEnd(Protocol):
    """A socket other than UDP, such as `ethernet.EthernetSocket`."""

    @property
    def sock(self) -> socket.socket: ...

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        """Returns (bytes, size of one packet) of the next burst. Raises BlockingIOError if there is none."""
        ...

    def flush(self) -> None:
        """Sends what waits, as far as the kernel accepts it."""

    def close(self) -> None: ...


End = UdpSocket | OtherEnd


class Inlet:
    """The receiving side of one socket. All inlets of a host share the buffer."""

    def __init__(
        self, end: End, streams: Streams, buffer: memoryview, unwraps: Unwraps | None, at_once: int
    ) -> None:
        self.several = False  # the last turn brought more than one burst
        self._end = end
        self._streams = streams
        self._buffer = buffer
        self._unwraps = unwraps
        self._at_once = at_once  # maximum bytes per turn
        self._turn = 0
        self._found = 0  # bursts in this turn

    def take_first(self, now: float) -> bool:
        """Takes the first burst of a turn. Returns False if there may be more, to be taken by `take_rest`."""
        self._turn += 1
        try:
            length, size = self._end.receive(self._buffer)
        except BlockingIOError:
            return True
        except OSError as error:
            _log.warning("receiving failed", error=error)
            return True
        self._hand_on(length, size, now)
        # Asked for more now and then all the same: single messages may come faster than they are taken.
        return length == size and length < _LARGE and self._turn % _LOOK_EVERY != 0

    def take_rest(self, now: float) -> None:
        """Takes what has arrived besides the first burst."""
        self._found = 1
        self.take_some(now)
        self.several = self._found > 1

    def take_turn(self, now: float) -> None:
        """Takes everything that has arrived, up to the limit of one turn."""
        self._found = 0
        self.take_some(now)
        self.several = self._found > 1

    def take_some(self, now: float) -> bool:
        """Takes bursts up to the limit. Returns whether everything that had arrived was taken.

        The limit counts bytes. If it counted bursts, an origin whose turns are long would take a few reports
        in each, and learn of arrivals seconds later.
        """
        left = self._at_once
        try:
            while left > 0:
                length, size = self._end.receive(self._buffer)
                self._found += 1
                left -= max(length, _BURST_LEAST)
                self._hand_on(length, size, now)
        except BlockingIOError:
            return True
        except OSError as error:
            _log.warning("receiving failed", error=error)
            return True
        return False

    def _hand_on(self, length: int, size: int, now: float) -> None:
        if self._unwraps is None:
            self._streams.burst(self._buffer, length, size, now)
        else:
            self._streams.wrapped(self._buffer, length, size, self._unwraps, now)


class Inlets:
    """The inlets of all open sockets. `at_once`: maximum bytes per socket and turn."""

    def __init__(self, streams: Streams, at_once: int) -> None:
        self._streams = streams
        self._at_once = at_once
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._inlets: dict[End, Inlet] = {}

    def add(self, end: End, unwraps: Unwraps | None) -> None:
        """Adds an end. `unwraps` finds the segments in its packets; None: the packets are bare segments."""
        self._inlets[end] = Inlet(end, self._streams, self._buffer, unwraps, self._at_once)

    def remove(self, end: End) -> None:
        """Removes an end, if it was added."""
        self._inlets.pop(end, None)

    def of(self, end: End) -> Inlet:
        return self._inlets[end]

    def take_some(self, now: float) -> bool:
        """Takes bursts from all ends. Returns whether everything that had arrived was taken."""
        taken = True
        for inlet in self._inlets.values():
            taken = inlet.take_some(now) and taken
        return taken
