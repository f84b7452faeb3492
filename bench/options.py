"""Options and helpers that the commands of `python -m bench` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.core.measure import Workload
from bench.core.peer import Peer
from bench.core.quiet import PATIENCE
from bench.core.rounds import Rounds

RoundsOption = Annotated[int, typer.Option(min=1, help="how often each peer takes its turn")]
SizeOption = Annotated[list[int] | None, typer.Option(help="record sizes; default 100 and 1024")]
OnlyOption = Annotated[list[str] | None, typer.Option(help="workloads whose name contains this")]
QuickOption = Annotated[bool, typer.Option("--quick", help="one short round, to see that it works")]
JsonOption = Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")]
OutOption = Annotated[Path, typer.Option(help="where the JSON, the tables and the plot go")]
PeersOption = Annotated[str, typer.Option(help="which of them, parted by commas")]
SecondsOption = Annotated[float, typer.Option(min=0.1, help="how long each measured run takes, roughly")]
RateOption = Annotated[
    list[int] | None,
    typer.Option(min=1, help="messages a second of latency runs; default: what the other side just sustains"),
]
PythonOption = Annotated[str, typer.Option(help="the Python whose treecast is measured; default: this one")]
BeforeOption = Annotated[
    str | None, typer.Option(help="the Python of an earlier build, measured in the same run: new to old")
]
FsyncOption = Annotated[str, typer.Option(help="Treecast's fsync policy; never is what Kafka's promises")]
DataOption = Annotated[
    Path | None,
    typer.Option(help="the folder under which data directories are made", exists=True, file_okay=False),
]


def console_for(json: bool, width: int = 150) -> Console:
    """Returns a console wide enough for the table even without a terminal; with JSON it writes to standard
    error.
    """
    console = Console(stderr=json, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


def choose(workloads: list[Workload[Any]], only: list[str] | None, console: Console) -> list[Workload[Any]]:
    """Returns the workloads whose names contain one of `only`, and says which of them cannot run here."""
    chosen = []
    for workload in workloads:
        if only and not any(part.lower() in workload.name.lower() for part in only):
            continue
        if reason := workload.missing():
            console.print(f"[yellow]left out:[/yellow] {workload.name}: {reason}")
            continue
        chosen.append(workload)
    return chosen


def patience(quick: bool) -> float:
    """Returns how long each turn waits for a quiet machine: not at all where it is only seen to run."""
    return 0.0 if quick else PATIENCE


def rounds_of(
    peers: Sequence[Peer],
    workloads: Sequence[Workload[Any]],
    count: int,
    console: Console,
    *,
    quick: bool,
    settle: float = 2.0,
    judged: bool = True,
) -> Rounds:
    """Returns the rounds of a comparison. `settle`: seconds between turns, which the quick form shortens."""
    pause = 0.5 if quick else settle
    how = patience(quick)
    return Rounds(peers, workloads, count, settle=pause, judged=judged, patience=how, progress=console.print)
