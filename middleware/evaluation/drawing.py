"""A picture of a network with the edges of one notification: virtual trees in colours, hops dashed, stops
dotted (6.5.4).

Needs matplotlib (the extra `bench`). Writes SVG or PNG, by the file's name. Coordinates are the topology
file's if it has all of them, else a spring layout from a fixed start, so that a network always looks the
same.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..routing.network import Network, RoutingError
from ..routing.virtual.rules import RuleBase
from ..routing.virtual.stacks import Encoding

Place = tuple[float, float]

_TREES = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
_ROUNDS = 250
_NAMED = 60


def draw(
    network: Network,
    rules: RuleBase,
    source: int,
    receivers: list[int],
    found: Encoding,
    path: Path,
    title: str = "",
) -> None:
    """Writes the picture. Raises RoutingError if matplotlib is missing or the name ends in neither .svg nor
    .png.
    """
    if path.suffix not in (".svg", ".png"):
        raise RoutingError(f"{path.name}: expected a name that ends in .svg or .png")
    try:
        import matplotlib
    except ImportError as error:
        raise RoutingError("matplotlib is not installed; `pip install treecast[bench]`") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "treecast"  # the same picture, the same bytes
    import matplotlib.pyplot as plt

    # A file without a node's coordinates has 0 0 or a neighbour's: then none of its coordinates are usable.
    places = network.positions
    if len(set(places)) < network.node_count:
        places = springs(network)
    figure, axis = plt.subplots(figsize=(11, 8), layout="constrained")
    _edges(axis, network, places)
    _trees(axis, network, rules, found, places)
    _labels(axis, network, found, places)
    _nodes(axis, network, source, receivers, places)
    axis.set_axis_off()
    axis.set_title(title, fontsize=11)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), fontsize=9, frameon=False, ncols=4)
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _line(axis: Any, places: list[Place], ends: tuple[int, int], shift: float, **style: Any) -> None:
    """Draws a line between two nodes, shifted sideways, so that several can lie side by side."""
    (x1, y1), (x2, y2) = places[ends[0]], places[ends[1]]
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    width = max(p[0] for p in places) - min(p[0] for p in places) or 1.0
    dx, dy = -(y2 - y1) / length * shift * width / 500, (x2 - x1) / length * shift * width / 500
    axis.plot([x1 + dx, x2 + dx], [y1 + dy, y2 + dy], **style)


def _edges(axis: Any, network: Network, places: list[Place]) -> None:
    for ends in network.ends:
        _line(axis, places, ends, 0, color="#d0d0d0", linewidth=1, zorder=1)


def _trees(axis: Any, network: Network, rules: RuleBase, found: Encoding, places: list[Place]) -> None:
    """Draws each tree's delivering edges in its colour; edges that lead away are pale."""
    for number, tree in enumerate(found.trees):
        colour = _TREES[number % len(_TREES)]
        named = False
        for edge, ends in enumerate(network.ends):
            if not rules.trees[tree] >> edge & 1:
                continue
            used = found.edges >> edge & 1
            name = f"tree {tree}" if used and not named else None
            named = named or bool(used)
            shift = 2.0 * (number - (len(found.trees) - 1) / 2)
            style: dict[str, Any] = (
                {"linewidth": 3.2, "zorder": 3} if used else {"linewidth": 1.4, "alpha": 0.35}
            )
            _line(axis, places, ends, shift, color=colour, label=name, **style)


def _labels(axis: Any, network: Network, found: Encoding, places: list[Place]) -> None:
    """Hops as dashed arrows along the whole link; stops as dotted ones that end halfway in a bar."""
    for number, link in enumerate(found.hops):
        ends = (network.tails[link], network.heads[link])
        name = "hop" if number == 0 else None
        _line(axis, places, ends, 0, color="black", linewidth=2, linestyle="--", zorder=4, label=name)
    for number, link in enumerate(found.stops):
        (x1, y1), (x2, y2) = places[network.tails[link]], places[network.heads[link]]
        x, y = x1 + 0.4 * (x2 - x1), y1 + 0.4 * (y2 - y1)
        axis.plot([x1, x], [y1, y], color="black", linewidth=2, linestyle=":", zorder=5)
        name = "stop" if number == 0 else None
        axis.plot([x], [y], marker="X", color="black", markersize=9, linestyle="none", zorder=6, label=name)


def _nodes(axis: Any, network: Network, source: int, receivers: list[int], places: list[Place]) -> None:
    rest = [n for n in range(network.node_count) if n != source and n not in receivers]
    kinds: list[tuple[list[int], str, str, int]] = [
        ([n for n in rest if not network.is_host[n]], "#bbbbbb", "o", 26),
        ([n for n in rest if network.is_host[n]], "#dddddd", "s", 18),
        (receivers, "#f2c14e", "o", 90),
        ([source], "#3a7d44", "D", 110),
    ]
    for (nodes, colour, marker, size), name in zip(kinds, ("", "", "receiver", "publisher"), strict=True):
        if nodes:
            xs, ys = [places[n][0] for n in nodes], [places[n][1] for n in nodes]
            axis.scatter(
                xs, ys, s=size, c=colour, marker=marker, zorder=7, edgecolors="#444444", label=name or None
            )
    for node in range(network.node_count) if network.node_count <= _NAMED else [source, *receivers]:
        if not network.is_host[node] or node in (source, *receivers):
            axis.annotate(
                network.names[node],
                places[node],
                fontsize=7,
                xytext=(4, 4),
                textcoords="offset points",
                zorder=8,
            )


def springs(network: Network) -> list[Place]:
    """Places by springs and repulsion (Fruchterman, Reingold 1991), from a circle; no randomness."""
    count = network.node_count
    places = [(math.cos(2 * math.pi * n / count), math.sin(2 * math.pi * n / count)) for n in range(count)]
    ideal = 1.6 / math.sqrt(count)
    for turn in range(_ROUNDS):
        reach = 0.12 * (1 - turn / _ROUNDS)
        places = [_moved(network, places, node, ideal, reach) for node in range(count)]
    return places


def _moved(network: Network, places: list[Place], node: int, ideal: float, reach: float) -> Place:
    x, y = places[node]
    fx = fy = 0.0
    for other, (ox, oy) in enumerate(places):
        if other != node:
            square = max((x - ox) ** 2 + (y - oy) ** 2, 1e-6)
            fx += (x - ox) / square * ideal**2
            fy += (y - oy) / square * ideal**2
    for link in network.out[node]:
        ox, oy = places[network.heads[link]]
        far = math.hypot(x - ox, y - oy) / ideal
        fx -= (x - ox) * far
        fy -= (y - oy) * far
    force = math.hypot(fx, fy) or 1.0
    step = min(reach, force)
    return x + fx / force * step, y + fy / force * step
