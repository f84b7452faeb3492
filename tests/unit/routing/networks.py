"""Random networks and receivers for property tests: small, always connected."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from treecast.middleware.routing.network import Network, build, with_hosts


def random_network(seed: int, nodes: int, extra: int, *, hosts: bool = False) -> Network:
    """Returns a random tree of nodes with some extra edges."""
    rng = Random(seed)
    edges = [(rng.randrange(node), node) for node in range(1, nodes)]
    for _ in range(extra):
        a, b = rng.randrange(nodes), rng.randrange(nodes)
        if a != b:
            edges.append((a, b))
    network = build([f"n{i}" for i in range(nodes)], edges)
    return with_hosts(network) if hosts else network


def networks(most: int = 9, *, hosts: bool = False, least: int = 2) -> st.SearchStrategy[Network]:
    return st.builds(
        random_network,
        st.integers(0, 10**6),
        st.integers(least, most),
        st.integers(0, 8),
        hosts=st.just(hosts),
    )


def receivers_of(network: Network, rng: Random) -> tuple[int, list[int]]:
    """Returns a publisher and at least one other client as receiver."""
    clients = network.clients
    source = rng.choice(clients)
    others = [client for client in clients if client != source]
    return source, sorted(rng.sample(others, rng.randint(1, len(others))))
