"""`treecast pipeline`: telemetry becomes tables and advice on Spark (docs/pipeline.md)."""

from __future__ import annotations

import importlib.util
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treecast.middleware.api.messages import as_dict
from treecast.middleware.api.telemetry import measure_of

from .options import Json, Kafka, kafka_at, tell_which
from .output import CommandError, print_json, print_pairs, print_table, say, size_text
from .times import time_text

if TYPE_CHECKING:
    from treecast.spark_connectors.pipeline.measuring import MeasureSettings
    from treecast.spark_connectors.pipeline.planning import Settings
    from treecast.spark_connectors.pipeline.running import Pipeline
    from treecast.spark_connectors.pipeline.showing import Explained
    from treecast.spark_connectors.pipeline.tables import Tables

app = typer.Typer(no_args_is_help=True, help="Turn telemetry into tables and advice on trees, on Spark.")

_DEFAULT = Path("~/.local/state/treecast/pipeline")
_DAY = 24 * 3600  # two at least: a forecast rests on one, and what comes a day late still counts
_INSTALL = "PySpark is not installed: pip install 'treecast[spark]', and Java 17"

Data = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", envvar="TREECAST_PIPELINE", help="The pipeline's folder."),
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master.")]
Parts = Annotated[int, typer.Option("--parts", min=1, help="Tasks of a shuffle.")]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="The driver's heap, as in 2g.")]
Network = Annotated[str, typer.Option("--network", help="The network, if several are described.")]
Length = Annotated[int, typer.Option("--length", min=1, help="Seconds of a window of tables.")]
Step = Annotated[int, typer.Option("--step", min=1, help="Seconds from one window to the next.")]
LinkRate = Annotated[float, typer.Option("--link-mbit", min=0.001, help="Mbit/s that a link can carry.")]
Format = Annotated[str, typer.Option("--format", help="Of tables: parquet, delta or iceberg.")]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, help="Intervals that are computed at once.")]
Limit = Annotated[float, typer.Option("--limit", min=0, max=1, help="The share of it that is named.")]


@app.command()
def run(
    data: Data = _DEFAULT,
    kafka: Kafka = None,
    master: Master = "local[2]",
    parts: Parts = 2,
    memory: Memory = "2g",
    every: Annotated[float, typer.Option("--every", min=0, help="Seconds from round to round.")] = 30.0,
    rounds: Annotated[int, typer.Option("--rounds", min=0, help="Then end; 0: at SIGTERM.")] = 0,
    window: Annotated[float, typer.Option("--window", min=1, help="Seconds that advice rests on.")] = 300.0,
    valid: Annotated[float, typer.Option("--valid", min=1, help="Seconds that advice is valid.")] = 300.0,
    only: Annotated[list[str] | None, typer.Option("--only", help="Queries; default: all.")] = None,
    strategy: Annotated[list[str] | None, typer.Option("--strategy", help="To try; default: all.")] = None,
    length: Length = 300,
    step: Step = 60,
    link_mbit: LinkRate = 1000.0,
    limit: Limit = 0.65,
    at_once: AtOnce = 300_000,
    format: Format = "parquet",
    keep: Annotated[
        int, typer.Option("--keep", min=2, help="Days for which tables by minute and window are kept.")
    ] = 30,
) -> None:
    """Runs the pipeline in rounds: each takes all that has come, and advises once."""
    from treecast.spark_connectors.pipeline.planning import Settings

    _check_format(format)
    given = Settings(window=window, valid=valid)
    if strategy:
        given = Settings(window=window, valid=valid, strategies=tuple(_known(strategy, given.strategies)))
    address = _face(kafka)
    measured = _measured(length, step, link_mbit, limit, at_once)
    with _pipeline(data, address, given, master, parts, memory, measured=measured, hold=True) as pipeline:
        from treecast.spark_connectors.pipeline.running import QUERIES

        names = _known(only, QUERIES) if only else list(QUERIES)
        pipeline.prepare()
        _rounds(pipeline, _tables(data), names, every, rounds, keep * _DAY)


