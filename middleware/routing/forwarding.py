"""A packet through a network, switch by switch: deliveries and costs.

This graph-level model is the specification of the P4 programs: `Forwarder.forward` is one switch.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, TypeVar

from .network import Network

S = TypeVar("S")

# Ethernet's header. Preamble and check sequence are not counted, as in a network adapter.
ETHERNET = 14


class Forwarder(Protocol[S]):
    """A switch's handling of a packet. A stack is never changed; copies carry new ones."""

    def forward(self, switch: int, arrived: int, stack: S) -> tuple[list[tuple[int, S]], int]:
        """Returns the copies as (link, stack), and the number of labels looked up.

        `arrived` is the link on which the packet came, -1 if its publisher is at the switch.
        """
        ...

    def size(self, stack: S) -> int:
        """Returns the size of a stack on the wire in bytes."""
        ...


class Outcome:
    """The result of one packet. `arrivals` is per node; the other fields are by link or by switch."""

    def __init__(self, nodes: int) -> None:
        self.arrivals: list[int] = [0] * nodes
        self.copies: dict[int, int] = {}
        self.link_bytes: dict[int, int] = {}
        self.lookups: dict[int, int] = {}
        self.depths: dict[int, int] = {}
        self.dead_ends: list[int] = []
        self.looped = False

    @property
    def packets(self) -> int:
        return sum(self.copies.values())

    @property
    def bytes(self) -> int:
        """The bytes on all links, including Ethernet headers."""
        return sum(self.link_bytes.values())


def simulate(network: Network, forwarder: Forwarder[S], source: int, stack: S, payload: int = 0) -> Outcome:
    """Sends one packet from a host, or from inside a switch. Terminates even if packets loop."""
    outcome = Outcome(network.node_count)
    waiting: deque[tuple[int, int, S, int]] = deque()
    if network.is_host[source]:
        _send(network, forwarder, outcome, waiting, (network.out[source][0], stack, 0), payload)
    else:
        waiting.append((source, -1, stack, 0))
    left = 8 * len(network.tails) + 64
    while waiting:
        node, arrived, stack, depth = waiting.popleft()
        copies, lookups = forwarder.forward(node, arrived, stack)
        outcome.lookups[node] = outcome.lookups.get(node, 0) + lookups
        if not copies:
            outcome.dead_ends.append(node)
        for link, its in copies:
            _send(network, forwarder, outcome, waiting, (link, its, depth), payload)
        left -= 1
        if left < 0:
            outcome.looped = True
            break
    return outcome


def _send(
    network: Network,
    forwarder: Forwarder[S],
    outcome: Outcome,
    waiting: deque[tuple[int, int, S, int]],
    copy: tuple[int, S, int],
    payload: int,
) -> None:
    link, stack, depth = copy
    head = network.heads[link]
    outcome.copies[link] = outcome.copies.get(link, 0) + 1
    carried = ETHERNET + forwarder.size(stack) + payload
    outcome.link_bytes[link] = outcome.link_bytes.get(link, 0) + carried
    outcome.arrivals[head] += 1
    outcome.depths[head] = depth + 1
    if not network.is_host[head]:
        waiting.append((head, link, stack, depth + 1))


def faults(network: Network, source: int, receivers: list[int], outcome: Outcome) -> list[str]:
    """Returns the faults of a delivery: none if every receiver got one copy and nobody else any.

    If hosts are inside the switches, a packet may pass once through switches whose host does not want it;
    none of them may be the end of a branch.
    """
    names, found = network.names, ["packets go round"] if outcome.looped else []
    found += [f"{names[r]} got {outcome.arrivals[r]} copies" for r in receivers if outcome.arrivals[r] != 1]
    if network.hosts:
        others = [h for h in network.hosts if h not in receivers and outcome.arrivals[h]]
        return found + [f"{names[host]} got {outcome.arrivals[host]} copies unasked" for host in others]
    found += [f"{names[n]} was passed {c} times" for n, c in enumerate(outcome.arrivals) if c > (n != source)]
    ends = [n for n in outcome.dead_ends if n not in receivers and n != source]
    return found + [f"{names[node]} is the end of a branch unasked" for node in ends]
