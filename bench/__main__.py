"""`python -m bench`: comparisons with peers."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import amqp as amqp_comparison
from bench import fabric as fabric_comparison
from bench import kafka as kafka_comparison
from bench import micro_fabric as fabric_streams
from bench import mqtt_hosts as mqtt_hosts_comparison
from bench import spark as spark_comparison
from bench.agents_command import agents_kafka, agents_mqtt
from bench.chain.paced import generator
from bench.core import machine, report, versus
from bench.core.awake import awake
from bench.core.outcome import Outcome, Picture, publish
from bench.core.peer import Peer
from bench.core.rounds import SERVER, Rounds
from bench.options import (
    BeforeOption,
    DataOption,
    FsyncOption,
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
    patience,
    rounds_of,
)
from bench.peers.floor import FloorPeer
from bench.peers.kafka import KafkaBroker, missing_tools
from bench.peers.treecast import TreecastPeer
from bench.stock_command import stock

app = typer.Typer(add_completion=False, help=__doc__)
app.command()(stock)
app.command("agents-mqtt")(agents_mqtt)
app.command("agents-kafka")(agents_kafka)

EARLIER = versus.earlier("Treecast")
FABRIC_PEERS = ",".join(fabric_comparison.PEERS)
MQTT_PEERS = ",".join(mqtt_hosts_comparison.USUAL)
AMQP_HOSTS_PEERS = ",".join(amqp_comparison.HOSTS)


@app.callback()
def _comparisons(
    context: typer.Context,
    keep_awake: Annotated[
        bool, typer.Option("--awake/--no-awake", help="keep cores from halting where nothing runs on them")
    ] = True,
) -> None:
    """Comparisons with peers; docs/benchmarks.md explains the results."""
    signal.signal(signal.SIGTERM, _leave)  # as Ctrl-C does: servers are stopped and their folders removed
    context.with_resource(awake(keep_awake))


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


@app.command()
def kafka(
    rounds: RoundsOption = 5,
    records: Annotated[int, typer.Option(min=1000, help="records of 100 B per load")] = 3_000_000,
    size: SizeOption = None,
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = "treecast,kafka,floor",
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    fsync: FsyncOption = "never",
    data: DataOption = None,
) -> None:
    """Treecast's Kafka face against Apache Kafka (one KRaft node)."""
    console = console_for(json)
    if quick:
        rounds, records, size = 1, min(records, 200_000), size or [100]
    names = [name.strip() for name in peers.split(",")]
    if (missing := missing_tools()) and "kafka" in names:
        console.print(f"[red]Apache Kafka needs {' and '.join(missing)} on the PATH[/red]")
        raise typer.Exit(2)
    chosen = choose(kafka_comparison.workloads(records, tuple(size or (100, 1024)), quick), only, console)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        found = _peers(names, treecast_python, fsync, Path(folder), console)
        if before_python is not None:
            found.append(TreecastPeer(python=before_python, fsync=fsync, parent=Path(folder), name=EARLIER))
        run = rounds_of(found, chosen, rounds, console, quick=quick)
        context = {
            "comparison": "kafka",
            "rounds": rounds,
            "records": records,
        }
        run.run()
    _finish(run, found, context, out, json, console)
    if run.failures:
        raise typer.Exit(1)


