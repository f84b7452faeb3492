"""Finds links that carry nothing: a packet goes over each link and back, round after round. Pure.

    IPv6 to A's End.X over the link | SRH: B's End.X back, A's End.DX6 to its controller | IPv6

The controller of A sends it into A, and gets the inner packet back from A if both directions of the link, and
both routers, work. No program has to know of it: SIDs alone lead it around. A link is down after `MISSED`
rounds without any answer, and up again after `ANSWERED` rounds with one. An answer that comes rounds later
counts for the round in which it comes: a slow machine is not a broken link. A round without any answer says
nothing: it is the controller that is cut off or stands still.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from treecast.middleware.routing.bits import members
from treecast.middleware.wire.srv6 import ROUTING_HEADER, encode_srh, path_header
from treecast.middleware.wire.srv6_packets import ENCAPSULATED, HOP_LIMIT

from .routers import CONTROLLER, CROSSES, ENDS, Plan

MISSED: Final = 3
ANSWERED: Final = 2
_ETHERNET: Final = bytes(12) + b"\x86\xdd"
_NOTHING_FOLLOWS: Final = 59
_MARK: Final = b"treecast"  # before the number of a link


class Probe(Struct, frozen=True):
    """A frame for the router `node`, as if it had come from its controller."""

    node: int
    frame: bytes


class Probes:
    """The links between the routers of one network. `down`: links that carry nothing (bits)."""

    def __init__(self, plan: Plan) -> None:
        self.down = 0
        self._plan = plan
        network = plan.network
        pairs = range(0, 2 * network.edge_count, 2)
        self._links = [link for link in pairs if not self._to_host(link)]
        self._answered: set[int] = set()
        self._streaks = dict.fromkeys(self._links, 0)  # above 0: rounds with an answer, below: without

    def _to_host(self, link: int) -> bool:
        network = self._plan.network
        return network.is_host[network.tails[link]] or network.is_host[network.heads[link]]

    def answer(self, packet: bytes) -> None:
        """Takes a packet that a router has sent to its controller; ignores it if it is no probe."""
        at = len(_ETHERNET) + 40
        if len(packet) == at + len(_MARK) + 4 and packet[at : at + len(_MARK)] == _MARK:
            link = int.from_bytes(packet[at + len(_MARK) :])
            if link in self._streaks:
                self._answered.add(link)

    def round(self, reached: Collection[int]) -> list[Probe]:
        """Ends a round and returns the probes of the next. `reached`: the routers that the controller
        reaches.

        A link none of whose routers is reached gets no probe, and is down.
        """
        probes = []
        for link in self._links:
            if self._answered:
                self._count(link, link in self._answered)
            starts = [one for one in (link, link ^ 1) if self._plan.network.tails[one] in reached]
            probes += [self._probe(one, link) for one in starts[:1]]
        self._answered.clear()
        return probes

    def _count(self, link: int, answered: bool) -> None:
        streak = self._streaks[link]
        self._streaks[link] = max(streak, 0) + 1 if answered else min(streak, 0) - 1
        both = 3 << link
        if self._streaks[link] <= -MISSED:
            self.down |= both
        elif self._streaks[link] >= ANSWERED:
            self.down &= ~both

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

    def names(self) -> list[str]:
        """Returns the links that are down, one name for both directions."""
        return [self._plan.network.link_name(link) for link in members(self.down) if not link & 1]


def _ipv6(following: int, source: bytes, destination: bytes, payload: bytes) -> bytes:
    head = b"\x60\0\0\0" + len(payload).to_bytes(2) + bytes((following, HOP_LIMIT))
    return head + source + destination + payload
