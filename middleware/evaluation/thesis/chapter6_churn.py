"""Figure 6.14: what is left of the strategies when clients move.

Trees are installed for the clients as they are at first, and never changed; then a share of publishers and of
subscriptions moves as the scenario says, and notifications of the new population are encoded.
"""

from __future__ import annotations

from typing import Any

from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of, value
from ..population import SCENARIOS, SHARE, moved, notifications, scenario
from ..topologies import counts_note, load
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
        found += _kinds_checks(rows, place)
    return found


def _kinds_checks(rows: list[Row], place: str) -> list[Check]:
    """What the thesis says of cycles, clusters and partitions, over all shares of churn."""

    def over(kind: str, name: str, column: str = "labels") -> float:
        return value(rows, column, network=place, scenario=kind, strategy=name)

    longest = {kind: max(COMPARED[1:], key=lambda name: over(kind, name)) for kind in SCENARIOS}
    pairs = {kind: (over(kind, "clusters"), over(kind, "partitions")) for kind in SCENARIOS}
    text = ", ".join(f"{kind} {one:.1f} and {two:.1f}" for kind, (one, two) in pairs.items())
    trees = [
        mean([over(kind, name, "trees") for kind in SCENARIOS]) for name in ("clusters", "frequency-relation")
    ]
    return [
        Check(
            f"{place}: cycles need the most labels of all strategies with trees",
            set(longest.values()) == {"cycles"},
            f"{longest}",
        ),
        Check(
            f"{place}: partitions beat clusters where clients are uniform",
            pairs["uniform"][1] < pairs["uniform"][0],
            text,
        ),
        Check(
            f"{place}: clusters beat partitions where clients are dense",
            all(pairs[kind][0] < pairs[kind][1] for kind in ("nearby", "distant")),
            text,
        ),
        Check(
            f"{place}: clusters use more trees than frequency-relation",
            trees[0] > trees[1],
            f"{trees[0]:.1f} and {trees[1]:.1f}",
        ),
    ]


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


FIGURES = (Figure("thesis-fig6.14", "labels per notification under churn", RUNS, points, work, finish),)
