"""Data centre networks: the fat tree, and Facebook's fabric with pods, racks and planes.

Sources: Al-Fares, Loukissas, Vahdat, SIGCOMM 2008; the thesis' Fig. 5.4 (8 pods of 4 racks of 2 machines, 4
planes of 4 spines: 80 switches and 64 hosts).
"""

from __future__ import annotations

from ..network import Network, RoutingError, build


class _Nodes:
    """Names, edges, hosts and coordinates, collected by a generator."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.places: list[tuple[float, float]] = []
        self.edges: list[tuple[int, int]] = []
        self.hosts: list[int] = []

    def add(self, name: str, x: float, y: float) -> int:
        self.names.append(name)
        self.places.append((x, y))
        return len(self.names) - 1

    def add_host(self, name: str, switch: int, x: float, y: float) -> None:
        host = self.add(name, x, y)
        self.hosts.append(host)
        self.edges.append((switch, host))

    def network(self) -> Network:
        network = build(self.names, self.edges, hosts=self.hosts)
        network.positions = self.places
        return network


def fat_tree(k: int) -> Network:
    """Returns a fat tree of switches with `k` ports (even): k pods, k * k / 4 cores, k ** 3 / 4 hosts."""
    if k < 2 or k % 2:
        raise RoutingError(f"a fat tree needs an even number of ports, not {k}")
    half, nodes = k // 2, _Nodes()
    cores = [nodes.add(f"core{i}", (i + 0.5) * k * k / 4 / (half * half), 3) for i in range(half * half)]
    for pod in range(k):
        left = pod * half * half / 2
        aggregates = [nodes.add(f"agg{pod}.{i}", left + i * half / 2, 2) for i in range(half)]
        for i, aggregate in enumerate(aggregates):
            nodes.edges += [(aggregate, cores[i * half + j]) for j in range(half)]
        for i in range(half):
            edge = nodes.add(f"edge{pod}.{i}", left + i * half / 2, 1)
            nodes.edges += [(aggregate, edge) for aggregate in aggregates]
            for j in range(half):
                nodes.add_host(f"host{pod}.{i}.{j}", edge, left + i * half / 2 + j / 2, 0)
    return nodes.network()


def facebook_fabric(
    pods: int = 8, racks: int = 4, planes: int = 4, spines: int = 4, machines: int = 2
) -> Network:
    """Returns pods of `racks` top-of-rack switches and a fabric switch per plane; planes of `spines` spine
    switches.

    A fabric switch of plane p is joined to all racks of its pod and to all spines of plane p.
    """
    if min(pods, racks, planes, spines, machines) < 1:
        raise RoutingError("a fabric has at least one pod, rack, plane, spine and machine")
    nodes, width = _Nodes(), float(max(racks * machines, planes))
    step = pods * width / (planes * spines)
    spine = [
        [nodes.add(f"spine{p}.{i}", (p * spines + i) * step, 3) for i in range(spines)] for p in range(planes)
    ]
    for pod in range(pods):
        left = pod * width
        fabric = [nodes.add(f"fabric{pod}.{p}", left + p * width / planes, 2) for p in range(planes)]
        for plane, switch in enumerate(fabric):
            nodes.edges += [(above, switch) for above in spine[plane]]
        for rack in range(racks):
            x = left + rack * width / racks
            tor = nodes.add(f"tor{pod}.{rack}", x, 1)
            nodes.edges += [(switch, tor) for switch in fabric]
            for machine in range(machines):
                place = x + machine * width / racks / machines
                nodes.add_host(f"host{pod}.{rack}.{machine}", tor, place, 0)
    return nodes.network()
