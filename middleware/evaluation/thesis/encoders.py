"""Our encoder and choice of strategy against the thesis' best, on the networks of its Table 6.1.

The thesis' best: Algorithm 5.1, mended, with the strategy that needs the fewest labels with it on that
network; for each of three orders of its undefined `sort`. Ours: our encoder with the strategy that a
sample of other notifications shows to be best for it (`virtual.choice`). Nobody moves, 40 rules per switch.
"""

from __future__ import annotations

from typing import Any

from ...routing.network import Network
from ...routing.virtual.encoder import Encoder, hop_minimal
from ...routing.virtual.stacks import Request
from ...routing.virtual.strategies import STRATEGIES, install
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of
from ..population import SHARE, Population, notifications, scenario
from ..topologies import counts_note, load
from .chapter6_churn import best_places
from .encoding import ENCODERS, ORDERS, encoder_of

CANDIDATES = ("random", "partitions", "clusters", "relation", "frequency-relation", "hybrid")
NOTIFICATIONS = 6
SAMPLE = 6
RUNS = 2
COLUMNS = ("network", "hops", *ENCODERS, *(f"links {name}" for name in ENCODERS))


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place,) for place in best_places(options)]


def work(options: Options, task: Task) -> list[Row]:
    place = task.point[0]
    network = load(place, options.topology_dir)
    known, _ = scenario(network, "nearby", SHARE, rng_of(options, "population", place, task.run))
    rng = rng_of(options, "asked", place, task.run)
    sample, asked = (notifications(network, known, count, rng) for count in (SAMPLE, NOTIFICATIONS))
    row: Row = {"network": place, "hops": mean([hop_minimal(network, one).bit_count() for one in asked])}
    bases = {
        name: install(
            network,
            options.rules,
            STRATEGIES[name],
            known.knowledge,
            rng_of(options, "trees", place, name, task.run),
        )
        for name in CANDIDATES
    }
    for order in ORDERS:
        best = (0.0, 0.0)
        for rules in bases.values():
            found = [encoder_of(order, network, rules)(one) for one in asked]
            labels = mean([one.label_count for one in found])
            if not best[0] or labels < best[0]:
                best = (labels, mean([one.edges.bit_count() for one in found]))
        row[order], row[f"links {order}"] = best
    row["ours"], row["links ours"] = _ours(network, known, bases, sample, asked)
    return [row]


def _ours(
    network: Network, known: Population, bases: dict[str, Any], sample: list[Request], asked: list[Request]
) -> tuple[float, float]:
    encoders = {name: Encoder(network, rules) for name, rules in bases.items()}
    chosen = min(encoders, key=lambda name: sum(encoders[name].encode(one).label_count for one in sample))
    found = [encoders[chosen].encode(one) for one in asked]
    return mean([one.label_count for one in found]), mean([one.edges.bit_count() for one in found])


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, COLUMNS[:1], COLUMNS[1:])
    total = {column: mean([row[column] for row in found]) for column in COLUMNS[1:]}
    worse = [row["network"] for row in found if row["ours"] > row["largest"]]
    saved = 1 - total["ours"] / total["largest"]
    longer = total["links ours"] / total["hops"] - 1
    text = ", ".join(f"{name} {total[name]:.2f}" for name in ("hops", *ENCODERS))
    checks = [
        Check(
            "at least 20 % fewer labels than largest first on average", saved >= 0.2, f"{saved:.0%}; {text}"
        ),
        Check("fewer than every order on average", total["ours"] < min(total[o] for o in ORDERS), text),
        Check("on no network more than largest first", not worse, f"more on {worse}" if worse else "on none"),
        Check(
            "no more links than the hop-minimal tree plus 15 %", longer <= 0.15, f"{longer:.1%} more links"
        ),
    ]
    notes = [f"{options.rules} rules per switch; each method with its own best strategy per network and run"]
    notes += filter(
        None, (counts_note(row["network"], load(row["network"], options.topology_dir)) for row in found)
    )
    average: Row = {"network": "average", **{name: round(amount, 3) for name, amount in total.items()}}
    return Result(
        "thesis-encoders",
        "labels per notification by encoder",
        COLUMNS,
        [*found, average],
        checks,
        notes,
        (Plot("network", "ours", "network", kind="bars"),),
    )


FIGURES = (Figure("thesis-encoders", "labels per notification by encoder", RUNS, points, work, finish),)
