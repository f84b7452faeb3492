"""Label stacks: one packet names exactly the hosts that get it, and switches follow the trees they store.

    Ethernet, type 0x9999 | stack (wire.label_stack) | segment         a label switch beside this host
    UDP, port 39321       | stack                    | segment         a switch reached through others

`learn` provides what can be named: the network with the names of its hosts, and the trees that all its
switches hold. Before that, and to hosts outside the network, nothing can be sent. Hosts do not join: they get
the packets that name them. Stacks are cached by the set of hosts. If a stack does not fit, the hosts are
split.
"""

from __future__ import annotations

import enum
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from treecast.middleware.api.virtual_trees import read_trees
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.ethernet import HEADER, EthernetSocket, open_ethernet
from treecast.middleware.fabric.sockets.udp import SocketAddress, UdpSocket, shown
from treecast.middleware.model.logs import Log
from treecast.middleware.model.tally import Header, Tally
from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.virtual.cache import Stacks
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.wire.label_stack import (
    ETHERTYPE,
    UDP_PORT,
    LabelKind,
    decode_labels,
    end_of_labels,
    id_of,
    kind_of,
)
from treecast.middleware.wire.segment import StreamKey

from .carrier import Carrier, CarrierState, Copy, Place, Reach

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

_log = Log(__name__)

NAME: Final = "labels"
BY_ETHERNET: Final = "ethernet"
ROOM: Final = 64  # bytes of the longest stack, including its count; segments are shorter by that much
_MOST_SETS: Final = 4096


class LabelFault(enum.Enum):
    """Why a packet of a label switch carries no segment."""

    NO_STACK = "the label stack is missing or cut off"


class LabelRules(Struct, frozen=True):
    """The surrounding network of label switches, and the trees that all of them hold."""

    version: int
    network: Network
    rules: RuleBase


def make(settings: FabricSettings) -> Carrier:
    """See `registry`. The carrier's option is the path to the switch: `ethernet`, or an address for UDP."""
    return Labels(settings.options.get(NAME) or BY_ETHERNET)


class Wire(Protocol):
    """The path to the switch: Ethernet frames or UDP datagrams."""

    def send(self, datagrams: list[bytes]) -> None: ...

    @property
    def address(self) -> str:
        """The switch's address, for inspection."""
        ...


class UdpWire:
    """Datagrams to one switch, possibly through others."""

    def __init__(self, end: UdpSocket, switch: SocketAddress) -> None:
        self.address = shown(switch)
        self._end = end
        self._switch = switch

    def send(self, datagrams: list[bytes]) -> None:
        self._end.send(datagrams, self._switch)


