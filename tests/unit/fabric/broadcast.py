"""A carrier for tests, whole: UDP broadcast on loopback, to all fabrics of one machine.

count of receivers (1) | their ids (4 each) | segment
"""

from __future__ import annotations

import enum
import socket
import struct
from collections.abc import Collection

from treecast.middleware.fabric.carriers.carrier import Carrier, CarrierState, Place, Reach
from treecast.middleware.fabric.edge import Edge
from treecast.middleware.fabric.settings import FabricSettings

NAME = "broadcast"
_MOST = 15


class BroadcastFault(enum.Enum):
    CUT_SHORT = "fewer ids than its count says"


def make(settings: FabricSettings) -> Carrier:
    """Makes the carrier. Its option is its port."""
    return Broadcast(int(settings.options[NAME]))


class Broadcast:
    name, refusal, group_form, overhead, alike = NAME, "", "", 1 + 4 * _MOST, True

    def __init__(self, port: int) -> None:
        self.to = ("127.255.255.255", port)
        self.hosts: set[int] = set()
        self.sent: list[tuple[int, ...]] = []
        self.edge: Edge | None = None

    def open(self, edge: Edge) -> None:
        sock = edge.new_socket()
        for option in (socket.SO_REUSEADDR, socket.SO_BROADCAST):
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        sock.bind(self.to)
        self.edge, self.end = edge, edge.udp_end(sock)
        edge.watch(self.end, self)

    def close(self) -> None:
        if self.edge is not None:
            self.edge.close_end(self.end)

    def set_host(self, host: int, place: Place | None) -> None:
        (self.hosts.add if place is not None else self.hosts.discard)(host)

    def read_rules(self, version: int, encoded: bytes) -> object:
        return frozenset(encoded)  # ids of the hosts that may be sent to

    def learn(self, rules: object) -> None:
        if not isinstance(rules, frozenset):
            raise ValueError("rules are a set of hosts")
        self.hosts &= rules

    def reach(self, hosts: Collection[int]) -> Reach:
        assert self.edge is not None
        return Reach(self.hosts.intersection(hosts), self.edge.segment_bytes(self.overhead))

    def join(self, group: int) -> None:
        raise ValueError("it has no groups")

    def leave(self, group: int) -> None: ...

    def is_member(self, group: int) -> bool:
        return False

    def check(self, group: int) -> None:
        if group:
            raise ValueError(f"no group {group}")

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        self.sent.append(tuple(hosts))
        for at in range(0, len(hosts), _MOST):
            some = hosts[at : at + _MOST]
            header = bytes([len(some)]) + struct.pack(f">{len(some)}I", *some)
            self.end.send([header + datagram for datagram in datagrams], self.to)

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        assert self.edge is not None
        at = start + 1 + 4 * buffer[start] if end > start else end + 1
        if at > end:
            self.edge.complain(BroadcastFault.CUT_SHORT)
            return -1
        return at if self.edge.host in struct.unpack_from(f">{buffer[start]}I", buffer, start + 1) else -1

    def observed(self) -> dict[tuple[str, ...], int]:
        return {}

    observed_bytes = observed

    def state(self) -> CarrierState:
        return CarrierState(self.name, self.refusal, address=f"{self.to[0]}:{self.to[1]}")
