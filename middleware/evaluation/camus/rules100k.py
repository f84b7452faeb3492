"""100,000 rules `stock == S and price > P : fwd(H)`: 100 symbols, P in 0 to 1,000, 200 hosts.

The slides give 21,401 entries and 198 groups, and the paper 100,000 filters in a switch. Neither says how H
is drawn, and no reading gives both numbers; so several readings are shown, in both orders of fields.
"""

from __future__ import annotations

import time
from collections import defaultdict
from random import Random
from typing import Any

from ...filters.actions import Forward, Rules
from ...filters.compiler.compile import compile_rules
from ...filters.compiler.statistics import one_big_table, sizes
from ...filters.tree import And, Constraint
from ..figure import Check, Figure, Options, Result, Row, Task, rng_of
from .workload import ITCH, PRICE_FIRST, STOCK_FIRST, grid, per_symbol, uniform

RULES = 100_000
SLIDES_ENTRIES, SLIDES_GROUPS = 21_401, 198
MOST = 1_000_000  # entries of one big table
LIMIT = 5.0  # s of processor time

READINGS = {
    "uniform": "S, P and H are drawn evenly",
    "by symbol": "two hosts follow each symbol",
    "grid": "every S with every P; H is a function of P, drawn once",
}
ORDERS = {"stock first": STOCK_FIRST, "price first": PRICE_FIRST}
POINTS = [("uniform", "stock first"), ("by symbol", "stock first"), *(("grid", order) for order in ORDERS)]
COLUMNS = (
    *("H", "order", "rules", "entries", "bound", "groups", "SRAM entries", "TCAM words", "SRAM blocks"),
    *("TCAM blocks", "one big table", "processor s"),
)


def drawn(reading: str, rng: Random) -> Rules:
    if reading == "uniform":
        return uniform(RULES, rng)
    return per_symbol(RULES, rng) if reading == "by symbol" else grid(rng)


def bound(rules: Rules) -> int:
    """Returns how many entries the rules need with the stock first, counted without the compiler.

    One for each symbol. For each symbol's set of (price, host), one for each price at which the set of
    hosts that want it changes; symbols with equal sets share these.
    """
    lowest: dict[str, dict[int, int]] = defaultdict(dict)
    for rule in rules.rules:
        assert isinstance(rule.filter, And)
        stock, price = rule.filter.parts
        action = rule.actions[0]
        assert isinstance(stock, Constraint)
        assert isinstance(price, Constraint)
        assert isinstance(action, Forward)
        hosts = lowest[str(stock.constant)]
        least = int(price.constant)
        hosts[action.ports[0]] = min(hosts.get(action.ports[0], least), least)
    steps = {frozenset(hosts.items()) for hosts in lowest.values()}
    return len(lowest) + sum(len({price for _, price in one}) for one in steps)


def points(options: Options) -> list[tuple[Any, ...]]:
    return list(POINTS)


def work(options: Options, task: Task) -> list[Row]:
    reading, order = task.point
    rules = drawn(reading, rng_of(options, "rules", reading, task.run))
    began = time.process_time()
    compiled = compile_rules(ITCH, rules, ORDERS[order])
    took = time.process_time() - began
    found = sizes(compiled)
    sram = [one for one in found if one.memory == "SRAM" and one.table != "leaf"]
    tcam = [one for one in found if one.memory == "TCAM"]
    row: Row = {
        "H": reading,
        "order": order,
        "rules": len(rules.rules),
        "entries": compiled.entries,
        "bound": bound(rules) if order == "stock first" else None,
        "groups": len(compiled.groups),
        "SRAM entries": sum(one.entries for one in sram),
        "TCAM words": sum(one.words for one in tcam),
        "SRAM blocks": sum(one.blocks for one in sram),
        "TCAM blocks": sum(one.blocks for one in tcam),
        "one big table": one_big_table((term.box for term in compiled.terms.terms), MOST),
        "processor s": round(took, 2),
    }
    return [row]


def finish(options: Options, rows: list[Row]) -> Result:
    grids = [row for row in rows if row["H"] == "grid"]
    draws = [row for row in rows if row["order"] == "stock first"]
    best = min(grids, key=lambda row: row["entries"])
    far = max(row["entries"] / row["bound"] - 1 for row in draws)
    slowest = max(row["processor s"] for row in draws)
    worst = min(row["one big table"] / row["entries"] for row in rows if row["one big table"])
    checks = [
        Check(
            f"on the grid at most {SLIDES_ENTRIES:,} entries and {SLIDES_GROUPS} groups",
            all(row["entries"] <= SLIDES_ENTRIES and row["groups"] <= SLIDES_GROUPS for row in grids),
            "; ".join(f"{row['order']}: {row['entries']:,} and {row['groups']}" for row in grids),
        ),
        Check(
            "entries within 5 % of the bound that is counted apart", far <= 0.05, f"{100 * far:.2f} % above"
        ),
        Check(f"stock first takes under {LIMIT:g} s on one core", slowest < LIMIT, f"{slowest:.2f} s"),
        Check(
            "one big table needs more entries than the tables of fields",
            worst > 1,
            f"{worst:.1f} times as many, at least; on the grid {best['one big table'] / best['entries']:.0f}",
        ),
    ]
    notes = [f"{name}: {text}" for name, text in READINGS.items()]
    notes.append(
        "1,000 draws meet 198.7 of 200 hosts on average; on the grid, whose sets of hosts lie in one "
        "another, there is a group for each but the first: the slides' number"
    )
    notes.append("entries: of both fields; leaves, of which there is one per group or port, come on top")
    return Result("camus-100k", FIGURE.title, COLUMNS, rows, checks, notes)


FIGURE = Figure(
    "camus-100k",
    "Camus: entries of 100,000 rules, stock == S and price > P : fwd(H)",
    1,
    points,
    work,
    finish,
)
