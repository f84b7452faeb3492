"""Functions shared by the encoders of all schemes."""

from __future__ import annotations

from ...wire.label_stack_entries import EntryFormat
from ..bits import mask_of
from ..network import Network, RoutingError
from ..rooted import children
from ..steiner import steiner_tree
from ..steiner.common import prune


def delivery_tree(network: Network, source: int, receivers: list[int], method: str = "mehlhorn") -> int:
    """Returns a tree from a publisher's host to its receivers. Raises RoutingError for clients that are not
    hosts.
    """
    check_clients(network, source, receivers)
    return steiner_tree(network, [source, *receivers], method)


def check_clients(network: Network, source: int, receivers: list[int]) -> None:
    """Raises RoutingError if a client is not a host, the publisher receives, or there is no receiver."""
    for node in (source, *receivers):
        if not 0 <= node < network.node_count or not network.is_host[node]:
            raise RoutingError(f"node {node} is not a host; these schemes deliver to hosts")
    if not receivers or source in receivers:
        raise RoutingError("there must be at least one receiver, and the publisher must not be one")


def below(network: Network, source: int, edges: int) -> dict[int, list[int]]:
    """Returns, for every switch of a tree, the links that it sends on, without the publisher's own link."""
    root = network.switch_of(source)
    found = children(network, edges & ~network.edge_masks[source], root)
    return {node: links for node, links in found.items() if not network.is_host[node]}


def branch(network: Network, edges: int, source: int, receivers: list[int]) -> int:
    """Returns the part of a tree that leads to some of its receivers."""
    return prune(network, edges, mask_of([source, *receivers]))


def check_fits(network: Network, form: EntryFormat, value: int) -> None:
    """Raises RoutingError if entries of a format cannot hold all switches, or a value."""
    most = max(network.switches, default=0)
    if most >> form.switch_bits:
        raise RoutingError(f"switch {most} does not fit {form.switch_bits} bits: choose a wider form")
    if value >> form.value_bits:
        raise RoutingError(f"value {value} does not fit {form.value_bits} bits: choose a wider form")
