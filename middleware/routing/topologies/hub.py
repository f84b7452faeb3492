"""Networks of the package topohub: 203 of the zoo's, SNDlib's, and generated ones.

topohub is imported only here and only on use; the extra `topologies` installs it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..network import Network, RoutingError, build


def from_topohub(name: str) -> Network:
    """Returns the network `topozoo/Abilene`, or just `Abilene`. Raises RoutingError if topohub is absent or
    lacks it.
    """
    try:
        import topohub  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise RoutingError("topohub is not installed; `pip install treecast[topologies]`") from error
    wanted = name if "/" in name else f"topozoo/{name}"
    try:
        with warnings.catch_warnings():
            # topohub 1.5 leaves closing its file to the collector
            warnings.simplefilter("ignore", ResourceWarning)
            found = topohub.get(wanted)
        return from_node_link(found)
    except (KeyError, OSError) as error:
        raise RoutingError(f"topohub has no network {wanted!r}") from error


def from_node_link(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Network:
    """Returns a network from the node-link form: `nodes` with `id` and optional `name`, `pos`; `edges` or
    `links`.
    """
    nodes, links = found["nodes"], found.get("edges") or found.get("links") or []
    numbers = {node["id"]: number for number, node in enumerate(nodes)}
    names = [str(node.get("name") or node["id"]) for node in nodes]
    unique = [name if names.count(name) == 1 else f"{name}#{i}" for i, name in enumerate(names)]
    network = build(unique, [(numbers[link["source"]], numbers[link["target"]]) for link in links])
    if all("pos" in node for node in nodes):
        network.positions = [(float(node["pos"][0]), float(node["pos"][1])) for node in nodes]
    return network
