"""Rules of switches that forward by content, along one spanning tree (Camus, section IV.E).

A switch sends a message to a port if somebody behind it wants the message, never to where it came from.
Packets for one host and plain traffic follow the same tree: hosts subscribe to their addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from treecast.middleware.filters.actions import Forward, Rule, Rules
from treecast.middleware.filters.content_header import DESTINATION, for_host, for_topic
from treecast.middleware.filters.tree import Constraint, Filter, Relation
from treecast.middleware.wire.content import Layout, number_of

from .spanning import Weight, route, spanning_tree

BROADCAST: Final = 0xFFFF_FFFF_FFFF


class TopicWish(Struct, frozen=True):
    """A wish of a host: messages of a topic in MQTT's spelling (empty: of any topic) that pass a filter
    (None: all)."""

    topic: str
    filter: Filter | None = None


class ContentHost(Struct, frozen=True):
    """A host: the 48 bits of its address, and what it wants."""

    mac: int
    wishes: tuple[TopicWish, ...] = ()


class ContentNetwork:
    """Switches and hosts. `links`: pairs of names; a switch's port n is its link n, from 1, in this order.

    Raises NotConnected if a tree cannot reach all.
    """

    def __init__(
        self, switches: Sequence[str], hosts: Sequence[str], links: Sequence[tuple[str, str]]
    ) -> None:
        self.switches = tuple(switches)
        self.hosts = tuple(hosts)
        names = [*switches, *hosts]
        places = {name: place for place, name in enumerate(names)}
        self._ports: dict[tuple[int, int], int] = {}
        used = dict.fromkeys(places, 0)
        for one, other in links:
            used[one] += 1
            used[other] += 1
            self._ports.setdefault((places[one], places[other]), used[one])
            self._ports.setdefault((places[other], places[one]), used[other])
        edges = [(places[one], places[other]) for one, other in links]
        self._tree = spanning_tree(len(names), edges, Weight.MST_PLUS)
        self._first_host = len(switches)
        everybody = range(self._first_host, len(names))
        self._behind = route(self._tree, everybody)

    def rules(self, wanted: Mapping[str, ContentHost], layout: Layout) -> dict[str, Rules]:
        """Returns the rules of each switch."""
        wishes = {name: _filters(name, host, layout) for name, host in wanted.items()}
        return {name: Rules(tuple(self._of(place, wishes)), ()) for place, name in enumerate(self.switches)}

    def _of(self, switch: int, wishes: Mapping[str, Sequence[Filter]]) -> list[Rule]:
        found: list[Rule] = []
        ports: set[int] = set()
        for neighbour in sorted(self._tree[switch]):
            behind = self._behind.get((switch, neighbour), frozenset())
            port = self._ports[switch, neighbour]
            names = [self.hosts[host - self._first_host] for host in sorted(behind)]
            trees = dict.fromkeys([tree for name in names for tree in wishes.get(name, ())])
            found += [Rule(tree, (Forward((port,)),)) for tree in trees]
            if behind:
                ports.add(port)
        if ports:
            everybody = Constraint(DESTINATION, Relation.EQ, BROADCAST)
            found.append(Rule(everybody, (Forward(tuple(sorted(ports))),)))
        return found


def _filters(name: str, host: ContentHost, layout: Layout) -> list[Filter]:
    found: list[Filter] = [
        Constraint(DESTINATION, Relation.EQ, host.mac),
        for_host(number_of(name.encode())),
    ]
    for wish in host.wishes:
        topic = number_of(wish.topic.encode()) if wish.topic else None
        found.append(for_topic(topic, wish.filter, layout))
    return found
