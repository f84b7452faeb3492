"""Figure 6.14: the strategies' results when clients move.

Trees are installed for the original clients and never changed; then a share of publishers and of
subscriptions moves as the scenario states, and notifications of the new population are encoded. For more
networks than the thesis shows, the mean is drawn, and the best strategy on each.
"""

from __future__ import annotations

from typing import Any

from ..figure import (
    Check,
    Figure,
    Options,
    Plot,
    Result,
    Row,
    Table,
    Task,
    averages,
    mean,
    rng_of,
    value,
)
from ..population import SCENARIOS, SHARE, moved, notifications, scenario
from ..topologies import counts_note, load, scale_free
from .chapter6 import COMPARED, LABELS, NETWORKS, NOTIFICATIONS, RUNS, encoded, networks, trees_of

CHURN = (0, 20, 40, 60, 80, 100)
COLUMNS = ("network", "scenario", "strategy", "churn %", "labels", *LABELS)
TITLE = "labels per notification under churn"
MEAN = "mean of the networks"
LINES = Plot("churn %", "labels", "strategy", "panel")
MANY = (LINES, Plot("churn %", "network", "strategy", "best of", kind="grid"))


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place, kind, name) for place in networks(options) for kind in SCENARIOS for name in COMPARED]


def work(options: Options, task: Task) -> list[Row]:
    place, kind, name = task.point
    network = load(place, options.topology_dir)
    before, after = scenario(network, kind, SHARE, rng_of(options, "population", place, kind, task.run))
    rules = trees_of(options, network, name, options.rules, before, (place, kind, task.run))
    rows = []
    for churn in CHURN:
        rng = rng_of(options, "moved", place, kind, churn, task.run)
        asked = notifications(network, moved(before, after, churn / 100, rng), NOTIFICATIONS, rng)
        row = encoded(options, network, rules, asked)
        rows.append({"network": place, "scenario": kind, "strategy": name, "churn %": churn, **row})
    return rows


def checks_of(rows: list[Row], places: tuple[str, ...]) -> list[Check]:
    """Returns checks of the thesis' statements, network by network."""
    return [
        Check(f"{place}: {check.statement}", check.holds, check.seen)
        for place in places
        for check in _checks([row for row in rows if row["network"] == place])
    ]


def checks_of_many(rows: list[Row], scale_free: dict[str, bool]) -> list[Check]:
    """Returns the same on many networks: of their mean, and on how many of them it holds."""
    each = {place: _checks([row for row in rows if row["network"] == place]) for place in scale_free}
    found = []
    for number, one in enumerate(_checks(_means(rows))):
        where = [place for place, checks in each.items() if checks[number].holds]
        free = sum(scale_free[place] for place in where)
        of_all = sum(scale_free.values())
        text = f"on {len(where)} of {len(each)}; {free} of these and {of_all} of all are scale-free"
        found += [
            Check(f"{MEAN}: {one.statement}", one.holds, one.seen),
            Check(f"more than half of the networks: {one.statement}", 2 * len(where) > len(each), text),
        ]
    return found


def _means(rows: list[Row]) -> list[Row]:
    """Returns the mean of all networks as rows of one."""
    return [{"network": MEAN, **row} for row in averages(rows, COLUMNS[1:4], COLUMNS[4:])]


def _checks(rows: list[Row]) -> list[Check]:
    """Returns checks of the thesis' statements on the rows of one network."""

    def labels(kind: str, name: str, churn: int) -> float:
        return value(rows, "labels", scenario=kind, strategy=name, **{"churn %": churn})

    start, end = (labels("distant", "frequency-relation", churn) for churn in (0, 100))
    first, middle, hops = (labels("distant", "hops", churn) for churn in (0, 40, 100))
    near, mixed = labels("nearby", "frequency-relation", 100), labels("distant", "hybrid", 100)
    best = min(end, labels("distant", "clusters", 100))
    return [
        Check(
            "frequency-relation decays to hops under distant churn (half its gain is lost)",
            end > start and (hops - end) / hops < 0.5 * (1 - start / first),
            f"{start:.1f} at 0 %, {end:.1f} at 100 %, hops {hops:.1f}",
        ),
        Check("it decays less when clients stay near", near < end, f"{near:.1f} nearby, {end:.1f} distant"),
        Check(
            "hops have a crest in the midst of distant churn",
            middle > max(first, hops),
            f"{first:.1f}, {middle:.1f}, {hops:.1f}",
        ),
        Check(
            "hybrid stays near the better of its two parts (here: within 25 %)",
            mixed <= 1.25 * best,
            f"{mixed:.1f} against {best:.1f}",
        ),
        *_kinds_checks(rows),
    ]


