"""Matching cost of 10 to 10,000 filters on one topic, as a ratio to that of 10 filters.

.venv/bin/python -m bench.micro_filters                      three kinds of filters
.venv/bin/python -m bench.micro_filters --json               the figures

| kind | filters | a message passes, of 10,000 |
| --- | --- | --- |
| market | `stock == S and price > P`, 1,000 stocks | about 5 |
| identifiers | `id == N` | at most one |
| regions | `x > A and x < B and y > C and y < D`, squares of a plane | about one |

Each message is matched by the diagram that the filters share (`filters/many.py`), and some of them by all
filters one by one, compiled: the plain way. Both have to name the same filters. CPU time of one message, the
median of several passes; the counts take turns, so that a disturbed machine disturbs all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from random import Random

from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.many import ManyFilters
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.filters.tree import Filter
from treecast.middleware.model.records import Record

COUNTS = (10, 100, 1_000, 10_000)
MESSAGES = 2_000
PASSES = 7
PLAIN = 20  # messages that are matched one by one too
MOST = 3.0  # times the cost of 10 filters: what the design wants
SEED = 7

Kind = tuple[Callable[[Random, int], str], Callable[[Random], dict[str, object]]]


def _square(rng: Random, number: int) -> str:
    x, y = rng.randrange(990), rng.randrange(990)
    return f"x > {x} and x < {x + 10} and y > {y} and y < {y + 10}"


KINDS: dict[str, Kind] = {
    "market": (
        lambda rng, number: f"stock == S{rng.randrange(1000)} and price > {rng.randrange(1000)}",
        lambda rng: {"stock": f"S{rng.randrange(1000)}", "price": rng.randrange(1000), "shares": 100},
    ),
    "identifiers": (
        lambda rng, number: f"id == {number}",
        lambda rng: {"id": rng.randrange(10_000), "text": "some words"},
    ),
    "regions": (_square, lambda rng: {"x": rng.randrange(1000), "y": rng.randrange(1000), "z": 1}),
}


def filters_of(kind: str, count: int) -> list[StatelessFilter]:
    """Returns so many different filters."""
    rng = Random(SEED)
    make, _ = KINDS[kind]
    texts: dict[str, None] = {}
    number = 0
    while len(texts) < count:
        texts[make(rng, number)] = None
        number += 1
    return [StatelessFilter(parse(text)) for text in texts]


def messages_of(kind: str) -> list[Record]:
    rng = Random(SEED + 1)
    _, make = KINDS[kind]
    return [Record(None, json.dumps(make(rng)).encode()) for _ in range(MESSAGES)]


class Set:
    """Filters, their diagram, and what a message costs."""

    def __init__(self, filters: Sequence[StatelessFilter]) -> None:
        self.many = ManyFilters()
        self.many.become(filters)
        began = time.process_time()
        self.many.build()
        self.build_s = time.process_time() - began
        self._plain: list[tuple[StatelessFilter, RecordFilter]] = [(one, _alone(one.tree)) for one in filters]
        self.costs: list[float] = []  # s a message, of each pass
        self.passed = 0.0

    def match(self, messages: Sequence[Record]) -> None:
        passing, passed = self.many.passing, 0
        began = time.process_time()
        for message in messages:
            passed += len(passing("t", message) or ())
        self.costs.append((time.process_time() - began) / len(messages))
        self.passed = passed / len(messages)

    def one_by_one(self, messages: Sequence[Record]) -> float:
        """Returns what a message costs where each filter is evaluated by itself, and compares."""
        cost = 0.0
        for message in messages:
            began = time.process_time()
            found = {one for one, alone in self._plain if alone.matches(message)}
            cost += time.process_time() - began
            if found != set(self.many.passing("t", message) or ()):
                raise AssertionError("the diagram and the filters by themselves differ")
        return cost / len(messages)

    @property
    def cost(self) -> float:
        return statistics.median(self.costs)


def _alone(tree: Filter) -> RecordFilter:
    return RecordFilter(tree, "t", 0)


def measured(kind: str) -> list[dict[str, object]]:
    """Returns one row for each number of filters."""
    messages = messages_of(kind)
    sets = {count: Set(filters_of(kind, count)) for count in COUNTS}
    for _ in range(PASSES):
        for one in sets.values():
            one.match(messages)
    return [
        {
            "kind": kind,
            "filters": count,
            "passed": round(one.passed, 2),
            "us": round(1e6 * one.cost, 2),
            "ratio": round(one.cost / sets[COUNTS[0]].cost, 2),
            "one by one us": round(1e6 * one.one_by_one(messages[:PLAIN]), 1),
            "diagrams": len(one.many.diagrams),
            "nodes": sum(diagram.nodes for diagram in one.many.diagrams),
            "build s": round(one.build_s, 3),
        }
        for count, one in sets.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    given = parser.parse_args()
    rows = [row for kind in given.kind or KINDS for row in measured(kind)]
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + " --- |" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in names) + " |")
    worst = max(float(str(row["ratio"])) for row in rows)
    print(f"\n10,000 filters cost at most {worst} times what 10 cost; the design wants at most {MOST}")


if __name__ == "__main__":
    main()
