"""A thousand single changes to the 100,000 rules: a rule comes, another goes. The paper leaves this open."""

from __future__ import annotations

import statistics
import time
from typing import Any

from ...filters.compiler.changes import Installed
from ...filters.compiler.live import LiveRules
from ..figure import Check, Figure, Options, Result, Row, Task, rng_of
from .rules100k import RULES
from .workload import ITCH, STOCK_FIRST, above, uniform

CHANGES = 1000
LIMIT = 5.0  # ms
COLUMNS = (
    "change",
    "changes",
    "without effect",
    "median ms",
    "median ms with effect",
    "most ms",
    "writes",
    "most writes",
)


def points(options: Options) -> list[tuple[Any, ...]]:
    return [("rules as drawn",), ("rules that matter",)]


def work(options: Options, task: Task) -> list[Row]:
    """Rules that matter want what nobody else of the host's rules asks for: their price is below all
    others.
    """
    rng = rng_of(options, "changes", *task.point, task.run)
    live = LiveRules(ITCH, STOCK_FIRST)
    numbers = live.add(uniform(RULES, rng).rules)
    installed = Installed(live)
    whole = sum(1 for _ in installed.change())
    times: list[float] = []
    writes: list[int] = []
    matters = task.point[0] == "rules that matter"
    for change in range(CHANGES // 2):
        new = (
            above(rng.randrange(100), rng.randrange(3), 200 + change % 50)
            if matters
            else uniform(1, rng).rules[0]
        )
        for work_ in (0, 1):
            began = time.process_time()
            if work_ == 0:
                added = live.add([new])
            else:
                live.remove(added if matters else [numbers.pop(rng.randrange(len(numbers)))])
            writes.append(sum(1 for _ in installed.change()))
            times.append(1000 * (time.process_time() - began))
    effective = [took for took, count in zip(times, writes, strict=True) if count]
    return [
        {
            "change": task.point[0],
            "changes": len(times),
            "without effect": writes.count(0),
            "median ms": round(statistics.median(times), 3),
            "median ms with effect": round(statistics.median(effective or [0.0]), 3),
            "most ms": round(max(times), 3),
            "writes": statistics.median(count for count in writes if count),
            "most writes": max(writes),
            "writes of the whole": whole,
        }
    ]


def finish(options: Options, rows: list[Row]) -> Result:
    drawn, hard = rows[0], rows[-1]
    slow = drawn["median ms"]
    writes = max(row["writes"] for row in rows)
    whole = rows[0]["writes of the whole"]
    checks = [
        Check(
            f"a single change takes under {LIMIT:g} ms (median)",
            slow < LIMIT,
            f"{slow:.2f} ms; {drawn['median ms with effect']:.2f} ms if it has an effect",
        ),
        Check(
            "it writes only what it must",
            writes * 10 < whole,
            f"{writes:g} writes (median), {whole:,} for the whole",
        ),
    ]
    notes = [
        "as drawn, most rules say what another rule of the same host says already: then nothing is written",
        f"rules that matter change all sets of hosts of their symbol: {hard['median ms with effect']:.2f} ms",
    ]
    return Result("camus-changes", FIGURE.title, COLUMNS, rows, checks, notes)


FIGURE = Figure("camus-changes", "Camus: a thousand single changes to 100,000 rules", 1, points, work, finish)
