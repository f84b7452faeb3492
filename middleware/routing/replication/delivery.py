"""A packet through replication segments, node by node: the nodes that it reaches, and its links.

Routers and `p4/srv6_replication.p4` must agree with this model. It uses only what a node holds under a SID,
so it also covers the states between the steps of a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..network import Network, RoutingError
from .segments import LOCAL, Branch, Segment

_MOST = 1 << 16  # copies of one packet; more mean a loop


class Delivery:
    """The result of one packet: copies by node of delivery, and by link."""

    def __init__(self) -> None:
        self.arrivals: Counter[int] = Counter()
        self.copies: Counter[int] = Counter()


def deliver(network: Network, held: Mapping[int, Segment], root: int, entry: Branch | None) -> Delivery:
    """Sends one packet from a root by an entry.

    Raises RoutingError if a copy meets a SID that its node does not hold or an invalid path, or if packets
    loop.
    """
    outcome = Delivery()
    waiting = [(root, entry)] if entry is not None else []
    for place, branch in waiting:
        _go(network, outcome, place, branch)
        if len(waiting) > _MOST:
            raise RoutingError("packets go round")
        if branch.segment == LOCAL:
            outcome.arrivals[branch.node] += 1
            continue
        segment = held.get(branch.segment)
        if segment is None or segment.node != branch.node:
            raise RoutingError(f"{network.names[branch.node]} does not know the SID {branch.segment}")
        outcome.arrivals[segment.node] += segment.delivers
        waiting += [(segment.node, one) for one in segment.branches]
    return outcome


def _go(network: Network, outcome: Delivery, place: int, branch: Branch) -> None:
    for link in branch.way:
        if network.tails[link] != place:
            raise RoutingError(f"a way jumps from {network.names[place]} to {network.link_name(link)}")
        outcome.copies[link] += 1
        place = network.heads[link]
    if place != branch.node:
        raise RoutingError(f"a way ends at {network.names[place]} instead of {network.names[branch.node]}")
