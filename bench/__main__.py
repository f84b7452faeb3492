"""`python -m bench`: comparisons with peers."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench import fabric as fabric_comparison
from bench import kafka as kafka_comparison
from bench import micro_fabric as fabric_streams
from bench import spark as spark_comparison
from bench.core import machine, plot, report, versus
from bench.core.measure import Workload
from bench.core.peer import Peer
from bench.core.rounds import SERVER, Rounds
from bench.peers.floor import FloorPeer
from bench.peers.kafka import KafkaBroker, missing_tools
from bench.peers.treecast import TreecastPeer

app = typer.Typer(add_completion=False, help=__doc__)
PEERS = "treecast,kafka,floor"


@app.callback()
def _comparisons() -> None:
    """Comparisons with peers; docs/benchmarks.md says how to read them."""
    signal.signal(signal.SIGTERM, _leave)  # as Ctrl-C does: servers are stopped and their folders removed


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


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


@app.command()
def fabric(
    rounds: Annotated[int, typer.Option(min=1, help="how often each peer takes its turn")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="how long each measured run takes, roughly")] = 10,
    size: Annotated[list[int] | None, typer.Option(help="record sizes; default 100 and 1024")] = None,
    rate: Annotated[
        list[int] | None, typer.Option(help="records a second of the latency runs; default 1000 and 5000")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="workloads whose name contains this")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="one short round, to see that it works")] = False,
    own_cores: Annotated[
        bool, typer.Option("--own-cores", help="each host keeps to a core of its own")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")] = False,
    out: Annotated[Path, typer.Option(help="where the JSON, the tables and the plot go")] = Path("out"),
    peers: Annotated[str, typer.Option(help="which of them, parted by commas")] = ",".join(
        fabric_comparison.PEERS
    ),
    treecast_python: Annotated[
        str, typer.Option(help="the Python whose treecast is measured; default: this one")
    ] = sys.executable,
    data: Annotated[
        Path | None, typer.Option(help="the folder under which data directories are made")
    ] = None,
) -> None:
    """Two joined daemons against one, RabbitMQ federation, and two Kafka nodes with MirrorMaker 2."""
    console = _console(json, 190)
    if quick:
        rounds, seconds, size, rate = 1, min(seconds, 2), size or [100], rate or [1_000]
    loads = fabric_comparison.workloads(seconds, size or (100, 1024), rate or fabric_comparison.RATES)
    chosen = _choose(loads, only, console)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        names = [name.strip() for name in peers.split(",")]
        try:
            found = fabric_comparison.peers(names, treecast_python, Path(folder))
        except KeyError as error:
            console.print(f"[red]no such peer: {error}; there are {', '.join(fabric_comparison.PEERS)}[/red]")
            raise typer.Exit(2) from None
        left_out = {peer.name: reason for peer in found if (reason := peer.missing())}
        for name, reason in left_out.items():
            console.print(f"[yellow]left out:[/yellow] {name}: {reason}")
        found = [peer for peer in found if peer.name not in left_out]
        for peer in found:
            peer.own_cores = own_cores
        context = {
            "comparison": "fabric",
            "own cores": own_cores,
            "machine": machine.describe(),
            "rounds": rounds,
            "seconds": seconds,
            "left out": left_out,
        }
        run = Rounds(found, chosen, rounds, settle=0.5 if quick else 2.0, progress=console.print)
        run.run()
    context["peers"] = {peer.name: dict(peer.settings()) for peer in found}
    _finish_fabric(run, found, chosen, context, out, json, console)
    if run.failures or not found:
        raise typer.Exit(1)


def _finish_fabric(
    run: Rounds,
    peers: Sequence[Peer],
    chosen: list[Workload[Any]],
    context: dict[str, object],
    out: Path,
    json: bool,
    console: Console,
) -> None:
    """Prints the settings and both tables; writes the JSON, the tables as Markdown, and the plot."""
    rows = report.summarise(run.samples, "", "")
    slow = fabric_comparison.overloaded(rows, chosen)
    ratios = versus.compare(rows, fabric_comparison.AGAINST, slow)
    notes = [f"{name} did not keep up: {load} reached {rate:,.0f}/s" for (load, name), rate in slow.items()]
    names = [peer.name for peer in peers]
    document = report.as_json(rows, run.samples, {**context, "failures": run.failures, "notes": notes})
    document["ratios"] = versus.as_json(ratios)
    report.write_json(out / "bench-fabric.json", document)
    tables = [report.as_markdown(rows, names, ratios=False), versus.as_markdown(ratios)]
    (out / "bench-fabric.md").write_text("\n".join([*tables, *(f"- {note}" for note in notes), ""]))
    if json:
        Console().print_json(data=document)
    else:
        for peer in peers:
            console.print(report.settings_table(peer.name, peer.settings()))
        console.print(report.settings_table("machine", machine.describe()))
        console.print(report.as_table(rows, names, ratios=False))
        console.print(versus.as_table(ratios))
        for note in [*notes, *(f"failed: {failure}" for failure in run.failures)]:
            console.print(f"[red]{note}[/red]")
    title = "From one host's broker to another's"
    target = out / "bench-fabric.png"
    try:
        plot.draw(rows, names, target, title, fabric_comparison.PANELS, fabric_comparison.OURS)
    except ImportError:
        console.print("no plot: install the `bench` extra for matplotlib")
        return
    console.print(f"written: {out / 'bench-fabric.json'}, .md and .png")


@app.command()
def mqtt(
    rounds: Annotated[int, typer.Option(min=1, help="how often each peer takes its turn")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="how long each measured run takes, roughly")] = 5,
    rate: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="messages a second of the latency runs; default: what Mosquitto just sustains"
        ),
    ] = None,
    connections: Annotated[int, typer.Option(min=1, help="clients at rest")] = 10_000,
    only: Annotated[list[str] | None, typer.Option(help="workloads whose name contains this")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="one short round, to see that it works")] = False,
    json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")] = False,
    out: Annotated[Path, typer.Option(help="where the JSON, the table and the plot go")] = Path("out"),
    peers: Annotated[str, typer.Option(help="which of them, parted by commas")] = "treecast,mosquitto,floor",
    treecast_python: Annotated[
        str, typer.Option(help="the Python whose treecast is measured; default: this one")
    ] = sys.executable,
    data: Annotated[
        Path | None, typer.Option(help="the folder under which data directories are made")
    ] = None,
) -> None:
    """Treecast's MQTT face against Mosquitto."""
    from bench.peers.floor_mqtt import FloorMqtt
    from bench.peers.mosquitto import INSTALL, MosquittoPeer, TreecastMqttPeer, program
    from bench.workloads.mqtt import latencies, workloads

    console = _console(json)
    if quick:
        rounds, seconds, rate, connections = 1, min(seconds, 0.2), rate or [1_000], min(connections, 100)
    names = [name.strip() for name in peers.split(",")]
    if "mosquitto" in names and program() is None:
        console.print(f"[red]{INSTALL}[/red]")
        raise typer.Exit(2)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        mosquitto = MosquittoPeer(Path(folder))
        known: dict[str, Peer] = {
            "treecast": TreecastMqttPeer(python=treecast_python, parent=Path(folder)),
            "mosquitto": mosquitto,
            "floor": FloorMqtt(Path(folder)),
        }
        found = [known[name] for name in names if name in known]
        loads = [*workloads(seconds, connections), *latencies(mosquitto, rate, seconds, only, console.print)]
        chosen = _choose(loads, only, console)
        run = Rounds(found, chosen, rounds, settle=0.5 if quick else 2.0, progress=console.print)
        context = {"comparison": "mqtt", "machine": machine.describe(), "rounds": rounds}
        run.run()
    context["peers"] = {peer.name: dict(peer.settings()) for peer in found}
    _finish(run, found, context, out, json, console, "Mosquitto", "bench-mqtt")
    if run.failures:
        raise typer.Exit(1)


