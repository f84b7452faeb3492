"""IP multicast in STARE's form: one packet to the group of a state, copied by the network. Linux only."""

from __future__ import annotations

import ctypes
import enum
import ipaddress
import socket
import struct
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import Interface
from treecast.middleware.fabric.sockets.memberships import Memberships
from treecast.middleware.fabric.sockets.udp import SocketAddress, UdpSocket, shown
from treecast.middleware.model.logs import Log
from treecast.middleware.wire import stare
from treecast.middleware.wire.segment import StreamKey

from .carrier import Carrier, CarrierState, Copy, Place, Reach

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

NAME: Final = "ip-multicast"
_log = Log(__name__)

_IP_MULTICAST_ALL: Final = 49
_IPV6_MULTICAST_ALL: Final = 29


def refusal_of(interface: Interface, address: str) -> str:
    """Why groups cannot be used on this interface; empty if they can. `address`: by which it was looked for,
    numeric."""
    if interface.index:
        return ""
    if ipaddress.ip_address(address).is_unspecified:
        return "the fabric listens on all interfaces: give --fabric-advertised the address of the one to use"
    return f"no interface of this host has {address}: give --fabric the address of one"


def membership_advice(*, ipv6: bool) -> str:
    """Returns what an operator should look at if a group no longer reaches a host."""
    protocol = "MLD" if ipv6 else "IGMP"
    return (
        f"a switch may have forgotten the membership: is there an {protocol} querier on this network, and"
        f" does the switch's {protocol} snooping list the group at that port?"
    )


def prepare_sender(sock: socket.socket, interface: Interface, *, ttl: int, loopback: bool) -> None:
    """Makes this socket send multicast by the interface, across at most `ttl` routers."""
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
    """Binds to STARE's port on the interface, for all groups that the host has joined."""
    # STARE's port is the same for all hosts of a machine, and for STARE's own edge.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # All groups of the host arrive here; those that were joined on other interfaces are not the fabric's.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode() + b"\0")
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 1)
        sock.bind(("::", stare.PORT))
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 1)
        sock.bind(("", stare.PORT))


# A classic BPF program over a datagram with its UDP header: 0 drops it, anything else accepts it. STARE's
# header begins at 8. A segment follows if the kind is PUBLISH (two bits of the first word) and the VNF is 0
# (8 bits of the first word, 6 of the next). Datagrams too short for a header are accepted.
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
# The buffer must live as long as the module: the kernel is given its address, and a compiled function drops a
# name after its last use.
_PROGRAM: Final = ctypes.create_string_buffer(
    b"".join([struct.pack("HBBI", *one) for one in _WITHOUT_SEGMENTS]), 8 * len(_WITHOUT_SEGMENTS)
)


def refuse_segments(sock: socket.socket) -> None:
    """Makes the kernel drop datagrams with a segment of the fabric: another socket of this host takes them.

    Sockets bound to STARE's port all receive the groups that any of them has joined. Raises OSError if the
    kernel has no filters.
    """
    described = struct.pack("@HP", len(_WITHOUT_SEGMENTS), ctypes.addressof(_PROGRAM))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)


class StareFault(enum.Enum):
    """Why a packet to STARE's port carries no segment for this host."""

    NO_STARE_HEADER = "the STARE header is missing or invalid"
    BARE_STATE = "the packet has a state and no segment"


def make(settings: FabricSettings) -> Carrier:
    """See `registry`."""
    return IpMulticast()


