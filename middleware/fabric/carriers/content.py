"""Content: one packet for all that want a message, and P4 switches that copy it where a filter passes.

    UDP port 39322, to one multicast address | content header (wire.content) | segment

`--carrier content=LAYOUT` gives the fields that headers hold, the same at all hosts and switches. The content
controller (`control.content`) asks daemons what they want and programs the switches; hosts need no rules.
Only streams whose messages have content headers go by it. All else (probes, heartbeats) goes to
each host by a packet of its own, through the same switches, by the number of the host's name.

A switch that has not learned of a new filter yet drops what it shall bring: the host misses it, and the
origin, which knows the filters by itself, repairs it by unicast.
"""

from __future__ import annotations

import enum
import ipaddress
import socket
import struct
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.udp import UdpSocket, shown
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.content import ContentError, Layout, number_of
from treecast.middleware.wire.segment import StreamKey, content_of

from .carrier import Carrier, CarrierState, Copy, Place, Reach
from .ip_multicast import prepare_sender, refusal_of

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

_log = Log(__name__)

NAME: Final = "content"
PORT: Final = 39322
GROUP: Final = "239.255.153.154"  # switches look at the content header alone


class ContentFault(enum.Enum):
    """Why a packet to the port carries no segment for this host."""

    NO_CONTENT_HEADER = "the content header is missing, or of another layout"
    OTHER_HOST = "the packet is for another host"


def make(settings: FabricSettings) -> Carrier:
    """See `registry`. Raises ValueError without a layout, or with one that headers cannot hold."""
    text = settings.options.get(NAME, "")
    if not text:
        raise ValueError("content needs the fields of its headers, as in content=stock:8s;price:u32")
    return Content(Layout(text.replace(";", ",")))


class Content:
    """The carrier of one host. Also a `carrier.ContentCarrier`."""

    def __init__(self, layout: Layout) -> None:
        self.name = NAME
        self.refusal = "it is not open"
        self.group_form = ""  # no joining
        self.layout = layout
        self.overhead = layout.size
        self.alike = True
        self._edge: Edge | None = None
        self._sender: UdpSocket | None = None
        self._receiver: UdpSocket | None = None
        self._own = 0  # the number of this host's name; 0: not known yet
        self._names: dict[int, str] = {}
        self._headers: dict[int, bytes] = {}  # of packets for one host

    # --- open and close

    def open(self, edge: Edge) -> None:
        self._edge = edge
        self.refusal = refusal_of(edge.interface, edge.named)
        if not self.refusal and edge.family != socket.AF_INET:
            self.refusal = "content needs a fabric address of IPv4"
        if not self.refusal:
            self._open_sockets(edge)
        if self.refusal:
            _log.warning("carrier is off", carrier=NAME, reason=self.refusal)

    def _open_sockets(self, edge: Edge) -> None:
        sending, receiving = edge.new_socket(), edge.new_socket()
        try:
            prepare_sender(sending, edge.interface, ttl=edge.settings.ttl, loopback=False)
            sending.bind((edge.address[0], 0))
            _prepare_receiver(receiving, edge)
        except OSError as error:
            sending.close()
            receiving.close()
            self.refusal = f"UDP port {PORT} on {edge.interface.name}: {error}"
            return
        self._sender, self._receiver = edge.udp_end(sending), edge.udp_end(receiving)
        edge.watch(self._receiver, self)

    def close(self) -> None:
        if self._edge is not None and self._receiver is not None:
            self._edge.close_end(self._receiver)
        if self._sender is not None:
            self._sender.close()
        self._receiver = self._sender = None

    # --- knowledge of the network

    def set_host(self, host: int, place: Place | None) -> None:
        name = place.name if place is not None else ""
        if self._names.get(host, "") == name:
            return
        if name:
            self._names[host] = name
            self._headers[host] = self.layout.directed(number_of(name.encode()))
        else:
            del self._names[host], self._headers[host]
        if self._edge is not None and host == self._edge.host:
            self._own = number_of(name.encode()) if name else 0

    def learn(self, rules: object) -> None:
        raise ValueError("the content carrier needs no rules: its switches have them")

    def reach(self, hosts: Collection[int]) -> Reach:
        """All hosts with names, as far as is known: probes find those behind content switches."""
        assert self._edge is not None
        named = [host for host in hosts if host in self._names and host != self._edge.host]
        return Reach(frozenset(named), self._edge.segment_bytes(self.overhead))

    # --- groups (none)

    def join(self, group: int) -> None:
        raise ValueError("the content carrier has no groups to join")

    def leave(self, group: int) -> None:
        """Does nothing: there are no groups."""

    def is_member(self, group: int) -> bool:
        return False

    # --- the wire

    def check(self, group: int) -> None:
        if group:
            raise ValueError("the content carrier has no groups")
        if self.refusal:
            raise OSError(self.refusal)

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        """Sends a segment with a content header once, and any other to each host."""
        if self._sender is None:
            return
        packets: list[bytes] = []
        for datagram in datagrams:
            whole = bytes(datagram)
            header = content_of(whole)
            if header:
                packets.append(header + whole)
            else:
                headers = [self._headers[host] for host in hosts if host in self._headers]
                packets += [one + whole for one in headers]
        self._sender.send(packets, (GROUP, PORT))

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        assert self._edge is not None
        try:
            header = self.layout.decode(buffer[start:end])
        except ContentError:
            self._edge.complain(ContentFault.NO_CONTENT_HEADER)
            return -1
        if header.to and self._own and header.to != self._own:
            self._edge.complain(ContentFault.OTHER_HOST)
            return -1
        return start + self.layout.size

    # --- inspection

    @property
    def advice(self) -> str:
        return "do the content controller and the switches on the way run, with this host in their network?"

    def observed(self) -> dict[tuple[str, ...], int]:
        return {}

    def copies(self, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        return [Copy(shown((GROUP, PORT)), tuple(hosts))]

    def state(self) -> CarrierState:
        receiver = self._receiver
        address = shown(receiver.sock.getsockname()) if receiver is not None else ""
        return CarrierState(self.name, self.refusal, address=address, targets=len(self._names))


def _prepare_receiver(sock: socket.socket, edge: Edge) -> None:
    """Binds to the port, as a member of the address on the fabric's interface."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, edge.interface.name.encode() + b"\0")
    sock.bind((GROUP, PORT))
    member = struct.pack("=4s4si", ipaddress.IPv4Address(GROUP).packed, bytes(4), edge.interface.index)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
