"""Spark with a Python source and sink without input or output: the minimal cost of any such connector."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.core.peer import Server

from .combination import Combination


class _Nobody(Server):
    """No server."""

    def start(self) -> float:
        return 0.0

    def stop(self) -> None:
        """Does nothing: nothing was started."""

    def pids(self) -> list[int]:
        return []

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", 0)

    def settings(self) -> Mapping[str, str]:
        return {"server": "none"}


class Bare(Combination):
    """`format("floor")`, of micro-batches of `rows` rows in `tasks` tasks."""

    is_floor = True

    def __init__(self, name: str, rows: int, tasks: int) -> None:
        super().__init__(name, _Nobody(), "floor", reading={"rows": str(rows), "tasks": str(tasks)})

    def jars(self) -> list[Path]:
        return []
