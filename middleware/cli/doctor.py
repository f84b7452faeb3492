"""`treecast doctor`: whether this machine can run a daemon, check by check."""

from __future__ import annotations

import importlib
import os
import resource
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.discovery import OFF, Address, find_control, is_live, runtime_dirs

from .options import Json
from .output import CommandError, print_json, print_table

if TYPE_CHECKING:
    from treecast.middleware.api.rpc import Unreachable
    from treecast.middleware.api.v1 import daemon_pb2 as pb
    from treecast.middleware.model.errors import TreecastError

    Said = pb.StatusResponse | TreecastError | Unreachable

ENOUGH_FILES = 4096
LITTLE_SPACE = 256 << 20  # bytes
ENOUGH_BUFFER = 2 << 20  # bytes; as the kernel counts, twice what a socket asked for
DAEMON_SECONDS = 5.0
JOIN_SECONDS = 3.0
DAEMON = "treecast.middleware.daemon.daemon"  # loads all modules that are compiled where a compiler was found

_FACES = ("kafka", "mqtt", "stare", "admin", "control", "fabric")


@dataclass(frozen=True, slots=True)
class Finding:
    """`level`: ok, slow (works, with a loss) or bad (a daemon would not start)."""

    check: str
    level: str
    detail: str


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Check with these settings.")
    ] = None,
    json: Json = False,
) -> None:
    """Checks Python, compiled modules, data directory, ports and limits."""
    from treecast.middleware.daemon.config import ConfigError, load

    try:
        settings = load({}, os.environ, config).settings
    except ConfigError as error:
        raise CommandError(str(error)) from error
    running = _running()
    status = _status() if running else None
    findings = [
        _python(),
        _uvloop(),
        _compiled(),
        *_data_of(settings.data, status),
        *_ports({face: getattr(settings, face) for face in _FACES}, running),
        _runtime_dir(settings.runtime_dir),
        _open_files(),
        *_coordinator_of(settings.join),
        *(_cluster(status) if running else ()),
    ]
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(("check", "", "finding"), [(f.check, f.level, f.detail) for f in findings], empty="")
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
    from treecast.middleware.daemon.compiled import compiled_modules

    importlib.import_module(DAEMON)
    found = compiled_modules()
    if found:
        return Finding("hot modules", "ok", f"{len(found)} compiled")
    return Finding(
        "hot modules", "slow", "interpreted; install the package with gcc there, without TREECAST_PURE"
    )


def _data_of(chosen: str, status: Said | None) -> Iterator[Finding]:
    """The running daemon's directory, and what it says of itself; else the one that it would have."""
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    if not isinstance(status, pb.StatusResponse):
        yield _data(Path(chosen))
        return
    yield _data_in_use(status)
    yield from (Finding("daemon", "bad", problem) for problem in status.problems)


def _data_in_use(status: pb.StatusResponse) -> Finding:
    """By the daemon's own account: it may be another user's, where this one may not look."""
    free = status.resources.disk_free_bytes
    used = f"{status.data_dir}, in use by the daemon {status.name} (pid {status.pid})"
    if not status.resources.disk_bytes:
        return Finding("data directory", "ok", used)
    level = "slow" if free < LITTLE_SPACE else "ok"
    advice = ": give it more space, or delete topics or records" if level == "slow" else ""
    return Finding("data directory", level, f"{used}, {_gib(free)} free{advice}")


def _data(path: Path) -> Finding:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not _writable(existing):
        return Finding("data directory", "bad", f"{existing} is not writable; choose another with --data")
    free = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize
    state = "there" if path.exists() else "will be made"
    if free < LITTLE_SPACE:
        return Finding("data directory", "slow", f"{path} ({state}): only {_gib(free)} are free")
    return Finding("data directory", "ok", f"{path} ({state}, {_gib(free)} free)")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _ports(addresses: dict[str, str], running: str) -> Iterator[Finding]:
    from treecast.middleware.daemon.listeners import StartError, check_free

    for face, text in addresses.items():
        if text == OFF:
            continue
        try:
            check_free(face, Address.parse(text))
        except StartError as error:
            if running:
                yield Finding(f"{face} address", "ok", f"{text} in use; {running}")
            else:
                yield Finding(f"{face} address", "bad", str(error))
        else:
            yield Finding(f"{face} address", "ok", f"{text} is free")