def _kinds_checks(rows: list[Row]) -> list[Check]:
    """Returns checks of the statements about cycles, clusters and partitions, over all shares of churn."""

    def over(kind: str, name: str, column: str = "labels") -> float:
        return value(rows, column, scenario=kind, strategy=name)

    longest = {kind: max(COMPARED[1:], key=lambda name: over(kind, name)) for kind in SCENARIOS}
    pairs = {kind: (over(kind, "clusters"), over(kind, "partitions")) for kind in SCENARIOS}
    text = ", ".join(f"{kind} {one:.1f} and {two:.1f}" for kind, (one, two) in pairs.items())
    trees = [
        mean([over(kind, name, "trees") for kind in SCENARIOS]) for name in ("clusters", "frequency-relation")
    ]
    return [
        Check(
            "cycles need the most labels of all strategies with trees",
            set(longest.values()) == {"cycles"},
            f"{longest}",
        ),
        Check(
            "partitions beat clusters where clients are uniform",
            pairs["uniform"][1] < pairs["uniform"][0],
            text,
        ),
        Check(
            "clusters beat partitions where clients are dense",
            all(pairs[kind][0] < pairs[kind][1] for kind in ("nearby", "distant")),
            text,
        ),
        Check(
            "clusters use more trees than frequency-relation",
            trees[0] > trees[1],
            f"{trees[0]:.1f} and {trees[1]:.1f}",
        ),
    ]


def finish(options: Options, rows: list[Row]) -> Result:
    places = networks(options)
    found = averages(rows, COLUMNS[:4], COLUMNS[4:])
    many = len(places) > len(NETWORKS)
    loaded = {place: load(place, options.topology_dir) for place in places}
    notes = [f"encoder: {options.encoder}; {options.rules} rules per switch; runs: {len(rows) // len(found)}"]
    notes += filter(None, (counts_note(place, network) for place, network in loaded.items()))
    for row in found:
        if not many:
            row["panel"] = f"{row['network']}, {row['scenario']}"
    return Result(
        "thesis-fig6.14",
        TITLE,
        COLUMNS,
        [*_drawn(found), *found] if many else found,
        checks_of_many(found, scale_free(loaded)) if many else checks_of(found, places),
        notes,
        MANY if many else (LINES,),
        table=_table(found) if many else None,
    )


def _drawn(found: list[Row]) -> list[Row]:
    """Returns the mean rows, by scenario; of all others, those of the best strategies are marked."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in found:
        key = tuple(row[column] for column in ("network", "scenario", "churn %"))
        if key not in best or row["labels"] < best[key]["labels"]:
            best[key] = row
    for row in best.values():
        row["best of"] = f"{row['scenario']}: the best strategy"
    return [{**row, "panel": f"{row['scenario']}, {row['network']}"} for row in _means(found)]


def _table(found: list[Row]) -> Table:
    """Returns a line for all shares of churn of the mean, and for none and all of it of every network."""
    lines: dict[tuple[Any, ...], Row] = {}
    for row in [*_means(found), *(row for row in found if row["churn %"] in (CHURN[0], CHURN[-1]))]:
        key = {column: row[column] for column in ("network", "scenario", "churn %")}
        lines.setdefault(tuple(key.values()), key)[row["strategy"]] = row["labels"]
    return Table(("network", "scenario", "churn %", *COMPARED), list(lines.values()))


FIGURES = (Figure("thesis-fig6.14", TITLE, RUNS, points, work, finish),)