@app.command()
def switch(
    rounds: Annotated[int, typer.Option(min=1, help="how often each switch takes its turn")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="how long a measured run takes")] = 5,
    outputs: Annotated[int, typer.Option(min=1, max=11, help="ports that a packet goes to")] = 4,
    payload: Annotated[list[int] | None, typer.Option(help="bytes; default 100 and 1000")] = None,
    json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")] = False,
    out: Annotated[Path, typer.Option(help="where the JSON, the table and the plot go")] = Path("out"),
    peers: Annotated[
        str, typer.Option(help="which of them, parted by commas")
    ] = "embedded,register,ovs,floor",
    ovs: Annotated[Path, typer.Option(help="where Open vSwitch's packages are unpacked")] = Path("/"),
    treecast_python: Annotated[
        str, typer.Option(help="the Python whose treecast is measured; default: this one")
    ] = sys.executable,
) -> None:
    """`treecast p4 switch` against Open vSwitch's userspace datapath. Needs root."""
    from bench import switch as comparison
    from bench.core.wires import Wires

    console = _console(json)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Wires(outputs + 1) as wires:
        try:
            found = comparison.peers(peers.split(","), wires, treecast_python, ovs, Path(folder))
        except KeyError as error:
            console.print(f"[red]no such peer: {error}; there are {', '.join(comparison.PEERS)}[/red]")
            raise typer.Exit(2) from None
        if reason := next((reason for peer in found if (reason := peer.missing())), ""):
            console.print(f"[red]{reason}[/red]")
            raise typer.Exit(2)
        loads = comparison.workloads(wires, tuple(payload or (100, 1000)), seconds)
        run = Rounds(found, loads, rounds, settle=0.5, progress=console.print)
        context = {"comparison": "switch", "machine": machine.describe(), "rounds": rounds}
        run.run()
        run.samples = [one for one in run.samples if one.workload != SERVER]  # no ratio is asked of start-up
        context["peers"] = {peer.name: dict(peer.settings()) for peer in found}
    _finish(run, [*found], context, out, json, console, comparison.THEIRS, "bench-switch", comparison.OURS)
    if run.failures:
        raise typer.Exit(1)


