"""IP multicast in STARE's form: one packet to the group of a state, which the network copies. Linux."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final

from treecast.middleware.wire import stare

from .carrier import CarrierState
from .interfaces import Interface
from .memberships import Memberships
from .sockets import SocketAddress, UdpSocket, shown

_IP_MULTICAST_ALL: Final = 49
_IPV6_MULTICAST_ALL: Final = 29


def refusal_of(interface: Interface) -> str:
    """Why groups cannot be used on this interface; empty where they can."""
    if not interface.index:
        return "the fabric's address names no interface: listen on the address of one"
    return ""


def prepare_sender(sock: socket.socket, interface: Interface, *, ttl: int, loopback: bool) -> None:
    """Multicast of this socket leaves by the interface, for `ttl` routers."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, ttl)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, int(loopback))
    else:
        index = struct.pack("=4s4si", bytes(4), bytes(4), interface.index)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, index)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, int(loopback))


def bind_receiver(sock: socket.socket, interface: Interface) -> None:
    """Takes what comes in on the interface to STARE's port, of all groups that the host has joined."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode() + b"\0")
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 1)
        sock.bind(("::", stare.PORT))
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 1)
        sock.bind(("", stare.PORT))


# A classic BPF program over a datagram with its UDP header: 0 drops it, anything else lets it in. STARE's
# header begins at 8. With kind PUBLISH (two bits of the first word) and VNF 0 (8 bits of it, 6 of the next)
# a segment follows. What is too short for a header is let in.
_SO_ATTACH_FILTER: Final = 26
_LENGTH, _WORD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x80, 0x20, 0x54, 0x15, 0x35, 0x06
_WITHOUT_SEGMENTS: Final = (
    (_LENGTH, 0, 0, 0),
    (_AT_LEAST, 0, 6, 8 + stare.HEADER_SIZE),
    (_WORD, 0, 0, 8),
    (_AND, 0, 0, 0xC000_00FF),
    (_EQUAL, 0, 3, 0),
    (_WORD, 0, 0, 12),
    (_AND, 0, 0, 0xFC00_0000),
    (_EQUAL, 1, 0, 0),
    (_RETURN, 0, 0, 0xFFFF_FFFF),
    (_RETURN, 0, 0, 0),
)
# It is there for as long as the module: the kernel is given its address, and a compiled function lets go of a
# name after its last use.
_PROGRAM: Final = ctypes.create_string_buffer(
    b"".join([struct.pack("HBBI", *one) for one in _WITHOUT_SEGMENTS]), 8 * len(_WITHOUT_SEGMENTS)
)


def refuse_segments(sock: socket.socket) -> None:
    """The kernel drops what carries a segment of the fabric: another socket of this host takes that.

    Sockets that are bound to STARE's port all get the groups that any of them has joined. OSError where the
    kernel has no filters.
    """
    described = struct.pack("@HP", len(_WITHOUT_SEGMENTS), ctypes.addressof(_PROGRAM))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)


class IpMulticast:
    """A target is a state id. `sender` is the unicast carrier's socket, `receiver` bound to STARE's port."""

    def __init__(
        self, interface: Interface, sender: UdpSocket, receiver: UdpSocket | None, refusal: str = ""
    ) -> None:
        self.refusal = refusal or refusal_of(interface)
        self._ipv6 = sender.sock.family == socket.AF_INET6
        self._interface = interface
        self._sender = sender
        self._receiver = receiver
        self._memberships = Memberships(interface, sender.sock.family)
        self._routes: dict[int, tuple[bytes, SocketAddress]] = {}  # header and address by state

    def __contains__(self, state: int) -> bool:
        """Whether the host is a member."""
        return stare.group(state, ipv6=self._ipv6) in self._memberships

    def join(self, state: int) -> None:
        """Becomes a member of the state's group. OSError with the reason where it cannot."""
        if self.refusal:
            raise OSError(self.refusal)
        self._memberships.join(stare.group(stare.check_state(state), ipv6=self._ipv6))

    def leave(self, state: int) -> None:
        self._memberships.leave(stare.group(state, ipv6=self._ipv6))

    def check(self) -> None:
        if self.refusal:
            raise OSError(self.refusal)

    def send(self, target: int, datagrams: list[bytes], hosts: list[int]) -> None:
        if self.refusal:
            return
        header, address = self._routes.get(target) or self._route(target)
        self._sender.send([header + datagram for datagram in datagrams], address)

    def forget(self, state: int) -> None:
        """Nothing more is sent to the state's group."""
        self._routes.pop(state, None)

    def _route(self, state: int) -> tuple[bytes, SocketAddress]:
        header = stare.encode_header(stare.StareHeader(stare.StareKind.PUBLISH, stare.check_state(state)))
        group = socket.inet_ntop(self._sender.sock.family, stare.group(state, ipv6=self._ipv6))
        address: SocketAddress = (group, stare.PORT)
        if self._ipv6:
            address = (group, stare.PORT, 0, self._interface.index)
        self._routes[state] = (header, address)
        return header, address

    def state(self) -> CarrierState:
        receiver = self._receiver
        routes = {address for _, address in self._routes.values()}
        return CarrierState(
            "ip-multicast",
            self.refusal,
            address=shown(receiver.sock.getsockname()) if receiver is not None else "",
            targets=len(self._memberships),
            holders=self._memberships.holders,
            segmentation=self._sender.gso,
            coalescing=receiver is not None and receiver.gro,
            one_by_one=tuple(shown(one) for one in self._sender.without_offload & routes),
        )

    def close(self) -> None:
        self._memberships.close()
