"""A site whose coordinator runs by itself on PostgreSQL, in a host of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.postgresql import PostgresServer, programs

from .site import CONTROL, Amiss, Site

_PLACE = "coordinator"
_DATABASE = "treecast"


class CoordinatedSite(Site):
    """Every daemon joins a coordinator in host `coordinator`, whose store is a database there."""

    def __init__(self, folder: Path, hosts: int, **more: Any) -> None:
        super().__init__(folder, hosts, besides=(_PLACE,), **more)
        self._server: PostgresServer | None = None
        self._data = folder / _PLACE
        self._process: Any = None

    @staticmethod
    def possible() -> bool:
        """Returns whether PostgreSQL is installed."""
        return programs() is not None

    @property
    def server(self) -> PostgresServer:
        assert self._server is not None, "not entered"
        return self._server

    def __exit__(self, *problem: object) -> None:
        self._stop()
        if self._server is not None:
            self._server.close()
        super().__exit__(*problem)

    def _start_daemons(self) -> None:
        within = ["ip", "netns", "exec", self.lab.namespace(_PLACE)]
        self._server = PostgresServer(within=within)
        self.server.start()
        self.server.make_database(_DATABASE)
        self._data.mkdir(parents=True)
        (self._data / "store").write_text(self.server.url(_DATABASE))
        self._start()
        token = self._data / "join-token"
        self._join_all(
            self.names, ["--join", f"{self.lab.ipv4(_PLACE)}:{CONTROL}", "--join-token", f"@{token}"]
        )

    def _start(self) -> None:
        words = [self.python, "-m", "treecast.middleware.cli", "coordinator", "--data", str(self._data)]
        words += ["--control", f"{self.lab.ipv4(_PLACE)}:{CONTROL}", "--store", f"@{self._data / 'store'}"]
        with (self._data.parent / f"{_PLACE}.log").open("ab") as log:
            self._process = self.lab.start(_PLACE, *words, stderr=log)
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith(b"ready "):
            raise Amiss("the coordinator does not start; its log is in coordinator.log")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # --- the database as it was

    def dump(self) -> Path:
        return self.server.dump(_DATABASE)

    def restore(self, dump: Path) -> None:
        """Stops the coordinator, puts the dump in the database's place, and starts it again."""
        self._stop()
        self.server.restore(_DATABASE, dump)
        self._start()
