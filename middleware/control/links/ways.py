"""The ways of frames without a stack: a port towards each host's MAC address, around links that are down.

Pure. Such frames have no hop limit, so no way may lead in a circle, also where a switch cannot be written:
what that one holds is given (`Held`), and the others go by it only where it leads on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from treecast.middleware.routing.network import Network

Towards = dict[int, int]  # by host: the link of one switch
Held = Mapping[int, Towards]  # by switch that is not written now; a host without an entry is not led to


def ways(network: Network, hosts: Iterable[int], held: Held) -> dict[int, Towards]:
    """Returns the link towards each host, by switch: the shortest ways, and the first port among equals."""
    found: dict[int, Towards] = {switch: {} for switch in network.switches}
    for host in hosts:
        far = _distances(network, host, held)
        for switch in network.switches:
            link = held[switch].get(host, -1) if switch in held else _next(network, far, switch)
            if link >= 0:
                found[switch][host] = link
    return found


def _distances(network: Network, host: int, held: Held) -> list[int]:
    """Returns the links from every node to a host; -1 where no way leads there."""
    far = [-1] * network.node_count
    far[host] = 0
    waiting = deque([host])
    while waiting:
        node = waiting.popleft()
        for link in network.out[node]:
            before = network.heads[link]
            kept = before in held and held[before].get(host, -1) != link ^ 1
            if far[before] < 0 and not network.is_host[before] and not kept:
                far[before] = far[node] + 1
                waiting.append(before)
    return far


def _next(network: Network, far: list[int], switch: int) -> int:
    for link in network.out[switch]:
        if far[switch] > 0 and far[network.heads[link]] == far[switch] - 1:
            return link
    return -1
