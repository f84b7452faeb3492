"""`treecast agent`: runs an agent beside a broker that already stands, and asks one how it is."""

from __future__ import annotations

import http.client
import json as json_module
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from treecast.middleware.api.discovery import Address

from .options import Json
from .output import CommandError, print_json, print_pairs, print_table, say

app = typer.Typer(no_args_is_help=True, help="Agents beside brokers that already stand.")
_DEFAULT_ADMIN = "127.0.0.1:7690"
_SECONDS = 5.0

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The agent's TOML file.")]
Admin = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help=f"The agent's admin address; default: {_DEFAULT_ADMIN}."),
]


@app.command()
def rabbitmq(config: Config) -> None:
    """Runs the agent beside a RabbitMQ server, in the foreground."""
    _run("rabbitmq", config)


@app.command()
def kafka(config: Config) -> None:
    """Runs the agent beside a Kafka cluster, in the foreground: follows its topics."""
    _run("kafka", config)


@app.command("kafka-bridge")
def kafka_bridge(config: Config) -> None:
    """Runs the agent that joins Kafka clusters, in the foreground: carries topics between them."""
    _run("kafka-bridge", config)


@app.command()
def mosquitto(config: Config) -> None:
    """Runs the agent beside a Mosquitto, or another broker of MQTT, in the foreground."""
    _run("mosquitto", config)


def _run(kind: str, config: Path) -> None:
    from treecast.middleware.daemon.agent import run_agent

    raise typer.Exit(run_agent(kind, config))


