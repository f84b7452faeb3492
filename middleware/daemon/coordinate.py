"""Runs a coordinator in the foreground, as a separate process, until a signal ends it.

<data>/coordinator.db   its store <data>/join-token       the token that hosts join with (mode 0600), created
at the first start

It watches disk space and descriptors as a daemon does; log and status report problems.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.join_token import JoinToken, new_token
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control.server import CoordinatorServer, ServerSettings, new_id
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from . import logs, tuning
from .config import Loaded
from .listeners import StartError, check_free
from .notify import Notifier
from .private import DIRECTORY_MODE, keep_private, tighten
from .room import RoomWatch
from .run import FAILED, Signals, say
from .settings import STORE, Settings
from .tokens import given_token, keep_token, kept_token
from .troubles import COORDINATOR
from .view import view_process

# The daemon's settings that apply to a coordinator.
SETTINGS = ("data", "control", "join_token", "fsync", "log_level", "log_format")

_log = Log(__name__)


def run(loaded: Loaded) -> int:
    """Serves until SIGTERM, SIGINT or SIGHUP and returns the exit code. Prints one ready line to stdout."""
    keep_private()
    tuning.raise_open_files()
    logs.configure(loaded.settings)
    for remark in loaded.remarks:
        _log.warning("environment variable is ignored", detail=remark)
    with asyncio.Runner(loop_factory=tuning.new_event_loop) as runner:
        return runner.run(_serve(loaded))


def own_data(loaded: Loaded) -> Path:
    """Returns its data directory: by default one beside the daemon's, which must not be shared."""
    named = "data" in loaded.sources or os.environ.get("STATE_DIRECTORY")
    return Path(loaded.settings.data if named else loaded.settings.data + "-coordinator")


async def _serve(loaded: Loaded) -> int:
    signals, notifier = Signals(), Notifier(os.environ)
    try:
        data = _opened(own_data(loaded))
        server = CoordinatorServer(_settings(loaded.settings, data))
        await server.start()
    except (StartError, TreecastError, OSError) as error:
        print(f"treecast coordinator: {error}", file=sys.stderr)
        return FAILED
    room = _watched(loaded.settings, data, server)
    notifier.send("READY=1", f"STATUS=coordinator of cluster {server.coordinator.cluster_id}")
    _log.info("coordinator serves", cluster=server.coordinator.cluster_id, path=data)
    say(f"ready control={server.address}")
    tuning.freeze_heap()
    feeding = asyncio.create_task(_feed(notifier))
    await signals.first.wait()
    _log.info("stopping")
    notifier.send("STOPPING=1")
    feeding.cancel()
    await room.close()
    await server.close()
    notifier.close()
    _log.info("stopped")
    return 0


def _watched(settings: Settings, data: Path, server: CoordinatorServer) -> RoomWatch:
    """Starts to watch for problems; the coordinator's status contains them and data about the process."""
    coordinator, started = server.coordinator, time.monotonic()
    room = RoomWatch(str(data), lambda: coordinator.refused_writes, COORDINATOR, admits=False)

    def about(status: pb.CoordinatorStatusResponse) -> None:
        process = view_process()
        status.pid, status.uptime_seconds = os.getpid(), time.monotonic() - started
        status.data_dir, status.fsync = str(data), settings.fsync.value
        status.resident_bytes, status.cpu_seconds = process.resident_bytes, process.cpu_seconds
        status.open_files, status.open_files_limit = process.open_files, process.open_files_limit
        if (space := room.troubles.space) is not None:
            status.disk_free_bytes, status.disk_bytes = space.free, space.size
        status.problems.extend(room.troubles.texts())

    server.service.about = about
    room.start()
    return room


async def _feed(notifier: Notifier) -> None:
    """Feeds the service manager's watchdog, if there is one."""
    while notifier.watchdog_seconds is not None:
        notifier.send("WATCHDOG=1")
        await asyncio.sleep(notifier.watchdog_seconds)


def _opened(data: Path) -> Path:
    if (data / "meta.json").exists():
        raise StartError(
            f"{data} is a daemon's data directory: give the coordinator one of its own with --data;"
            " a daemon without --join already contains a coordinator"
        )
    data.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    tighten(data, STORE)
    return data


def _settings(settings: Settings, data: Path) -> ServerSettings:
    if settings.control == OFF:
        raise StartError("--control off: a coordinator needs an address; give HOST:PORT")
    address = check_free("control", Address.parse(settings.control))
    return ServerSettings(address, data / STORE, _token(settings, data), fsync=settings.fsync)


def _token(settings: Settings, data: Path) -> JoinToken:
    kept = kept_token(data)
    token = given_token(settings.join_token) if settings.join_token else kept or new_token(new_id())
    if kept is not None and kept.cluster_id != token.cluster_id:
        raise StartError(f"{data} is of cluster {kept.cluster_id}, and the join token of {token.cluster_id}")
    keep_token(data, token)
    return token
