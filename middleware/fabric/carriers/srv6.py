"""SRv6 trees: one packet to a replication SID, which routers copy to exactly the hosts of a tree.

    IPv6 to a SID, next header 41 | packet (wire.srv6_packets) | segment

The network controller builds the trees (`control.segments`). It learns from `observed` to which sets of hosts
this host would send, programs a tree for each, and announces the SIDs through `learn`. Hosts without a tree
get unicast. Hosts do not join: the routers deliver a packet to the hosts of its tree.

The kernel builds the outer header (a raw socket, CAP_NET_RAW) and routes packets to the SIDs: the host needs
a route for them to an adjacent router.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from msgspec import Struct

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import Interface, addresses
from treecast.middleware.fabric.sockets.udp import UdpSocket, open_udp
from treecast.middleware.model.logs import Log
from treecast.middleware.model.tally import Header, Tally
from treecast.middleware.wire.segment import StreamKey
from treecast.middleware.wire.srv6_packets import ENCAPSULATED, GROUP, HEADER, PORT, encode_packet

from .carrier import Carrier, CarrierState, Copy, Place, Reach

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

_log = Log(__name__)

NAME: Final = "srv6"
# The outer header, one that pins a path, and the difference between IPv6 inside and IPv4 outside.
OVERHEAD: Final = 40 + 64 + 20
MOST_SETS: Final = 1024  # sets of hosts for which trees are requested
WANTED_SECONDS: Final = 60.0  # since a stream last had these receivers
_MOST_ROUTES: Final = 4096
_OUTER: Final = 40  # bytes of the header that the kernel builds


class ReplicationTree(Struct, frozen=True):
    """A tree: a packet to `sid` (16 bytes) reaches these hosts, by their names, and no others."""

    hosts: frozenset[str]
    sid: bytes


class Srv6Rules(Struct, frozen=True):
    """All trees whose root is this host. The routers already hold what they name."""

    version: int
    trees: tuple[ReplicationTree, ...]


def make(settings: FabricSettings) -> Carrier:
    """See `registry`."""
    return Srv6()


class Srv6:
    """The carrier of one host."""

    def __init__(self) -> None:
        self.name = NAME
        self.refusal = "it is not open"
        self.group_form = ""  # no joining
        self.overhead = OVERHEAD
        self.alike = True
        self.version = 0
        self._edge: Edge | None = None
        self._source = b""
        self._raw: socket.socket | None = None
        self._end: UdpSocket | None = None
        self._names: dict[int, str] = {}
        self._trees: list[tuple[frozenset[int], bytes]] = []  # by host ids, the smallest first
        self._rules = Srv6Rules(0, ())
        self._routes: dict[tuple[int, ...], bytes] = {}
        self._wanted: dict[frozenset[int], int] = {}  # sets of hosts, with the number of packets sent to them
        self._bytes: dict[frozenset[int], int] = {}  # of segments sent to them
        self._asked: dict[frozenset[int], float] = {}  # when a stream last had exactly these receivers
        self._looked = 0.0
        self.tally: Tally | None = None  # of telemetry; None: off

    # --- open and close

    def open(self, edge: Edge) -> None:
        self._edge = edge
        try:
            self._source = _own_address(edge.interface)
            self._raw = _open_raw(edge)
            self._end = edge.udp_end(_open_receiver(edge))
        except OSError as error:
            self._close_sockets()
            self.refusal = f"SRv6 on {edge.interface.name or 'no interface'}: {error}"
            _log.warning("carrier is off", carrier="srv6", reason=self.refusal)
        else:
            self.refusal = ""
            edge.watch(self._end, self)

    def close(self) -> None:
        if self._edge is not None and self._end is not None:
            self._edge.close_end(self._end)
            self._end = None
        self._close_sockets()

    def _close_sockets(self) -> None:
        for one in (self._raw, self._end):
            if one is not None:
                one.close()
        self._raw = self._end = None

    # --- knowledge of the network

    def set_host(self, host: int, place: Place | None) -> None:
        name = place.name if place is not None else ""
        if self._names.get(host, "") == name:
            return
        if name:
            self._names[host] = name
        else:
            del self._names[host]
        self._place()

    def read_rules(self, version: int, encoded: bytes) -> Srv6Rules:
        """Returns the trees of a message `ReplicationTrees`."""
        try:
            found = pb.ReplicationTrees.FromString(encoded)
        except DecodeError as error:
            raise ValueError("the rules are no replication trees") from error
        trees = tuple([ReplicationTree(frozenset(one.hosts), one.sid) for one in found.trees])
        return Srv6Rules(version, trees)

    def learn(self, rules: object) -> None:
        """Takes `Srv6Rules`. Once it returns, no packet goes to a SID that is not among them."""
        if not isinstance(rules, Srv6Rules):
            raise ValueError(f"{type(rules).__name__} are no rules of SRv6")
        if rules.version < self.version:
            raise ValueError(f"rules of version {rules.version}, and {self.version} are known")
        if any(len(tree.sid) != 16 or not tree.hosts for tree in rules.trees):
            raise ValueError("rules of SRv6 with a tree without hosts, or a SID that is no address")
        if rules == self._rules:
            return  # a version is told again in case a daemon was restarted
        self.version, self._rules = rules.version, rules
        self._place()
        if self._edge is not None:
            self._edge.reach_changed()

    def _place(self) -> None:
        """Recomputes the trees by host ids. Leaves out a tree with an unknown host: it reaches other hosts
        too, but the sender would not know which."""
        self._routes.clear()
        ids = {name: host for host, name in self._names.items()}
        known = [tree for tree in self._rules.trees if tree.hosts <= ids.keys()]
        found = [(frozenset([ids[name] for name in tree.hosts]), tree.sid) for tree in known]
        # The first that contains the hosts is then the one with the fewest needless copies.
        self._trees = sorted(found, key=lambda one: len(one[0]))

    def reach(self, hosts: Collection[int]) -> Reach:
        """The hosts of the tree for exactly these hosts; until it exists, of the tree with the most of
        them."""
        assert self._edge is not None
        named = frozenset([host for host in hosts if host in self._names and host != self._edge.host])
        self._want(named)
        best: frozenset[int] = frozenset()
        for of_tree, _ in self._trees:
            if of_tree <= named and len(of_tree) > len(best):
                best = of_tree
        return Reach(best, self._edge.segment_bytes(OVERHEAD))

    def _want(self, hosts: frozenset[int]) -> None:
        """Notes that a stream has these receivers now, and forgets sets not requested for a long time."""
        assert self._edge is not None
        now = self._edge.now()
        # At the bound, sets that are still in use keep their trees; new ones wait until some are forgotten.
        if hosts and (hosts in self._wanted or len(self._wanted) < MOST_SETS):
            self._wanted.setdefault(hosts, 0)
            self._asked[hosts] = now
        if now - self._looked > WANTED_SECONDS:
            self._looked = now
            for old in [one for one, at in self._asked.items() if now - at > WANTED_SECONDS]:
                del self._wanted[old], self._asked[old]
                self._bytes.pop(old, None)

    def check(self, group: int) -> None:
        if group:
            raise ValueError(f"trees of SRv6 have no group {group}")
        if self.refusal:
            raise OSError(self.refusal)
        if not self._trees:
            raise OSError("no trees: no network controller has told this host of one")

    # --- groups (none)

    def join(self, group: int) -> None:
        raise ValueError("trees of SRv6 have no groups to join")

    def leave(self, group: int) -> None:
        """Does nothing: there are no groups."""

    def is_member(self, group: int) -> bool:
        return False

    # --- the wire

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        """Sends by the smallest tree that contains all of these hosts. Its other hosts get a copy that they
        already have or do not need."""
        if self._raw is None or self._edge is None:
            return
        key = tuple(hosts)
        sid = self._routes.get(key)
        if sid is None:
            sid = self._route(key)
        if not sid:
            return
        counters, address = self._edge.counters, (sid_text(sid), 0)
        for datagram in datagrams:
            packet = encode_packet(self._source, datagram)
            try:
                self._raw.sendto(packet, address)
            except OSError as error:  # it is repaired later
                name = errno.errorcode.get(error.errno or 0, "UNKNOWN")
                counters.send_errors[name] = counters.send_errors.get(name, 0) + 1
                counters.dropped_packets += 1
                continue
            counters.send_calls += 1
            counters.sent_packets += 1
            counters.sent_bytes += len(packet)
        self._count(key, len(datagrams), sum(map(len, datagrams)))

    def _count(self, hosts: tuple[int, ...], packets: int, size: int) -> None:
        """Counts a burst to a set of hosts, once it is on its way."""
        wanted = frozenset(hosts)
        if wanted in self._wanted:
            self._wanted[wanted] += packets
            self._bytes[wanted] = self._bytes.get(wanted, 0) + size
        if self.tally is not None:
            self.tally.add(tuple(sorted(hosts)), packets, size, Header(_OUTER + HEADER))

    def _route(self, hosts: tuple[int, ...]) -> bytes:
        """Returns the SID for these hosts; empty if no tree contains all of them."""
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        found = self._routes[hosts] = self._sid_for(hosts)
        return found

    def _sid_for(self, hosts: Collection[int]) -> bytes:
        wanted = frozenset(hosts)
        return next((sid for of_tree, sid in self._trees if wanted <= of_tree), b"")

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        """Returns `start`: the kernel has removed all headers."""
        return start

    # --- inspection

    def observed(self) -> dict[tuple[str, ...], int]:
        """Packets sent per set of hosts that streams have, by names."""
        found: dict[tuple[str, ...], int] = {}
        for hosts, count in self._wanted.items():
            if hosts <= self._names.keys():
                found[self._named(hosts)] = count
        return found

    def observed_bytes(self) -> dict[tuple[str, ...], int]:
        """Bytes of segments sent per set of hosts, by names."""
        return {
            self._named(hosts): count for hosts, count in self._bytes.items() if hosts <= self._names.keys()
        }

    def names(self, hosts: tuple[int, ...]) -> list[str]:
        """Returns the names of hosts in ascending order; those that have left are left out."""
        return sorted([self._names[host] for host in hosts if host in self._names])

    def _named(self, hosts: frozenset[int]) -> tuple[str, ...]:
        return tuple(sorted([self._names[host] for host in hosts]))

    def copies(self, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        sid = self._sid_for(hosts)
        return [Copy(sid_text(sid) if sid else "", tuple(hosts))]

    def state(self) -> CarrierState:
        address = str(IPv6Address(self._source)) if self._source else ""
        targets = len(frozenset().union(*[hosts for hosts, _ in self._trees]))
        return CarrierState(self.name, self.refusal, address=address, targets=targets)


def sid_text(sid: bytes) -> str:
    """Returns the SID as text, as sockets take it."""
    return socket.inet_ntop(socket.AF_INET6, sid)


def _own_address(interface: Interface) -> bytes:
    """Returns the interface's address. Raises OSError if it has no IPv6 address that other hosts can
    reach."""
    if not interface.index:
        raise OSError("the fabric's address names no interface: listen on the address of one")
    for name, network in addresses():
        if name == interface.name and isinstance(network.ip, IPv6Address) and not network.ip.is_link_local:
            return network.ip.packed
    raise OSError(f"{interface.name} has no address of IPv6")


def _open_raw(edge: Edge) -> socket.socket:
    """Opens the raw socket, on which the kernel prepends an IPv6 header."""
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    sock = socket.socket(socket.AF_INET6, kind, ENCAPSULATED)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, edge.interface.name.encode() + b"\0")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, edge.settings.send_buffer)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # nothing is read from it
    except OSError:
        sock.close()
        raise
    return sock


def _open_receiver(edge: Edge) -> socket.socket:
    """Opens the receiving socket: a member of the group on the interface, bound to its port."""
    settings, index = edge.settings, edge.interface.index
    sizes = {"receive_buffer": settings.receive_buffer, "send_buffer": settings.send_buffer}
    sock = open_udp(socket.AF_INET6, **sizes)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((socket.inet_ntop(socket.AF_INET6, GROUP), PORT, 0, index))
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, struct.pack("=16sI", GROUP, index))
    except OSError:
        sock.close()
        raise
    return sock
