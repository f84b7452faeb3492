"""Figure 6.15: which strategy needs the fewest labels when all clients have moved, by network.

The thesis parts networks by eye into scale-free ones (small diameter, degrees far apart) and others; here by
the variance of the degrees over the diameter: above that of the network in the middle, or not.
"""

from __future__ import annotations

from typing import Any

from ...routing.network import Network
from ...routing.rooted import diameter
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of
from ..population import SCENARIOS, moved, notifications, scenario
from ..topologies import TABLE_6_1, available, counts_note, load
from .chapter6 import COMPARED, NOTIFICATIONS, measure

DENSITIES = (15, 30, 45)
COLUMNS = ("network", "diameter", "degree variance", "scenario", "subscribers %", "best", "labels")


def places_of(options: Options) -> tuple[str, ...]:
    return options.topologies or tuple(available(list(TABLE_6_1), options.topology_dir))


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place, kind, share) for place in places_of(options) for kind in SCENARIOS for share in DENSITIES]


def work(options: Options, task: Task) -> list[Row]:
    place, kind, share = task.point
    network = load(place, options.topology_dir)
    rng = rng_of(options, "best", place, kind, share, task.run)
    before, after = scenario(network, kind, share / 100, rng)
    asked = notifications(network, moved(before, after, 1.0, rng), NOTIFICATIONS, rng)
    return [
        {
            "network": place,
            "scenario": kind,
            "subscribers %": share,
            "strategy": name,
            **measure(options, network, name, options.rules, before, asked, (place, kind, share, task.run)),
        }
        for name in COMPARED
    ]


def degree_variance(network: Network) -> float:
    degrees = [len(links) for links in network.out]
    middle = mean(degrees)
    return mean([(degree - middle) ** 2 for degree in degrees])


def finish(options: Options, rows: list[Row]) -> Result:
    keys = ("network", "scenario", "subscribers %")
    found = averages(rows, (*keys, "strategy"), ("labels",))
    best: dict[tuple[Any, ...], Row] = {}
    for row in found:
        key = tuple(row[k] for k in keys)
        if key not in best or row["labels"] < best[key]["labels"]:
            best[key] = row
    networks = {place: load(place, options.topology_dir) for place in places_of(options)}
    wide = {place: diameter(network) for place, network in networks.items()}
    spread = {place: round(degree_variance(network), 2) for place, network in networks.items()}
    shown = [
        {
            **row,
            "best": row["strategy"],
            "diameter": wide[row["network"]],
            "degree variance": spread[row["network"]],
            "place": f"{row['network']} ({wide[row['network']]})",
            "panel": f"{row['scenario']}, {row['subscribers %']} %",
        }
        for row in best.values()
    ]
    shown.sort(key=lambda row: row["diameter"])
    shown.sort(key=lambda row: (SCENARIOS.index(row["scenario"]), row["subscribers %"]))
    notes = [f"encoder: {options.encoder}; all clients moved; {options.rules} rules per switch"]
    notes += filter(None, (counts_note(place, network) for place, network in networks.items()))
    plots = (
        Plot("diameter", "degree variance", "best", "panel", kind="scatter", stacked=("labels",)),
        Plot("subscribers %", "place", "best", "scenario", kind="grid"),
    )
    title = "the best strategy by network (and its diameter) and scenario"
    return Result("thesis-fig6.15", title, COLUMNS, shown, checks_of(shown), notes, plots)


def checks_of(shown: list[Row]) -> list[Check]:
    checks = []
    for kind, expected in (
        ("uniform", "partitions"),
        ("nearby", "frequency-relation"),
        ("distant", "clusters"),
    ):
        counts = _counts([row for row in shown if row["scenario"] == kind])
        first = max(counts, key=lambda name: counts[name])
        statement = f"{kind}: {expected} or its hybrid is best most often"
        checks.append(Check(statement, first in (expected, "hybrid"), f"{counts}"))
    free = [row for row in shown if _is_scale_free(row, shown)]
    others = [row for row in shown if not _is_scale_free(row, shown)]
    sizes = [mean([row["labels"] for row in some]) for some in (free, others)]
    alike = [
        len({row["best"] for row in shown if (row["network"], row["scenario"]) == key}) == 1
        for key in {(row["network"], row["scenario"]) for row in shown}
    ]
    return [
        *checks,
        _leading("scale-free networks", free, ("partitions", "clusters")),
        _leading("other networks", others, ("frequency-relation", "clusters")),
        Check(
            "scale-free networks need more labels than others",
            sizes[0] > sizes[1],
            f"{sizes[0]:.1f} and {sizes[1]:.1f}",
        ),
        Check(
            "the number of subscribers matters little (here: one is best at all three in half of all cases)",
            2 * sum(alike) >= len(alike),
            f"{sum(alike)} of {len(alike)}",
        ),
    ]


def _leading(what: str, rows: list[Row], expected: tuple[str, ...]) -> Check:
    counts = _counts(rows)
    share = sum(counts.get(name, 0) for name in expected) / max(1, len(rows))
    return Check(f"{what}: {' or '.join(expected)} is best in half of all cases", share >= 0.5, f"{counts}")


def _counts(rows: list[Row]) -> dict[str, int]:
    """How often each strategy is best, the most frequent first."""
    names = [row["best"] for row in rows]
    return {
        name: names.count(name) for name in sorted(set(names), key=lambda name: (-names.count(name), name))
    }


def _is_scale_free(row: Row, shown: list[Row]) -> bool:
    """Whether its degrees are farther apart, for its diameter, than those of the network in the middle."""
    ratios = sorted({one["network"]: one["degree variance"] / one["diameter"] for one in shown}.values())
    return bool(row["degree variance"] / row["diameter"] > ratios[len(ratios) // 2])


FIGURES = (Figure("thesis-fig6.15", "the best strategy by network and scenario", 1, points, work, finish),)
