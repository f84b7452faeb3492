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
from typing import Annotated

import typer

from treecast.middleware.api.discovery import OFF, Address, find_control, is_live, runtime_dirs

from .options import Json
from .output import CommandError, print_json, print_table

ENOUGH_FILES = 4096
DAEMON = "treecast.middleware.daemon.daemon"  # loads all modules that are compiled where a compiler was found


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
    findings = [
        _python(),
        _uvloop(),
        _compiled(),
        _data(Path(settings.data)),
        *_ports({face: getattr(settings, face) for face in ("kafka", "admin", "control")}),
        _runtime_dir(settings.runtime_dir),
        _open_files(),
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


def _data(path: Path) -> Finding:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not _writable(existing):
        return Finding("data directory", "bad", f"{existing} is not writable; choose another with --data")
    free = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize
    state = "there" if path.exists() else "will be made"
    return Finding("data directory", "ok", f"{path} ({state}, {free / 2**30:.1f} GiB free)")


def _ports(addresses: dict[str, str]) -> Iterator[Finding]:
    from treecast.middleware.daemon.listeners import StartError, check_free

    running = _running()
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
