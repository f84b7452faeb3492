"""Figure 6: segments per group by the size of groups; 2,000 groups on the network of Figure 5."""

from __future__ import annotations

from typing import Any

from ..figure import Check, Figure, Options, Plot, Result, Row, Task, rng_of, value
from .fig5 import network_of
from .sharing import CASES, PAPERS, SPREADS, count, drawn, paths_of, summary

LEAVES = (5, 10, 20, 40, 60)
GROUPS = 2000
RUNS = 2
KEYS = ("spread", "strategy", "method", "leaves")
COLUMNS = (*KEYS, "segments alone", "segments shared", "± segments shared", "ratio", "± ratio", "unwanted")


def points(options: Options) -> list[tuple[Any, ...]]:
    cases = [case for case in CASES if case[0] in PAPERS]
    return [(spread, *case, leaves) for spread in SPREADS for case in cases for leaves in LEAVES]


def work(options: Options, task: Task) -> list[Row]:
    spread, strategy, method, leaves = task.point
    place = network_of(options)
    paths = paths_of(place, options.topology_dir)
    rng = rng_of(options, "groups", place, spread, leaves, task.run)
    groups = drawn(paths, spread, leaves, GROUPS, rng)
    point = {"spread": spread, "strategy": strategy, "method": method, "leaves": leaves}
    return [{**point, **found.row} for found in count(paths, strategy, method, groups, [GROUPS])]


def finish(options: Options, rows: list[Row]) -> Result:
    found = summary(rows, KEYS)
    for row in found:
        row["case"] = f"{row['strategy']}, {row['method']}"
        row["panel"] = f"{row['spread']} spread"
    place = network_of(options)
    plots = (
        Plot("leaves", "segments shared", "case", "panel", error="± segments shared"),
        Plot("leaves", "ratio", "case", "panel", error="± ratio"),
    )
    notes = [f"{place}, {GROUPS} groups; alone: segments if no tree shared any"]
    return Result(FIGURE.name, FIGURE.title, COLUMNS, found, checks(found), notes, plots)


def checks(rows: list[Row]) -> list[Check]:
    few, many = LEAVES[0], LEAVES[-1]

    def ratio(spread: str, strategy: str, leaves: int, method: str = "paper") -> float:
        return value(rows, "ratio", spread=spread, strategy=strategy, method=method, leaves=leaves)

    def saved(method: str) -> tuple[bool, str]:
        ends = {
            (spread, strategy): (ratio(spread, strategy, few, method), ratio(spread, strategy, many, method))
            for spread in SPREADS
            for strategy in PAPERS
        }
        text = ", ".join(f"{a} {b} {first:.2f} to {last:.2f}" for (a, b), (first, last) in ends.items())
        return all(last > first for first, last in ends.values()), text

    found = [
        Check(f"larger groups share more, counted as {method}", *saved(method))
        for method in ("paper", "mended")
    ]
    low, high = ratio("random", "direct", many), ratio("local", "RP", many)
    text = f"{many} leaves: random direct {low:.2f}, local RP {high:.2f}"
    found.append(Check("locality and RP save more", high > low, text))
    return found


FIGURE = Figure("snaps-fig6", "segments per group by size of groups", RUNS, points, work, finish)
