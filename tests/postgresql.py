"""PostgreSQL servers for tests: real ones, on loopback, in folders of their own, also as primary and standby.

They run as an unprivileged user where the tests run as root, because PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.core.ports import free_port

WAIT = 60.0
_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # no test takes the power away
    "shared_buffers": "16MB",
    "max_connections": "40",
    "wal_keep_size": "64MB",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",
    "log_min_messages": "warning",
}


def programs() -> Path | None:
    """The folder of the newest PostgreSQL's programs; None without one."""
    found = shutil.which("initdb")
    return _PLACES[-1] if _PLACES else Path(found).resolve().parent if found else None


class PostgresServer:
    """One server, on a port that it keeps; `start` and `stop` may alternate. `close` removes its folder."""

    def __init__(
        self, *, of: PostgresServer | None = None, port: int = 0, within: Sequence[str] = ()
    ) -> None:
        """Makes a new server; a standby of a running one if `of` is given. `within`: words that begin each of
        its commands, for example those that enter a network namespace."""
        found = programs()
        assert found is not None, "PostgreSQL is not installed"
        self._programs = found
        self._folder = Path(tempfile.mkdtemp(prefix="treecast-postgresql-"))
        self._data = self._folder / "data"
        user = _unprivileged()
        # not by subprocess's `user`: that forks, which gRPC in the same process does not always survive
        self._within = list(within)
        self._before = list(within)
        if user is not None:
            self._before += ["setpriv", f"--reuid={user}", "--clear-groups", "--"]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port or free_port()
        if user is not None:
            shutil.chown(self._folder, user)
        if of is None:
            self._ran("initdb", "-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N")
        else:
            source = ["-h", "127.0.0.1", "-p", str(of.port), "-U", "postgres"]
            self._ran(
                "pg_basebackup", "-D", str(self._data), *source, "-R", "-X", "stream", "-c", "fast", "-N"
            )

    def _ran(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [*self._before, str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT,
            cwd=self._folder,
        )
        assert done.returncode == 0, f"{program}: {done.returncode} {done.stderr}{done.stdout}"
        return done.stdout

    # --- its life

    def start(self) -> None:
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._before, *command, "-k", str(self._folder), *settings],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + WAIT
        while not self.ready():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def ready(self) -> bool:
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", "postgres"]
        asked = [*self._within, str(self._programs / "pg_isready"), "-q", *place]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: in order, sessions are ended. SIGQUIT: at once, as after a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(WAIT)
            self._process = None

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-3000:]

    # --- what is in it

    def sql(self, text: str, database: str = "postgres") -> list[str]:
        """The lines that a statement returns, columns separated by |."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database]
        return self._ran("psql", "-X", "-A", "-t", "-q", "-c", text, *place).splitlines()

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def make_database(self, name: str) -> str:
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def copy_database(self, name: str, copy: str) -> str:
        """Copies a database that nobody uses."""
        self.sql(f'CREATE DATABASE "{copy}" TEMPLATE "{name}"')
        return self.url(copy)

    def dump(self, database: str) -> Path:
        """Writes the database as it is now into a file."""
        file = self._folder / f"{database}.dump"
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        self._ran("pg_dump", *place, "-Fc", "-f", str(file), database)
        return file

    def restore(self, database: str, dump: Path) -> None:
        """Replaces the database by what `dump` wrote. Nobody may be connected to it."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        self._ran("dropdb", *place, "--force", database)
        self._ran("createdb", *place, database)
        self._ran("pg_restore", *place, "-d", database, str(dump))

    # --- replication

    def wait_for_standby(self) -> None:
        """From then on, a commit here is acknowledged only when the standby has it too."""
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.sql("SELECT pg_reload_conf()")
        end = time.monotonic() + WAIT
        while self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != ["1"]:
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def promote(self) -> None:
        assert self.sql("SELECT pg_promote(true, 60)") == ["t"], self.log()


def both(servers: Sequence[PostgresServer], database: str) -> str:
    """A URL of several servers; a client takes the one that is no standby."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/{database}"


def _unprivileged() -> int | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise AssertionError("no unprivileged user to run PostgreSQL as")