@app.command()
def fabric(
    rounds: RoundsOption = 5,
    seconds: Annotated[float, typer.Option(min=1, help="how long each measured run takes, roughly")] = 10,
    size: SizeOption = None,
    rate: Annotated[
        list[int] | None, typer.Option(help="records a second of the latency runs; default 1000 and 5000")
    ] = None,
    only: OnlyOption = None,
    quick: QuickOption = False,
    own_cores: Annotated[
        bool, typer.Option("--own-cores/--shared-cores", help="each host keeps to a core of its own")
    ] = True,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = FABRIC_PEERS,
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    data: DataOption = None,
) -> None:
    """Two joined daemons against one, RabbitMQ federation, and two Kafka nodes with MirrorMaker 2."""
    console = console_for(json, 190)
    if quick:
        rounds, seconds, size, rate = 1, min(seconds, 2), size or [100], rate or [1_000]
    loads = fabric_comparison.workloads(seconds, size or (100, 1024), rate or fabric_comparison.RATES)
    chosen = choose(loads, only, console)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        names = [name.strip() for name in peers.split(",")]
        try:
            found = fabric_comparison.peers(names, treecast_python, Path(folder), before_python)
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
            "load at a rate": generator(),
            "rounds": rounds,
            "seconds": seconds,
            "left out": left_out,
        }
        run = rounds_of(found, chosen, rounds, console, quick=quick)
        run.run()
    rows = report.summarise(run.samples, "", "")
    slow = fabric_comparison.overloaded(rows, chosen)
    ratios = versus.compare(rows, fabric_comparison.AGAINST, slow)
    notes = [f"{name} did not keep up: {load} reached {rate:,.0f}/s" for (load, name), rate in slow.items()]
    picture = Picture("From one host's broker to another's", fabric_comparison.PANELS, fabric_comparison.OURS)
    builds = versus.builds(rows, {name: versus.earlier(name) for name in fabric_comparison.OURS})
    outcome = Outcome(run, found, rows, context, ratios, notes, builds)
    publish(outcome, picture, out, "bench-fabric", console, json)
    if run.failures or not found:
        raise typer.Exit(1)


@app.command()
def mqtt(
    rounds: RoundsOption = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="how long each measured run takes, roughly")] = 5,
    rate: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="messages a second of the latency runs; default: what Mosquitto just sustains"
        ),
    ] = None,
    connections: Annotated[int, typer.Option(min=1, help="clients at rest")] = 10_000,
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = "treecast,mosquitto,floor",
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    data: DataOption = None,
) -> None:
    """Treecast's MQTT face against Mosquitto."""
    from bench.peers.floor_mqtt import FloorMqtt
    from bench.peers.mosquitto import INSTALL, MosquittoPeer, TreecastMqttPeer, program
    from bench.workloads.mqtt import latencies, workloads

    console = console_for(json)
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
        if before_python is not None:
            found.append(TreecastMqttPeer(python=before_python, parent=Path(folder), name=EARLIER))
        loads = [*workloads(seconds, connections), *latencies(mosquitto, rate, seconds, only, console.print)]
        chosen = choose(loads, only, console)
        run = rounds_of(found, chosen, rounds, console, quick=quick, judged=False)
        context = {"comparison": "mqtt", "rounds": rounds}
        run.run()
    _finish(run, found, context, out, json, console, "Mosquitto")
    if run.failures:
        raise typer.Exit(1)


