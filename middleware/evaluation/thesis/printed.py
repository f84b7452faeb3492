"""Algorithm 5.1 as printed: notifications of 60 that reach somebody twice, or somebody who is not a receiver.

Its line 8 counts one stop for an edge of a virtual tree that leads away from the delivery tree. A chord, with
both ends on it, needs two. The frequency depends on the order in which trees are tried (`sort`, which the
thesis does not define), on the trees and on the clients: so each run has its own clients and random trees,
and the range over runs is shown, beside the mended form.
"""

from __future__ import annotations

from typing import Any

from ...routing.bits import members
from ...routing.forwarding import faults, simulate
from ...routing.network import Network
from ...routing.virtual import reference
from ...routing.virtual.rules import RuleBase
from ...routing.virtual.stacks import LabelForwarder, Request
from ..figure import Check, Figure, Options, Result, Row, Task, mean, rng_of
from ..population import SHARE, notifications, scenario
from ..topologies import counts_note, load
from .chapter6 import networks, trees_of

NOTIFICATIONS = 60
RULES = 20  # as the thesis' figures of single stacks have
RUNS = 10
COLUMNS = ("network", "order", "wrong of 60", "least", "most", "mended")


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(place, order) for place in networks(options) for order in reference.ORDERS]


def work(options: Options, task: Task) -> list[Row]:
    place, order = task.point
    network = load(place, options.topology_dir)
    known, _ = scenario(network, "nearby", SHARE, rng_of(options, "population", place, task.run))
    asked = notifications(network, known, NOTIFICATIONS, rng_of(options, "asked", place, task.run))
    rules = trees_of(options, network, "random", RULES, known, (place, RULES, task.run))
    wrong, mended = (misdelivered(network, rules, asked, order, printed) for printed in (True, False))
    return [{"network": place, "order": order, "wrong": wrong, "mended": mended}]


def misdelivered(network: Network, rules: RuleBase, asked: list[Request], order: str, printed: bool) -> int:
    """Returns how many of the notifications are not delivered once to each receiver and to nobody else."""
    forwarder = LabelForwarder(network, rules)
    count = 0
    for one in asked:
        labels = reference.encode(network, rules, one, order=order, printed=printed).labels
        outcome = simulate(network, forwarder, one.start, labels)
        count += bool(faults(network, one.start, members(one.receivers), outcome))
    return count


def finish(options: Options, rows: list[Row]) -> Result:
    found: list[Row] = []
    for place, order in points(options):
        runs = [row for row in rows if (row["network"], row["order"]) == (place, order)]
        wrong = [row["wrong"] for row in runs]
        found.append(
            {
                "network": place,
                "order": order,
                "wrong of 60": round(mean(wrong), 2),
                "least": min(wrong),
                "most": max(wrong),
                "mended": max(row["mended"] for row in runs),
            }
        )
    worst = max(found, key=lambda row: row["wrong of 60"])
    places = networks(options)
    notes = [f"random trees, {RULES} rules per switch; a run has clients, trees and notifications of its own"]
    notes += filter(None, (counts_note(place, load(place, options.topology_dir)) for place in places))
    checks = [
        Check(
            "as printed, some notifications are delivered twice",
            worst["wrong of 60"] > 0,
            f"most on {worst['network']}, {worst['order']} first: {worst['wrong of 60']} of 60",
        ),
        Check(
            "with two stops for a chord none is",
            not any(row["mended"] for row in found),
            f"{sum(row['mended'] for row in rows)} of {NOTIFICATIONS * len(rows)}",
        ),
    ]
    return Result("thesis-printed", "Algorithm 5.1 as printed", COLUMNS, found, checks, notes)


FIGURES = (Figure("thesis-printed", "Algorithm 5.1 as printed", RUNS, points, work, finish),)
