"""A network and its virtual trees as bytes: the rules of the carrier `labels`.

An edge that publishers must not name now, because it carries nothing or was taken out, keeps its number as a
hole: it begins where it ends. Daemons of earlier versions refuse such a network, and keep their
trees.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import HOLE, Network, RoutingError, numbered
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.wire.label_stack import LAST_ID


def write_trees(network: Network, trees: Mapping[int, int]) -> bytes:
    """Returns the encoding. `trees`: edges (bits) by id."""
    found = pb.VirtualTrees(
        names=network.names,
        hosts=network.hosts,
        ends=[node for ends in network.ends for node in ends],
        trees=[pb.VirtualTree(id=number, edges=members(edges)) for number, edges in sorted(trees.items())],
    )
    return found.SerializeToString(deterministic=True)


def read_trees(encoded: bytes) -> tuple[Network, RuleBase]:
    """Returns network and rules. Raises RoutingError for an invalid network, or a tree outside it; ValueError
    for what is no encoding."""
    try:
        request = pb.VirtualTrees.FromString(encoded)
    except DecodeError as error:
        raise ValueError("the rules are no virtual trees") from error
    ends = list(request.ends)
    if len(ends) % 2:
        raise RoutingError("edges have two ends")
    if any(host >= len(request.names) for host in request.hosts):
        raise RoutingError("a host is no node")
    edges = list(zip(ends[::2], ends[1::2], strict=True))
    if any(first == second and (first, second) != HOLE for first, second in edges):
        raise RoutingError("an edge begins where it ends")
    network = numbered(list(request.names), edges, list(request.hosts))
    return network, _rules(network, request)


def _rules(network: Network, request: pb.VirtualTrees) -> RuleBase:
    """Ids are the sender's; how many rules a switch has room for is its affair."""
    rules = RuleBase(network, len(request.trees))
    for tree in request.trees:
        if not 0 < tree.id <= LAST_ID or tree.id in rules.trees:
            raise RoutingError(f"tree id {tree.id} is given twice, or is none")
        if any(edge >= network.edge_count or network.ends[edge] == HOLE for edge in tree.edges):
            raise RoutingError(f"tree {tree.id} has an edge that there is not")
        rules.next = tree.id
        rules.add(mask_of(tree.edges))
    return rules
