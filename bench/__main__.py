"""`python -m bench`: comparisons with peers."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import kafka as kafka_comparison
from bench.core import machine, plot, report
from bench.core.measure import Workload
from bench.core.peer import Peer
from bench.core.rounds import Rounds
from bench.peers.floor import FloorPeer
from bench.peers.kafka import KafkaBroker, missing_tools
from bench.peers.treecast import TreecastPeer

app = typer.Typer(add_completion=False, help=__doc__)
PEERS = "treecast,kafka,floor"


@app.callback()
def _comparisons() -> None:
    """Comparisons with peers; docs/benchmarks.md says how to read them."""


@app.command()
def kafka(
    rounds: Annotated[int, typer.Option(min=1, help="how often each peer takes its turn")] = 5,
    records: Annotated[int, typer.Option(min=1000, help="records of 100 B per load")] = 3_000_000,
    size: Annotated[list[int] | None, typer.Option(help="record sizes; default 100 and 1024")] = None,
    only: Annotated[list[str] | None, typer.Option(help="workloads whose name contains this")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="one short round, to see that it works")] = False,
    json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")] = False,
    out: Annotated[Path, typer.Option(help="where the JSON, the table and the plot go")] = Path("out"),
    peers: Annotated[str, typer.Option(help="which of them, parted by commas")] = PEERS,
    treecast_python: Annotated[
        str, typer.Option(help="the Python whose treecast is measured; default: this one")
    ] = sys.executable,
    fsync: Annotated[
        str, typer.Option(help="Treecast's fsync policy; never is what Kafka's default promises")
    ] = "never",
    data: Annotated[
        Path | None, typer.Option(help="the folder under which data directories are made")
    ] = None,
) -> None:
    """Treecast's Kafka face against Apache Kafka (one KRaft node)."""
    console = _console(json)
    if quick:
        rounds, records, size = 1, min(records, 200_000), size or [100]
    names = [name.strip() for name in peers.split(",")]
    if (missing := missing_tools()) and "kafka" in names:
        console.print(f"[red]Apache Kafka needs {' and '.join(missing)} on the PATH[/red]")
        raise typer.Exit(2)
    chosen = _choose(kafka_comparison.workloads(records, tuple(size or (100, 1024)), quick), only, console)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        found = _peers(names, treecast_python, fsync, Path(folder), console)
        run = Rounds(found, chosen, rounds, settle=0.5 if quick else 2.0, progress=console.print)
        context = {
            "comparison": "kafka",
            "machine": machine.describe(),
            "rounds": rounds,
            "records": records,
        }
        run.run()
    context["peers"] = {peer.name: dict(peer.settings()) for peer in found}
    _finish(run, found, context, out, json, console)
    if run.failures:
        raise typer.Exit(1)


def _console(json: bool) -> Console:
    """Wide enough for the table also where there is no terminal; beside JSON it goes to standard error."""
    console = Console(stderr=json, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 150)
    return console


def _choose(workloads: list[Workload], only: list[str] | None, console: Console) -> list[Workload]:
    chosen = []
    for workload in workloads:
        if only and not any(part.lower() in workload.name.lower() for part in only):
            continue
        if reason := workload.missing():
            console.print(f"[yellow]left out:[/yellow] {workload.name}: {reason}")
            continue
        chosen.append(workload)
    return chosen


def _peers(names: list[str], python: str, fsync: str, folder: Path, console: Console) -> list[Peer]:
    known: dict[str, Peer] = {
        "treecast": TreecastPeer(python=python, fsync=fsync, parent=folder),
        "kafka": KafkaBroker(parent=folder),
        "floor": FloorPeer(parent=folder),
    }
    if unknown := [name for name in names if name not in known]:
        console.print(f"[red]no such peer: {', '.join(unknown)}; there are {', '.join(known)}[/red]")
        raise typer.Exit(2)
    return [known[name] for name in names]


def _finish(
    run: Rounds, peers: list[Peer], context: dict[str, object], out: Path, json: bool, console: Console
) -> None:
    """Prints the settings and the table; writes the JSON, the table as Markdown, and the plot."""
    rows = report.summarise(run.samples, "Treecast", "Apache Kafka")
    names = [peer.name for peer in peers]
    document = report.as_json(rows, run.samples, {**context, "failures": run.failures})
    report.write_json(out / "bench-kafka.json", document)
    (out / "bench-kafka.md").write_text(report.as_markdown(rows, names))
    if json:
        Console().print_json(data=document)
    else:
        for peer in peers:
            console.print(report.settings_table(peer.name, peer.settings()))
        console.print(report.settings_table("machine", machine.describe()))
        report.show(console, rows, names, run.failures)
    try:
        plot.draw(rows, names, out / "bench-kafka.png", "Treecast and Apache Kafka on one machine")
    except ImportError:
        console.print("no plot: install the `bench` extra for matplotlib")
        return
    console.print(f"written: {out / 'bench-kafka.json'}, .md and .png")


if __name__ == "__main__":
    app()