def _rounds(
    pipeline: Pipeline, tables: Tables, names: list[str], every: float, rounds: int, keep: int
) -> None:
    """`keep`: seconds of tables by minute and window."""
    from treecast.middleware.storage.whole_file import write_whole
    from treecast.spark_connectors.pipeline.metrics import Metrics
    from treecast.spark_connectors.pipeline.showing import Shown

    metrics = Metrics()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    done, failed = 0, False
    while not ended.is_set():
        ran = pipeline.round(names)
        metrics.add(ran)
        tables.forget(keep)
        write_whole(tables.metrics, metrics.text(*Shown(tables).findings()).encode())
        done += 1
        rows = ", ".join(f"{one.query} {one.rows:,}" for one in ran if one.rows)
        say(f"round {done}  {sum(one.seconds for one in ran):.1f} s  {rows or 'nothing new'}")
        for one in ran:
            if one.fault:
                say(f"treecast: query {one.query} failed and goes on next round: {one.fault}", err=True)
        failed = any(one.fault for one in ran)
        if done == rounds:
            break
        ended.wait(every)
    if failed:
        raise CommandError("the last round was not complete; the queries go on from there when started again")


@app.command()
def status(data: Data = _DEFAULT, json: Json = False) -> None:
    """Shows queries, the last epoch and what is wrong with its data. Needs no Spark session."""
    from treecast.spark_connectors.pipeline.showing import Shown

    found = Shown(_tables(data)).status()
    advice = [{k: v for k, v in one.items() if k != "value"} for one in found.advice]
    if json:
        queries = [
            {"query": one.query, "batch": one.batch, "rows": one.rows, "bytes": one.size}
            for one in found.queries
        ]
        shown = {"pipeline": found.pipeline, "running": found.running, "epoch": found.epoch}
        print_json({**shown, "queries": queries, "advice": advice, "quality": found.quality})
        return
    state = "running" if found.running else "not running"
    print_pairs([("pipeline", found.pipeline), ("state", state), ("epoch", str(found.epoch or "none yet"))])
    print()
    print_table(
        ("query", "batch", "rows", "size"),
        [(one.query, max(one.batch, 0), one.rows, size_text(one.size)) for one in found.queries],
        empty="no queries",
    )
    print()
    for one in advice:
        now, then = one["labels_now"], one["labels_expected"]
        text = one["problem"] or f"{one['strategy']}, {now:.2f} -> {then:.2f} {one['measure']}"
        say(f"{one['network']}: {text}")
    _print_quality(found.quality)


def _print_quality(rows: Any) -> None:
    print()
    print_table(
        ("check", "host", "detail"),
        [(one["check"], one["host"], one["text"]) for one in rows],
        empty="nothing is wrong with the data of this epoch",
    )


@app.command()
def explain(
    epoch: Annotated[int, typer.Argument(metavar="[EPOCH]", help="Default: the last one.")] = 0,
    data: Data = _DEFAULT,
    network: Network = "",
    tree: Annotated[int, typer.Option("--tree", min=0, help="The epoch that installed this tree.")] = 0,
    json: Json = False,
) -> None:
    """Goes from advice, or an installed tree, back to trials, windows and offsets. Needs no Spark session."""
    from treecast.spark_connectors.pipeline.showing import NotFound, Shown

    try:
        found = Shown(_tables(data)).explain(epoch, network, tree)
    except NotFound as error:
        raise CommandError(str(error)) from error
    if json:
        print_json(_explained(found))
    else:
        _print_explained(found)


def _explained(found: Explained) -> dict[str, Any]:
    import msgspec

    return {
        "advice": as_dict(found.advice) if found.advice is not None else None,
        "problem": found.problem,
        "digest": found.digest,
        "plan": msgspec.to_builtins(found.plan),
        "candidates": found.candidates,
        "quality": found.quality,
        "decisions": [as_dict(one) for one in found.decisions],
        "filters": found.filters,
    }


