"""`treecast doctor`: checks the local daemon, or whether this machine can run one."""

from __future__ import annotations

import importlib
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.discovery import OFF, Address, Endpoint, is_live
from treecast.middleware.daemon.faces import listeners
from treecast.middleware.model.topic_config import WISHED_COPIES

from .options import Control, Json, control_at
from .output import CommandError, print_json, print_table

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb

ENOUGH_FILES = 4096
ENOUGH_BUFFER = 2 << 20  # bytes, as the kernel counts: twice what a socket requested
LITTLE_SPACE = 1 << 30
PROBE_SECONDS = 1.0
DAEMON_SECONDS = 5.0
JOIN_SECONDS = 3.0
SOON_DAYS = 30  # before the end of a certificate


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `level`: ok, slow (works, with a loss) or bad (a daemon would not start)."""

    check: str
    level: str
    detail: str


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Check with these settings.")
    ] = None,
    json: Json = False,
    control: Control = None,
) -> None:
    """Checks Python, compiled modules, data directory, ports and limits.

    If a daemon runs already, that daemon is asked; settings apply to one that is to be started.
    """
    from treecast.middleware.daemon.config import ConfigError, load

    try:
        settings = load({}, os.environ, config).settings
    except ConfigError as error:
        raise CommandError(str(error)) from error
    endpoint = control_at(control)
    running = _running(endpoint)
    if isinstance(running, Running):
        findings = [_python(), *_daemon(running), *_cluster(running)]
    else:
        findings = [
            *([running] if running is not None else []),
            _python(),
            _uvloop(),
            _compiled(),
            _data(Path(settings.data)),
            *_ports({face: getattr(settings, face) for face in listeners()}),
            _runtime_dir(settings.runtime_dir),
            _open_files(),
            *_coordinator_of(settings.join),
        ]
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(("check", "level", "detail"), [(f.check, f.level, f.detail) for f in findings], empty="")
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


def _python() -> Finding:
    return Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _uvloop() -> Finding:
    try:
        version = importlib.import_module("uvloop").__version__
    except ImportError:
        return Finding("event loop", "slow", "asyncio's own; `pip install uvloop` gives a faster one")
    return Finding("event loop", "ok", f"uvloop {version}")


def _compiled() -> Finding:
    from treecast.middleware.daemon.compiled import compiled_modules, why_interpreted

    if compiled := len(compiled_modules()):
        return Finding("hot modules", "ok", f"{compiled} compiled")
    return Finding("hot modules", "slow", f"interpreted: {why_interpreted()}")


def _data(path: Path) -> Finding:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not _writable(existing):
        return Finding("data directory", "bad", f"{existing} is not writable; choose another with --data")
    free = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize
    state = "there" if path.exists() else "will be made"
    return Finding("data directory", "ok", f"{path} ({state}, {free / 2**30:.1f} GiB free)")


def _ports(addresses: dict[str, str]) -> Iterator[Finding]:
    from treecast.middleware.daemon.listeners import StartError, check_free

    for face, text in addresses.items():
        if text == OFF:
            continue
        flag = face.replace("_", "-")
        try:
            check_free(flag, Address.parse(text))
        except StartError as error:
            yield Finding(f"{flag} address", "bad", str(error))
        else:
            yield Finding(f"{flag} address", "ok", f"{text} is free")


def _runtime_dir(chosen: str) -> Finding:
    from treecast.middleware.daemon.runtime_dir import candidates, refusal

    reasons = []
    for folder, named in candidates(chosen, os.environ):
        if reason := refusal(folder, named=named):
            reasons.append(f"{folder}: {reason}")
            continue
        live = [path.stem for path in sorted(folder.glob("*.sock")) if is_live(path)]
        return Finding("runtime directory", "ok", f"{folder}" + (f", live: {' '.join(live)}" if live else ""))
    return Finding("runtime directory", "slow", f"no Unix sockets: {'; '.join(reasons)}")


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _open_files() -> Finding:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < ENOUGH_FILES:
        return Finding("open files", "slow", f"at most {hard}: raise LimitNOFILE or `ulimit -Hn`")
    return Finding("open files", "ok", f"up to {hard:,}")


# --- the cluster that is to be joined


def _coordinator_of(join: str) -> Iterator[Finding]:
    """Yields whether somebody listens at each address of `join`."""
    for text in join.split(",") if join else ():
        yield _listener(text.strip())


def _listener(text: str) -> Finding:
    address = Address.parse(text)
    try:
        with socket.create_connection((address.host, address.port), JOIN_SECONDS):
            return Finding("coordinator", "ok", f"somebody answers at {text}")
    except OSError as error:
        return Finding(
            "coordinator",
            "bad",
            f"nobody answers at {text} ({error.strerror or error}): start the first daemon there, with"
            " --control on an address that this host can reach",
        )


# --- the daemon that runs here


@dataclass(frozen=True, slots=True)
class Running:
    """A running daemon's answers. `fabric`: None for a host alone. `not_by_tcp`: why it answers by its Unix
    socket alone."""

    endpoint: Endpoint
    status: pb.StatusResponse
    fabric: pb.FabricResponse | None
    topics: Sequence[pb.Topic]
    not_by_tcp: str = ""


def _running(endpoint: Endpoint) -> Running | Finding | None:
    """Returns the daemon's answers; None if nobody listens; a finding if the listener does not answer as a
    daemon.
    """
    reason = _not_by_tcp(endpoint)
    if reason and endpoint.socket is None:
        return None
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.rpc import Unreachable
    from treecast.middleware.model.errors import TreecastError

    try:
        with DaemonClient(endpoint, timeout=DAEMON_SECONDS) as client:
            status = client.status()
            fabric = client.fabric() if status.HasField("coordinator") else None
            topics = client.list_topics()
    except (TreecastError, Unreachable) as error:
        return Finding("daemon", "bad", f"at {endpoint} somebody does not answer as a daemon does: {error}")
    return Running(endpoint, status, fabric, topics, reason)


def _not_by_tcp(endpoint: Endpoint) -> str:
    """Returns why nobody answers at the TCP address, where a Unix socket may answer all the same; empty if
    somebody does.
    """
    try:
        socket.create_connection((endpoint.address.host, endpoint.address.port), PROBE_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error) or "no answer"
    return ""


def _daemon(running: Running) -> Iterator[Finding]:
    """Yields findings on its process, directory, faces and limits."""
    status = running.status
    yield Finding(
        "daemon",
        "ok",
        f"{status.name} runs, pid {status.pid}, and answers at {running.endpoint}"
        f" (found by {running.endpoint.source})",
    )
    uvloop = status.event_loop == "uvloop"
    advice = "" if uvloop else "; `pip install uvloop` gives a faster one"
    yield Finding("event loop", "ok" if uvloop else "slow", f"{status.event_loop}{advice}")
    if status.compiled_modules:
        yield Finding("hot modules", "ok", f"{len(status.compiled_modules)} compiled")
    else:
        yield Finding("hot modules", "slow", f"interpreted: {status.why_interpreted}")
    free = status.resources.disk_free_bytes
    level = "ok" if free >= LITTLE_SPACE else "slow"
    yield Finding("data directory", level, f"{status.data_dir} ({free / 2**30:.1f} GiB free)")
    yield from (_face(face, running) for face in status.faces)
    folders = sorted({str(Path(face.unix_socket).parent) for face in status.faces if face.unix_socket})
    yield Finding(
        "runtime directory", "ok" if folders else "slow", ", ".join(folders) or "none: no Unix sockets"
    )
    used, limit = status.resources.open_files, status.resources.open_files_limit
    told = f"{used:,} of {limit:,}"
    if limit < ENOUGH_FILES:
        yield Finding("open files", "slow", f"{told}: raise LimitNOFILE or `ulimit -Hn`")
    else:
        yield Finding("open files", "ok", told)
    yield from (Finding("daemon", "bad", problem) for problem in status.problems)
    yield from (_certificate(one, time.time()) for one in status.certificates)
    yield from (Finding("coordinator", "bad", text) for text in status.coordinator.missing)
    yield from _copies(running)


def _certificate(one: pb.Certificate, now: float) -> Finding:
    days = int((one.ends_at - now) // 86_400)
    when = datetime.fromtimestamp(one.ends_at, UTC).strftime("%Y-%m-%d")
    if days < 0:
        return Finding("certificate", "bad", f"{one.what} ended on {when}: nobody accepts it any more")
    said = f"{one.what} ends on {when}, in {days} days"
    if days < SOON_DAYS:
        return Finding("certificate", "slow", f"{said}: put another into its place, which is read at once")
    return Finding("certificate", "ok", said)


def _face(face: pb.Face, running: Running) -> Finding:
    check = f"{face.name} address"
    if face.gone:
        return Finding(
            check, "bad", f"{face.address} is on no interface of this host: nobody reaches it there"
        )
    if face.name == "control" and running.not_by_tcp:
        return Finding(
            check,
            "bad",
            f"{face.address} does not answer ({running.not_by_tcp}), and {running.endpoint.socket} does: look"
            " whether a firewall of this host refuses it",
        )
    return Finding(check, "ok", f"{face.address} is served")


def _copies(running: Running) -> Iterator[Finding]:
    """Yields a finding on topics whose creators requested more copies than the leader's."""
    wishing = [topic.name for topic in running.topics if int(topic.overrides.get(WISHED_COPIES, "1")) > 1]
    if not wishing:
        return
    alone = running.fabric is None
    are = "each partition has one" if alone else "each has a copy at its leader and at hosts that read it"
    yield Finding(
        "copies",
        "slow",
        f"topics that ask for more copies than there are, such as {wishing[0]}: {len(wishing)}; {are};"
        " `treecast topics describe` counts them",
    )


