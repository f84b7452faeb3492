"""The data directory: its owner, its format, and the lock that restricts it to one daemon.

meta.json        {"format": 1, "cluster_id": "...", "host_id": 1}; on a joined host also `Membership`'s fields
lock             locked (flock) while a daemon runs; holds its process id
run              the number of the last run: the count of openings, unless it was raised
runs, stamp      the ids of its runs, and how far the present one has come: `model.runs`
clean-shutdown   exists after an orderly close, removed while a daemon runs
tables.sqlite    `storage.tables`
tables.log/      the log of changes in front of it: `storage.table_log`
logs/            one directory per partition
summaries/       what a start trusts about the logs: `storage.summaries`
pubsub/          the journal of publish/subscribe: `pubsub.journal`
queues/          the log of queues: `queues.block_store`
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.runs import RunMark, begun, read_runs, write_runs
from treecast.middleware.storage.disk import Disk, make_directory

FORMAT = 1
ALONE = 1  # the host id of a standalone host
_META, _LOCK, _CLEAN, _RUN = "meta.json", "lock", "clean-shutdown", "run"
_RUNS, _STAMP = "runs", "stamp"
# The entries that a directory may hold before its first use. The last entries belong to a coordinator whose
# store was restored.
_HARMLESS = {
    *(_LOCK, _META + ".new", "lost+found"),
    *("users.toml", "users.lock", "users.new"),  # users may be added before the first start
    *("trust", "treecast.toml", "secured.toml"),  # of `treecast init --secure`, and of a host that has joined
    *("join-token", "coordinator.db", "coordinator.db-wal", "coordinator.db-shm"),
}


class DataDirectoryError(TreecastError):
    """The data directory cannot be used as it is. `detail` says why and what to do; nothing was changed."""

    def __init__(self, detail: str) -> None:
        super().__init__(Fault.STORAGE, detail)


class Membership(Struct, frozen=True):
    """The data about its cluster that a joined host stores, besides its id.

    `name`: the name under which the coordinator knows the host. `instance`: drawn at the first join;
    distinguishes this data directory from others of the same name. `coordinator`: HOST:PORT, empty if the
    coordinator uses this directory.
    """

    name: str
    instance: str
    coordinator: str


class Meta(Struct, frozen=True):
    """The contents of `meta.json`. `membership` None: a standalone host."""

    format: int
    cluster_id: str
    host_id: int
    membership: Membership | None = None


class DataDirectory:
    """An open, locked data directory. `was_clean`: the last daemon closed it in order, or it is new.

    `run` counts its openings from 1 and survives power failures. A directory that was restored counts on from
    the number that it had: what no other state of it has are the ids in `runs`, of which the last is this
    run's. The number is raised (`raise_run`) if a joined host's name had later runs than the directory knows.
    """

    def __init__(
        self,
        path: Path,
        meta: Meta,
        lock: int,
        *,
        was_clean: bool,
        run: int = 1,
        runs: tuple[RunMark, ...] = (),
    ) -> None:
        self.path = path
        self.meta = meta
        self.was_clean = was_clean
        self.run = run
        self.runs = runs
        self._lock = lock

    @classmethod
    def open(cls, path: Path, host_id: int | None, cluster_id: str) -> DataDirectory:
        """Opens `path`, or makes a new directory of `cluster_id`. Raises DataDirectoryError.

        `host_id` is that of a standalone host. None: the caller is going to join a cluster and accepts the
        directory as it is; a new directory is that of an empty standalone host.
        """
        try:
            known = _read_meta(path, host_id)
            make_directory(str(path))
            lock = _take_lock(path)
        except OSError as error:
            raise DataDirectoryError(f"cannot use data directory {path}: {error.strerror}") from error
        try:
            fresh = Meta(FORMAT, cluster_id, host_id or ALONE)
            # Read again under the lock: another daemon may have made it in between.
            meta = known or _read_meta(path, host_id) or _write_meta(path, fresh)
            clean = known is None or (path / _CLEAN).exists()
            # Gone, and forced to the disk below, before anything is written: a power loss must not bring the
            # mark back.
            (path / _CLEAN).unlink(missing_ok=True)
            (path / "logs").mkdir(mode=0o750, exist_ok=True)
            run, runs = _next_run(path), _begin_run(path)
            _sync(path)
        except OSError as error:
            os.close(lock)
            raise DataDirectoryError(f"cannot write data directory {path}: {error.strerror}") from error
        except BaseException:
            os.close(lock)
            raise
        return cls(path, meta, lock, was_clean=clean, run=run, runs=runs)

    @staticmethod
    @contextmanager
    def held(path: Path) -> Iterator[Meta | None]:
        """Keeps daemons away from `path`, which exists. Yields what it is; None: no daemon has used it yet.
        Raises DataDirectoryError, as if a daemon uses it now.
        """
        lock = _take_lock(path)
        try:
            yield _read_meta(path, None)
        finally:
            os.close(lock)

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def summaries(self) -> Path:
        return self.path / "summaries"

    @property
    def pubsub(self) -> Path:
        return self.path / "pubsub"

    @property
    def queues(self) -> Path:
        return self.path / "queues"

    @property
    def tables(self) -> Path:
        return self.path / "tables.sqlite"

    def join(self, cluster_id: str, host_id: int, membership: Membership) -> None:
        """Stores the host's identity in its cluster durably. Raises DataDirectoryError."""
        self._keep(Meta(FORMAT, cluster_id, host_id, membership))

    def leave(self) -> None:
        """Makes the host standalone from now on. Raises DataDirectoryError."""
        self._keep(Meta(FORMAT, self.meta.cluster_id, ALONE))

    def raise_run(self, run: int) -> None:
        """Raises the number of this run, as lower ones were used elsewhere. Raises DataDirectoryError."""
        if run <= self.run:
            return
        try:
            self.run = _write_run(self.path, run)
            _sync(self.path)
        except OSError as error:
            raise DataDirectoryError(f"cannot write data directory {self.path}: {error.strerror}") from error

    def move_stamp(self) -> int:
        """Raises this run's stamp on disk, and returns it. May run on a thread of its own.

        Forced before anybody hears of it, under each fsync policy: else a directory that merely lost its last
        moments with the power would be taken for an older one. Raises OSError.
        """
        if self._lock < 0:
            return self.runs[-1].stamp
        last = self.runs[-1]
        moved = RunMark(last.id, last.stamp + 1)
        _write_stamp(self.path, moved)
        self.runs = (*self.runs[:-1], moved)
        return moved.stamp

    def _keep(self, meta: Meta) -> None:
        if meta == self.meta:
            return
        try:
            self.meta = _write_meta(self.path, meta)
            _sync(self.path)
        except OSError as error:
            raise DataDirectoryError(f"cannot write data directory {self.path}: {error.strerror}") from error

    def close(self, *, clean: bool) -> None:
        """Releases the lock; with `clean`, records that everything was flushed."""
        if self._lock < 0:
            return
        try:
            if clean:
                (self.path / _CLEAN).write_bytes(b"")
                _sync(self.path)
        finally:
            os.close(self._lock)
            self._lock = -1