@app.command()
def bridge(
    file: Annotated[Path, typer.Argument(metavar="MOSQUITTO.CONF")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="One of several bridges.")] = None,
) -> None:
    """Reads the bridges of a mosquitto.conf: the table [mosquitto] that replaces each, and what becomes
    of its lines. Exits with 1 if a line cannot be kept."""
    from treecast.agents.mosquitto.bridge import read_bridges

    try:
        found = read_bridges(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    chosen = [one for one in found if name in (None, one.name)]
    if not chosen:
        names = ", ".join(one.name for one in found) or "none"
        raise CommandError(f"{file} has no such bridge; it has: {names}")
    for one in chosen:
        say(f"# bridge {one.name}")
        for remark in one.remarks:
            say(f"# line {remark.number}, {remark.line}: {remark.becomes}")
        say(one.toml())
    if any(remark.fault for one in chosen for remark in one.remarks):
        raise typer.Exit(1)


@app.command()
def status(admin: Admin = None, json: Json = False) -> None:
    """Shows what a running agent carries, its counts, and what is wrong."""
    found = _asked(admin or _DEFAULT_ADMIN)
    if json:
        print_json(found)
    else:
        pairs = _PAIRS.get(found["kind"], _rabbitmq_pairs)
        print_pairs(list(pairs(found)))
        _print_troubles(found)
    if found["troubles"]:
        raise typer.Exit(1)


@app.command()
def doctor(config: Config, json: Json = False) -> None:
    """Checks an agent's settings, its server, and the agent itself if it runs."""
    findings = list(_findings(config))
    if json:
        print_json([{"check": check, "level": level, "detail": detail} for check, level, detail in findings])
    else:
        print_table(("check", "level", "detail"), findings, empty="")
    if any(level == "bad" for _, level, _ in findings):
        raise typer.Exit(1)


def _asked(address: str) -> dict[str, Any]:
    """Returns the status of the agent at an admin address. Raises CommandError."""
    try:
        where = Address.parse(address)
        connection = http.client.HTTPConnection(where.host, where.port, timeout=_SECONDS)
        connection.request("GET", "/status")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise CommandError(
            f"no agent answers at {address} ({error}): start it, or give its --admin"
        ) from error
    if answer.status != 200:
        raise CommandError(f"{address} answers with status {answer.status}: it is no agent's admin address")
    try:
        found = json_module.loads(body)
        assert isinstance(found, dict)
        return found
    except (ValueError, AssertionError) as error:
        raise CommandError(f"{address} is no agent's admin address") from error


def _rabbitmq_pairs(found: dict[str, Any]) -> Iterator[tuple[str, str | int]]:
    carried = ", ".join(f"{name} ({kind})" for name, kind in sorted(found["exchanges"].items()))
    yield from _pairs(found, [("bindings are known by", found["interest"]), ("exchanges", carried)])


def _mosquitto_pairs(found: dict[str, Any]) -> Iterator[tuple[str, str | int]]:
    carried = ", ".join(f"{name} ({rule})" for name, rule in sorted(found["exchanges"].items()))
    yield from _pairs(found, [("topics", carried)])


def _pairs(found: dict[str, Any], carried: list[tuple[str, str]]) -> Iterator[tuple[str, str | int]]:
    counters = found["counters"]
    yield "site", f"{found['site']}, host {found['host_id']} of cluster {found['cluster_id']}"
    yield "broker", f"{found['broker'] or 'not connected'}{'' if found['serving'] else ', not served'}"
    yield from carried
    yield "other sites", ", ".join(f"{name} ({count})" for name, count in sorted(found["sites"].items()))
    yield "taken from the broker", counters["taken"]
    yield "sent to other sites", counters["sent"]
    yield "wanted nowhere else", counters["unwanted"]
    yield "came from other sites, stay", counters["looped"]
    yield "other sites have not acknowledged", found["owed"]
    yield "received from other sites", counters["received"]
    yield "confirmed by the broker", counters["published"]
    yield "not confirmed yet", found["lag"]
    yield "spool, bytes", found["spool_bytes"]
    for key, where in (("refused_here", "not sent"), ("refused_there", "not published")):
        for reason, count in counters[key].items():
            yield f"{where}: {reason}", count


def _kafka_pairs(found: dict[str, Any]) -> Iterator[tuple[str, str | int]]:
    yield "site", f"{found['site']}, host {found['host_id']} of cluster {found['cluster_id']}"
    yield "cluster", f"{found['broker'] or 'not connected'}{'' if found['serving'] else ', not followed yet'}"
    for name, topic in found["topics"].items():
        yield (
            f"topic {name}",
            f"{topic['fetching']} of {topic['partitions']} partitions fetched, {topic['end']} records,"
            f" {topic['lag']} to come, leader epoch {topic['leader_epoch']}, {topic['hosts']} hosts",
        )
    yield "bytes that the cluster has sent", found["fetched_bytes"]
    yield "bytes of records of it", found["copied_bytes"]
    yield "bytes stored here", found["spool_bytes"]
    yield "produces that the cluster has taken", found["counters"]["published"]
    yield "cuts, because the cluster lost records", found["cuts"]
    yield "records removed before they were copied", found["missed"]
    for reason, count in found["counters"]["refused_there"].items():
        yield f"not produced: {reason}", count


def _bridge_pairs(found: dict[str, Any]) -> Iterator[tuple[str, str | int]]:
    yield "site", found["site"]
    yield "clusters", found["broker"] or "not connected"
    for name, way in found["ways"].items():
        yield (
            f"way {name}",
            f"{way['fetching']} of {way['partitions']} partitions read, {way['lag']} records to come,"
            f" {way['moved']} carried in {way['transactions']} transactions, {way['looped']} stay,"
            f" {way['groups']} groups{'' if way['serving'] else ', not served'}",
        )
    yield "bytes that the clusters have sent", found["fetched_bytes"]
    yield "cuts, because a source lost records", found["cuts"]
    yield "records removed before they were read", found["missed"]
    for reason, count in found["counters"]["refused_there"].items():
        yield f"not carried: {reason}", count


_PAIRS = {"kafka": _kafka_pairs, "kafka-bridge": _bridge_pairs, "mosquitto": _mosquitto_pairs}


def _print_troubles(found: dict[str, Any]) -> None:
    for trouble in found["troubles"]:
        say(f"WRONG: {trouble['what']}: {trouble['detail']}")


Found = tuple[str, str, str]


def _findings(config: Path) -> Iterator[Found]:
    from treecast.agents.common.settings import SettingsError, read_file, tables_of
    from treecast.middleware.daemon.agent import KINDS

    kind = next((one for one in KINDS if one in tables_of(config)), "rabbitmq")
    try:
        settings = read_file(config, KINDS[kind].settings_type())
        settings.check()
    except SettingsError as error:
        yield "settings", "bad", str(error)
        return
    yield "settings", "ok", f"{config}, site {settings.agent.name}"
    yield from _broker_findings(kind, settings)
    yield from _running(settings.agent.admin, kind)


def _broker_findings(kind: str, settings: Any) -> Iterator[Found]:
    if kind == "kafka":
        from treecast.agents.kafka.check import check_cluster

        return check_cluster(settings.kafka)
    if kind == "kafka-bridge":
        from treecast.agents.kafka_bridge.check import check_clusters

        return check_clusters(settings.bridge)
    if kind == "mosquitto":
        from treecast.agents.mosquitto.check import check_broker

        return check_broker(settings.agent, settings.mosquitto)
    from treecast.agents.rabbitmq.check import check_server

    return check_server(settings.rabbitmq)


def _running(admin: str, kind: str) -> Iterator[Found]:
    """Yields what the agent itself says, if it runs."""
    try:
        found = _asked(admin)
    except CommandError:
        yield "agent", "slow", f"it does not run: `treecast agent {kind} --config FILE`"
        return
    if not found["troubles"]:
        yield "agent", "ok", f"it serves {found['broker']}"
    for trouble in found["troubles"]:
        yield trouble["what"], "bad", trouble["detail"]
