"""`python -m bench agents-mqtt` and `agents-kafka`: the command lines of what joins two brokers."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import agents as comparison
from bench.core import report, versus
from bench.core.outcome import Outcome, Picture, publish
from bench.core.peer import Peer
from bench.core.report import Row
from bench.core.rounds import Rounds
from bench.core.versus import Versus
from bench.options import (
    BeforeOption,
    DataOption,
    JsonOption,
    OnlyOption,
    OutOption,
    PeersOption,
    PythonOption,
    QuickOption,
    RateOption,
    RoundsOption,
    SecondsOption,
    SizeOption,
    choose,
    console_for,
    rounds_of,
)

_QUICK_SECONDS = 0.2
_MQTT_PEERS, _KAFKA_PEERS = ",".join(comparison.MQTT_PEERS), ",".join(comparison.KAFKA_PEERS)


def agents_mqtt(
    rounds: RoundsOption = 5,
    seconds: SecondsOption = 4,
    rate: RateOption = None,
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = _MQTT_PEERS,
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    data: DataOption = None,
) -> None:
    """Two Mosquittos with an agent beside each, against Mosquitto's own bridge."""
    from bench.peers.mosquitto import INSTALL, program

    console = console_for(json, 170)
    if quick:
        rounds, seconds, rate = 1, min(seconds, _QUICK_SECONDS), rate or [1_000]
    if program() is None:
        console.print(f"[red]{INSTALL}[/red]")
        raise typer.Exit(2)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        try:
            found = comparison.mqtt_peers(_names(peers), treecast_python, Path(folder), before_python)
        except KeyError as error:
            raise _unknown(error, comparison.MQTT_PEERS, console) from None
        loads = comparison.mqtt_loads(Path(folder), seconds, rate, only, console.print)
        chosen = choose(loads, only, console)
        run = rounds_of(found, chosen, rounds, console, quick=quick, settle=1.0, judged=False)
        run.run()
    rows = report.summarise(run.samples, "", "")
    context = {"comparison": "agents-mqtt", "rounds": rounds, "seconds": seconds}
    slow = comparison.overloaded_mqtt(rows, chosen)
    picture = Picture("What joins two Mosquittos", comparison.MQTT_PANELS, (comparison.AGENTS,))
    _finish(run, found, rows, context, slow, comparison.MQTT_AGAINST, picture, out, json, console)


def agents_kafka(
    rounds: RoundsOption = 5,
    seconds: SecondsOption = 10,
    size: SizeOption = None,
    rate: Annotated[list[int] | None, typer.Option(help="records a second of the latency runs")] = None,
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = _KAFKA_PEERS,
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    data: DataOption = None,
) -> None:
    """Two Apache Kafka nodes with our bridge between them, against MirrorMaker 2."""
    console = console_for(json, 170)
    if quick:
        rounds, seconds, size = 1, min(seconds, 5 * _QUICK_SECONDS), size or [100]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        try:
            found = comparison.kafka_peers(_names(peers), treecast_python, Path(folder), before_python)
        except KeyError as error:
            raise _unknown(error, comparison.KAFKA_PEERS, console) from None
        if reason := next((reason for peer in found if (reason := peer.missing())), ""):
            console.print(f"[red]{reason}[/red]")
            raise typer.Exit(2)
        loads = comparison.kafka_loads(seconds, size or (100, 1024), rate or comparison.RATES)
        chosen = choose(loads, only, console)
        run = rounds_of(found, chosen, rounds, console, quick=quick, judged=False)
        run.run()
    rows = report.summarise(run.samples, "", "")
    context = {"comparison": "agents-kafka", "rounds": rounds, "seconds": seconds}
    slow = comparison.overloaded_kafka(rows, chosen)
    picture = Picture("What joins two Kafka clusters", comparison.KAFKA_PANELS, (comparison.KAFKA_BRIDGE,))
    _finish(run, found, rows, context, slow, comparison.KAFKA_AGAINST, picture, out, json, console)


def _names(peers: str) -> list[str]:
    return [name.strip() for name in peers.split(",")]


def _unknown(error: KeyError, known: Sequence[str], console: Console) -> typer.Exit:
    console.print(f"[red]no such peer: {error}; there are {', '.join(known)}[/red]")
    return typer.Exit(2)


def _finish(
    run: Rounds,
    peers: Sequence[Peer],
    rows: Sequence[Row],
    context: Mapping[str, object],
    slow: Mapping[tuple[str, str], float],
    against: Sequence[Versus],
    picture: Picture,
    out: Path,
    json: bool,
    console: Console,
) -> None:
    """Publishes `bench-COMPARISON`."""
    ratios = versus.compare(rows, against, slow)
    notes = [f"{name} did not keep up: {load} reached {rate:,.0f}/s" for (load, name), rate in slow.items()]
    builds = versus.builds(rows, {name: versus.earlier(name) for name in picture.ours})
    outcome = Outcome(run, [*peers], rows, context, ratios, notes, builds)
    publish(outcome, picture, out, f"bench-{context['comparison']}", console, json)
    if run.failures:
        raise typer.Exit(1)