@app.command()
def spark(
    rounds: Annotated[int, typer.Option(min=1, help="how often each combination takes its turn")] = 2,
    rows: Annotated[int, typer.Option(min=2000, help="rows of 100 B that are read, and that are written")] = (
        10_000_000
    ),
    batches: Annotated[int, typer.Option(min=4, help="micro-batches of 1,000 rows for the latency")] = 40,
    quick: Annotated[bool, typer.Option("--quick", help="one short round, to see that it works")] = False,
    json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")] = False,
    out: Annotated[Path, typer.Option(help="where the JSON, the tables and the plot go")] = Path("out"),
    peers: Annotated[str, typer.Option(help="which of them, parted by commas")] = ",".join(
        spark_comparison.NAMES
    ),
    treecast_python: Annotated[
        str, typer.Option(help="the Python whose treecast is measured; default: this one")
    ] = sys.executable,
    fsync: Annotated[
        str, typer.Option(help="Treecast's fsync policy; never is what Kafka's default promises")
    ] = "never",
    connector_jar: Annotated[
        list[Path] | None,
        typer.Option(help="a jar of Spark's Kafka connector, and of what it needs; default: by Maven"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="the folder under which data directories are made")
    ] = None,
) -> None:
    """Spark: our source and sink against Spark's Kafka connector, on a daemon and on Apache Kafka."""
    console = _console(json, 190)
    if quick:
        rounds, rows, batches = 1, min(rows, 40_000), min(batches, 6)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        try:
            names = [name.strip() for name in peers.split(",")]
            found = spark_comparison.combinations(names, treecast_python, fsync, Path(folder), connector_jar)
        except KeyError as error:
            known = ", ".join(spark_comparison.NAMES)
            console.print(f"[red]no such combination: {error}; there are {known}[/red]")
            raise typer.Exit(2) from None
        left_out = {peer.name: reason for peer in found if (reason := peer.missing())}
        for name, reason in left_out.items():
            console.print(f"[yellow]left out:[/yellow] {name}: {reason}")
        found = [peer for peer in found if peer.name not in left_out]
        chosen = [spark_comparison.workload(rows, 100, batches, treecast_python)]
        run = Rounds(found, chosen, rounds, settle=0.5 if quick else 2.0, progress=console.print)
        context = {
            "comparison": "spark",
            "machine": machine.describe(),
            "rounds": rounds,
            "rows": rows,
            "left out": left_out,
        }
        run.run()
    context["peers"] = {peer.name: dict(peer.settings()) for peer in found}
    rows_found = report.summarise(run.samples, "", "")
    _finish_spark(run, rows_found, [peer.name for peer in found], context, out, json, console)
    if run.failures or not found:
        raise typer.Exit(1)