def _cluster(running: Running) -> Iterator[Finding]:
    """Yields findings on join, coordinator and fabric."""
    status, fabric = running.status, running.fabric
    if fabric is None:
        yield Finding("cluster", "ok", f"{status.name} is a host alone")
        return
    yield _coordinator(status)
    yield from _hosts(status)
    yield _fabric(fabric)
    yield from (_carrier(carrier) for carrier in fabric.carriers)


def _coordinator(status: pb.StatusResponse) -> Finding:
    found = status.coordinator
    where = f"at {found.address}" if found.address else "in this daemon"
    joined = f"{status.name} is host {status.host_id} of cluster {status.cluster_id}, coordinator {where}"
    if found.reachable:
        return Finding("cluster", "ok", f"{joined}, revision {found.revision}")
    return Finding(
        "cluster",
        "slow",
        f"{joined}, which is away ({found.problem or 'no answer'}): look at the daemon there, and whether its"
        " host still has that address; until it is back no topic can be created, and all else goes on",
    )


def _hosts(status: pb.StatusResponse) -> Iterator[Finding]:
    for host in status.hosts:
        if host.here or host.presence == "detached":
            continue
        if host.channel.connected:
            trip = f", round trip {host.channel.round_trip_seconds * 1000:.2f} ms"
            said = f"connected to {host.address}{trip if host.channel.round_trip_seconds else ''}"
            yield Finding(f"host {host.name}", "ok", said)
        else:
            reason = host.channel.last_error or "no connection yet"
            step = f"; {host.channel.advice}" if host.channel.advice else ""
            said = f"no channel to {host.address}, {host.presence}: {reason}{step}"
            yield Finding(f"host {host.name}", "slow", said)