def _read_meta(path: Path, host_id: int | None) -> Meta | None:
    """Returns the directory's metadata, or None if it is new. Only reads."""
    if not path.exists():
        return None
    if not path.is_dir():
        raise DataDirectoryError(f"{path} is not a directory; give another with --data")
    try:
        content = (path / _META).read_bytes()
    except FileNotFoundError:
        strangers = sorted(entry.name for entry in path.iterdir() if entry.name not in _HARMLESS)
        if strangers:
            raise DataDirectoryError(
                f"{path} holds {strangers[0]!r} but no {_META}: it is no data directory of Treecast;"
                " give an empty or a new directory with --data"
            ) from None
        return None
    return _checked(path, content, host_id)


def _checked(path: Path, content: bytes, host_id: int | None) -> Meta:
    try:
        values = json.loads(content)
        found = int(values["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataDirectoryError(
            f"{path / _META} cannot be read ({error}); restore it, or give another directory with --data"
        ) from error
    if found != FORMAT:
        raise DataDirectoryError(
            f"{path} has data format {found}, this Treecast reads format {FORMAT}: run the Treecast"
            f" release that wrote it, or give another directory with --data"
        )
    try:
        meta = Meta(
            found,
            str(values["cluster_id"]),
            int(values["host_id"]),
            _membership(values.get("membership")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataDirectoryError(f"{path / _META} lacks {error}; restore it") from error
    if host_id is not None and meta.membership is not None:
        raise DataDirectoryError(
            f"{path} belongs to host {meta.membership.name!r} of cluster {meta.cluster_id}, which is joined"
            " to others: start it with --fabric HOST:PORT"
        )
    if host_id is not None and meta.host_id != host_id:
        raise DataDirectoryError(
            f"{path} belongs to host id {meta.host_id}, this daemon is host id {host_id}:"
            " give each host a data directory of its own with --data"
        )
    return meta


def _membership(values: Mapping[str, object] | None) -> Membership | None:
    if values is None:
        return None
    return Membership(str(values["name"]), str(values["instance"]), str(values["coordinator"]))


def _write_meta(path: Path, meta: Meta) -> Meta:
    values: dict[str, object] = {
        "format": meta.format,
        "cluster_id": meta.cluster_id,
        "host_id": meta.host_id,
    }
    if meta.membership is not None:
        values["membership"] = {
            "name": meta.membership.name,
            "instance": meta.membership.instance,
            "coordinator": meta.membership.coordinator,
        }
    _replace(path / _META, json.dumps(values).encode() + b"\n")
    return meta


def _next_run(path: Path) -> int:
    """Returns the number of this run, after writing it. The caller makes the directory durable."""
    try:
        run = int((path / _RUN).read_bytes()) + 1
    except (FileNotFoundError, ValueError):
        run = 1
    return _write_run(path, run)


def _write_run(path: Path, run: int) -> int:
    _replace(path / _RUN, b"%d\n" % run)
    return run


def _begin_run(path: Path) -> tuple[RunMark, ...]:
    """Returns the directory's runs with a new one, after writing them. The caller makes the directory
    durable.

    A directory of an earlier version has none yet.
    """
    runs = begun(read_runs(_content(path / _RUNS)), _content(path / _STAMP), secrets.token_hex(8))
    _replace(path / _RUNS, write_runs(runs))  # before the stamp, which belongs to the last of them
    _write_stamp(path, runs[-1])
    return tuple(runs)


def _write_stamp(path: Path, run: RunMark) -> None:
    """Overwrites the stamp in place: so few bytes are written whole or not at all."""
    file = os.open(path / _STAMP, os.O_WRONLY | os.O_CREAT, 0o640)
    try:
        os.pwrite(file, write_runs([run]), 0)
        os.fdatasync(file)
    finally:
        os.close(file)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _take_lock(path: Path) -> int:
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise DataDirectoryError(
            f"{path} is in use by another daemon (process {holder}): stop it, or give another"
            " directory with --data"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def _sync(path: Path) -> None:
    """Makes the directory's entries durable (fsync)."""
    Disk().sync_directory(str(path))