def _finish_spark(
    run: Rounds,
    rows: list[report.Row],
    names: list[str],
    context: dict[str, object],
    out: Path,
    json: bool,
    console: Console,
) -> None:
    """Prints both tables; writes the JSON, the tables as Markdown, and the plot."""
    ratios = versus.compare(rows, spark_comparison.AGAINST)
    document = report.as_json(rows, run.samples, {**context, "failures": run.failures})
    document["ratios"] = versus.as_json(ratios)
    report.write_json(out / "bench-spark.json", document)
    tables = [report.as_markdown(rows, names, ratios=False), versus.as_markdown(ratios)]
    (out / "bench-spark.md").write_text("\n".join([*tables, ""]))
    if json:
        Console().print_json(data=document)
    else:
        console.print(report.settings_table("machine", machine.describe()))
        console.print(report.as_table(rows, names, ratios=False))
        console.print(versus.as_table(ratios))
        for failure in run.failures:
            console.print(f"[red]failed: {failure}[/red]")
    panels, ours = spark_comparison.PANELS, (spark_comparison.OURS,)
    try:
        plot.draw(rows, names, out / "bench-spark.png", "Spark's connectors", panels, ours)
    except ImportError:
        console.print("no plot: install the `bench` extra for matplotlib")
        return
    console.print(f"written: {out / 'bench-spark.json'}, .md and .png")


@app.command("micro-mqtt")
def micro_mqtt(
    rounds: Annotated[int, typer.Option(min=1, help="how often both take their turn")] = 9,
) -> None:
    """Routing time per publish with 50 and with 50,000 wildcard subscriptions."""
    from bench import micro_mqtt as routing

    Console().print_json(data={"machine": machine.describe(), **routing.rounds(rounds)})


@app.command("micro-fabric")
def micro_fabric(
    rounds: Annotated[int, typer.Option(min=1, help="how often each variant takes its turn")] = 5,
    messages: Annotated[int, typer.Option(min=100, help="messages of 16 KiB per run")] = 5_000,
    json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")] = False,
    treecast_python: Annotated[
        str, typer.Option(help="the Python whose treecast is measured; default: this one")
    ] = sys.executable,
) -> None:
    """One stream between two processes, beside a bare loop of the same UDP bursts."""
    found = list(fabric_streams.rounds(treecast_python, messages, rounds))
    console = _console(json)
    if json:
        Console().print_json(data={"machine": machine.describe(), "rounds": found})
        return
    form = "compiled" if found[0]["fabric"]["compiled"] else "interpreted"
    shown = Table("variant", "MB per CPU s, both", "busier end alone", "floor / it", "wall MB/s", "repairs")
    for name, together, busier, ratio, wall, repairs in fabric_streams.table(found):
        shown.add_row(name, f"{together:.0f}", f"{busier:.0f}", f"{ratio:.1f}", f"{wall:.0f}", str(repairs))
    console.print(f"{form}; medians of {rounds} rounds of {messages} messages")
    console.print(shown)


def _console(json: bool, width: int = 150) -> Console:
    """Wide enough for the table also where there is no terminal; beside JSON it goes to standard error."""
    console = Console(stderr=json, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


def _choose(workloads: list[Workload[Any]], only: list[str] | None, console: Console) -> list[Workload[Any]]:
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
    run: Rounds,
    peers: list[Peer],
    context: dict[str, object],
    out: Path,
    json: bool,
    console: Console,
    theirs: str = "Apache Kafka",
    stem: str = "bench-kafka",
    ours: str = "Treecast",
) -> None:
    """Prints the settings and the table; writes the JSON, the table as Markdown, and the plot."""
    rows = report.summarise(run.samples, ours, theirs)
    names = [peer.name for peer in peers]
    document = report.as_json(rows, run.samples, {**context, "failures": run.failures})
    report.write_json(out / f"{stem}.json", document)
    (out / f"{stem}.md").write_text(report.as_markdown(rows, names))
    if json:
        Console().print_json(data=document)
    else:
        for peer in peers:
            console.print(report.settings_table(peer.name, peer.settings()))
        console.print(report.settings_table("machine", machine.describe()))
        report.show(console, rows, names, run.failures)
    try:
        plot.draw(rows, names, out / f"{stem}.png", f"Treecast and {theirs} on one machine")
    except ImportError:
        console.print("no plot: install the `bench` extra for matplotlib")
        return
    console.print(f"written: {out / f'{stem}.json'}, .md and .png")


if __name__ == "__main__":
    app()
