"""A file with the rows of completed tasks, so that an interrupted run can continue.

JSON lines: first everything that all rows depend on, then one task with its rows per line. An incomplete last
line is ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from .figure import Figure, Options, Row, Task


class JournalError(ValueError):
    """The file is of another figure, or of other options."""


class Journal:
    """Open from `begin` to `close`."""

    def __init__(self, path: Path, figure: Figure, options: Options) -> None:
        self._path = path
        self._head = _line(
            {
                "figure": figure.name,
                "seed": options.seed,
                "rules": options.rules,
                "encoder": options.encoder,
                **({"measured": _measured(options)} if figure.alone else {}),
                "topologies": "" if options.topology_dir is None else str(options.topology_dir.resolve()),
            }
        )
        self._file: IO[str]

    def begin(self, *, resume: bool) -> dict[str, list[Row]]:
        """Returns the rows of tasks that are done, by `key_of`. Raises JournalError, OSError."""
        done = self._read() if resume and self._path.exists() else {}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w", encoding="utf-8")
        self._file.write(self._head)
        for key, rows in done.items():
            self._file.write(_line({"task": json.loads(key), "rows": rows}))
        self._file.flush()
        return done

    def _read(self) -> dict[str, list[Row]]:
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        if not lines or lines[0] != self._head:
            raise JournalError(f"{self._path} is of another run: give another --out, or leave --resume away")
        done = {}
        for line in lines[1:]:
            if line.endswith("\n"):
                found = json.loads(line)
                done[json.dumps(found["task"])] = found["rows"]
        return done

    def add(self, task: Task, rows: list[Row]) -> None:
        """Records a completed task."""
        self._file.write(_line({"task": json.loads(key_of(task)), "rows": rows}))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _measured(options: Options) -> list[Any]:
    return [list(options.scenarios), options.quick, options.scale]


def key_of(task: Task) -> str:
    return json.dumps([list(task.point), task.run])


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value) + "\n"