class Labels:
    """The carrier of one host. `via`: the path to its switch; `room`: maximum bytes of a stack."""

    def __init__(self, via: str, room: int = ROOM) -> None:
        self.name = NAME
        self.refusal = "it is not open"
        self.group_form = ""  # no joining: the sender names the receivers
        self.overhead = room
        self.alike = True
        self.version = 0
        self._via = via
        self._room = room
        self._skip = HEADER if via == BY_ETHERNET else 0  # bytes before the stack
        self._host = 0
        self._wire: Wire | None = None
        self._edge: Edge | None = None
        self._end: UdpSocket | EthernetSocket | None = None
        self._network: Network | None = None
        self._stacks: Stacks | None = None
        self._node: dict[int, int] = {}  # by host id, if the network contains the host
        self._names: dict[int, str] = {}
        self._prefixes: dict[tuple[int, ...], list[bytes]] = {}
        self._headers: dict[tuple[int, ...], Header] = {}  # of the same sets, while they are tallied
        self._counts: dict[tuple[int, ...], int] = {}  # packets by the hosts they were for
        self.tally: Tally | None = None  # of telemetry; None: off

    # --- the path to the switch

    def open(self, edge: Edge) -> None:
        self._edge = edge
        try:
            wire = self._over_ethernet(edge) if self._via == BY_ETHERNET else self._over_udp(edge)
        except OSError as error:
            self.refusal = f"labels by {self._via} on {edge.interface.name or 'no interface'}: {error}"
            _log.warning("carrier is off", carrier="labels", reason=self.refusal)
        else:
            self.begin(edge.host, wire)

    def begin(self, host: int, wire: Wire) -> None:
        """Completes `open` with this host's id and the path to its switch."""
        self._host, self._wire, self.refusal = host, wire, ""

    def _over_ethernet(self, edge: Edge) -> Wire:
        if not edge.interface.index:
            raise OSError("the fabric's address names no interface: listen on the address of one")
        settings = edge.settings
        end = EthernetSocket(
            open_ethernet(edge.interface, ETHERTYPE, receive_buffer=settings.receive_buffer),
            ETHERTYPE,
            edge.counters,
            queue_bytes=settings.queue_bytes,
            want_write=lambda wanted: edge.want_write(end, wanted),
        )
        self._end = end
        edge.watch(end, self)
        return end

    def _over_udp(self, edge: Edge) -> Wire:
        found = socket.getaddrinfo(
            self._via, UDP_PORT, edge.family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST
        )
        switch: SocketAddress = found[0][4]  # type: ignore[assignment]
        sock = edge.new_socket()
        try:
            # The switch sends to this port what is for this host.
            sock.bind((edge.address[0], UDP_PORT))
        except OSError:
            sock.close()
            raise
        self._end = edge.udp_end(sock)
        edge.watch(self._end, self)
        return UdpWire(self._end, switch)

    def close(self) -> None:
        if self._edge is not None and self._end is not None:
            self._edge.close_end(self._end)

    # --- knowledge of the network

    def set_host(self, host: int, place: Place | None) -> None:
        """Sets the name of a host in the network; its address does not matter."""
        name = place.name if place is not None else ""
        if self._names.get(host, "") == name:
            return
        if name:
            self._names[host] = name
        else:
            del self._names[host]
        self._place()

    def read_rules(self, version: int, encoded: bytes) -> LabelRules:
        """Returns the network and the trees of `api.virtual_trees`."""
        network, rules = read_trees(encoded)
        return LabelRules(version, network, rules)

    def observed_bytes(self) -> dict[tuple[str, ...], int]:
        return {}

    def learn(self, rules: object) -> None:
        """Takes `LabelRules`. Once it returns, no stack names a tree that is not among them."""
        if not isinstance(rules, LabelRules):
            raise ValueError(f"{type(rules).__name__} is nothing that labels are made by")
        if rules.version < self.version:
            raise ValueError(f"rules of version {rules.version}, and {self.version} are known")
        if rules.version == self.version and self._network is not None:
            return  # a version is told again in case a daemon was restarted
        self.version, self._network = rules.version, rules.network
        self._encoder = Encoder(rules.network, rules.rules)
        self._place()

    def _place(self) -> None:
        """Recomputes the positions of the hosts that links lead to from here. Others get unicast."""
        network, own = self._network, self._names.get(self._host, "")
        self._prefixes.clear()
        self._headers.clear()
        self._stacks, self._node = None, {}
        if network is None:
            return
        here = next((node for node in network.hosts if network.names[node] == own), -1)
        at = {network.names[node]: node for node in network.hosts if network.part[node] == network.part[here]}
        self._node = {host: at[name] for host, name in self._names.items() if name in at}
        if self._host in self._node:
            self._stacks = Stacks(self._encoder, self._node[self._host])

        if self._edge is not None:
            self._edge.reach_changed()

    def reach(self, hosts: Collection[int]) -> Reach:
        """The hosts that links lead to, once the network is known."""
        known = () if self._stacks is None else [host for host in hosts if host in self._node]
        mtu = self._edge.segment_bytes(self._room) if self._edge is not None else 0
        return Reach(frozenset(known), mtu)

    def check(self, group: int) -> None:
        if group:
            raise ValueError(f"labels have no group {group}")
        if self.refusal:
            raise OSError(self.refusal)
        if self._stacks is None:
            raise OSError("no trees: this host was not told of a network of label switches that has it")

    # --- groups (none)

    def join(self, group: int) -> None:
        raise ValueError("labels have no groups")

    def leave(self, group: int) -> None:
        """Does nothing: there are no groups."""

    def is_member(self, group: int) -> bool:
        return False

    # --- the wire

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        """Sends one packet for all hosts that the network contains, or as few as their stacks allow."""
        if self._wire is None or self._stacks is None:
            return
        key = tuple(hosts)
        prefixes = self._prefixes.get(key)
        if prefixes is None:
            prefixes = self._encode(key)
        if len(self._counts) >= _MOST_SETS and key not in self._counts:
            self._counts.clear()
        self._counts[key] = self._counts.get(key, 0) + len(datagrams)
        if self.tally is not None:
            self.tally.add(key, len(datagrams), sum(map(len, datagrams)), self._header(key))
        for prefix in prefixes:
            self._wire.send([prefix + datagram for datagram in datagrams])

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        """Returns the position after the stack; remaining labels are skipped, whatever they are."""
        at = end_of_labels(buffer, start + self._skip, end)
        if at < 0 and self._edge is not None:
            self._edge.complain(LabelFault.NO_STACK)
        return at

    def observed(self) -> dict[tuple[str, ...], int]:
        """Packets sent per set of hosts, by their names in the network. The number of sets is bounded, so
        counts restart now and then."""
        found: dict[tuple[str, ...], int] = {}
        for hosts, count in self._counts.items():
            names = tuple(self.names(hosts))
            if names:
                found[names] = found.get(names, 0) + count
        return found

    def names(self, hosts: Collection[int]) -> list[str]:
        """Returns the names of those hosts that the network contains, in ascending order."""
        return sorted(self._names[host] for host in hosts if host in self._node)

    def _header(self, hosts: tuple[int, ...]) -> Header:
        found = self._headers.get(hosts)
        if found is None:
            found = self._headers[hosts] = header_of(self._prefixes[hosts], self.version)
        return found

    def _encode(self, hosts: tuple[int, ...]) -> list[bytes]:
        if len(self._prefixes) >= _MOST_SETS:
            self._prefixes.clear()
            self._headers.clear()
        parts = self._parts(sorted(self._placed(hosts)))
        found = self._prefixes[hosts] = [stack for stack, _ in parts]
        return found

    def _placed(self, hosts: Collection[int]) -> dict[int, int]:
        """Returns the hosts that the network contains, by node, without this one."""
        return {self._node[host]: host for host in hosts if host in self._node and host != self._host}

    def copies(self, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        placed = self._placed(hosts)
        return [
            Copy(stack.hex(" ", 2), tuple([placed[node] for node in nodes]))
            for stack, nodes in self._parts(sorted(placed))
        ]

    def _parts(self, nodes: list[int]) -> list[tuple[bytes, list[int]]]:
        """Returns stacks that together name all nodes, each with its nodes. A node that no stack reaches is
        left to repairs by unicast."""
        if not nodes or self._stacks is None:
            return []
        receivers = 0
        for node in nodes:
            receivers |= 1 << node
        try:
            stack = self._stacks[receivers]
        except RoutingError:
            stack = b""
        if stack and len(stack) <= self._room:
            return [(stack, nodes)]
        if len(nodes) == 1:
            return []
        # Halves rather than single hosts: those of a half still share one packet.
        half = len(nodes) // 2
        return [*self._parts(nodes[:half]), *self._parts(nodes[half:])]

    def state(self) -> CarrierState:
        return CarrierState(
            self.name,
            self.refusal,
            address=self._wire.address if self._wire is not None else "",
            targets=len(self._node),
        )


def header_of(stacks: list[bytes], version: int) -> Header:
    """Returns the labels of a message's packets together; `version`: of the trees that they were made by."""
    labels = [label for stack in stacks for label in decode_labels(stack)[0]]
    kinds = [kind_of(label) for label in labels]
    return Header(
        sum(map(len, stacks)),
        kinds.count(LabelKind.HOP),
        kinds.count(LabelKind.STOP),
        tuple([id_of(label) for label in labels if kind_of(label) == LabelKind.TREE]),
        version,
    )
