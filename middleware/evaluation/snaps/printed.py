"""Algorithm 1 as printed: the number of trees that miss a leaf, or use links outside their own tree.

As printed, `found` is never reset. As meant, it is; but equal sets of leaves are taken for equal subtrees.
That holds with unique shortest paths, but not if each tree breaks ties at random, as routers do that do not
agree. And a member with others behind it gets a separate copy from farther up: a link carries two.
"""

from __future__ import annotations

from typing import Any

from ...routing.replication.algorithm1 import (
    AS_MEANT,
    AS_PRINTED,
    MENDED,
    Existing,
    Reading,
    Reverse,
    missed,
    replication_segments,
    strays,
)
from ...routing.replication.paths import Paths
from ..figure import Check, Figure, Options, Result, Row, Task, averages, rng_of, value
from .fig5 import network_of
from .sharing import SPREADS, drawn, paths_of

READINGS: dict[str, Reading] = {"printed": AS_PRINTED, "meant": AS_MEANT, "mended": MENDED}
TIES = ("unique", "random")
LEAVES = 40
GROUPS = 1000
RUNS = 2
KEYS = ("spread", "ties", "reading")
SEEN = ("trees that miss a leaf %", "leaves missed %", "trees on links not theirs %", "members passed by")
COLUMNS = (*KEYS, *SEEN)


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(spread, ties, reading) for spread in SPREADS for ties in TIES for reading in READINGS]


def work(options: Options, task: Task) -> list[Row]:
    spread, ties, reading = task.point
    place = network_of(options)
    paths = paths_of(place, options.topology_dir)
    leaves = min(LEAVES, len(paths.network.clients) - 1)
    groups = drawn(paths, spread, leaves, GROUPS, rng_of(options, "groups", place, spread, task.run))
    existing, wrong, lost, astray, passed = Existing(), 0, 0, 0, 0
    for number, (root, wanted) in enumerate(groups):
        its = paths if ties == "unique" else Paths(paths.network, number + 1)
        tree = Reverse(paths.network, its.arrivals(root), root, wanted)
        outcome = replication_segments(tree, existing, READINGS[reading])
        left = missed(tree, outcome).bit_count()
        passed += passed_by(tree, READINGS[reading])
        wrong, lost, astray = wrong + bool(left), lost + left, astray + strays(tree, outcome)
    shares = (wrong / len(groups), lost / len(groups) / leaves, astray / len(groups))
    seen = {name: 100 * share for name, share in zip(SEEN[:3], shares, strict=True)}
    point = {"spread": spread, "ties": ties, "reading": reading}
    return [{**point, **seen, SEEN[3]: passed / len(groups)}]


def passed_by(tree: Reverse, reading: Reading) -> int:
    """Members that packets for others pass, and that get a copy of their own from farther up."""
    if reading.counts_members:
        return 0
    return sum(
        tree.leaves >> node & 1 and node != tree.root and below > 0 for node, below in tree.children.items()
    )


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, SEEN)

    def most(column: str, **where: Any) -> float:
        return max(value(found, column, spread=spread, **where) for spread in SPREADS)

    printed = most(SEEN[0], reading="printed", ties="unique")
    meant, unfinished = (most(SEEN[0], reading="meant", ties=ties) for ties in TIES)
    mended = max(row[column] for row in found if row["reading"] == "mended" for column in SEEN)
    astray = most(SEEN[2], reading="meant", ties="random")
    checks = [
        Check("as printed, trees miss leaves", printed > 0, f"up to {printed:.1f} % of the trees"),
        Check("with `found` set back and unique paths none is missed", meant == 0, f"{meant:.2f} %"),
        Check(
            "with random ties some are still: segments below one that is found stay unfinished",
            unfinished > 0,
            f"up to {unfinished:.2f} % of the trees",
        ),
        Check(
            "members that others are behind get copies of their own over the same links",
            most(SEEN[3], reading="meant") > 0,
            f"up to {most(SEEN[3], reading='meant'):.1f} of {LEAVES} members",
        ),
        Check("with random ties, trees take up links not theirs", astray > 0, f"up to {astray:.1f} %"),
        Check("mended, nothing of that is left", mended == 0, f"{mended:.1f} %"),
    ]
    notes = [f"{network_of(options)}, {GROUPS} groups of {LEAVES} leaves, direct trees"]
    return Result(FIGURE.name, FIGURE.title, COLUMNS, found, checks, notes)


FIGURE = Figure("snaps-printed", "Algorithm 1 as printed", RUNS, points, work, finish)
