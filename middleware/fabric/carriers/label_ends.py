"""The way from a host to its label switch: Ethernet frames, or UDP where other switches are between."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.wire.label_stack import ETHERTYPE, UDP_PORT

from .ethernet import EthernetSocket, open_ethernet
from .interfaces import Interface
from .sockets import SocketAddress, UdpSocket, open_udp, shown

BY_ETHERNET: Final = "ethernet"
WantWrite = Callable[[UdpSocket | EthernetSocket, bool], None]


class EthernetEnd:
    """Frames to the group that label switches take."""

    def __init__(self, end: EthernetSocket) -> None:
        self.end: UdpSocket | EthernetSocket = end
        self.address = end.address
        self.send = end.send


class UdpEnd:
    """Datagrams to one switch."""

    def __init__(self, end: UdpSocket, switch: SocketAddress) -> None:
        self.end: UdpSocket | EthernetSocket = end
        self.address = shown(switch)
        self._udp = end
        self._switch = switch

    def send(self, datagrams: list[bytes]) -> None:
        self._udp.send(datagrams, self._switch)


def open_end(
    settings: FabricSettings,
    interface: Interface,
    address: tuple[str, int],
    counters: FabricCounters,
    want_write: WantWrite,
) -> EthernetEnd | UdpEnd:
    """The end that `settings.labels` asks for. OSError where it cannot be had."""
    if settings.labels == BY_ETHERNET:
        if not interface.index:
            raise OSError("the fabric's address names no interface: listen on the address of one")
        sock = open_ethernet(interface, ETHERTYPE, receive_buffer=settings.receive_buffer)
        ethernet = EthernetSocket(
            sock,
            ETHERTYPE,
            counters,
            queue_bytes=settings.queue_bytes,
            want_write=lambda wanted: want_write(ethernet, wanted),
        )
        return EthernetEnd(ethernet)
    return _open_udp(settings, address[0], counters, want_write)


def _open_udp(settings: FabricSettings, own: str, counters: FabricCounters, want_write: WantWrite) -> UdpEnd:
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    found = socket.getaddrinfo(settings.labels, UDP_PORT, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)
    switch: SocketAddress = found[0][4]  # type: ignore[assignment]
    sock = open_udp(family, receive_buffer=settings.receive_buffer, send_buffer=settings.send_buffer)
    try:
        sock.bind((own, UDP_PORT))
    except OSError:
        sock.close()
        raise
    udp = UdpSocket(
        sock,
        counters,
        offload=settings.offload,
        queue_bytes=settings.queue_bytes,
        want_write=lambda wanted: want_write(udp, wanted),
    )
    return UdpEnd(udp, switch)
