"""Figure 5: segments per group by the number of groups; 40 leaves each, a network of 197 routers."""

from __future__ import annotations

from typing import Any

from ..figure import Check, Figure, Options, Plot, Result, Row, Table, Task, rng_of, value
from ..topologies import named
from .sharing import CASES, PAPERS, SPREADS, count, drawn, paths_of, summary

NETWORK = "Cogentco"
LEAVES = 40
GROUPS = (100, 250, 500, 1000, 2000, 3000, 4000, 5000)
RUNS = 2
KEYS = ("spread", "strategy", "method", "groups")
COLUMNS = (*KEYS, "segments alone", "segments shared", "± segments shared", "ratio", "± ratio", "unwanted")
RATIOS = (1.2, 2.2)  # the paper's, across its cases


def network_of(options: Options) -> str:
    """Returns the one that is asked for, else the paper's."""
    return (named(options.topologies, options.topology_dir) or (NETWORK,))[0]


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(spread, *case) for spread in SPREADS for case in CASES]


def work(options: Options, task: Task) -> list[Row]:
    spread, strategy, method = task.point
    place = network_of(options)
    paths = paths_of(place, options.topology_dir)
    groups = drawn(paths, spread, LEAVES, GROUPS[-1], rng_of(options, "groups", place, spread, task.run))
    point = {"spread": spread, "strategy": strategy, "method": method}
    return [{**point, **found.row} for found in count(paths, strategy, method, groups, GROUPS)]


def finish(options: Options, rows: list[Row]) -> Result:
    found = summary(rows, KEYS)
    for row in found:
        row["case"] = f"{row['strategy']}, {row['method']}"
        row["panel"] = f"{row['spread']} spread"
    place = network_of(options)
    size = paths_of(place, options.topology_dir).network.node_count
    plots = (
        Plot("groups", "segments shared", "case", "panel", error="± segments shared"),
        Plot("groups", "ratio", "case", "panel", error="± ratio"),
    )
    notes = [
        f"{place}, {size} routers, {LEAVES} leaves in a group; alone: segments if no tree shared any",
        "paper: nodes with several children, without the root; mended: wherever copies are made",
    ]
    shown = Table(COLUMNS, [row for row in found if row["groups"] in (GROUPS[0], GROUPS[-1])])
    return Result(FIGURE.name, FIGURE.title, COLUMNS, found, checks(found), notes, plots, table=shown)


def at(rows: list[Row], column: str, groups: int, spread: str, strategy: str, method: str) -> float:
    where = {"groups": groups, "spread": spread, "strategy": strategy, "method": method}
    return value(rows, column, **where)


def checks(rows: list[Row]) -> list[Check]:
    first, last = GROUPS[0], GROUPS[-1]
    cases = [(spread, strategy) for spread in SPREADS for strategy in PAPERS]

    def ratio(spread: str, strategy: str, method: str = "paper", groups: int = last) -> float:
        return at(rows, "ratio", groups, spread, strategy, method)

    ratios = {case: ratio(*case) for case in cases}
    text = ", ".join(f"{spread} {strategy} {ratios[spread, strategy]:.2f}" for spread, strategy in cases)
    drift = max(
        abs(
            at(rows, "segments alone", last, *case, "paper")
            / at(rows, "segments alone", first, *case, "paper")
            - 1
        )
        for case in cases
    )
    mended = ", ".join(
        f"{spread} {strategy} {ratio(spread, strategy, 'mended'):.2f}" for spread, strategy in cases
    )
    more = ", ".join(
        f"{spread} {strategy} {ratio(spread, strategy, 'superset'):.2f}" for spread, strategy in cases
    )
    return [
        Check(
            "without sharing, segments per group stay almost unchanged (here: within 5 %)",
            drift <= 0.05,
            f"{drift:.1%}",
        ),
        Check(
            "with sharing, they fall as groups become more",
            all(ratio(*case) > ratio(*case, groups=first) for case in cases),
            text,
        ),
        Check(
            "sharing saves by a factor of 1.2 to 2.2 (here: within 5 % of that)",
            RATIOS[0] * 0.95 <= min(ratios.values()) and max(ratios.values()) <= RATIOS[1] * 1.05,
            text,
        ),
        Check(
            "locality saves more than random spread",
            all(ratios["local", strategy] > ratios["random", strategy] for strategy in PAPERS),
            text,
        ),
        Check("RP saves more than direct", all(ratios[s, "RP"] > ratios[s, "direct"] for s in SPREADS), text),
        Check(
            "ours: all places counted, sharing saves more than the paper counts",
            all(ratio(*case, "mended") > ratios[case] for case in cases),
            mended,
        ),
        Check(
            "ours: two more leaves in a segment save more still",
            all(ratio(*case, "superset") > ratio(*case, "mended") for case in cases),
            more,
        ),
    ]


FIGURE = Figure("snaps-fig5", "segments per group by number of groups", RUNS, points, work, finish)
