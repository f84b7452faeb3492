"""The output of a comparison: tables on the console; JSON, Markdown and a plot in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from . import machine, plot, report, versus
from .measure import Metric
from .peer import Peer
from .report import Row
from .rounds import Rounds
from .versus import Ratio


@dataclass(frozen=True)
class Outcome:
    """Result of a benchmark run, ready to publish.

    `ratios`: set if one peer is compared with several, each with its own targets; otherwise rows have them.

    `builds`: ratios between two builds of Treecast, whatever else is compared.

    A workload of which no round is valid gets no verdict.
    """

    run: Rounds
    peers: Sequence[Peer]
    rows: Sequence[Row]
    context: Mapping[str, object]
    ratios: Sequence[Ratio] | None = None
    notes: Sequence[str] = ()
    builds: Sequence[Ratio] = ()

    def __post_init__(self) -> None:
        unproven = self.run.unproven
        rows = [replace(row, unproven=True) if row.workload in unproven else row for row in self.rows]
        object.__setattr__(self, "rows", rows)
        for name in ("ratios", "builds"):
            ratios: Sequence[Ratio] | None = getattr(self, name)
            if ratios is not None:
                judged = [replace(r, unproven=True) if r.workload in unproven else r for r in ratios]
                object.__setattr__(self, name, judged)

    @property
    def names(self) -> list[str]:
        return [peer.name for peer in self.peers]

    def document(self) -> dict[str, Any]:
        settings = {peer.name: dict(peer.settings()) for peer in self.peers}
        context = {**self.context, "machine": machine.describe(), "peers": settings}
        context["failures"] = self.run.failures
        context["void"] = self.run.notes
        if self.builds:
            context["builds"] = versus.as_json(self.builds)
        if self.ratios is None:
            return report.as_json(self.rows, self.run.samples, context)
        found = report.as_json(self.rows, self.run.samples, {**context, "notes": list(self.notes)})
        return {**found, "ratios": versus.as_json(self.ratios)}

    def markdown(self) -> str:
        table = report.as_markdown(self.rows, self.names, ratios=self.ratios is None)
        parts = [table, *(versus.as_markdown(ratios) for ratios in (self.ratios, self.builds) if ratios)]
        return "\n".join([*parts, *(f"- {note}\n" for note in (*self.notes, *self.run.notes))])

    def show(self, console: Console) -> None:
        for peer in self.peers:
            console.print(report.settings_table(peer.name, peer.settings()))
        console.print(report.settings_table("machine", machine.describe()))
        console.print(report.as_table(self.rows, self.names, ratios=self.ratios is None))
        for ratios in (self.ratios, self.builds):
            if ratios:
                console.print(versus.as_table(ratios))
        for note in [*self.notes, *self.run.notes, *(f"failed: {failure}" for failure in self.run.failures)]:
            console.print(f"[red]{note}[/red]")


@dataclass(frozen=True)
class Picture:
    """Panels: `metrics`, else each metric that asks for a ratio. `ours` get shades of one colour."""

    title: str
    metrics: Sequence[Metric] = ()
    ours: Sequence[str] = ()


def publish(outcome: Outcome, picture: Picture, out: Path, stem: str, console: Console, json: bool) -> None:
    """Writes `stem`.json, .md and .png into `out`; shows the tables, or prints the JSON."""
    document = outcome.document()
    report.write_json(out / f"{stem}.json", document)
    (out / f"{stem}.md").write_text(outcome.markdown())
    if json:
        Console().print_json(data=document)
    else:
        outcome.show(console)
    try:
        plot.draw(
            outcome.rows, outcome.names, out / f"{stem}.png", picture.title, picture.metrics, picture.ours
        )
    except ImportError:
        console.print("no plot: install the `bench` extra for matplotlib")
        return
    console.print(f"written: {out / f'{stem}.json'}, .md and .png")
