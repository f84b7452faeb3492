"""Probes of links between SRv6 routers: there and back, led by SIDs alone. Pure.

    IPv6 to A's End.X over the link | SRH: B's End.X back, A's End.DX6 to its controller | IPv6

The controller of A sends it into A, and gets the inner packet back from A if both directions of the link, and
both routers, work.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from treecast.middleware.control.links.probes import Probe
from treecast.middleware.wire.srv6 import ROUTING_HEADER, encode_srh, path_header
from treecast.middleware.wire.srv6_packets import ENCAPSULATED, HOP_LIMIT

from .routers import CONTROLLER, CROSSES, ENDS, Plan

_ETHERNET: Final = bytes(12) + b"\x86\xdd"
_NOTHING_FOLLOWS: Final = 59
_MARK: Final = b"treecast"  # before the number of a link


class SidProbes:
    """`control.links.probes.Form`."""

    blind_is_down = True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        pairs = range(0, 2 * plan.network.edge_count, 2)
        self.links = [link for link in pairs if not self._to_host(link)]

    def _to_host(self, link: int) -> bool:
        network = self._plan.network
        return network.is_host[network.tails[link]] or network.is_host[network.heads[link]]

    def link_of(self, packet: bytes) -> int:
        at = len(_ETHERNET) + 40
        if len(packet) != at + len(_MARK) + 4 or packet[at : at + len(_MARK)] != _MARK:
            return -1
        return int.from_bytes(packet[at + len(_MARK) :])

    def probe(self, link: int, reached: Collection[int], down: int) -> Probe | None:
        """A link none of whose routers is reached gets no probe."""
        starts = [one for one in (link, link ^ 1) if self._plan.network.tails[one] in reached]
        return self._probe(starts[0], link) if starts else None

    def _probe(self, link: int, number: int) -> Probe:
        plan, network = self._plan, self._plan.network
        node, other = network.tails[link], network.heads[link]
        path = [plan.sid(node, CROSSES + network.ports[link])]
        path += [plan.sid(other, CROSSES + network.ports[link ^ 1]), plan.sid(node, CONTROLLER)]
        source = plan.sid(node, ENDS).to_bytes(16)
        text = _MARK + number.to_bytes(4)
        inner = _ipv6(_NOTHING_FOLLOWS, source, source, text)
        srh = encode_srh(path_header([sid.to_bytes(16) for sid in path], ENCAPSULATED))
        return Probe(node, _ETHERNET + _ipv6(ROUTING_HEADER, source, path[0].to_bytes(16), srh + inner))


def _ipv6(following: int, source: bytes, destination: bytes, payload: bytes) -> bytes:
    head = b"\x60\0\0\0" + len(payload).to_bytes(2) + bytes((following, HOP_LIMIT))
    return head + source + destination + payload
