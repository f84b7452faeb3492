"""UDP to one host after the other."""

from __future__ import annotations

from .carrier import CarrierState
from .sockets import SocketAddress, UdpSocket, shown


class Unicast:
    """A target is a host id. Works wherever IP does."""

    refusal = ""

    def __init__(self, udp: UdpSocket) -> None:
        self._udp = udp
        self._addresses: dict[int, SocketAddress] = {}

    def __contains__(self, host: int) -> bool:
        return host in self._addresses

    def set_host(self, host: int, address: SocketAddress | None) -> None:
        """Where a host is reached; None forgets it."""
        if address is None:
            self._addresses.pop(host, None)
        else:
            self._addresses[host] = address

    def send(self, target: int, datagrams: list[bytes]) -> None:
        address = self._addresses.get(target)
        if address is not None:
            self._udp.send(datagrams, address)

    def state(self) -> CarrierState:
        known = set(self._addresses.values())
        return CarrierState(
            "unicast",
            address=shown(self._udp.sock.getsockname()),
            targets=len(self._addresses),
            segmentation=self._udp.gso,
            coalescing=self._udp.gro,
            one_by_one=tuple(shown(one) for one in self._udp.without_offload & known),
        )
