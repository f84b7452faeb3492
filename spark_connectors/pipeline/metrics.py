"""Counters of a running pipeline, and findings about its data, in Prometheus' text format. Pure.

`treecast pipeline run` writes them into `DIR/metrics.prom` after each round, for the textfile collector of
node_exporter, or for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .running import Ran

_MOST: Final = 1000  # findings that are listed; hosts are many when all of them are wrong

_NAMES: Final = {
    "rows": ("counter", "Rows that a query has read since the start."),
    "seconds": ("counter", "Seconds that a query has taken since the start."),
    "failures": ("counter", "Rounds in which a query failed."),
}


class Metrics:
    """The counters since the start of this process."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], float] = {}

    def add(self, ran: Iterable[Ran]) -> None:
        """Counts a round."""
        for one in ran:
            for name, value in (("rows", one.rows), ("seconds", one.seconds), ("failures", bool(one.fault))):
                key = (name, one.query)
                self._counts[key] = self._counts.get(key, 0.0) + value

    def text(self, epoch: int, findings: Iterable[Mapping[str, Any]]) -> str:
        """Returns all metrics. `findings`: rows of the table `quality`, of `epoch`."""
        lines = []
        for name, (kind, meaning) in _NAMES.items():
            lines += _head(f"{name}_total", kind, meaning)
            lines += [
                f'treecast_pipeline_{name}_total{{query="{query}"}} {value:g}'
                for (counted, query), value in sorted(self._counts.items())
                if counted == name
            ]
        lines += [*_head("epoch", "gauge", "The last epoch."), f"treecast_pipeline_epoch {epoch:d}"]
        lines += _head("finding", "gauge", "Something that is wrong with the data of the last epoch.")
        for one in list(findings)[:_MOST]:
            check, host = _quoted(one["check"]), _quoted(one["host"])
            lines.append(f'treecast_pipeline_finding{{check="{check}",host="{host}"}} {one["value"]:g}')
        return "\n".join([*lines, ""])


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP treecast_pipeline_{name} {meaning}", f"# TYPE treecast_pipeline_{name} {kind}"]


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
