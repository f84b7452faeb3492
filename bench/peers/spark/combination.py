"""A connector on a server: the unit of comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.core.peer import Server

from .jars import connector_jars, missing_tools


class Combination(Server):
    """`server` with one of Spark's connectors, `treecast` or `kafka`, on it."""

    def __init__(
        self,
        name: str,
        server: Server,
        connector: str,
        jars: Sequence[Path] = (),
        reading: Mapping[str, str] | None = None,
    ) -> None:
        """`jars` are the connector's if it is `kafka`; without them Maven fetches them. `reading`: options of
        its streaming reads.
        """
        self.name = name
        self.connector = connector
        self._server = server
        self._given = list(jars)
        self.reading = dict(reading or {})

    def jars(self) -> list[Path]:
        """Returns the jars for Spark. Raises RuntimeError if they are not available."""
        if self.connector == "treecast":
            return []
        if absent := [str(jar) for jar in self._given if not jar.is_file()]:
            raise RuntimeError(f"there is no jar {', '.join(absent)}")
        return [jar.resolve() for jar in self._given] or connector_jars()

    def missing(self) -> str:
        """Returns why it cannot run here, or an empty string."""
        if tools := missing_tools():
            return f"it needs {' and '.join(tools)} on the PATH"
        try:
            self.jars()
        except RuntimeError as error:
            return str(error)
        return ""

    def prepare(self) -> None:
        self._server.prepare()

    def start(self) -> float:
        return self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def pids(self) -> list[int]:
        return self._server.pids()

    @property
    def address(self) -> tuple[str, int]:
        return self._server.address

    def settings(self) -> Mapping[str, str]:
        jars = ", ".join(jar.name for jar in self.jars()) or "none"
        return {"connector": self.connector, "connector's jars": jars, **self._server.settings()}
