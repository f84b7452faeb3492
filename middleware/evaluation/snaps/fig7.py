"""Figure 7: savings by sharing on networks of 53 to 315 routers; 3,000 groups of 20 leaves.

The figure is a picture. The text names one of its seven networks, Cogentco, and the sizes of two more. The
Topology Zoo networks here are our choice; the one of 315 is rf1239 (Rocketfuel) in REPETITA's form,
`rf1239_real_hard.graph`, which is not in the zoo. Networks missing in the folder of `--topology-dir` are left
out.
"""

from __future__ import annotations

from typing import Any

from ..figure import Check, Figure, Options, Plot, Result, Row, Task, mean, rng_of, value
from ..topologies import available, named
from .sharing import CASES, PAPERS, SPREADS, count, drawn, paths_of, summary

NETWORKS = ("Tinet", "VtlWavenet2008", "Interoute", "GtsCe", "UsCarrier", "Cogentco", "rf1239_real_hard")
LEAVES = 20
GROUPS = 3000
RUNS = 2
KEYS = ("network", "spread", "strategy", "method")
COLUMNS = (*KEYS, "routers", "segments alone", "segments shared", "ratio", "± ratio", "unwanted")


def networks(options: Options) -> tuple[str, ...]:
    """Returns those that are asked for, else those of the seven that are at hand. Raises RoutingError if none
    is.
    """
    found = named(options.topologies, options.topology_dir)
    return found or tuple(available(list(NETWORKS), options.topology_dir)) or NETWORKS[:1]


def points(options: Options) -> list[tuple[Any, ...]]:
    cases = [case for case in CASES if case[0] in PAPERS]
    return [(place, spread, *case) for place in networks(options) for spread in SPREADS for case in cases]


def work(options: Options, task: Task) -> list[Row]:
    place, spread, strategy, method = task.point
    paths = paths_of(place, options.topology_dir)
    leaves = min(LEAVES, len(paths.network.clients) - 1)
    rng = rng_of(options, "groups", place, spread, task.run)
    groups = drawn(paths, spread, leaves, GROUPS, rng)
    point = {"network": place, "spread": spread, "strategy": strategy, "method": method}
    return [{**point, **found.row} for found in count(paths, strategy, method, groups, [GROUPS])]


def finish(options: Options, rows: list[Row]) -> Result:
    found = summary(rows, KEYS)
    sizes = {name: paths_of(name, options.topology_dir).network.node_count for name in networks(options)}
    for row in found:
        row["routers"] = sizes[row["network"]]
        row["case"] = f"{row['strategy']}, {row['method']}"
        row["panel"] = f"{row['spread']} spread"
    plots = (Plot("routers", "ratio", "case", "panel", error="± ratio"),)
    left = [] if options.topologies else [name for name in NETWORKS if name not in sizes]
    notes = [f"{GROUPS} groups of {LEAVES} leaves; alone: segments if no tree shared any"]
    notes += [f"not at hand: {', '.join(left)}"] if left else []
    return Result(FIGURE.name, FIGURE.title, COLUMNS, found, checks(found, sizes), notes, plots)


def checks(rows: list[Row], sizes: dict[str, int]) -> list[Check]:
    """Compares the smaller half of the networks with the larger half; returns no checks for fewer than two
    networks.
    """
    order = sorted(sizes, key=lambda name: sizes[name])
    half = len(order) // 2
    if not half:
        return []
    found = []
    for method in ("paper", "mended", "superset"):
        small, large = (
            mean([value(rows, "ratio", network=name, method=method) for name in names])
            for names in (order[:half], order[-half:])
        )
        text = f"{', '.join(order[:half])} {small:.2f}; {', '.join(order[-half:])} {large:.2f}"
        found.append(Check(f"smaller networks save more, counted as {method}", small > large, text))
    return found


FIGURE = Figure("snaps-fig7", "saving by sharing on networks of different size", RUNS, points, work, finish)
