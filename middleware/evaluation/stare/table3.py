"""Table III of the STARE paper: memory per rule on our targets, beside the paper's for bmv2 and Open vSwitch.

The paper fits a line through the resident set of the switch's process over its number of rules (Fig. 8). This
does the same, with one process per design and a separate switch for each number of rules. It needs Linux.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ...model.errors import Fault, TreecastError
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, mean

# Scenario: the measurement (a kind of `memory`), and the paper's bytes per rule.
SCENARIOS: dict[str, tuple[str, int]] = {
    "register": ("register", 119),
    "embedded": ("embedded", 184),
    "embedded, controller too": ("embedded_with_controller", 184),
    "address and UDP port": ("address_multicast", 586),
}
COUNTS = (10_000, 20_000, 30_000, 40_000, 50_000)
RUNS = 2
COLUMNS = ("scenario", "bytes/rule", "+-", "R2", "paper")
_SECONDS = 600.0
_STUDENT = (0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)  # 95 %, by degrees of freedom
_NORMAL = 2.0


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(name,) for name in SCENARIOS]


def work(options: Options, task: Task) -> list[Row]:
    name = task.point[0]
    found = samples(SCENARIOS[name][0], COUNTS)
    return [{"scenario": name, "rules": count, "bytes": size} for count, size in found]


def samples(kind: str, counts: Sequence[int]) -> list[tuple[int, int]]:
    """Returns (rules, bytes), measured in a separate process. Raises TreecastError if that fails."""
    module = "treecast.middleware.evaluation.stare.memory"
    command = [sys.executable, "-m", module, kind, *map(str, counts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise TreecastError(Fault.INTERNAL, f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return [(count, size) for count, size in json.loads(done.stdout)]


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Returns the slope of the line through points by least squares, half the width of its 95 % confidence
    interval, and the share of the variance that the line explains (R2).
    """
    x, y = mean([a for a, _ in points]), mean([b for _, b in points])
    spread = sum((a - x) ** 2 for a, _ in points)
    rise = sum((a - x) * (b - y) for a, b in points) / spread
    free = len(points) - 2
    left = sum((b - y - rise * (a - x)) ** 2 for a, b in points)
    explained = 1 - left / sum((b - y) ** 2 for _, b in points)
    if free < 1:
        return rise, 0.0, explained
    factor = _STUDENT[free] if free < len(_STUDENT) else _NORMAL
    return rise, factor * (left / free / spread) ** 0.5, explained


def finish(options: Options, rows: list[Row]) -> Result:
    found: list[Row] = []
    for name, (_, paper) in SCENARIOS.items():
        rise, off, fit = line([(row["rules"], row["bytes"]) for row in rows if row["scenario"] == name])
        found.append({"scenario": name, "bytes/rule": rise, "+-": off, "R2": fit, "paper": paper})
    notes = [
        "bytes by which the resident set grows with each rule, and half of the 95 % confidence interval; "
        f"switches of {COUNTS[0]:,} to {COUNTS[-1]:,} rules; Python's dictionaries grow in steps",
        "register: one 16-bit cell per state id, a number of Python's; embedded: an entry by address; the "
        "last: an entry by address and UDP port, which is what the paper's OpenFlow switches hold",
        "paper: bmv2 (119, 184) and Open vSwitch (586)",
    ]
    plots = (Plot("scenario", "bytes/rule", "scenario", kind="bars"),)
    title = "memory per rule"
    return Result("stare-table3", title, COLUMNS, found, _checks(found), notes, plots, {"samples": rows})


def _checks(rows: list[Row]) -> list[Check]:
    register, embedded, controlled, openflow = (row["bytes/rule"] for row in rows)
    straight = all(row["R2"] > 0.95 for row in rows)
    seen = ", ".join(f"{row['R2']:.3f}" for row in rows)
    return [
        Check("memory grows linearly with rules (here: R2 above 0.95)", straight, seen),
        Check(
            "of what a switch holds the register design takes least, rules by address and UDP port most",
            register < embedded < openflow,
            f"{register:.0f}, {embedded:.0f}, {openflow:.0f} bytes",
        ),
        Check(
            "the same with what the embedded controller beside the switch knows",
            controlled < openflow,
            f"{controlled:.0f} and {openflow:.0f} bytes",
        ),
    ]


FIGURE = Figure("stare-table3", "memory per rule", RUNS, points, work, finish)
