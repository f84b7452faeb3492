"""UDP to one host after another. It works wherever IP does, so it carries what other carriers do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.udp import SocketAddress, UdpSocket, shown
from treecast.middleware.wire.segment import Datagram, StreamKey

from .carrier import Carrier, CarrierState, Copy, Place, Reach

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

NAME: Final = "unicast"


def make(settings: FabricSettings) -> Carrier:
    """See `registry`."""
    return Unicast()


class Unicast:
    """The carrier of one host. Packets are bare segments, sent by the fabric's own socket."""

    def __init__(self) -> None:
        self.name = NAME
        self.refusal = ""
        self.group_form = ""
        self.overhead = 0
        self.alike = True
        self._edge: Edge | None = None
        self._udp: UdpSocket
        self.addresses: dict[int, SocketAddress] = {}

    def open(self, edge: Edge) -> None:
        self._edge = edge
        self._udp = edge.udp
        edge.watch(self._udp, None)

    def close(self) -> None:
        if self._edge is not None:
            self._edge.close_end(self._udp)

    def set_host(self, host: int, place: Place | None) -> None:
        if place is None or place.address is None:
            self.addresses.pop(host, None)
        else:
            self.addresses[host] = place.address

    def learn(self, rules: object) -> None:
        raise ValueError("unicast needs no rules")

    def reach(self, hosts: Collection[int]) -> Reach:
        assert self._edge is not None
        known = frozenset([host for host in hosts if host in self.addresses])
        return Reach(known, self._edge.segment_bytes(0))

    def join(self, group: int) -> None:
        raise ValueError("unicast has no groups")

    def leave(self, group: int) -> None:
        """Does nothing: there are no groups."""

    def is_member(self, group: int) -> bool:
        return False

    def check(self, group: int) -> None:
        """Accepts any group: unicast can always send."""

    def send(self, group: int, datagrams: Sequence[Datagram], hosts: list[int]) -> None:
        for host in hosts:
            address = self.addresses.get(host)
            if address is not None:
                self._udp.send(datagrams, address)

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        return start

    def observed(self) -> dict[tuple[str, ...], int]:
        return {}

    def copies(self, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        known = self.addresses
        return [Copy(shown(known[host]) if host in known else "", (host,)) for host in hosts]

    def state(self) -> CarrierState:
        known = set(self.addresses.values())
        return CarrierState(
            self.name,
            address=shown(self._udp.sock.getsockname()),
            targets=len(self.addresses),
            segmentation=self._udp.gso,
            coalescing=self._udp.gro,
            one_by_one=tuple([shown(one) for one in self._udp.without_offload & known]),
        )
