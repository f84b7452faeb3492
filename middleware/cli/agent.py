"""`treecast agent`: runs an agent beside a broker that already stands, and asks one how it is."""

from __future__ import annotations

import http.client
import json as json_module
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treecast.middleware.api.discovery import Address

from .options import Json
from .output import CommandError, print_json, print_pairs, print_table, say

if TYPE_CHECKING:
    from treecast.agents.kafka.settings import KafkaAgentSettings
    from treecast.agents.rabbitmq.settings import RabbitAgentSettings

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
    from treecast.middleware.daemon.agent import run_rabbitmq

    raise typer.Exit(run_rabbitmq(config))


@app.command()
def kafka(config: Config) -> None:
    """Runs the agent beside a Kafka cluster, in the foreground: follows its topics."""
    from treecast.middleware.daemon.agent import run_kafka

    raise typer.Exit(run_kafka(config))


@app.command()
def status(admin: Admin = None, json: Json = False) -> None:
    """Shows what a running agent carries, its counts, and what is wrong."""
    found = _asked(admin or _DEFAULT_ADMIN)
    if json:
        print_json(found)
    else:
        print_pairs(list(_kafka_pairs(found) if found["kind"] == "kafka" else _pairs(found)))
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


def _pairs(found: dict[str, Any]) -> Iterator[tuple[str, str | int]]:
    counters = found["counters"]
    yield "site", f"{found['site']}, host {found['host_id']} of cluster {found['cluster_id']}"
    yield "broker", f"{found['broker'] or 'not connected'}{'' if found['serving'] else ', not served'}"
    yield "bindings are known by", found["interest"]
    yield "exchanges", ", ".join(f"{name} ({kind})" for name, kind in sorted(found["exchanges"].items()))
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


def _print_troubles(found: dict[str, Any]) -> None:
    for trouble in found["troubles"]:
        say(f"WRONG: {trouble['what']}: {trouble['detail']}")


Found = tuple[str, str, str]


def _findings(config: Path) -> Iterator[Found]:
    from treecast.agents.common.settings import SettingsError, read_file, tables_of
    from treecast.agents.rabbitmq.check import check_server
    from treecast.agents.rabbitmq.settings import RabbitAgentSettings

    if "kafka" in tables_of(config):
        yield from _kafka_findings(config)
        return
    try:
        settings = read_file(config, RabbitAgentSettings)
        settings.check()
    except SettingsError as error:
        yield "settings", "bad", str(error)
        return
    yield "settings", "ok", f"{config}, site {settings.agent.name}"
    yield from check_server(settings.rabbitmq)
    yield from _running(settings)


def _kafka_findings(config: Path) -> Iterator[Found]:
    from treecast.agents.common.settings import SettingsError, read_file
    from treecast.agents.kafka.check import check_cluster
    from treecast.agents.kafka.settings import KafkaAgentSettings

    try:
        settings = read_file(config, KafkaAgentSettings)
        settings.check()
    except SettingsError as error:
        yield "settings", "bad", str(error)
        return
    yield "settings", "ok", f"{config}, site {settings.agent.name}"
    yield from check_cluster(settings.kafka)
    yield from _running(settings, "kafka")


def _running(settings: RabbitAgentSettings | KafkaAgentSettings, kind: str = "rabbitmq") -> Iterator[Found]:
    """Yields what the agent itself says, if it runs."""
    try:
        found = _asked(settings.agent.admin)
    except CommandError:
        yield "agent", "slow", f"it does not run: `treecast agent {kind} --config FILE`"
        return
    if not found["troubles"]:
        yield "agent", "ok", f"it serves {found['broker']}"
    for trouble in found["troubles"]:
        yield trouble["what"], "bad", trouble["detail"]
