"""The report: medians, spread and ratios, as a table and as JSON."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from .measure import (
    ACK_P99,
    ACK_WINDOW_P99,
    DELIVERY_P99,
    DELIVERY_WINDOW_P99,
    LAG_P99,
    LAG_WINDOW_P99,
    Metric,
    Sample,
)

RATIOS = ("ratio", "asked", "reached", "of floor")
FLOOR_SHARE = 0.9  # DESIGN section 10: the share of the floor at which a ratio counts as reached
NO_FLOOR = 1 / FLOOR_SHARE  # a loop that is beaten by more was none, and excuses nothing
STEADY = 2.0  # the bare loop always does the same: so sure is its median, or the machine was unsteady
SURE = 0.95  # of `sure`
UNSTEADY = "unsteady"
VOID = "void"
LATE = 0.5  # share of a p99 above which the generator's own lag invalidates the result
LAGGING = {
    ACK_P99: LAG_P99,
    DELIVERY_P99: LAG_P99,
    ACK_WINDOW_P99: LAG_WINDOW_P99,
    DELIVERY_WINDOW_P99: LAG_WINDOW_P99,
}


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of a metric over rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float
    count: int
    steady: bool = True  # whether the median is known to within `STEADY`

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        lower, upper = sure(values)
        steady = upper <= STEADY * lower
        return cls(statistics.median(values), min(values), max(values), len(values), steady)


def sure(values: Sequence[float]) -> tuple[float, float]:
    """Returns the values between which the median lies with a confidence of `SURE`, whatever their
    distribution.

    Of up to eight values they are the lowest and the highest, whatever the confidence; of nine the second and
    the last but one: so a single bad round does not count on a machine with many.
    """
    ordered, many = sorted(values), len(values)
    # on each side; and the number of the 2^many cases in which the median lies outside
    left_out = outside = 0
    while 2 * (outside + math.comb(many, left_out)) <= (1 - SURE) * 2**many:
        outside += math.comb(many, left_out)
        left_out += 1
    left_out = max(0, left_out - 1)
    return ordered[left_out], ordered[many - 1 - left_out]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric under one workload: each peer's spread, our ratio to the peer, whether it meets the
    target.
    """

    workload: str
    metric: Metric
    peers: Mapping[str, Spread]
    ratio: float | None
    reached: bool | None
    share_of_floor: float | None  # 1.0 is the floor itself; higher is better in both directions
    void: bool = False  # no verdict: the floor's rounds differ too much, or the generator was late
    late: frozenset[str] = frozenset()  # peers whose value is mostly the generator's own lag
    unproven: bool = False  # no round of the workload is valid: the values compare nothing

    @property
    def verdict(self) -> str:
        if self.unproven:
            return VOID
        if self.void:
            return UNSTEADY
        if self.reached is None:
            return ""
        if not self.reached:
            return "no"
        assert self.ratio is not None
        return "yes" if self.metric.meets(self.ratio) else "yes (floor)"


def summarise(samples: Sequence[Sample], ours: str, theirs: str, floor: str = "floor") -> list[Row]:
    """Rows, one workload after the other in the order in which they and their metrics first appeared."""
    groups: dict[tuple[str, Metric], dict[str, list[float]]] = {}
    for sample in samples:
        by_peer = groups.setdefault((sample.workload, sample.metric), {})
        by_peer.setdefault(sample.peer, []).append(sample.value)
    order = list(dict.fromkeys(workload for workload, _ in groups))
    rows = []
    for (workload, metric), by_peer in sorted(groups.items(), key=lambda item: order.index(item[0][0])):
        peers = {name: Spread.of(values) for name, values in by_peer.items()}
        lags = groups.get((workload, LAGGING[metric]), {}) if metric in LAGGING else {}
        rows.append(_row(workload, metric, peers, ours, theirs, floor, _late(peers, lags)))
    return rows


def _late(peers: Mapping[str, Spread], lags: Mapping[str, Sequence[float]]) -> frozenset[str]:
    """Returns the peers whose median is mostly the generator's own lag."""
    known = [name for name in peers if name in lags]
    return frozenset(name for name in known if statistics.median(lags[name]) > LATE * peers[name].median)