@app.command("mqtt-hosts")
def mqtt_hosts(
    rounds: RoundsOption = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="how long each measured run takes, roughly")] = 4,
    rate: Annotated[
        list[int] | None,
        typer.Option(min=1, help="messages a second of latency runs; default: what the bridge just sustains"),
    ] = None,
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    filtered: Annotated[
        bool, typer.Option("--filtered", help="subscriptions have a filter that passes all messages")
    ] = False,
    peers: PeersOption = MQTT_PEERS,
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    data: DataOption = None,
) -> None:
    """MQTT from a publisher beside one daemon to a subscriber beside another, against Mosquitto's bridge."""
    from bench.peers.mosquitto import INSTALL, program
    from bench.peers.mqtt_pairs import MosquittoBridge

    comparison = mqtt_hosts_comparison
    console = console_for(json, 170)
    if quick:
        rounds, seconds, rate = 1, min(seconds, 0.2), rate or [1_000]
    if program() is None:
        console.print(f"[red]{INSTALL}[/red]")
        raise typer.Exit(2)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        names = [name.strip() for name in peers.split(",")]
        unfit = sorted(set(names) - set(comparison.FILTERING)) if filtered else []
        if unfit:
            fit = ", ".join(comparison.FILTERING)
            console.print(f"[red]--filtered is for the peers {fit}, not {', '.join(unfit)}[/red]")
            raise typer.Exit(2)
        try:
            found = comparison.peers(names, treecast_python, Path(folder), before_python)
        except KeyError as error:
            console.print(f"[red]no such peer: {error}; there are {', '.join(comparison.PEERS)}[/red]")
            raise typer.Exit(2) from None
        bridge = MosquittoBridge(name=comparison.BRIDGE, parent=Path(folder))
        loads = [*comparison.workloads(seconds, filtered=filtered)]
        if not filtered:
            loads += comparison.latencies(bridge, rate, seconds, only, console.print)
        chosen = choose(loads, only, console)
        run = rounds_of(found, chosen, rounds, console, quick=quick, settle=1.0, judged=False)
        context: dict[str, object] = {"comparison": "mqtt-hosts", "rounds": rounds, "seconds": seconds}
        run.run()
    rows = report.summarise(run.samples, "", "")
    slow = comparison.overloaded(rows, chosen)
    ratios = versus.compare(rows, comparison.AGAINST, slow)
    notes = [f"{name} did not keep up: {load} reached {rate:,.0f}/s" for (load, name), rate in slow.items()]
    picture = Picture("MQTT from one host to another", comparison.PANELS, comparison.OURS)
    builds = versus.builds(rows, {name: versus.earlier(name) for name in comparison.OURS})
    outcome = Outcome(run, [*found], rows, context, ratios, notes, builds)
    publish(outcome, picture, out, "bench-mqtt-hosts", console, json)
    if run.failures:
        raise typer.Exit(1)


@app.command()
def amqp(
    rounds: RoundsOption = 5,
    seconds: SecondsOption = 3,
    rate: RateOption = None,
    queued: Annotated[int, typer.Option(min=1, help="messages of the long queue")] = 1_000_000,
    perf_test: Annotated[
        str, typer.Option(help="a Java class path with PerfTest; default: its jars, by Maven")
    ] = "",
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = amqp_comparison.USUAL,
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    data: DataOption = None,
) -> None:
    """Treecast's AMQP face against RabbitMQ."""
    comparison = amqp_comparison
    console = console_for(json)
    if quick:
        rounds, seconds, rate, queued = 1, min(seconds, 0.2), rate or [1_000], min(queued, 2_000)
    names = _names(peers, console, rabbit="rabbitmq")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        found = comparison.peers(names, treecast_python, Path(folder), before_python)
        chosen = choose(
            comparison.loads(Path(folder), seconds, queued, rate, only, perf_test, console.print),
            only,
            console,
        )
        run = rounds_of(found, chosen, rounds, console, quick=quick, judged=False)
        context: dict[str, object] = {"comparison": "amqp", "rounds": rounds, "seconds": seconds}
        run.run()
    _finish(run, found, context, out, json, console, comparison.THEIRS)
    if run.failures:
        raise typer.Exit(1)


