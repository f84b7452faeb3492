"""Stacks of labels: one packet names exactly the hosts that get it, switches follow trees that they store.

    Ethernet, type 0x9999 | stack (wire.label_stack) | segment         a label switch beside this host
    UDP, port 39321       | stack                    | segment         one that is reached through others

What can be named is what `set_rules` has told: the network with hosts by their names, and the trees that all
its switches hold. Until then, and for hosts that are not on it, nothing can be sent. Nobody joins: hosts get
what names them. Stacks are cached by the set of hosts; where one has no room, the hosts are parted.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.virtual.cache import Stacks
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.wire import stare
from treecast.middleware.wire.label_stack import COUNT_SIZE, LABEL_SIZE, MOST_LABELS

from .bursts import split
from .carrier import CarrierState

NAME: Final = "labels"
_COUNT: Final = struct.Struct(">H")
_MOST_SETS: Final = 4096


class Wire(Protocol):
    """Ethernet frames or UDP datagrams to the switch."""

    def send(self, datagrams: list[bytes]) -> None: ...

    @property
    def address(self) -> str:
        """Where, for inspection."""
        ...


class Labels:
    """The carrier of one host. `room`: the longest stack in bytes, with its count."""

    def __init__(self, host: int, wire: Wire | None, room: int, refusal: str = "") -> None:
        self.refusal = refusal
        self.version = 0
        self._host = host
        self._wire = wire
        self._room = room
        self._network: Network | None = None
        self._stacks: Stacks | None = None
        self._node: dict[int, int] = {}  # by host id, as the network has them
        self._names: dict[int, str] = {}
        self._joined: set[int] = set()
        self._prefixes: dict[tuple[int, ...], list[bytes]] = {}
        self._counts: dict[tuple[int, ...], int] = {}  # packets by the hosts that they were for

    # --- what is known

    def set_name(self, host: int, name: str | None) -> None:
        """How the network calls a host; None: it is gone."""
        if self._names.get(host) == name:
            return
        if name is None:
            del self._names[host]
        else:
            self._names[host] = name
        self._place()

    def set_rules(self, version: int, network: Network, rules: RuleBase) -> None:
        """The trees that all switches hold from now on. ValueError for an older version than the last.

        From its return on no stack names a tree that is not among them.
        """
        if version < self.version:
            raise ValueError(f"rules of version {version}, and {self.version} are known")
        self.version, self._network = version, network
        self._encoder = Encoder(network, rules)
        self._place()

    def _place(self) -> None:
        """Where hosts are, anew."""
        network = self._network
        self._prefixes.clear()
        self._stacks, self._node = None, {}
        if network is None:
            return
        at = {network.names[node]: node for node in network.hosts}
        self._node = {host: at[name] for host, name in self._names.items() if name in at}
        if self._host in self._node:
            self._stacks = Stacks(self._encoder, self._node[self._host])

    def reaches(self, host: int) -> bool:
        """Whether the network that is known has the host."""
        return self._stacks is not None and host in self._node

    def check(self) -> None:
        """OSError where nothing can be sent yet."""
        if self.refusal:
            raise OSError(self.refusal)
        if self._stacks is None:
            raise OSError("no trees: this host was not told of a network of label switches that has it")

    # --- groups: hosts of a state are named by who sends, so that a member only says that it is one

    def __contains__(self, state: int) -> bool:
        return state in self._joined

    def join(self, state: int) -> None:
        """Answers probes of the state from now on. OSError where labels cannot be used."""
        if self.refusal:
            raise OSError(self.refusal)
        self._joined.add(stare.check_state(state))

    def leave(self, state: int) -> None:
        self._joined.discard(state)

    def forget(self, state: int) -> None:
        """Nothing is kept by state."""

    def close(self) -> None:
        self._joined.clear()

    # --- the wire

    def send(self, target: int, datagrams: list[bytes], hosts: list[int]) -> None:
        """One packet for all hosts that the network has, or as few as their stacks have room for."""
        if self._wire is None or self._stacks is None:
            return
        key = tuple(hosts)
        prefixes = self._prefixes.get(key)
        if prefixes is None:
            prefixes = self._encode(key)
        if len(self._counts) >= _MOST_SETS and key not in self._counts:
            self._counts.clear()
        self._counts[key] = self._counts.get(key, 0) + len(datagrams)
        for prefix in prefixes:
            self._wire.send([prefix + datagram for datagram in datagrams])

    def observed(self) -> dict[tuple[str, ...], int]:
        """How many packets were sent to which hosts of the network, by their names there; bounded, so that
        counts begin anew now and then."""
        found: dict[tuple[str, ...], int] = {}
        for hosts, count in self._counts.items():
            names = tuple(sorted(self._names[host] for host in hosts if host in self._node))
            if names:
                found[names] = found.get(names, 0) + count
        return found

    def _encode(self, hosts: tuple[int, ...]) -> list[bytes]:
        nodes = sorted({self._node[host] for host in hosts if host in self._node and host != self._host})
        if len(self._prefixes) >= _MOST_SETS:
            self._prefixes.clear()
        found = self._prefixes[hosts] = self._parts(nodes)
        return found

    def _parts(self, nodes: list[int]) -> list[bytes]:
        """Stacks that together name all nodes; those that no stack reaches are left to unicast's repairs."""
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
            return [stack]
        if len(nodes) == 1:
            return []
        half = len(nodes) // 2
        return [*self._parts(nodes[:half]), *self._parts(nodes[half:])]

    def state(self) -> CarrierState:
        return CarrierState(
            NAME,
            self.refusal,
            address=self._wire.address if self._wire is not None else "",
            targets=len(self._node),
        )


def segments(buffer: memoryview, length: int, size: int, skip: int) -> list[tuple[int, int]]:
    """Where the segments of a received burst begin and end; (-1, -1) where there is no whole stack.

    Each packet has `skip` bytes before its stack. Labels that remain are skipped, whatever they are.
    """
    return [_segment(buffer, at + skip, min(at + size, length)) for at in split(length, size)]


def _segment(buffer: memoryview, start: int, end: int) -> tuple[int, int]:
    if end - start < COUNT_SIZE:
        return -1, -1
    count: int = _COUNT.unpack_from(buffer, start)[0]
    at = start + COUNT_SIZE + count * LABEL_SIZE
    return (at, end) if count <= MOST_LABELS and at <= end else (-1, -1)
