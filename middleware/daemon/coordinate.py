"""Runs a coordinator in the foreground, as a separate process, until a signal ends it.

  <data>/coordinator.db   its store, unless --store names a database that several coordinators share
  <data>/join-token       the token that hosts join with (mode 0600), created at the first start

With a shared store it may wait for the lead, or for the database; it is ready nevertheless. It watches disk
space and descriptors as a daemon does; log and status report problems.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.join_token import JoinToken, new_token
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control.elected import ElectedCoordinator
from treecast.middleware.control.postgres_session import shown
from treecast.middleware.control.server import CoordinatorServer, ServerSettings, new_id
from treecast.middleware.control.store import successor
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.disk import make_directory

from . import logs, tuning
from .config import Loaded
from .file_permissions import keep_private, tighten
from .listener_addresses import ListenerAddresses
from .listeners import StartError, check_free
from .notify import Notifier
from .resource_problems import COORDINATOR
from .resource_watch import RoomWatch, kept_of
from .run import FAILED, Signals, say
from .settings import STORE, Settings
from .tokens import given_token, keep_token, kept_token
from .view import view_process

# The daemon's settings that apply to a coordinator.
SETTINGS = (
    *("data", "control", "join_token", "store", "fsync", "fsync_interval_ms"),
    *("log_level", "log_format"),
)

_log = Log(__name__)


def run(loaded: Loaded) -> int:
    """Serves until SIGTERM, SIGINT or SIGHUP and returns the exit code. Prints one ready line to stdout."""
    keep_private()
    tuning.raise_open_files()
    logs.configure(loaded.settings)
    for remark in loaded.remarks:
        _log.warning("remark on the settings", detail=remark)
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
        chosen = _settings(loaded.settings, data)
        server = CoordinatorServer(chosen)
        await server.start()
        assert chosen.token is not None
        keep_token(data, chosen.token)  # not before the store has said that it is of this cluster
    except (StartError, TreecastError, OSError) as error:
        print(f"treecast coordinator: {error}", file=sys.stderr)
        return FAILED
    addresses = ListenerAddresses(lambda: {"control": str(server.address)})
    addresses.start()
    room = _watched(loaded.settings, data, server, addresses)
    cluster_id = server.opened.cluster_id
    notifier.send("READY=1", f"STATUS=coordinator of cluster {cluster_id}")
    if isinstance(server.opened, ElectedCoordinator):
        server.opened.on_role = lambda role: _tell(notifier, cluster_id, role)
    _log.info("coordinator serves", cluster=cluster_id, store=shown(chosen.database) or data)
    say(f"ready control={server.address}")
    tuning.freeze_heap()
    feeding = asyncio.create_task(_feed(notifier))
    await signals.first.wait()
    _log.info("stopping")
    notifier.send("STOPPING=1")
    feeding.cancel()
    addresses.close()
    await room.close()
    await server.close()
    notifier.close()
    _log.info("stopped")
    return 0


def _tell(notifier: Notifier, cluster_id: str, role: str) -> None:
    notifier.send(f"STATUS=coordinator of cluster {cluster_id}, {role}")


def _watched(
    settings: Settings, data: Path, server: CoordinatorServer, addresses: ListenerAddresses
) -> RoomWatch:
    """Starts to watch for problems; the coordinator's status contains them and data about the process."""
    opened, started = server.opened, time.monotonic()
    own = not isinstance(opened, ElectedCoordinator)  # a database's disk is elsewhere
    room = RoomWatch(str(data), lambda: opened.refused_writes if own else 0, COORDINATOR, admits=False)

    def about(status: pb.CoordinatorStatusResponse) -> None:
        process = view_process()
        status.pid, status.uptime_seconds = os.getpid(), time.monotonic() - started
        status.data_dir, status.fsync = str(data), settings.fsync.value
        status.resident_bytes, status.cpu_seconds = process.resident_bytes, process.cpu_seconds
        status.open_files, status.open_files_limit = process.open_files, process.open_files_limit
        if (space := room.troubles.space) is not None:
            status.disk_free_bytes, status.disk_bytes = space.free, space.size
        status.problems.extend([*room.troubles.texts(), *addresses.problems])

    server.describe(about)
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
    make_directory(str(data))
    tighten(data, STORE)
    return data


def _settings(settings: Settings, data: Path) -> ServerSettings:
    if settings.control == OFF:
        raise StartError("--control off: a coordinator needs an address; give HOST:PORT")
    address = check_free("control", Address.parse(settings.control))
    database = given_database(settings.store)
    if database and (data / STORE).exists() and not successor(data / STORE):
        raise StartError(
            f"{data / STORE} is a store of its own, and --store names another: copy it with `treecast"
            " copy-coordinator`, or give the coordinator another directory with --data"
        )
    token = _token(settings, data)
    return ServerSettings(
        address,
        data / STORE,
        token,
        fsync=settings.fsync,
        fsync_interval=settings.fsync_interval_ms / 1000,
        database=database,
        connections=coordinator_connections(),
    )


def coordinator_connections() -> int:
    """Returns how many connections leave enough descriptors for the store."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(limit - limit // 8 - kept_of(limit), 8)


def given_database(store: str) -> str:
    """Returns the URL of `--store URL|@FILE`. Raises StartError."""
    url = store
    if store.startswith("@"):
        try:
            url = Path(store[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"--store {store}: the file cannot be read: {error}") from error
    if url and not url.startswith(("postgresql://", "postgres://")):
        raise StartError("--store: expected postgresql://USER@HOST/DATABASE, or @FILE with that")
    return url


def _token(settings: Settings, data: Path) -> JoinToken:
    kept = kept_token(data)
    token = given_token(settings.join_token) if settings.join_token else kept or new_token(new_id())
    if kept is not None and kept.cluster_id != token.cluster_id:
        raise StartError(f"{data} is of cluster {kept.cluster_id}, and the join token of {token.cluster_id}")
    return token