@app.command("amqp-hosts")
def amqp_hosts(
    rounds: RoundsOption = 5,
    seconds: SecondsOption = 3,
    rate: RateOption = None,
    only: OnlyOption = None,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = AMQP_HOSTS_PEERS,
    treecast_python: PythonOption = sys.executable,
    before_python: BeforeOption = None,
    data: DataOption = None,
) -> None:
    """AMQP from a publisher beside one daemon to a queue's consumer beside another, against federation."""
    comparison = amqp_comparison
    console = console_for(json, 170)
    if quick:
        rounds, seconds, rate = 1, min(seconds, 0.2), rate or [1_000]
    names = _names(peers, console, rabbit="federation")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        found = comparison.host_peers(names, treecast_python, Path(folder), before_python)
        chosen = choose(
            comparison.host_loads(Path(folder), seconds, rate, only, console.print), only, console
        )
        run = rounds_of(found, chosen, rounds, console, quick=quick, settle=1.0, judged=False)
        context: dict[str, object] = {"comparison": "amqp-hosts", "rounds": rounds, "seconds": seconds}
        run.run()
    rows = report.summarise(run.samples, "", "")
    slow = comparison.overloaded(rows, chosen)
    ratios = versus.compare(rows, comparison.AGAINST, slow)
    notes = [f"{name} did not keep up: {load} reached {rate:,.0f}/s" for (load, name), rate in slow.items()]
    picture = Picture("AMQP from one host to another", comparison.PANELS, comparison.HOSTS_OURS)
    builds = versus.builds(rows, {comparison.TWO: versus.earlier(comparison.TWO)})
    outcome = Outcome(run, [*found], rows, context, ratios, notes, builds)
    publish(outcome, picture, out, "bench-amqp-hosts", console, json)
    if run.failures:
        raise typer.Exit(1)


@app.command()
def switch(
    rounds: RoundsOption = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="how long a measured run takes")] = 5,
    outputs: Annotated[int, typer.Option(min=1, max=11, help="ports that a packet goes to")] = 4,
    payload: Annotated[list[int] | None, typer.Option(help="bytes; default 100 and 1000")] = None,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: PeersOption = "embedded,register,ovs,floor",
    ovs: Annotated[Path, typer.Option(help="where Open vSwitch's packages are unpacked")] = Path("/"),
    treecast_python: PythonOption = sys.executable,
) -> None:
    """`treecast p4 switch` against Open vSwitch's userspace datapath. Needs root."""
    from bench import switch as comparison
    from bench.core.wires import Wires

    console = console_for(json)
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
        run = Rounds(found, loads, rounds, settle=0.5, patience=patience(False), progress=console.print)
        context = {"comparison": "switch", "rounds": rounds}
        run.run()
        run.samples = [one for one in run.samples if one.workload != SERVER]  # no ratio is asked of start-up
        _finish(run, [*found], context, out, json, console, comparison.THEIRS, comparison.OURS)
    if run.failures:
        raise typer.Exit(1)


@app.command()
def spark(
    rounds: RoundsOption = 2,
    rows: Annotated[int, typer.Option(min=2000, help="rows of 100 B that are read, and that are written")] = (
        10_000_000
    ),
    batches: Annotated[int, typer.Option(min=4, help="micro-batches of 1,000 rows for the latency")] = 40,
    quick: QuickOption = False,
    json: JsonOption = False,
    out: OutOption = Path("out"),
    peers: Annotated[
        str, typer.Option(help=f"which of them, parted by commas: {', '.join(spark_comparison.MICRO_NAMES)}")
    ] = "",
    treecast_python: PythonOption = sys.executable,
    fsync: FsyncOption = "never",
    only: Annotated[
        str, typer.Option(help="micro: micro-batches alone, in turns in one warm session, and their floor")
    ] = "",
    connector_jar: Annotated[
        list[Path] | None,
        typer.Option(help="a jar of Spark's Kafka connector, and of what it needs; default: by Maven"),
    ] = None,
    data: DataOption = None,
) -> None:
    """Spark: our source and sink against Spark's Kafka connector, on a daemon and on Apache Kafka."""
    console = console_for(json, 190)
    if only not in ("", spark_comparison.MICRO):
        console.print(f"[red]--only takes {spark_comparison.MICRO}[/red]")
        raise typer.Exit(2)
    if quick:
        rounds, rows, batches = 1, min(rows, 40_000), min(batches, 6)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder:
        try:
            usual = spark_comparison.MICRO_NAMES if only else spark_comparison.NAMES
            names = [name.strip() for name in peers.split(",")] if peers else usual
            found = spark_comparison.combinations(names, treecast_python, fsync, Path(folder), connector_jar)
        except KeyError as error:
            known = ", ".join(spark_comparison.MICRO_NAMES)
            console.print(f"[red]no such combination: {error}; there are {known}[/red]")
            raise typer.Exit(2) from None
        left_out = {peer.name: reason for peer in found if (reason := peer.missing())}
        for name, reason in left_out.items():
            console.print(f"[yellow]left out:[/yellow] {name}: {reason}")
        found = [peer for peer in found if peer.name not in left_out]
        context: dict[str, object] = {"comparison": "spark", "rounds": rounds, "left out": left_out}
        run: Rounds
        if only:
            run = spark_comparison.micro(found, batches, rounds, treecast_python, console.print)
        else:
            context["rows"] = rows
            chosen = [spark_comparison.workload(rows, 100, batches, treecast_python)]
            run = rounds_of(found, chosen, rounds, console, quick=quick)
        run.run()
    shown = report.summarise(run.samples, "", "")
    outcome = Outcome(run, found, shown, context, versus.compare(shown, spark_comparison.AGAINST))
    picture = Picture("Spark's connectors", spark_comparison.PANELS, spark_comparison.OURS_ALL)
    publish(outcome, picture, out, f"bench-spark-{only}" if only else "bench-spark", console, json)
    if run.failures or not found:
        raise typer.Exit(1)


