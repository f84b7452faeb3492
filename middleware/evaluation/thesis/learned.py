"""The benefit of learned trees: the best strategy's trees against trees learned from observed notifications.

Some notifications are observed. Then others of the same clients are encoded with the trees of the best of
some strategies, and with those that `virtual.learning` makes from them. Nothing is known about the encoded
notifications. "judged" is a tree manager's method (`choice.relearn`): it learns from two thirds of the
observations, and changes to these trees only if that saves 5 % of the labels of the last third.
"""

from __future__ import annotations

from typing import Any

from ...routing.virtual.choice import choose, measure, relearn
from ...routing.virtual.learning import learn
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value
from ..population import SHARE, notifications, scenario
from ..topologies import counts_note, load
from .chapter6 import networks

SEEN = (60, 150, 300)
ENCODED = 100
CHOSEN_BY = 60  # notifications that a strategy is chosen by
STRATEGIES = ["random", "partitions", "clusters", "frequency-relation", "hybrid"]
RUNS = 1
COLUMNS = (
    "network",
    "seen",
    "strategy's labels",
    "learned labels",
    "judged labels",
    "saved %",
    "judged saved %",
)


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place,) for place in networks(options)]


def work(options: Options, task: Task) -> list[Row]:
    place = task.point[0]
    network = load(place, options.topology_dir)
    known, _ = scenario(network, "nearby", SHARE, rng_of(options, "population", place, task.run))
    rng = rng_of(options, "asked", place, task.run)
    sample, asked = (notifications(network, known, count, rng) for count in (max(SEEN), ENCODED))
    best = choose(network, options.rules, known.knowledge, sample[:CHOSEN_BY], rng, STRATEGIES)[0].rules
    before = measure(network, best, asked)
    rows = []
    for seen in SEEN:
        learned = learn(network, best, sample[:seen], rng_of(options, "learn", place, seen, task.run)).rules
        after = measure(network, learned, asked)
        update = relearn(best, sample[:seen], rng_of(options, "judged", place, seen, task.run))
        judged = measure(network, update.rules, asked) if update is not None else before
        row: Row = {"network": place, "seen": seen, "strategy's labels": before}
        row |= {"learned labels": after, "judged labels": judged}
        rows.append(
            {**row, "saved %": 100 * (1 - after / before), "judged saved %": 100 * (1 - judged / before)}
        )
    return rows


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, COLUMNS[:2], COLUMNS[2:])
    places = networks(options)

    def saved(column: str, seen: int) -> dict[str, float]:
        return {place: value(found, column, network=place, seen=seen) for place in places}

    most, little = saved("saved %", SEEN[-1]), saved("saved %", SEEN[0])
    judged = [row["judged saved %"] for row in found]
    checks = [
        Check(f"learned from {SEEN[-1]} they save labels", min(most.values()) > 0, _text(most)),
        Check(
            "the more is seen the more is saved",
            all(most[place] >= little[place] for place in places),
            f"from {SEEN[0]}: {_text(little)}",
        ),
        Check(
            "judged by others first they cost nobody more than 2 % of the labels",
            min(judged) >= -2,
            f"{min(judged):.1f} to {max(judged):.1f} %",
        ),
    ]
    notes = [f"our encoder; {options.rules} rules per switch; {ENCODED} other notifications are encoded"]
    notes += filter(None, (counts_note(place, load(place, options.topology_dir)) for place in places))
    plots = (Plot("seen", "saved %", "network"), Plot("seen", "judged saved %", "network"))
    return Result("thesis-learned", "what learned trees save", COLUMNS, found, checks, notes, plots)


def _text(saved: dict[str, float]) -> str:
    return ", ".join(f"{place} {share:.1f} %" for place, share in saved.items())


FIGURES = (Figure("thesis-learned", "what learned trees save", RUNS, points, work, finish),)
