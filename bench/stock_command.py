"""`python -m bench stock`: the command line of the comparison with stock clients."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import stock as comparison
from bench.core.outcome import Outcome, Picture, publish
from bench.core.quiet import PATIENCE
from bench.core.rounds import Rounds
from bench.options import (
    DataOption,
    JsonOption,
    OnlyOption,
    OutOption,
    PythonOption,
    QuickOption,
    RoundsOption,
    SecondsOption,
    choose,
    console_for,
)


def stock(
    rounds: RoundsOption = 3,
    seconds: SecondsOption = 60,
    warm_up: Annotated[float, typer.Option(min=0, help="seconds at the rate that do not count")] = 30,
    rate: Annotated[int | None, typer.Option(min=1, help="messages a second, for every load")] = None,
    faces: Annotated[str, typer.Option(help="which of them, parted by commas")] = ",".join(comparison.FACES),
    sides: Annotated[str, typer.Option(help="ours, theirs or both, parted by a comma")] = "ours,theirs",
    patience: Annotated[
        float, typer.Option(min=0, help="seconds that a turn waits for a load average of at most 1")
    ] = PATIENCE,
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    treecast_python: PythonOption = sys.executable,
    data: DataOption = None,
) -> None:
    """Stock Java clients, one message at a time, against Apache Kafka, RabbitMQ and Mosquitto."""
    console = console_for(json)
    if quick:
        rounds, seconds, warm_up, patience = 1, min(seconds, 2), min(warm_up, 1), 0
        rate = rate or comparison.QUICK_RATE
    try:
        chosen = comparison.faces([name.strip() for name in faces.split(",")], seconds, warm_up, rate)
    except KeyError as error:
        console.print(f"[red]no such face: {error}; there are {', '.join(comparison.FACES)}[/red]")
        raise typer.Exit(2) from None
    sound = [
        _compare(face, rounds, patience, sides.split(","), only, json, out, treecast_python, data, console)
        for face in chosen
    ]
    if not all(sound):
        raise typer.Exit(1)


def _compare(
    face: comparison.Face,
    rounds: int,
    patience: float,
    sides: list[str],
    only: list[str] | None,
    json: bool,
    out: Path,
    python: str,
    data: Path | None,
    console: Console,
) -> bool:
    """Measures one face and publishes `bench-stock-<face>`. Returns whether nothing failed."""
    if "theirs" in sides and (reason := face.missing()):
        console.print(f"[yellow]left out:[/yellow] {face.theirs}: {reason}")
        sides = ["ours"]
    loads = choose([*face.loads], only, console)
    if not loads:
        return True
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        both = dict(zip(("ours", "theirs"), face.peers(python, Path(folder)), strict=True))
        peers = [both[side] for side in both if side in sides]
        run = Rounds(
            peers,
            loads,
            rounds,
            settle=0.5,
            judged=False,
            apart=True,
            mirrored=False,
            patience=patience,
            progress=console.print,
        )
        run.run()
    context: dict[str, object] = {"comparison": f"stock-{face.name}", "rounds": rounds, "patience": patience}
    rows = comparison.summarise(run, face.theirs)
    picture = Picture(f"Stock clients: Treecast and {face.theirs}", comparison.PANELS)
    publish(Outcome(run, peers, rows, context), picture, out, f"bench-stock-{face.name}", console, json)
    return not run.failures
