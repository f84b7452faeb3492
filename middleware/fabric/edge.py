"""The edge on which carriers are opened: the event loop, the fabric's own socket and its interface.

When a socket becomes readable, the fabric is called. Data that the kernel does not accept waits in the
socket's end until it becomes writable.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.wire import stare
from treecast.middleware.wire.segment_keys import NO_KEYS

from .core.timing import Random
from .settings import FabricSettings
from .sockets.interfaces import NO_INTERFACE, Interface, interface_of
from .sockets.udp import End, Inlets, SocketAddress, UdpSocket, open_udp

if TYPE_CHECKING:
    from .carriers.carrier import Carrier

_IPV4_HEADER: Final = 20
_IPV6_HEADER: Final = 40
_UDP_HEADER: Final = 8
# Hosts of one cluster may have different carriers, and a message may be repaired by another carrier than it
# arrived by. Segments therefore always leave room for a STARE header.
LEAST_OVERHEAD: Final = stare.HEADER_SIZE
# The longest UDP payload of IPv4, with room for an IPv6 header.
_LONGEST_PACKET: Final = 65_507 - 20


def packet_bytes(mtu: int, interface: Interface) -> int:
    """The longest packet of a host with the setting `mtu` (0: none), which no known interface exceeds."""
    if not mtu or not interface.index:
        return mtu or interface.mtu
    return min(mtu, interface.mtu)


def named_by(host: str, advertised: str) -> str:
    """Returns the address that names a host's interface: where it listens, or what others are told if it
    listens on all."""
    return (advertised or host) if ipaddress.ip_address(host).is_unspecified else host


class Edge:
    """The sockets of a fabric, from `bind` to `close`. Attributes without defaults are set by `bind`."""

    def __init__(
        self,
        host: int,
        settings: FabricSettings,
        counters: FabricCounters,
        random: Random,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        complain: Callable[[enum.Enum], None],
        readable: Callable[[End], None],
        written: Callable[[], None],
        reach_changed: Callable[[], None],
    ) -> None:
        """`complain` is called for each discarded packet, `readable` with the end that has data, `written`
        after the kernel has accepted waiting data, and `reach_changed` if a carrier reaches other hosts than
        before."""
        self.interface = NO_INTERFACE
        self.named = ""  # the numeric address whose interface this is
        self.moved: list[
            Callable[[], None]
        ] = []  # called when the own socket or the interface is another one
        self.inlets: Inlets  # set by the fabric before carriers are opened
        self.udp: UdpSocket  # the fabric's own, bound to its address and port
        self.keys = NO_KEYS  # set by the fabric; authenticates what a carrier forwards
        self.host = host
        self.settings = settings
        self.counters = counters
        self.random = random
        self.loop = loop
        self.now = now
        self.complain = complain
        self.reach_changed = reach_changed
        self._readable = readable
        self._written = written

    def bind(self, address: tuple[str, int]) -> None:
        """Binds the fabric's own socket. Raises OSError if the address is not available."""
        self.family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._name(address[0], self.settings.advertised)
        self.udp = self.udp_end(self._bound(address))

    def _name(self, host: str, advertised: str) -> None:
        """Finds the interface: by the address that others use where the fabric listens on all."""
        self.named = named_by(host, advertised)
        self.interface = interface_of(self.named)

    def _bound(self, address: tuple[str, int]) -> socket.socket:
        sock = self.new_socket()
        try:
            sock.bind(address)
        except OSError:
            sock.close()
            raise
        return sock

    def rebind(self, host: str, advertised: str) -> None:
        """Moves the fabric's own socket to `host`, or looks at its interface again if it is bound there.

        `advertised`: as in the settings. What waits for the kernel leaves from there. Raises OSError if the
        address is not available; then nothing has changed.
        """
        bound, port = self.address
        if host != bound:
            # The new socket first: if it cannot be bound, the old one goes on.
            sock = self._bound((host, port))
            self.loop.remove_reader(self.udp.sock.fileno())
            self.loop.remove_writer(self.udp.sock.fileno())
            self.udp.move(sock)
            self.loop.add_reader(sock.fileno(), self._readable, self.udp)
            if self.udp.queued:
                self.want_write(self.udp, True)
        self._name(host, advertised)
        for tell in self.moved:
            tell()

    # --- sockets

    def new_socket(self) -> socket.socket:
        """Returns an unbound UDP socket of the fabric's address family."""
        settings = self.settings
        sizes = {"receive_buffer": settings.receive_buffer, "send_buffer": settings.send_buffer}
        return open_udp(self.family, **sizes)

    def udp_end(self, sock: socket.socket) -> UdpSocket:
        """Wraps a bound socket."""
        settings = self.settings
        end = UdpSocket(
            sock,
            self.counters,
            offload=settings.offload,
            queue_bytes=settings.queue_bytes,
            want_write=lambda wanted: self.want_write(end, wanted),
        )
        return end

    def watch(self, end: End, carrier: Carrier | None) -> None:
        """Starts reading from an end. `carrier` unwraps its packets; None: they are bare segments."""
        self.inlets.add(end, carrier)
        self.loop.add_reader(end.sock.fileno(), self._readable, end)

    def close_end(self, end: End) -> None:
        """Stops watching an end and closes its socket."""
        self.inlets.remove(end)
        self.loop.remove_reader(end.sock.fileno())
        self.loop.remove_writer(end.sock.fileno())
        end.close()

    def want_write(self, end: End, wanted: bool) -> None:
        """Watches an end for writability while data waits in it for the kernel."""
        if wanted:
            self.loop.add_writer(end.sock.fileno(), self._writable, end)
        else:
            self.loop.remove_writer(end.sock.fileno())

    def _writable(self, end: End) -> None:
        end.flush()
        self._written()

    # --- inspection

    @property
    def address(self) -> tuple[str, int]:
        """The address where unicast segments are received."""
        name = self.udp.sock.getsockname()
        return name[0], name[1]

    @property
    def packet_bytes(self) -> int:
        """The longest packet that this host sends, with its IP header."""
        return packet_bytes(self.settings.mtu, self.interface)

    def datagram_bytes(self, packet: int) -> int:
        """The longest UDP payload of a packet of this size."""
        ip = _IPV6_HEADER if self.family == socket.AF_INET6 else _IPV4_HEADER
        return min(packet - ip - _UDP_HEADER, _LONGEST_PACKET)

    def segment_bytes(self, overhead: int, packet: int = 0) -> int:
        """The longest segment that fits into a packet of this size (0: of the interface) after `overhead`
        bytes."""
        return self.datagram_bytes(packet or self.packet_bytes) - max(overhead, LEAST_OVERHEAD)

    @property
    def receive_buffer(self) -> int:
        """The receive buffer's size as granted by the kernel."""
        return self.udp.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def checked(self, address: tuple[str, int]) -> SocketAddress:
        """Returns the address in the kernel's form. Raises ValueError if it is not of the fabric's family."""
        try:
            found = socket.getaddrinfo(*address, self.family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)
        except OSError as error:
            raise ValueError(f"{address[0]} is no {self.family.name} address: {error}") from None
        return found[0][4]  # type: ignore[return-value]