def _running() -> str:
    """Whether a daemon runs here already."""
    endpoint = find_control()
    try:
        with socket.create_connection((endpoint.address.host, endpoint.address.port), 1.0):
            return f"a daemon's control address answers at {endpoint.address}"
    except OSError:
        return ""


def _runtime_dir(chosen: str) -> Finding:
    folders = [Path(chosen)] if chosen else runtime_dirs()
    for folder in folders:
        if _writable(folder) or (not folder.exists() and _writable(folder.parent)):
            live = [path.stem for path in sorted(folder.glob("*.sock")) if is_live(path)]
            return Finding(
                "runtime directory", "ok", f"{folder}" + (f", live: {' '.join(live)}" if live else "")
            )
    tried = ", ".join(map(str, folders))
    return Finding("runtime directory", "slow", f"none of {tried} is writable: no Unix sockets")


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _open_files() -> Finding:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < ENOUGH_FILES:
        return Finding("open files", "slow", f"at most {hard}: raise LimitNOFILE or `ulimit -Hn`")
    return Finding("open files", "ok", f"up to {hard:,}")


# --- the cluster that is to be joined


def _coordinator_of(join: str) -> Iterator[Finding]:
    """Whether somebody listens where `join` says."""
    if not join:
        return
    address = Address.parse(join)
    try:
        with socket.create_connection((address.host, address.port), JOIN_SECONDS):
            yield Finding("coordinator", "ok", f"somebody answers at {join}")
    except OSError as error:
        yield Finding(
            "coordinator",
            "bad",
            f"nobody answers at {join} ({error.strerror or error}): start the first daemon there, with"
            " --control on an address that this host can reach",
        )


# --- what the daemon that runs here says of its cluster


def _status() -> Said:
    """What the daemon that runs here says of itself, or why it does not."""
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.rpc import Unreachable
    from treecast.middleware.model.errors import TreecastError

    try:
        with DaemonClient(timeout=DAEMON_SECONDS) as client:
            return client.status()
    except (TreecastError, Unreachable) as error:
        return error


def _cluster(status: Said | None) -> Iterator[Finding]:
    """Join, coordinator and fabric of this host's daemon; nothing where it is alone."""
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.rpc import Unreachable
    from treecast.middleware.api.v1 import daemon_pb2 as pb
    from treecast.middleware.model.errors import TreecastError

    if not isinstance(status, pb.StatusResponse):
        yield Finding("daemon", "bad", f"it does not answer as it should: {status}")
        return
    try:
        with DaemonClient(timeout=DAEMON_SECONDS) as client:
            fabric = client.fabric() if status.HasField("coordinator") else None
    except (TreecastError, Unreachable) as error:
        yield Finding("daemon", "bad", f"it does not answer as it should: {error}")
        return
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
        f"{joined}, which is away ({found.problem or 'no answer'}): look at the daemon there; until it is"
        " back no topic can be created, and all else goes on",
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
            yield Finding(
                f"host {host.name}",
                "slow",
                f"no channel to {host.address}, {host.presence}: {reason}; both hosts' --fabric ports have to"
                " be open to each other, TCP and UDP",
            )


def _fabric(found: pb.FabricResponse) -> Finding:
    told = f", announced as {found.announced}" if found.announced != found.address else ""
    on = f"interface {found.interface}" if found.interface else "no interface of this host"
    detail = (
        f"{found.address}{told} on {on}, MTU {found.mtu}, segments of {found.segment_bytes} bytes,"
        f" receive buffer {found.receive_buffer / 2**20:.1f} MiB"
    )
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