def _fabric(found: pb.FabricResponse) -> Finding:
    told = f", announced as {found.announced}" if found.announced != found.address else ""
    on = f"interface {found.interface}" if found.interface else "no interface of this host"
    detail = (
        f"{found.address}{told} on {on}, MTU {found.mtu}, segments of {found.segment_bytes} bytes,"
        f" receive buffer {found.receive_buffer / 2**20:.1f} MiB"
    )
    if not found.interface and found.announced == found.address:
        return Finding("fabric", "bad", f"{detail}: nothing reaches it")
    if found.receive_buffer < ENOUGH_BUFFER:
        return Finding("fabric", "slow", f"{detail}: raise net.core.rmem_max to {ENOUGH_BUFFER} for bursts")
    return Finding("fabric", "ok", detail)


def _carrier(found: pb.CarrierStatus) -> Finding:
    if found.refusal:
        return Finding(f"carrier {found.name}", "slow", f"not used: {found.refusal}")
    parts = [f"{found.targets} targets"]
    if found.holders:
        parts.append(f"{found.holders} sockets hold memberships")
    parts.append(f"UDP_SEGMENT {'on' if found.segmentation else 'off'}")
    parts.append(f"UDP_GRO {'on' if found.coalescing else 'off'}")
    if found.one_by_one:
        parts.append(f"bursts are refused on the way to {', '.join(found.one_by_one)}")
    return Finding(f"carrier {found.name}", "ok", ", ".join(parts))
