"""Ratios of one peer to several others, each with its own targets."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from .measure import Metric
from .report import RATIOS, UNSTEADY, VOID, Row, asked, at_floor, coloured

OVERLOADED = "overloaded"


def earlier(name: str) -> str:
    """Returns the name in reports of an earlier build of a server."""
    return f"{name}, before"


@dataclass(frozen=True, slots=True)
class Versus:
    """`ours` against `theirs`: the compared metrics, each with the target ratio, or None.

    A target is a minimum if higher is better, else a maximum. `floor` is the bare loop that does the same as
    ours: at 90 % of its result, a target counts as reached whatever the ratio (DESIGN section 10).
    """

    ours: str
    theirs: str
    asked: Mapping[Metric, float | None]
    floor: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The quotient of two medians under one workload."""

    workload: str
    metric: Metric
    ours: str
    theirs: str
    value: float
    asked: float | None
    void: bool = False  # one of the two was overloaded, and the ratio has no meaning
    share_of_floor: float | None = None  # 1.0 is the floor itself; higher is better in both directions
    unsteady: bool = False  # no verdict: the floor's rounds differ too much, or the generator was late
    unproven: bool = False  # no round of the workload is valid: the values compare nothing

    @property
    def reached(self) -> bool | None:
        if self.asked is None or self.void or self.unsteady or self.unproven:
            return None
        return self._met or at_floor(self.share_of_floor)

    @property
    def _met(self) -> bool:
        assert self.asked is not None
        return self.value >= self.asked if self.metric.higher_is_better else self.value <= self.asked

    @property
    def verdict(self) -> str:
        if self.unproven:
            return VOID
        if self.void:
            return OVERLOADED
        if self.unsteady and self.asked is not None:
            return UNSTEADY
        if self.reached is None:
            return ""
        return "no" if not self.reached else "yes" if self._met else "yes (floor)"

    def cells(self, verdict: str) -> list[str]:
        share = "" if self.share_of_floor is None else f"{self.share_of_floor:.0%}"
        return [f"{self.value:.3g}x", asked(self.metric, self.asked), verdict, share]


def compare(
    rows: Sequence[Row], against: Sequence[Versus], overloaded: Container[tuple[str, str]] = ()
) -> list[Ratio]:
    """Returns ratios in the order of `rows`, without those that lack a value on one side.

    `overloaded` holds (workload, peer): ratios with them are shown but not judged.
    """
    found = []
    for row in rows:
        for versus in against:
            ours, theirs = row.peers.get(versus.ours), row.peers.get(versus.theirs)
            if row.metric in versus.asked and ours and theirs and theirs.median:
                value = ours.median / theirs.median
                void = any((row.workload, name) in overloaded for name in (versus.ours, versus.theirs))
                pair = (versus.ours, versus.theirs)
                wanted, share = versus.asked[row.metric], _share(row, versus)
                floor = row.peers.get(versus.floor)
                unsteady = floor is not None and not floor.steady
                unsteady = unsteady or not row.late.isdisjoint(pair)
                found.append(Ratio(row.workload, row.metric, *pair, value, wanted, void, share, unsteady))
    return found


def builds(rows: Sequence[Row], pairs: Mapping[str, str]) -> list[Ratio]:
    """Returns the ratios of all metrics between two builds of one server. `pairs`: later name -> earlier
    name.
    """
    every: dict[Metric, float | None] = {row.metric: None for row in rows}
    return compare(rows, [Versus(later, earlier, every) for later, earlier in pairs.items()])


def _share(row: Row, versus: Versus) -> float | None:
    """Returns our share of the floor's result, if that was measured."""
    ours, floor = row.peers.get(versus.ours), row.peers.get(versus.floor)
    if not ours or not floor or not ours.median or not floor.median:
        return None
    higher = row.metric.higher_is_better
    return ours.median / floor.median if higher else floor.median / ours.median


def as_json(ratios: Sequence[Ratio]) -> list[dict[str, Any]]:
    return [{**asdict(ratio), "metric": ratio.metric.name, "reached": ratio.reached} for ratio in ratios]


def as_table(ratios: Sequence[Ratio]) -> Table:
    """Returns a heading per workload, a line per metric and pair."""
    table = Table(title="ratios of the medians")
    for column in ("metric", "of", "to"):
        table.add_column(column, no_wrap=True)
    for column in RATIOS:
        table.add_column(column, justify="right", no_wrap=True)
    last = ""
    for ratio in ratios:
        if ratio.workload != last:
            if last:
                table.add_section()
            table.add_row(f"[bold]{ratio.workload}[/bold]")
        names = (f"  {ratio.metric.name}", ratio.ours, ratio.theirs)
        table.add_row(*names, *ratio.cells(coloured(ratio.verdict)))
        last = ratio.workload
    return table


def as_markdown(ratios: Sequence[Ratio]) -> str:
    head = " | ".join(("workload", "metric", "of", "to", *RATIOS))
    lines = [f"| {head} |", "|" + " --- |" * 4 + " ---: |" * len(RATIOS)]
    for ratio in ratios:
        cells = [ratio.workload, ratio.metric.name, ratio.ours, ratio.theirs, *ratio.cells(ratio.verdict)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