@app.command("micro-mqtt")
def micro_mqtt(
    rounds: Annotated[int, typer.Option(min=1, help="how often both take their turn")] = 9,
) -> None:
    """Routing time per publish with 50 and with 50,000 wildcard subscriptions; time per delivery."""
    from bench import micro_mqtt as routing

    Console().print_json(data={"machine": machine.describe(), **routing.rounds(rounds)})


@app.command("micro-fabric")
def micro_fabric(
    rounds: RoundsOption = 5,
    messages: Annotated[int, typer.Option(min=100, help="messages of 16 KiB per run")] = 5_000,
    json: JsonOption = False,
    treecast_python: PythonOption = sys.executable,
) -> None:
    """One stream between two processes, beside a bare loop of the same UDP bursts."""
    found = list(fabric_streams.rounds(treecast_python, messages, rounds))
    console = console_for(json)
    if json:
        Console().print_json(data={"machine": machine.describe(), "rounds": found})
        return
    form = "compiled" if found[0]["fabric"]["compiled"] else "interpreted"
    shown = Table("variant", "MB per CPU s, both", "busier end alone", "floor / it", "wall MB/s", "repairs")
    for name, together, busier, ratio, wall, repairs in fabric_streams.table(found):
        shown.add_row(name, f"{together:.0f}", f"{busier:.0f}", f"{ratio:.1f}", f"{wall:.0f}", str(repairs))
    console.print(f"{form}; medians of {rounds} rounds of {messages} messages")
    console.print(shown)


def _names(peers: str, console: Console, rabbit: str) -> list[str]:
    """Returns the names of AMQP peers, which RabbitMQ is one of under the name `rabbit`."""
    from bench.peers.rabbitmq import missing

    names = [name.strip() for name in peers.split(",")]
    known = [*amqp_comparison.USUAL.split(","), *amqp_comparison.HOSTS]
    if unknown := [name for name in names if name not in known]:
        console.print(f"[red]no such peer: {', '.join(unknown)}; there are {', '.join(known)}[/red]")
        raise typer.Exit(2)
    if rabbit in names and (reason := missing()):
        console.print(f"[red]{reason}[/red]")
        raise typer.Exit(2)
    return names


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
    ours: str = "Treecast",
) -> None:
    """Publishes a comparison of two peers, with or without a floor."""
    rows = report.summarise(run.samples, ours, theirs)
    outcome = Outcome(run, peers, rows, context, builds=versus.builds(rows, {ours: versus.earlier(ours)}))
    picture = Picture(f"Treecast and {theirs} on one machine")
    publish(outcome, picture, out, f"bench-{context['comparison']}", console, json)


if __name__ == "__main__":
    app()
