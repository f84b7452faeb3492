"""A k-ary tree, and the ISP network of SNAPS' Fig. 4."""

from __future__ import annotations

from ..network import Network, RoutingError, build


def k_ary_tree(branches: int, depth: int, hosts: int = 1) -> Network:
    """Returns switches in a tree of `depth` levels below its root, with `hosts` on every leaf."""
    if branches < 1 or depth < 0:
        raise RoutingError(f"a tree needs branches and levels, not {branches} and {depth}")
    edges: list[tuple[int, int]] = []
    level, count = [0], 1
    for _ in range(depth):
        below = []
        for node in level:
            for _ in range(branches):
                edges.append((node, count))
                below.append(count)
                count += 1
        level = below
    names, host_nodes = [f"s{number}" for number in range(count)], []
    for leaf in level:
        for number in range(hosts):
            host_nodes.append(len(names))
            edges.append((leaf, len(names)))
            names.append(f"s{leaf}/{number}")
    return build(names, edges, hosts=host_nodes)


# From SNAPS' text about its figure: routers 10, 14 and 16 replicate for publishers at 2 and 4 and receivers
# at 5 to 9; links 12-16, 12-4 and 4-16 exist. The figure itself is a picture; the other links are our choice.
_ISP_LINKS = (
    *((1, 11), (1, 13), (2, 10), (3, 11), (3, 15), (4, 12), (4, 14), (4, 16), (5, 14), (6, 14), (7, 16)),
    *((8, 16), (9, 16), (10, 11), (10, 12), (10, 13), (10, 14), (11, 12), (12, 15), (12, 16), (13, 15)),
)
_ISP_ROUTERS = 16
_ISP_HOSTS = 10


def isp() -> Network:
    """Returns the ISP of SNAPS' Fig. 4, as far as its text describes it: 16 routers, hosts on the
    first ten.
    """
    names = [f"r{number}" for number in range(1, _ISP_ROUTERS + 1)]
    edges = [(a - 1, b - 1) for a, b in _ISP_LINKS]
    network = build(names, edges)
    hosts = [_ISP_ROUTERS + number for number in range(_ISP_HOSTS)]
    names += [f"h{number}" for number in range(1, _ISP_HOSTS + 1)]
    return build(
        names, [*network.ends, *((number, hosts[number]) for number in range(_ISP_HOSTS))], hosts=hosts
    )
