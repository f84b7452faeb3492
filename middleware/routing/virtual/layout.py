"""From a tree and a choice of virtual trees to the links that need hops and stops.

Hot: compiled by mypyc.
"""

from __future__ import annotations

from ..network import Network
from ..rooted import preorder


def layout(
    network: Network, union: int, start: int, access: int, edges: int, printed: bool
) -> tuple[list[int], list[int]]:
    """Returns the links away from `start` that no virtual tree holds, in preorder; the links of `union` that
    lead away from the tree. `printed`: of a chord only the first end's link, as the thesis' line 8 counts.
    """
    oriented = preorder(network, edges, start)
    nodes = [start]
    hops: list[int] = []
    for link in oriented:
        nodes.append(network.heads[link])
        if not union >> (link >> 1) & 1:
            hops.append(link)
    away = union & ~edges & ~access
    stops: list[int] = []
    for node in nodes:
        if network.edge_masks[node] & away:
            for link in network.out[node]:
                if away >> (link >> 1) & 1 and not (printed and link ^ 1 in stops):
                    stops.append(link)
    return hops, stops
