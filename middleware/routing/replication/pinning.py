"""The segment list that keeps a packet on a given path.

Routers forward to a node's SID by shortest paths, and over any of several equally short ones. A path is
pinned by the SIDs of nodes on it, each the farthest one for which the path is the only shortest one. If not
even the next node qualifies, the link's own SID (End.X) sends the packet over it.
"""

from __future__ import annotations

from msgspec import Struct

from ..network import Network
from .shapes import Way


class Waypoint(Struct, frozen=True):
    """A segment of the list: the SID's node, and for End.X its link, else -1."""

    node: int
    link: int = -1


class Pinning:
    """Segment lists in a network whose routers count hops. Path counts are computed on first use."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._counted: dict[int, tuple[list[int], list[int]]] = {}

    def segment_list(self, way: Way) -> tuple[Waypoint, ...]:
        """Returns the SIDs that keep a packet on this path, without the SID of its end.

        Empty if shortest paths lead there anyway.
        """
        found: list[Waypoint] = []
        done = 0
        while done < len(way):
            reached = self._farthest(way, done)
            if reached == done:
                found.append(Waypoint(self._network.tails[way[done]], way[done]))
                reached += 1
            elif reached < len(way):
                found.append(Waypoint(self._network.heads[way[reached - 1]]))
            done = reached
        return tuple(found)

    def _farthest(self, way: Way, done: int) -> int:
        """Returns the end index of the longest part from `done` on that is the only shortest path."""
        hops, ways = self._count(self._network.tails[way[done]])
        reached = done
        for number in range(done, len(way)):
            node = self._network.heads[way[number]]
            if hops[node] != number + 1 - done or ways[node] != 1:
                break
            reached = number + 1
        return reached

    def _count(self, start: int) -> tuple[list[int], list[int]]:
        """Returns hops from a node to every other, and the numbers of shortest paths."""
        if start not in self._counted:
            network = self._network
            hops, ways = [-1] * network.node_count, [0] * network.node_count
            hops[start], ways[start] = 0, 1
            order = [start]
            for node in order:
                for link in network.out[node]:
                    head = network.heads[link]
                    if hops[head] < 0:
                        hops[head] = hops[node] + 1
                        order.append(head)
                    if hops[head] == hops[node] + 1:
                        ways[head] += ways[node]
            self._counted[start] = hops, ways
        return self._counted[start]
