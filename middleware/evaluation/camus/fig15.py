"""Figure 15: the most entries of any switch of a general network, with trees by MST and MST++.

The paper's graphs are AS-level ones of SNAP with 6,474 and 26,475 nodes. Here preferential attachment makes
graphs of as many nodes and about as many edges. Rules have two variables. MST depends on how ties are
broken: both ways are shown.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from random import Random
from typing import Any

from ...filters.actions import Forward, Rule, Rules
from ...filters.compiler.compile import compile_rules
from ...filters.tree import Filter
from ...routing.spanning import Weight, route, spanning_tree
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, rng_of
from .workload import siena_filters, siena_schema

GRAPHS = {"6,474 nodes": (6_474, 2), "26,475 nodes": (26_475, 4)}  # nodes, edges of each new node
TREES = {
    "MST, first met": (Weight.MST, False),
    "MST, random": (Weight.MST, True),
    "MST++": (Weight.MST_PLUS, False),
}
SUBSCRIPTIONS = (20, 40, 60)
EACH = (1, 10)  # rules of a node
VARIABLES, VALUES = 2, 100
KEYS = ("graph", "rules of a node", "tree", "subscriptions")
COLUMNS = (*KEYS, "entries", "degree")


def attached(nodes: int, each: int, rng: Random) -> list[tuple[int, int]]:
    """Returns the edges of a graph in which each new node joins `each` others, drawn by their degrees
    (Barabási, Albert 1999).
    """
    ends = list(range(each))
    edges: list[tuple[int, int]] = []
    for node in range(each, nodes):
        others: set[int] = set()
        while len(others) < each:
            others.add(ends[rng.randrange(len(ends))])
        edges += ((other, node) for other in sorted(others))
        ends += [*sorted(others), *([node] * each)]
    return edges


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(graph, each) for graph in GRAPHS for each in EACH]


def work(options: Options, task: Task) -> list[Row]:
    graph, each = task.point
    rng = rng_of(options, "graph", graph, each, task.run)
    nodes, joins = GRAPHS[graph]
    edges = attached(nodes, joins, rng)
    rows: list[Row] = []
    for name, (weight, ties) in TREES.items():
        tree = spanning_tree(nodes, edges, weight, rng if ties else None)
        for count in SUBSCRIPTIONS:
            drawn = rng_of(options, "rules", graph, each, count, task.run)
            wanted = placed(nodes, count, each, drawn)
            point = {"graph": graph, "rules of a node": each, "tree": name, "subscriptions": count}
            degree = max(map(len, tree))
            rows.append({**point, "entries": most_entries(tree, wanted), "degree": degree})
    return rows


def placed(nodes: int, count: int, each: int, rng: Random) -> dict[int, list[Filter]]:
    """Returns the filters of the nodes that were drawn, `each` of a node."""
    filters = list(siena_filters(count, VARIABLES, VARIABLES, VALUES, rng))
    chosen = rng.sample(range(nodes), count // each)
    return {node: filters[place * each : (place + 1) * each] for place, node in enumerate(chosen)}


def most_entries(tree: list[list[int]], wanted: dict[int, list[Filter]]) -> int:
    """Returns the entries of the switch with most of them. Switches whose ports part the subscribers alike
    have the same number, so that each partition is compiled once.
    """
    ports: dict[int, list[frozenset[int]]] = defaultdict(list)
    for (node, _), behind in route(tree, wanted).items():
        ports[node].append(behind)
    for node in wanted:
        ports[node].append(frozenset({node}))
    partitions = {frozenset(parts) for parts in ports.values()}
    return max(entries(partition, wanted) for partition in partitions)


def entries(partition: frozenset[frozenset[int]], wanted: dict[int, list[Filter]]) -> int:
    """Returns the entries of a switch that has a port for each set of subscribers."""
    parts = sorted(partition, key=sorted)
    rules = [
        Rule(tree, (Forward((port,)),))
        for port, part in enumerate(parts)
        for node in sorted(part)
        for tree in wanted[node]
    ]
    return compile_rules(siena_schema(VARIABLES, VALUES), Rules(tuple(rules))).entries


def finish(options: Options, rows: list[Row]) -> Result:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in KEYS)].append(row)
    found = [
        {
            **dict(zip(KEYS, group, strict=True)),
            "entries": statistics.median(row["entries"] for row in same),
            "degree": statistics.median(row["degree"] for row in same),
        }
        for group, same in groups.items()
    ]

    def total(tree: str) -> float:
        return float(sum(row["entries"] for row in found if row["tree"] == tree))

    plus, first, random = total("MST++"), total("MST, first met"), total("MST, random")
    checks = [
        Check(
            "MST++ reduces memory against MST with the first edge met",
            plus < first,
            f"{plus:,.0f}, {first:,.0f}",
        ),
        Check(
            "and against MST with random ties",
            plus < random,
            f"{plus:,.0f}, {random:,.0f}; sums over all points",
        ),
    ]
    shown = [{**row, "case": f"{row['tree']}, {row['rules of a node']} rules each"} for row in found]
    plots = (Plot("subscriptions", "entries", "case", panel="graph"),)
    notes = ["medians of the runs' maxima"]
    return Result("camus-fig15", FIGURE.title, COLUMNS, shown, checks, notes, plots)


FIGURE = Figure(
    "camus-fig15", "Camus: entries with two kinds of trees in general networks", 10, points, work, finish
)