def _row(
    workload: str,
    metric: Metric,
    peers: Mapping[str, Spread],
    ours: str,
    theirs: str,
    floor: str,
    late: frozenset[str],
) -> Row:
    ratio = reached = share = None
    if ours in peers and floor in peers:
        share = _quotient(peers[ours].median, peers[floor].median)
        if share and not metric.higher_is_better:
            share = 1 / share
    if ours in peers and theirs in peers:
        ratio = _quotient(peers[ours].median, peers[theirs].median)
    wanted = ratio is not None and metric.target is not None
    shaken = floor in peers and not peers[floor].steady
    void = wanted and (shaken or not late.isdisjoint((ours, theirs)))
    if ratio is not None and wanted and not void:
        reached = bool(metric.meets(ratio)) or at_floor(share)
    return Row(workload, metric, peers, ratio, reached, share, void, late)


def at_floor(share: float | None) -> bool:
    """Returns whether a share of the floor is as much as the machine allows."""
    return share is not None and FLOOR_SHARE <= share <= NO_FLOOR


def _quotient(value: float, by: float) -> float | None:
    return value / by if by else None


def as_json(rows: Sequence[Row], samples: Sequence[Sample], context: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **context,
        "summary": [
            {
                "workload": row.workload,
                "metric": row.metric.name,
                "unit": row.metric.unit,
                "higher_is_better": row.metric.higher_is_better,
                "target_ratio": row.metric.target,
                "peers": {
                    name: {"median": s.median, "low": s.low, "high": s.high, "rounds": s.count}
                    for name, s in row.peers.items()
                },
                "ratio": row.ratio,
                "share_of_floor": row.share_of_floor,
                "reached": None if row.unproven else row.reached,
                "unsteady": row.void,
                "void": row.unproven,
            }
            for row in rows
        ],
        "samples": [
            {
                "peer": s.peer,
                "round": s.round,
                "workload": s.workload,
                "metric": s.metric.name,
                "value": s.value,
            }
            for s in samples
        ],
    }


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def number(value: float) -> str:
    """Returns four significant digits, thousands separated, millions as M."""
    if value >= 1e6:
        return f"{value / 1e6:.4g}M"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return ""
    text = number(spread.median)
    if spread.count > 1:
        text += f" [dim]{number(spread.low)}-{number(spread.high)}[/dim]"
    return text


def as_table(rows: Sequence[Row], names: Sequence[str], ratios: bool = True) -> Table:
    """Returns a heading per workload and a line per metric; a cell holds the median and, dimmed, the
    extremes.
    """
    table = Table(title="medians over the rounds, with the lowest and the highest")
    table.add_column("metric", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for column in RATIOS if ratios else ():
        table.add_column(column, justify="right", no_wrap=True)
    last = ""
    for row in rows:
        if row.workload != last:
            if last:
                table.add_section()
            table.add_row(f"[bold]{row.workload}[/bold]")
        table.add_row(
            f"  {row.metric.name} ({row.metric.unit})",
            *(_cell(row.peers.get(name)) for name in names),
            *(_ratio_cells(row, coloured(row.verdict)) if ratios else ()),
        )
        last = row.workload
    return table


def _ratio_cells(row: Row, verdict: str) -> list[str]:
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}x"
    share = "" if row.share_of_floor is None else f"{row.share_of_floor:.0%}"
    return [ratio, asked(row.metric, row.metric.target), verdict, share]


def asked(metric: Metric, target: float | None) -> str:
    """Returns the ratio that is asked for, as the tables write it."""
    if target is None:
        return ""
    return f"{'≥' if metric.higher_is_better else '≤'} {target:g}x"


def coloured(verdict: str) -> str:
    colour = "green" if verdict.startswith("yes") else "red"
    return f"[{colour}]{verdict}[/{colour}]" if verdict else ""


def as_markdown(rows: Sequence[Row], names: Sequence[str], ratios: bool = True) -> str:
    """Returns the same table for docs/benchmarks.md."""
    head = ["workload", "metric", *names, *(RATIOS if ratios else ())]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * 2 + " ---: |" * (len(head) - 2)]
    for row in rows:
        cells = [row.workload, f"{row.metric.name} ({row.metric.unit})"]
        for name in names:
            spread = row.peers.get(name)
            cells.append("" if spread is None else _plain(spread))
        cells += _ratio_cells(row, row.verdict) if ratios else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _plain(spread: Spread) -> str:
    if spread.count == 1:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.low)}-{number(spread.high)})"


def settings_table(name: str, settings: Mapping[str, str]) -> Table:
    table = Table(title=name, show_header=False)
    for key, value in settings.items():
        table.add_row(key, value)
    return table
