"""`camus-fat-tree`: 20 emulated switches with 16 hosts, whose subscriptions come and go while packets are
sent (`live_tree`). Nobody may miss a message that they want, and the last hop has to be exact.
"""

from __future__ import annotations

from typing import Any, Final

from ...routing.fat_tree import Policy
from ..figure import Check, Figure, Options, Result, Row, Task, averages, rng_of
from .fat_tree_rules import LAYERS
from .live_tree import LiveTree, churn, settled

STEPS: Final = 60  # subscriptions that come or go
EVERY: Final = 5  # writes between two packets
AFTER: Final = 200  # packets while nothing changes, and again after a link has failed
FAILED: Final = (0, 8)  # an edge switch and one above it
CASES: Final = (("MR", 1), ("TR", 1), ("MR", 100), ("TR", 100))
KEYS: Final = ("policy", "alpha")
COUNTS: Final = ("packets", "wanted", "missed", "unwanted", "doubled", "changes", "writes")
COLUMNS: Final = (*KEYS, *COUNTS, "links", *LAYERS)


def points(options: Options) -> list[tuple[Any, ...]]:
    return list(CASES)


def work(options: Options, task: Task) -> list[Row]:
    policy, alpha = task.point
    rng = rng_of(options, "churn", task.run)  # the same subscriptions and packets for all cases
    tree = LiveTree(4, Policy(policy), alpha)
    churn(tree, STEPS, rng, EVERY)
    settled(tree, AFTER, rng)
    tree.fail(*FAILED)
    settled(tree, AFTER, rng)
    account = tree.account
    entries = dict(zip(LAYERS, tree.entries(), strict=True))
    counts = {name: getattr(account, name) for name in COUNTS}
    return [
        {
            "policy": policy,
            "alpha": alpha,
            **counts,
            "links": account.copies / account.packets,
            **entries,
        }
    ]


def finish(options: Options, rows: list[Row]) -> Result:
    totals = {name: sum(int(row[name]) for row in rows) for name in COUNTS}
    found = averages(rows, KEYS, COLUMNS[len(KEYS) :])
    checks = [
        Check(
            "no subscriber misses a message that it wants, after every write and a failed link",
            totals["missed"] == 0 and totals["wanted"] > 0,
            f"{totals['missed']} of {totals['wanted']:,} missed, {totals['packets']:,} packets sent",
        ),
        Check(
            "the last hop is exact: nobody gets a message that none of its subscriptions wants",
            totals["unwanted"] == 0,
            f"{totals['unwanted']} copies; {totals['writes']:,} writes for {totals['changes']:,} changes",
        ),
        Check("nobody gets a message twice", totals["doubled"] == 0, f"{totals['doubled']} did"),
    ]
    notes = [
        f"{STEPS} subscriptions come or go, a packet after one of {EVERY} writes; then {AFTER} packets at"
        f" rest, and {AFTER} more without a link of an edge switch",
        "links: those that a packet takes, on average; ToR, Agg, Core: the most entries of a switch there",
    ]
    return Result("camus-fat-tree", FIGURE.title, COLUMNS, found, checks, notes)


FIGURE = Figure(
    "camus-fat-tree", "Camus: a fat tree whose subscriptions come and go", 1, points, work, finish
)
