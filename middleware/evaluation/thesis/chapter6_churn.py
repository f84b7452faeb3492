"""Figures 6.14 and 6.15: what is left of the strategies when clients move, and which is best where.

Trees are installed for the clients as they are at first, and never changed; then a share of publishers and of
subscriptions moves as the scenario says, and notifications of the new population are encoded.
"""

from __future__ import annotations

from typing import Any

from ...routing.rooted import diameter
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value
from ..population import SCENARIOS, SHARE, moved, notifications, scenario
from ..topologies import TABLE_6_1, available, counts_note, load
from .chapter6 import COMPARED, LABELS, NOTIFICATIONS, RUNS, measure, networks

CHURN = (0, 20, 40, 60, 80, 100)
COLUMNS = ("network", "scenario", "strategy", "churn %", "labels", *LABELS)


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place, kind, name) for place in networks(options) for kind in SCENARIOS for name in COMPARED]


def work(options: Options, task: Task) -> list[Row]:
    place, kind, name = task.point
    network = load(place, options.topology_dir)
    before, after = scenario(network, kind, SHARE, rng_of(options, "population", place, kind, task.run))
    rows = []
    for churn in CHURN:
        rng = rng_of(options, "moved", place, kind, churn, task.run)
        asked = notifications(network, moved(before, after, churn / 100, rng), NOTIFICATIONS, rng)
        row = measure(options, network, name, options.rules, before, asked, (place, kind, task.run))
        rows.append({"network": place, "scenario": kind, "strategy": name, "churn %": churn, **row})
    return rows


def checks_of(rows: list[Row], places: tuple[str, ...]) -> list[Check]:
    def labels(place: str, kind: str, name: str, churn: int) -> float:
        return value(rows, "labels", network=place, scenario=kind, strategy=name, **{"churn %": churn})

    found = []
    for place in places:
        start, end = (labels(place, "distant", "frequency-relation", churn) for churn in (0, 100))
        hops = labels(place, "distant", "hops", 100)
        near = labels(place, "nearby", "frequency-relation", 100)
        found.append(
            Check(
                f"{place}: frequency-relation decays to hops under distant churn (half its gain is lost)",
                end > start and (hops - end) / hops < 0.5 * (1 - start / labels(place, "distant", "hops", 0)),
                f"{start:.1f} at 0 %, {end:.1f} at 100 %, hops {hops:.1f}",
            )
        )
        found.append(
            Check(
                f"{place}: it decays less when clients stay near",
                near < end,
                f"{near:.1f} nearby, {end:.1f} distant",
            )
        )
        middle, edges = (
            labels(place, "distant", "hops", 40),
            [labels(place, "distant", "hops", c) for c in (0, 100)],
        )
        found.append(
            Check(
                f"{place}: hops have a crest in the midst of distant churn",
                middle > max(edges),
                f"{edges[0]:.1f}, {middle:.1f}, {edges[1]:.1f}",
            )
        )
        mixed = labels(place, "distant", "hybrid", 100)
        best = min(end, labels(place, "distant", "clusters", 100))
        found.append(
            Check(
                f"{place}: hybrid stays near the better of its two parts (here: within 25 %)",
                mixed <= 1.25 * best,
                f"{mixed:.1f} against {best:.1f}",
            )
        )
    return found


def finish(options: Options, rows: list[Row]) -> Result:
    places = networks(options)
    found = averages(rows, COLUMNS[:4], COLUMNS[4:])
    notes = [f"encoder: {options.encoder}; {options.rules} rules per switch"]
    notes += filter(None, (counts_note(place, load(place, options.topology_dir)) for place in places))
    for row in found:
        row["panel"] = f"{row['network']}, {row['scenario']}"
    plots = (Plot("churn %", "labels", "strategy", "panel"),)
    return Result(
        "thesis-fig6.14",
        "labels per notification under churn",
        COLUMNS,
        found,
        checks_of(found, places),
        notes,
        plots,
    )


DENSITIES = (15, 30, 45)
BEST_COLUMNS = ("network", "diameter", "scenario", "subscribers %", "best", "labels")


def best_places(options: Options) -> tuple[str, ...]:
    return options.topologies or tuple(available(list(TABLE_6_1), options.topology_dir))


def best_points(options: Options) -> list[tuple[Any, ...]]:
    return [
        (place, kind, share) for place in best_places(options) for kind in SCENARIOS for share in DENSITIES
    ]


def best_work(options: Options, task: Task) -> list[Row]:
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


def best_finish(options: Options, rows: list[Row]) -> Result:
    keys = ("network", "scenario", "subscribers %")
    found = averages(rows, (*keys, "strategy"), ("labels",))
    best: dict[tuple[Any, ...], Row] = {}
    for row in found:
        key = tuple(row[k] for k in keys)
        if key not in best or row["labels"] < best[key]["labels"]:
            best[key] = row
    wide = {place: diameter(load(place, options.topology_dir)) for place in best_places(options)}
    shown = [{**row, "best": row["strategy"], "diameter": wide[row["network"]]} for row in best.values()]
    checks = []
    for kind in SCENARIOS:
        counts: dict[str, int] = {}
        for row in shown:
            if row["scenario"] == kind:
                counts[row["best"]] = counts.get(row["best"], 0) + 1
        expected = {"uniform": "partitions", "nearby": "frequency-relation", "distant": "clusters"}[kind]
        first = max(counts, key=lambda name: counts[name])
        checks.append(
            Check(
                f"{kind}: {expected} or its hybrid is best most often",
                first in (expected, "hybrid"),
                f"{counts}",
            )
        )
    notes = [f"encoder: {options.encoder}; all clients moved; {options.rules} rules per switch"]
    shown.sort(key=lambda row: row["diameter"])
    for row in shown:
        row["place"] = f"{row['network']} ({row['diameter']})"
    notes += filter(None, (counts_note(place, load(place, options.topology_dir)) for place in wide))
    plots = (Plot("subscribers %", "place", "best", "scenario", kind="grid"),)
    title = "the best strategy by network (and its diameter) and scenario"
    return Result("thesis-fig6.15", title, BEST_COLUMNS, shown, checks, notes, plots)


FIGURES = (
    Figure("thesis-fig6.14", "labels per notification under churn", RUNS, points, work, finish),
    Figure(
        "thesis-fig6.15", "the best strategy by network and scenario", 1, best_points, best_work, best_finish
    ),
)
