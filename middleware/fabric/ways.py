"""The sockets of a host's edge on an event loop, and the carriers that send by them.

One socket on the fabric's own address and number, and one for what goes to groups, where they can be used: on
STARE's port, or towards a label switch. When one can be read, that is told; what the kernel does not take
waits in it, and is sent when it can be written.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.wire import stare

from .carriers.carrier import GroupCarrier
from .carriers.ethernet import EthernetSocket
from .carriers.interfaces import NO_INTERFACE, interface_of
from .carriers.ip_multicast import IpMulticast, bind_receiver, prepare_sender, refusal_of
from .carriers.label_ends import open_end
from .carriers.labels import Labels
from .carriers.sockets import SocketAddress, UdpSocket, open_udp
from .carriers.unicast import Unicast
from .settings import FabricSettings

_log = logging.getLogger(__name__)

_IPV4_HEADER: Final = 20
_IPV6_HEADER: Final = 40
_UDP_HEADER: Final = 8
_LONGEST_SEGMENT: Final = 65_507 - 20 - stare.HEADER_SIZE

End = UdpSocket | EthernetSocket


class Ways:
    """From `open` to `close`. The attributes without defaults are there from `open` on."""

    def __init__(
        self,
        host: int,
        settings: FabricSettings,
        counters: FabricCounters,
        loop: asyncio.AbstractEventLoop,
        readable: Callable[[End], None],
        written: Callable[[], None],
    ) -> None:
        """`readable` is told the socket; `written`: what had waited for the kernel was taken."""
        self.interface = NO_INTERFACE
        self.group_udp: UdpSocket | None = None  # on STARE's port; None: no groups there
        self.label_end: End | None = None
        self.labels: Labels | None = None
        self.udp: UdpSocket
        self.unicast: Unicast
        self.multicast: GroupCarrier
        self._host = host
        self._settings = settings
        self._counters = counters
        self._loop = loop
        self._readable = readable
        self._written = written

    def open(self, address: tuple[str, int]) -> None:
        """OSError where the address cannot be had; why groups cannot be, says `multicast.refusal`."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.interface = interface_of(address[0])
        sock = self._open(family)
        try:
            sock.bind(address)
        except OSError:
            sock.close()
            raise
        self.udp = self._watch(sock)
        self.unicast = Unicast(self.udp)
        if self._settings.labels:
            self.multicast = self.labels = self._start_labels()
        else:
            self.multicast = self._start_multicast(family)

    def _open(self, family: int) -> socket.socket:
        settings = self._settings
        return open_udp(family, receive_buffer=settings.receive_buffer, send_buffer=settings.send_buffer)

    def _watch(self, sock: socket.socket) -> UdpSocket:
        udp = UdpSocket(
            sock,
            self._counters,
            offload=self._settings.offload,
            queue_bytes=self._settings.queue_bytes,
            want_write=lambda wanted: self._want_write(udp, wanted),
        )
        self._loop.add_reader(sock.fileno(), self._readable, udp)
        return udp

    def _start_multicast(self, family: int) -> IpMulticast:
        refusal = refusal_of(self.interface)
        if not self._settings.multicast:
            refusal = "multicast is switched off"
        if not refusal:
            refusal = self._open_group_socket(family)
        return IpMulticast(self.interface, self.udp, self.group_udp, refusal)

    def _open_group_socket(self, family: int) -> str:
        """Why it cannot be had; empty where it can."""
        settings = self._settings
        sock = self._open(family)
        try:
            prepare_sender(self.udp.sock, self.interface, ttl=settings.ttl, loopback=settings.loopback)
            bind_receiver(sock, self.interface)
        except OSError as error:
            sock.close()
            refusal = f"UDP port {stare.PORT} on {self.interface.name}: {error}"
            _log.warning("fabric: no multicast: %s", refusal)
            return refusal
        self.group_udp = self._watch(sock)
        return ""

    def _start_labels(self) -> Labels:
        """Where its socket cannot be had, that is no error: its refusal says why."""
        settings = self._settings
        wire, refusal = None, ""
        try:
            wire = open_end(settings, self.interface, self.address, self._counters, self._want_write)
        except OSError as error:
            refusal = f"labels by {settings.labels} on {self.interface.name or 'no interface'}: {error}"
            _log.warning("fabric: no labels: %s", refusal)
        else:
            self.label_end = wire.end
            self._loop.add_reader(wire.end.sock.fileno(), self._readable, wire.end)
        return Labels(self._host, wire, settings.label_room, refusal)

    def close(self) -> None:
        for end in (self.udp, self.group_udp, self.label_end):
            if end is not None:
                self._loop.remove_reader(end.sock.fileno())
                self._loop.remove_writer(end.sock.fileno())
                end.close()
        self.multicast.close()

    # --- to look at

    @property
    def address(self) -> tuple[str, int]:
        """Where unicast segments are received."""
        name = self.udp.sock.getsockname()
        return name[0], name[1]

    @property
    def segment_bytes(self) -> int:
        """The longest segment: one for all carriers, so that a repair may go by another than the first."""
        packet = self._settings.mtu or self.interface.mtu
        ip = _IPV6_HEADER if self.udp.sock.family == socket.AF_INET6 else _IPV4_HEADER
        before = max(stare.HEADER_SIZE, self._settings.label_room if self._settings.labels else 0)
        return min(packet - ip - _UDP_HEADER - before, _LONGEST_SEGMENT)

    @property
    def receive_buffer(self) -> int:
        """As the kernel has given it."""
        return self.udp.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    # --- hosts

    def set_host(self, host: int, address: tuple[str, int] | None) -> None:
        """Where a host's unicast segments go; None: nowhere. ValueError where it is no address of ours."""
        self.unicast.set_host(host, None if address is None else self._checked(address))

    def _checked(self, address: tuple[str, int]) -> SocketAddress:
        family = self.udp.sock.family
        try:
            found = socket.getaddrinfo(*address, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)
        except OSError as error:
            raise ValueError(f"{address[0]} is no {family.name} address: {error}") from None
        return found[0][4]  # type: ignore[return-value]

    # --- what waits for the kernel

    def _want_write(self, end: End, wanted: bool) -> None:
        if wanted:
            self._loop.add_writer(end.sock.fileno(), self._writable, end)
        else:
            self._loop.remove_writer(end.sock.fileno())

    def _writable(self, end: End) -> None:
        end.flush()
        self._written()
