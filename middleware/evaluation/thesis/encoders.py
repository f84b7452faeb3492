"""Our best encoder against the thesis' best, on the networks of its Table 6.1, without migration.

On each network, each method uses the strategy with the fewest labels for these very notifications: Algorithm
5.1, mended, in three orders of its undefined `sort`; "ours", the encoder of publishers; and "thorough", which
takes more time. "chosen" is ours with the strategy that is best for a sample of other notifications
(`virtual.choice`), without knowledge of the encoded ones.
"""

from __future__ import annotations

from typing import Any

from ...routing.network import Network
from ...routing.virtual.encoder import Encoder, hop_minimal
from ...routing.virtual.rules import RuleBase
from ...routing.virtual.stacks import Encoding
from ...routing.virtual.strategies import STRATEGIES, install
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of
from ..population import SHARE, Population, notifications, scenario
from ..topologies import counts_note, load
from .chapter6_best import places_of
from .encoding import ORDERS, encoder_of

CANDIDATES = ("random", "partitions", "clusters", "relation", "frequency-relation", "hybrid")
NOTIFICATIONS = 6
SAMPLE = 20
RUNS = 5
COMPARED = (*ORDERS, "ours", "thorough")
METHODS = (*COMPARED, "chosen")
COLUMNS = ("network", "hops", *METHODS, *(f"links {name}" for name in METHODS))


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place,) for place in places_of(options)]


def work(options: Options, task: Task) -> list[Row]:
    place = task.point[0]
    network = load(place, options.topology_dir)
    known, _ = scenario(network, "nearby", SHARE, rng_of(options, "population", place, task.run))
    rng = rng_of(options, "asked", place, task.run)
    sample, asked = (notifications(network, known, count, rng) for count in (SAMPLE, NOTIFICATIONS))
    row: Row = {"network": place, "hops": mean([hop_minimal(network, one).bit_count() for one in asked])}
    bases = rule_bases(options, network, known, place, task.run)
    for name in COMPARED:
        tried = [[encoder_of(name, network, rules)(one) for one in asked] for rules in bases.values()]
        row[name], row[f"links {name}"] = min(map(_amounts, tried))
    encoders = [Encoder(network, rules) for rules in bases.values()]
    chosen = min(encoders, key=lambda one: sum(one.encode(asked).label_count for asked in sample))
    row["chosen"], row["links chosen"] = _amounts([chosen.encode(one) for one in asked])
    return [row]


def rule_bases(
    options: Options, network: Network, known: Population, place: str, run: int
) -> dict[str, RuleBase]:
    """Returns the rule base of each candidate, which knows a population."""
    return {
        name: install(
            network,
            options.rules,
            STRATEGIES[name],
            known.knowledge,
            rng_of(options, "trees", place, name, run),
        )
        for name in CANDIDATES
    }


def _amounts(found: list[Encoding]) -> tuple[float, float]:
    """Labels and links per notification."""
    return mean([one.label_count for one in found]), mean([one.edges.bit_count() for one in found])


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, COLUMNS[:1], COLUMNS[1:])
    total = {column: mean([row[column] for row in found]) for column in COLUMNS[1:]}
    text = ", ".join(f"{name} {total[name]:.2f}" for name in ("hops", *METHODS))
    checks = [check for name in ("thorough", "ours", "chosen") for check in _checks(name, found, total, text)]
    runs = len(rows) // max(1, len(found))
    notes = [
        f"{options.rules} rules per switch, {runs} runs of {NOTIFICATIONS} notifications on each network"
    ]
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
        (Plot("network", "labels per notification", "network", kind="dots", stacked=METHODS),),
    )


def _checks(name: str, found: list[Row], total: dict[str, float], text: str) -> list[Check]:
    saved = 1 - total[name] / total["largest"]
    longer = total[f"links {name}"] / total["hops"] - 1
    worse = [row["network"] for row in found if row[name] > min(row[order] for order in ORDERS) + 1e-9]
    behind = [row["network"] for row in found if row[name] > row["largest"] + 1e-9]
    return [
        Check(f"{name}: at least 20 % fewer labels than largest first", saved >= 0.2, f"{saved:.0%}; {text}"),
        Check(
            f"{name}: fewer than every order on average", total[name] < min(total[o] for o in ORDERS), text
        ),
        Check(f"{name}: on no network more than largest first", not behind, ", ".join(behind) or "on none"),
        Check(
            f"{name}: on no network more than the best of the orders",
            not worse,
            ", ".join(worse) or "on none",
        ),
        Check(f"{name}: no more links than the hop-minimal tree plus 15 %", longer <= 0.15, f"{longer:.1%}"),
    ]


FIGURES = (Figure("thesis-encoders", "labels per notification by encoder", RUNS, points, work, finish),)