def _print_explained(found: Explained) -> None:
    plan, advice = found.plan, found.advice
    start, end = (time_text(at // 1000) for at in (plan.window_start, plan.window_end))
    pairs: list[tuple[str, str | int]] = [("epoch", str(plan.epoch)), ("window", f"{start} to {end}")]
    if advice is None:
        pairs.append(("advice", f"none: {found.problem}"))
    else:
        pairs += [
            ("network", advice.network),
            ("advice", f"{advice.strategy}, threshold {advice.threshold:g}, seed {advice.seed}"),
            (measure_of(advice.kind), f"{advice.labels_now:.2f} -> {advice.labels_expected:.2f}, held out"),
            ("packets", int(advice.packets)),
            ("rule writes", int(advice.rule_writes)),
            ("base version", int(advice.base_rule_version)),
            ("digest", found.digest),
        ]
    print_pairs(pairs)
    for one in found.decisions:
        say(f"{one.decision} at {time_text(one.ts // 1000)}: {one.reason}; version {one.rule_version}")
    print()
    ranges = advice.input if advice is not None else plan.ranges
    print_table(
        ("topic", "partition", "first", "end"),
        [(one.topic, int(one.partition), int(one.first), int(one.end)) for one in ranges],
        empty="it rests on no records",
    )
    print()
    print_table(
        ("strategy", "threshold", "seed", "labels", "rules", "writes"),
        [
            (
                one["strategy"],
                one["threshold"],
                one["seed"],
                f"{one['labels']:.3f}",
                one["rules"],
                one["rule_writes"],
            )
            for one in found.candidates
        ],
        empty="nothing was tried",
    )
    print()
    print_table(
        ("filter", "at origin", "for host", "messages", "saves", "share"),
        [
            (
                one["filter"],
                one["origin"],
                one["host"],
                one["messages"],
                size_text(one["saved_bytes"]),
                f"{one['share']:.1%}",
            )
            for one in found.filters
        ],
        empty="no filter would save anything where messages come from",
    )
    _print_quality(found.quality)


@app.command()
def replay(
    epochs: Annotated[list[int] | None, typer.Argument(metavar="[EPOCH]...", help="Default: all.")] = None,
    data: Data = _DEFAULT,
    master: Master = "local[2]",
    parts: Parts = 2,
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Computes advice again from the archive, and compares its digest. Writes nothing; exit code 1 if one
    differs.
    """
    from treecast.spark_connectors.pipeline.planning import Settings

    with _pipeline(data, "", Settings(), master, parts, memory) as pipeline:
        found = list(pipeline.replay(epochs or ()))
    differ = [one for one in found if not one.equal]
    if json:
        rows = [
            {"epoch": one.epoch, "network": one.network, "live": one.live, "replayed": one.again}
            for one in found
        ]
        print_json(rows)
    else:
        for one in found:
            say(f"epoch {one.epoch}  {one.network}: {one.live} {'==' if one.equal else '!='} {one.again}")
    if not found:
        raise CommandError("there are no such epochs; `treecast pipeline status` names the last one")
    if differ:
        raise CommandError(f"{len(differ)} of {len(found)} differ: the archive is not what it was")


@app.command()
def measure(
    data: Data = _DEFAULT,
    master: Master = "local[2]",
    parts: Parts = 2,
    memory: Memory = "2g",
    length: Length = 300,
    step: Step = 60,
    link_mbit: LinkRate = 1000.0,
    limit: Limit = 0.65,
    at_once: AtOnce = 300_000,
    format: Format = "parquet",
) -> None:
    """Computes the tables by minute and by window of the whole archive again."""
    from treecast.spark_connectors.pipeline.planning import Settings

    _check_format(format)
    measured = _measured(length, step, link_mbit, limit, at_once)
    with _pipeline(data, "", Settings(), master, parts, memory, measured=measured, hold=True) as pipeline:
        pipeline.measures.all()
    say(f"the tables of all windows are written: treecast pipeline report --data {data}")


@app.command()
def generate(
    data: Data,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Intervals times sets.")] = 100_000_000,
    hosts: Annotated[int, typer.Option("--hosts", min=2)] = 2000,
    publishers: Annotated[int, typer.Option("--publishers", min=1)] = 20_000,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    master: Master = "local[2]",
    parts: Parts = 2,
    memory: Memory = "2g",
) -> None:
    """Makes an archive of invented hosts in an empty folder, to measure with."""
    from treecast.spark_connectors.pipeline.generating import Spec, generate
    from treecast.spark_connectors.pipeline.running import session
    from treecast.spark_connectors.pipeline.tables import BRONZE, Tables

    tables = Tables(data.expanduser())
    if Path(tables.path(BRONZE)).exists():
        raise CommandError(f"{data} has an archive already: give an empty folder")
    _need_spark()
    spec = Spec(hosts, publishers, rows, seed)
    spark = session(master, parts, memory)
    try:
        generate(spark, tables, spec)
    finally:
        spark.stop()
    say(f"{spec.intervals:,} intervals of {spec.hosts:,} hosts with {spec.sets} sets each: {data}")


@app.command()
def report(
    data: Data = _DEFAULT,
    window: Annotated[
        int, typer.Option("--window", help="Its start in seconds; default: the last whole.")
    ] = 0,
    json: Json = False,
) -> None:
    """Shows a window: who sends most, what nobody reads, who falls behind, what will be full. Needs no Spark
    session.
    """
    from treecast.spark_connectors.pipeline.showing import NotFound
    from treecast.spark_connectors.pipeline.windows import Windows

    try:
        found = Windows(_tables(data)).report(window)
    except NotFound as error:
        raise CommandError(str(error)) from error
    if json:
        print_json({"window": found.window, **found.tables})
        return
    say(f"window from {time_text(found.window * 1000)}")
    for title, columns, lines in found.lists():
        print()
        print_table(columns, lines, empty=f"{title}: none")


# --- shared


def _measured(length: int, step: int, link_mbit: float, limit: float, at_once: int) -> MeasureSettings:
    from treecast.spark_connectors.pipeline.measuring import MeasureSettings

    if length % step:
        raise CommandError(f"--length {length} is no multiple of --step {step}")
    return MeasureSettings(length, step, link_mbit, limit, most=at_once)


def _check_format(name: str) -> None:
    from importlib.metadata import version

    from treecast.spark_connectors.pipeline.formats import why_not

    _need_spark()
    problem = why_not(name, version("pyspark"))
    if problem:
        raise CommandError(problem)


def _need_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError(_INSTALL)


def _face(kafka: str | None) -> str:
    endpoint = kafka_at(kafka)
    tell_which(endpoint)
    return str(endpoint.address)


def _known(names: list[str], there: tuple[str, ...]) -> list[str]:
    for name in names:
        if name not in there:
            raise CommandError(f"there is no {name}; there are {', '.join(there)}")
    return names


def _tables(data: Path) -> Tables:
    from treecast.spark_connectors.pipeline.tables import Tables

    folder = data.expanduser()
    if not (folder / "pipeline.json").exists():
        raise CommandError(f"{folder} is no pipeline's folder: `treecast pipeline run --data DIR` makes one")
    return Tables(folder)


@contextmanager
def _pipeline(
    data: Path,
    address: str,
    settings: Settings,
    master: str,
    parts: int,
    memory: str,
    *,
    measured: MeasureSettings | None = None,
    hold: bool = False,
) -> Iterator[Pipeline]:
    """Yields the pipeline in a folder. `hold`: whether no other process may run on it meanwhile. `address`:
    empty if it neither reads nor writes topics.
    """
    _need_spark()
    from treecast.middleware.api.own_topics import NotReached
    from treecast.spark_connectors.pipeline.running import Pipeline, session
    from treecast.spark_connectors.pipeline.tables import InUse, Tables

    tables = Tables(data.expanduser()) if address else _tables(data)
    try:
        if hold:
            tables.lock()
        spark = session(master, parts, memory)
        try:
            yield Pipeline(tables, address, settings, spark, say, measured)
        finally:
            spark.stop()
    except (InUse, NotReached) as error:
        raise CommandError(str(error)) from error
    finally:
        tables.release()
