"""Splitting of a tree that outgrows the header into several packets, each for a part of the receivers
(3.4.1).
"""

from __future__ import annotations

from collections.abc import Callable

from ..network import Network, RoutingError
from ..rooted import preorder
from .common import branch


def split(
    network: Network, source: int, edges: int, room: int, size: Callable[[int], int]
) -> list[tuple[int, list[int]]]:
    """Returns parts of a tree with their receivers; each part's stack has at most `room` bytes.

    `size` returns the bytes of a tree's stack. Receivers are taken in preorder, so that a part is a region of
    the tree. Raises RoutingError if not even one receiver's stack fits.
    """
    root = network.switch_of(source)
    links = preorder(network, edges & ~network.edge_masks[source], root)
    receivers = [network.heads[link] for link in links if network.is_host[network.heads[link]]]
    parts: list[tuple[int, list[int]]] = []
    while receivers:
        count = _most(receivers, lambda some: size(branch(network, edges, source, some)) <= room)
        if not count:
            needed = size(branch(network, edges, source, receivers[:1]))
            raise RoutingError(f"one receiver's stack takes {needed} bytes, and there is room for {room}")
        parts.append((branch(network, edges, source, receivers[:count]), receivers[:count]))
        receivers = receivers[count:]
    return parts


def _most(receivers: list[int], fits: Callable[[list[int]], bool]) -> int:
    """Returns how many of the first receivers fit, by bisection: more receivers never need less room."""
    low, high = 0, len(receivers)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(receivers[:middle]):
            low = middle
        else:
            high = middle - 1
    return low
