"""What learned trees bring: from the best strategy's trees to those learned from observed notifications.

So many notifications are seen; then others of the same clients are encoded with the trees that the best of
some strategies installs, and with those that `virtual.learning` makes of them. Nothing is known of what is
encoded.
"""

from __future__ import annotations

from typing import Any

from ...routing.virtual.choice import choose, measure
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
COLUMNS = ("network", "seen", "strategy's labels", "learned labels", "saved %")


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
        row: Row = {"network": place, "seen": seen, "strategy's labels": before, "learned labels": after}
        rows.append({**row, "saved %": 100 * (1 - after / before)})
    return rows


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, COLUMNS[:2], COLUMNS[2:])
    places = networks(options)
    most = {place: value(found, "saved %", network=place, seen=SEEN[-1]) for place in places}
    little = {place: value(found, "saved %", network=place, seen=SEEN[0]) for place in places}
    text = ", ".join(f"{place} {saved:.1f} %" for place, saved in most.items())
    checks = [
        Check(f"learned from {SEEN[-1]} they save labels", all(saved > 0 for saved in most.values()), text),
        Check(
            "the more is seen the more is saved",
            all(most[place] >= little[place] for place in places),
            ", ".join(f"{place} {saved:.1f} % from {SEEN[0]}" for place, saved in little.items()),
        ),
    ]
    notes = [f"our encoder; {options.rules} rules per switch; {ENCODED} other notifications are encoded"]
    notes += filter(None, (counts_note(place, load(place, options.topology_dir)) for place in places))
    plots = (Plot("seen", "saved %", "network"),)
    return Result("thesis-learned", "what learned trees save", COLUMNS, found, checks, notes, plots)


FIGURES = (Figure("thesis-learned", "what learned trees save", RUNS, points, work, finish),)
