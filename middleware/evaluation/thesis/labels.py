"""Our encoders against all readings of the thesis' encoding, population by population.

The methods are those of `encoding`; "given", "largest" and "overlap" try each tree once. One population is a
draw of publishers and subscribers ("nearby", without migration), with the trees of one strategy.
"""

from __future__ import annotations

from typing import Any

from ...routing.virtual.encoder import hop_minimal
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of
from ..population import SHARE, notifications, scenario
from ..topologies import counts_note, load, named
from .chapter6 import trees_of
from .encoding import encoder_of

NETWORKS = (
    "Litnet",
    "Dfn",
    "VtlWavenet2008",
    "Garr200902",
    "Surfnet",
    "Carnet",
    "Arnes",
    "Bellcanada",
    "Renater2010",
    "Uunet",
)
STRATEGIES = ("random", "partitions", "clusters", "frequency-relation")
ORDERS = ("given", "largest", "overlap", "steepest")
OURS = ("ours", "thorough")
METHODS = (*ORDERS, *OURS)
RUNS = 3
NOTIFICATIONS = 5
_LINKS = tuple(f"links {name}" for name in OURS)
_BEHIND = tuple(f"{name} behind" for name in OURS)
COLUMNS = ("network", "hops", *METHODS, *_LINKS, *_BEHIND)


def networks(options: Options) -> tuple[str, ...]:
    """Returns those that are asked for, else ten of Table 6.1."""
    return named(options.topologies, options.topology_dir) or NETWORKS


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place, strategy) for place in networks(options) for strategy in STRATEGIES]


def work(options: Options, task: Task) -> list[Row]:
    """Returns the row of a population: labels per notification, and whether an order needs fewer."""
    place, strategy = task.point
    network = load(place, options.topology_dir)
    known, _ = scenario(network, "nearby", SHARE, rng_of(options, "population", place, task.run))
    asked = notifications(network, known, NOTIFICATIONS, rng_of(options, "asked", place, task.run))
    rules = trees_of(options, network, strategy, options.rules, known, (place, options.rules, task.run))
    row: Row = {"network": place, "strategy": strategy}
    row["hops"] = mean([hop_minimal(network, one).bit_count() for one in asked])
    for name in METHODS:
        encode = encoder_of(name, network, rules)
        found = [encode(one) for one in asked]
        row[name] = mean([one.label_count for one in found])
        if name in OURS:
            row[f"links {name}"] = mean([one.edges.bit_count() for one in found])
    fewest = min(row[name] for name in ORDERS)
    for name in OURS:
        row[f"{name} behind"] = float(row[name] > fewest + 1e-9)
    return [row]


def finish(options: Options, rows: list[Row]) -> Result:
    """Returns means by network; `behind` is the share of populations in which an order needs fewer labels."""
    found = averages(rows, COLUMNS[:1], COLUMNS[1:])
    total = {column: mean([row[column] for row in rows]) for column in COLUMNS[1:]}
    notes = [
        f"{options.rules} rules per switch, {len(rows)} populations of {NOTIFICATIONS} notifications",
        f"trees of {', '.join(STRATEGIES)}",
        *filter(None, (counts_note(place, load(place, options.topology_dir)) for place in networks(options))),
    ]
    average: Row = {"network": "average", **{name: round(amount, 3) for name, amount in total.items()}}
    plot = Plot("network", "labels per notification", "network", kind="dots", stacked=METHODS)
    checks = [check for name in OURS for check in _checks(name, rows, total)]
    title = "labels per notification against all readings of the thesis"
    return Result("thesis-labels", title, COLUMNS, [*found, average], checks, notes, (plot,))


def _checks(name: str, rows: list[Row], total: Row) -> list[Check]:
    behind = [f"{row['network']} {row['strategy']}" for row in rows if row[f"{name} behind"]]
    longer = total[f"links {name}"] / total["hops"] - 1
    text = ", ".join(f"{one} {total[one]:.2f}" for one in (*ORDERS, name))
    seen = f"{len(behind)} of {len(rows)}" + (f": {', '.join(dict.fromkeys(behind))}" if behind else "")
    return [
        Check(f"{name}: on no population more labels than the best of all orders", not behind, seen),
        Check(
            f"{name}: fewer labels on average than each order",
            total[name] < min(total[order] for order in ORDERS),
            text,
        ),
        Check(f"{name}: links within 10 % of the shortest tree", longer <= 0.1, f"{longer:.1%}"),
    ]


FIGURES = (
    Figure(
        "thesis-labels",
        "labels per notification against all readings of the thesis",
        RUNS,
        points,
        work,
        finish,
    ),
)
