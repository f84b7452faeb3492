"""Figure 12: entries by the number of subscriptions (a) and of predicates in each (b), beside one big table.

The paper's workload generator draws from distributions that it doesn't state. Here three variables of 0 to
99 are compared by < and > with constants drawn evenly, so that filters overlap; each has a port of its own.

The baseline has two readings. "Entries for all permutations of overlapping queries" counts the sets of
filters that one packet may match. A careful one writes one entry for all sets with the same region.
"""

from __future__ import annotations

from typing import Any

from ...filters.actions import Forward, Rule, Rules
from ...filters.compiler.compile import compile_rules
from ...filters.compiler.statistics import combinations, one_big_table
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value
from .workload import ORDERINGS, siena_filters, siena_schema

VARIABLES, VALUES = 3, 100
SUBSCRIPTIONS = (5, 10, 15, 20, 25, 30)
PREDICATES = (1, 2, 3)
FIXED_PREDICATES, FIXED_SUBSCRIPTIONS = 2, 20
MOST = 200_000
TABLES = ("tables of fields", "one big table", "one big table, regions")
KEYS = ("part", "number", "table")
COLUMNS = (*KEYS, "entries")


def points(options: Options) -> list[tuple[Any, ...]]:
    a = [("a: subscriptions", count, FIXED_PREDICATES) for count in SUBSCRIPTIONS]
    return [*a, *(("b: predicates", FIXED_SUBSCRIPTIONS, count) for count in PREDICATES)]


def work(options: Options, task: Task) -> list[Row]:
    part, count, predicates = task.point
    rng = rng_of(options, "rules", count, predicates, task.run)
    filters = siena_filters(count, predicates, VARIABLES, VALUES, rng, ORDERINGS)
    rules = Rules(tuple(Rule(tree, (Forward((port + 1,)),)) for port, tree in enumerate(filters)))
    compiled = compile_rules(siena_schema(VARIABLES, VALUES), rules)
    boxes = [term.box for term in compiled.terms.terms]
    counts = (compiled.entries, combinations(boxes, MOST), one_big_table(boxes, MOST))
    number = count if part.startswith("a") else predicates
    return [
        {"part": part, "number": number, "table": table, "entries": found if found is not None else MOST}
        for table, found in zip(TABLES, counts, strict=True)
    ]


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, ("entries",))

    def entries(part: str, number: int, table: str = TABLES[0]) -> float:
        return value(found, "entries", part=part, number=number, table=table)

    ours, big = (
        [entries("a: subscriptions", number, table) for number in (SUBSCRIPTIONS[0], SUBSCRIPTIONS[-1])]
        for table in TABLES[:2]
    )
    few, many = entries("b: predicates", PREDICATES[1]), entries("b: predicates", PREDICATES[-1])
    regions = entries("a: subscriptions", SUBSCRIPTIONS[-1], TABLES[2])
    checks = [
        Check(
            "one big table explodes with the number of similar filters, the tables of fields don't",
            big[1] / big[0] > 10 * ours[1] / ours[0] and big[1] > ours[1],
            f"{big[1]:,.0f} entries against {ours[1]:,.0f} with {SUBSCRIPTIONS[-1]} filters",
        ),
        Check(
            "the tables of fields also need fewer entries than one big table with an entry per region",
            ours[1] < regions,
            f"{ours[1]:,.0f} against {regions:,.0f}, which are {VARIABLES} fields wide each",
        ),
        Check(
            "more predicates per filter need fewer entries",
            many < few,
            f"{few:,.0f} with {PREDICATES[1]} predicates, {many:,.0f} with {PREDICATES[-1]}",
        ),
    ]
    plots = (Plot("number", "entries", "table", panel="part"),)
    return Result("camus-fig12", FIGURE.title, COLUMNS, found, checks, [], plots)


FIGURE = Figure("camus-fig12", "Camus: entries by subscriptions and by predicates", 5, points, work, finish)
