"""Figure 6.15: the strategy with the fewest labels after all clients have moved, by network."""

from __future__ import annotations

from typing import Any

from ...routing.rooted import diameter
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of
from ..population import SCENARIOS, moved, notifications, scenario
from ..topologies import ALL, counts_note, degree_variance, load, named, scale_free
from .chapter6 import COMPARED, NOTIFICATIONS, measure

DENSITIES = (15, 30, 45)
COLUMNS = ("network", "diameter", "degree variance", "scenario", "subscribers %", "best", "labels")


def places_of(options: Options) -> tuple[str, ...]:
    return named(options.topologies or (ALL,), options.topology_dir)


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
    notes = [
        f"encoder: {options.encoder}; all clients moved; {options.rules} rules per switch; "
        f"runs: {len(rows) // len(found)}"
    ]
    notes += filter(None, (counts_note(place, network) for place, network in networks.items()))
    plots = (
        Plot("diameter", "degree variance", "best", "panel", kind="scatter", stacked=("labels",)),
        Plot("subscribers %", "place", "best", "scenario", kind="grid"),
    )
    title = "the best strategy by network (and its diameter) and scenario"
    return Result(
        "thesis-fig6.15", title, COLUMNS, shown, checks_of(shown, scale_free(networks)), notes, plots
    )


def checks_of(shown: list[Row], is_scale_free: dict[str, bool]) -> list[Check]:
    """Returns checks of the thesis' statements in 6.6.3."""
    free = [row for row in shown if is_scale_free[row["network"]]]
    others = [row for row in shown if not is_scale_free[row["network"]]]
    sizes = [mean([row["labels"] for row in some]) for some in (free, others)]
    alike = [
        len({row["best"] for row in shown if (row["network"], row["scenario"]) == key}) == 1
        for key in {(row["network"], row["scenario"]) for row in shown}
    ]
    return [
        _first("all networks", "uniform", shown, "partitions"),
        _first("all networks", "nearby", shown, "frequency-relation"),
        _first("all networks", "distant", shown, "clusters"),
        _leading("scale-free networks", free, ("partitions", "clusters")),
        _before("scale-free networks", "uniform", free, "partitions", "clusters"),
        _leading("other networks", others, ("frequency-relation", "clusters")),
        _first("other networks", "nearby", others, "frequency-relation"),
        _first("other networks", "distant", others, "clusters"),
        *_random_checks(shown),
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


def _random_checks(shown: list[Row]) -> list[Check]:
    ring = [row["best"] for row in shown if row["network"] == "VtlWavenet2008"]
    places = [row["network"] for row in shown if row["best"] == "random"]
    counts = {place: places.count(place) for place in sorted(set(places))}
    few = Check("random is best in few cases (here: a tenth)", len(places) <= len(shown) / 10, f"{counts}")
    if not ring:
        return [few]
    always = Check("VtlWavenet2008: random is always best", set(ring) == {"random"}, f"{_counts(ring)}")
    return [always, few]


def _first(what: str, kind: str, rows: list[Row], expected: str) -> Check:
    counts = _counts([row["best"] for row in rows if row["scenario"] == kind])
    statement = f"{what}, {kind}: {expected} or its hybrid is best most often"
    return Check(statement, next(iter(counts), "") in (expected, "hybrid"), f"{counts}")


def _before(what: str, kind: str, rows: list[Row], one: str, other: str) -> Check:
    counts = _counts([row["best"] for row in rows if row["scenario"] == kind])
    statement = f"{what}, {kind}: {one} is best more often than {other}"
    return Check(statement, counts.get(one, 0) > counts.get(other, 0), f"{counts}")


def _leading(what: str, rows: list[Row], expected: tuple[str, ...]) -> Check:
    counts = _counts([row["best"] for row in rows])
    share = sum(counts.get(name, 0) for name in expected) / max(1, len(rows))
    return Check(f"{what}: {' or '.join(expected)} is best in half of all cases", share >= 0.5, f"{counts}")


def _counts(names: list[str]) -> dict[str, int]:
    """Returns how often each strategy is best, the most frequent first."""
    return {
        name: names.count(name) for name in sorted(set(names), key=lambda name: (-names.count(name), name))
    }


FIGURES = (Figure("thesis-fig6.15", "the best strategy by network and scenario", 1, points, work, finish),)