class IpMulticast:
    """The carrier of one host. A group belongs to a state. Packets leave by the fabric's own socket and
    arrive at one on STARE's port."""

    def __init__(self) -> None:
        self.name = NAME
        self.refusal = "it is not open"
        self.group_form = NAME
        self.overhead = stare.HEADER_SIZE
        self.alike = True
        self._edge: Edge | None = None
        self._ipv6 = False
        self._interface: Interface
        self._memberships: Memberships
        self._sender: UdpSocket
        self._receiver: UdpSocket | None = None
        self._routes: dict[int, tuple[bytes, SocketAddress]] = {}  # header and address by state
        self._left: set[bytes] = set()  # groups to join again once there is an interface

    def open(self, edge: Edge) -> None:
        self._edge = edge
        self._ipv6 = edge.family == socket.AF_INET6
        self._interface = edge.interface
        self._memberships = Memberships(edge.interface, edge.family)
        self._sender = edge.udp
        self.refusal = refusal_of(edge.interface, edge.named) or self._open_receiver(edge)
        edge.moved.append(self._moved)

    def _open_receiver(self, edge: Edge) -> str:
        """Opens the receiving socket. Returns why it is not available; empty if it is."""
        interface = edge.interface
        sock = edge.new_socket()
        try:
            self._prepare(edge)
            bind_receiver(sock, interface)
        except OSError as error:
            sock.close()
            refusal = f"UDP port {stare.PORT} on {interface.name}: {error}"
            _log.warning("carrier is off", carrier="ip-multicast", reason=refusal)
            return refusal
        self._receiver = edge.udp_end(sock)
        edge.watch(self._receiver, self)
        return ""

    def _moved(self) -> None:
        """Takes the fabric's socket as it is now. Joins the groups again where the interface is another
        one, also one of the same name."""
        edge = self._edge
        assert edge is not None
        before, self._interface = self._interface, edge.interface
        if (before.name, before.index) == (edge.interface.name, edge.interface.index):
            if self._receiver is not None:
                # The fabric's own socket may be another one, without the options for groups.
                self._prepare(edge)
            return
        # The kernel drops memberships with their interface.
        self._left.update(self._memberships.groups)
        self._leave_interface()
        self._memberships = Memberships(edge.interface, edge.family)
        # IPv6 addresses of groups name the interface.
        self._routes.clear()
        self.refusal = refusal_of(edge.interface, edge.named) or self._open_receiver(edge)
        if not self.refusal:
            self._join_left()
        edge.reach_changed()

    def _join_left(self) -> None:
        left, self._left = self._left, set()
        for group in left:
            try:
                self._memberships.join(group)
            except OSError as error:
                _log.warning("group cannot be joined on the new interface", error=error)

    def _prepare(self, edge: Edge) -> None:
        settings = edge.settings
        prepare_sender(edge.udp.sock, edge.interface, ttl=settings.ttl, loopback=settings.loopback)

    def _leave_interface(self) -> None:
        self._memberships.close()
        if self._receiver is not None and self._edge is not None:
            self._edge.close_end(self._receiver)
            self._receiver = None

    def close(self) -> None:
        if self._edge is not None:
            self._leave_interface()

    def set_host(self, host: int, place: Place | None) -> None:
        """Ignores hosts, because groups are addressed."""

    def learn(self, rules: object) -> None:
        raise ValueError("multicast of IP needs no rules")

    def reach(self, hosts: Collection[int]) -> Reach:
        """All of the hosts, as far as is known: probes find the members."""
        assert self._edge is not None
        return Reach(frozenset(hosts), self._edge.segment_bytes(self.overhead))

    def join(self, group: int) -> None:
        """Joins the state's group. Raises OSError with the reason if it cannot."""
        if self.refusal:
            raise OSError(self.refusal)
        self._memberships.join(stare.group(stare.check_state(group), ipv6=self._ipv6))

    def leave(self, group: int) -> None:
        packed = stare.group(group, ipv6=self._ipv6)
        # Left while there was no interface: it must not be joined again with the next one.
        self._left.discard(packed)
        self._memberships.leave(packed)

    def is_member(self, group: int) -> bool:
        known = 0 <= group <= stare.LAST_STATE
        return known and stare.group(group, ipv6=self._ipv6) in self._memberships

    def check(self, group: int) -> None:
        stare.check_state(group)
        if self.refusal:
            raise OSError(self.refusal)

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        if self.refusal:
            return
        header, address = self._routes.get(group) or self._route(group)
        self._sender.send([header + datagram for datagram in datagrams], address)

    def _route(self, state: int) -> tuple[bytes, SocketAddress]:
        header = stare.encode_header(stare.StareHeader(stare.StareKind.PUBLISH, stare.check_state(state)))
        found = (header, self._address(state, stare.StareKind.PUBLISH))
        self._routes[state] = found
        return found

    def _address(self, state: int, kind: stare.StareKind) -> SocketAddress:
        packed = stare.group(state, ipv6=self._ipv6, kind=kind)
        group = socket.inet_ntop(self._sender.sock.family, packed)
        return (group, stare.PORT, 0, self._interface.index) if self._ipv6 else (group, stare.PORT)

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        assert self._edge is not None
        try:
            header = stare.decode_header(buffer[start:end])
        except stare.StareError:
            self._edge.complain(StareFault.NO_STARE_HEADER)
            return -1
        if header.kind is stare.StareKind.SUB_ACK:
            self._acknowledged(header)
        elif not header.carries_segment or header.kind is not stare.StareKind.PUBLISH:
            self._edge.complain(StareFault.BARE_STATE)
        else:
            return start + stare.HEADER_SIZE
        return -1

    def _acknowledged(self, header: stare.StareHeader) -> None:
        """Hook for a switch's acknowledgement of a state, meant for the carrier `stare` or for STARE's own
        edge."""

    @property
    def advice(self) -> str:
        return membership_advice(ipv6=self._ipv6)

    def observed(self) -> dict[tuple[str, ...], int]:
        return {}

    def copies(self, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        return [Copy(shown(self._address(group, stare.StareKind.PUBLISH)), tuple(hosts))]

    def state(self) -> CarrierState:
        receiver = self._receiver
        routes = {address for _, address in self._routes.values()}
        return CarrierState(
            self.name,
            self.refusal,
            address=shown(receiver.sock.getsockname()) if receiver is not None else "",
            targets=len(self._memberships),
            holders=self._memberships.holders,
            segmentation=self._sender.gso,
            coalescing=receiver is not None and receiver.gro,
            one_by_one=tuple([shown(one) for one in self._sender.without_offload & routes]),
        )
