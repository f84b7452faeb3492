"""The cost of a join or a leave: segments written, and notifications of the publisher. Not in the paper.

Groups as in Figure 5; then leaves join or leave random groups, one after the other. "anew" is the cost of
rebuilding all segments from the change up to the root, as for a tree that is computed once: the new tree's
segments that the old one lacks, plus the removal of the old ones.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ...routing.bits import members
from ...routing.replication.forest import Forest
from ...routing.replication.shapes import Shape
from ..figure import Check, Figure, Options, Result, Row, Task, averages, rng_of, value
from .fig5 import network_of
from .sharing import OURS, PAPERS, SPREADS, SUPERSET, drawn, paths_of, planner

LEAVES = 40
GROUPS = 1000
CHANGES = 2000
RUNS = 2
KEYS = ("spread", "strategy", "superset")
SEEN = ("segments/group", "writes", "most writes", "publisher told %", "anew")
COLUMNS = (*KEYS, *SEEN)


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(spread, one, most) for spread in SPREADS for one in (*PAPERS, *OURS) for most in (0, SUPERSET)]


def work(options: Options, task: Task) -> list[Row]:
    spread, strategy, superset = task.point
    place = network_of(options)
    paths = paths_of(place, options.topology_dir)
    leaves = min(LEAVES, len(paths.network.clients) - 2)
    plan = planner(paths, strategy)
    forest = Forest(paths.network, plan, superset=superset)
    groups = drawn(paths, spread, leaves, GROUPS, rng_of(options, "groups", place, spread, task.run))
    for number, (root, wanted) in enumerate(groups):
        forest.open(number, root, wanted)
    rng = rng_of(options, "changes", place, spread, task.run)
    writes, told, anew = [], 0, 0
    for _ in range(CHANGES):
        number = rng.randrange(GROUPS)
        group = forest.groups[number]
        before = shapes(plan(group.root, group.leaves, 0).top)
        wanted = changed(group.root, group.leaves, paths.network.clients, leaves, rng)
        anew += len(before ^ shapes(plan(group.root, wanted, 0).top))
        change = forest.set_leaves(number, wanted)
        writes.append(change.writes)
        told += change.entered
    shown = (
        len(forest.segments) / GROUPS,
        sum(writes) / CHANGES,
        max(writes),
        100 * told / CHANGES,
        anew / CHANGES,
    )
    point = {"spread": spread, "strategy": strategy, "superset": superset}
    return [{**point, **dict(zip(SEEN, shown, strict=True))}]


def changed(root: int, leaves: int, clients: list[int], most: int, rng: Random) -> int:
    """Returns the leaves with one more, or one fewer if the original number is reached."""
    if leaves.bit_count() >= most:
        return leaves & ~(1 << rng.choice(members(leaves)))
    return leaves | 1 << rng.choice([one for one in clients if one != root and not leaves >> one & 1])


def shapes(shape: Shape | None) -> set[tuple[int, int, int]]:
    """Returns all places of a tree that copy."""
    if shape is None or not shape.copies:
        return set()
    return {shape.key}.union(*(shapes(behind) for _, behind in shape.below))


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, SEEN)
    saved = [value(found, "writes", spread=s, strategy=m, superset=0) for s in SPREADS for m in PAPERS]
    anew = [value(found, "anew", spread=s, strategy=m, superset=0) for s in SPREADS for m in PAPERS]
    text = ", ".join(f"{a:.1f} for {b:.1f}" for a, b in zip(saved, anew, strict=True))
    checks = [Check("a change writes less than half of what it would anew", sum(saved) < sum(anew) / 2, text)]
    notes = [
        f"{network_of(options)}, {GROUPS} groups of {LEAVES} leaves, {CHANGES} joins and leaves in turn",
        "writes: segments created, rewritten and removed per change",
    ]
    return Result(FIGURE.name, FIGURE.title, COLUMNS, found, checks, notes)


FIGURE = Figure("snaps-churn", "what a join or a leave writes", RUNS, points, work, finish)
