"""A pipeline's folder read without Spark: its status, and the way from advice back to records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb

from . import planning
from . import tables as t
from .running import EPOCHS, MEASURES, QUERIES

_SHOWN: Final = 10  # candidates


class QueryStatus(Struct, frozen=True):
    """A query's last finished batch (-1: none), and rows and bytes of its table."""

    query: str
    batch: int
    rows: int
    size: int


class Status(Struct, frozen=True):
    """A pipeline. `epoch`: the last one, 0 if there is none."""

    pipeline: str
    running: bool
    queries: tuple[QueryStatus, ...]
    epoch: int
    advice: tuple[Mapping[str, Any], ...]
    quality: tuple[Mapping[str, Any], ...]


class Explained(Struct, frozen=True):
    """An epoch's advice for a network, with all that it rests on. `decisions`: what became of it."""

    advice: pb.TreeAdvice | None
    problem: str
    digest: str
    plan: planning.Plan
    candidates: tuple[Mapping[str, Any], ...]
    quality: tuple[Mapping[str, Any], ...]
    decisions: tuple[pb.AppliedAdvice, ...]
    filters: tuple[Mapping[str, Any], ...] = ()  # which would save most at their origin


class NotFound(LookupError):
    """An epoch or tree is unknown. The text says which are known."""


def _measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of `gold_advice` with what its numbers are."""
    kind = topics.decode(pb.TreeAdvice, row["value"]).kind if row["value"] else topics.LABEL_SWITCHES
    return {**row, "measure": topics.measure_of(kind)}


class Shown:
    """A pipeline's folder."""

    def __init__(self, tables: t.Tables) -> None:
        self._tables = tables

    # --- status

    def status(self) -> Status:
        epoch = max(self.epochs(), default=0)
        return Status(
            self._tables.id,
            self._tables.running,
            tuple([self._query(name) for name in QUERIES]),
            epoch,
            tuple([_measured(row) for row in self._rows(t.ADVICE, epoch)]),
            tuple(self._rows(t.QUALITY, epoch)),
        )

    def findings(self) -> tuple[int, list[dict[str, Any]]]:
        """Returns the last epoch, 0 if there is none, and what is wrong with its data."""
        epoch = max(self.epochs(), default=0)
        return epoch, self._rows(t.QUALITY, epoch)

    def epochs(self) -> list[int]:
        """Returns the epochs that have been planned."""
        return sorted(int(path.stem) for path in self._tables.plans.glob("*.json"))

    def _query(self, name: str) -> QueryStatus:
        commits = Path(self._tables.checkpoint(name)) / "commits"
        done = [int(path.name) for path in commits.glob("*") if path.name.isdigit()]
        files = self._files({EPOCHS: t.ADVICE, MEASURES: t.MINUTES}.get(name, name))
        return QueryStatus(
            name, max(done, default=-1), _count(files), sum(one.stat().st_size for one in files)
        )

    def _files(self, table: str) -> list[Path]:
        """Returns the data files of a table. Of a streamed one, those that Spark's log of the sink names."""
        folder = Path(self._tables.path(table))
        log = folder / "_spark_metadata"
        if not log.exists():
            return sorted(folder.rglob("*.parquet"))
        return [path for path in _named(log, folder) if path.exists()]

    # --- from advice to records

    def explain(self, epoch: int = 0, network: str = "", tree: int = 0) -> Explained:
        """Returns an epoch's advice: the last one by default, or the one that an installed tree comes from.

        Raises NotFound.
        """
        if tree:
            epoch = self._epoch_of(tree, network)
        planned = self.epochs()
        epoch = epoch or max(planned, default=0)
        if epoch not in planned:
            raise NotFound(f"epoch {epoch} is not planned here; there are {_some(planned)}")
        plan = planning.decode((self._tables.plans / f"{epoch}.json").read_bytes())
        rows = [row for row in self._rows(t.ADVICE, epoch) if network in ("", row["network"])]
        if not rows:
            raise NotFound(f"epoch {epoch} was planned, and has no advice for network {network!r}")
        row = rows[0]
        advice = topics.decode(pb.TreeAdvice, row["value"]) if row["value"] else None
        tried = [one for one in self._rows(t.CANDIDATES, epoch) if one["network"] == row["network"]]
        tried.sort(key=lambda one: (bool(one["fault"]), one["labels"], one["rule_writes"], one["strategy"]))
        decisions = [one for one in self._applied() if (one.epoch, one.network) == (epoch, row["network"])]
        return Explained(
            advice,
            row["problem"],
            row["digest"],
            plan,
            tuple(tried[:_SHOWN]),
            tuple(self._rows(t.QUALITY, epoch)),
            tuple(decisions),
            tuple(sorted(self._rows(t.FILTER_ADVICE, epoch), key=lambda one: one["place"])[:_SHOWN]),
        )

    def _epoch_of(self, tree: int, network: str) -> int:
        """Returns the epoch that installed a tree: the first one after which it was there."""
        for one in sorted(self._applied(), key=lambda one: one.ts):
            if network in ("", one.network) and any(each.id == tree for each in one.trees):
                return int(one.epoch)
        raise NotFound(f"no advice that was applied has installed tree {tree}, as far as the archive tells")

    def _applied(self) -> list[pb.AppliedAdvice]:
        """Returns what managers have written about advice, from the archive."""
        import pyarrow.parquet as pq

        found = []
        for path in self._files(t.BRONZE):
            if f"topic={topics.APPLIED}" in path.parts:
                values = pq.read_table(path, columns=["value"]).column("value").to_pylist()
                found += [topics.decode(pb.AppliedAdvice, value) for value in values if value]
        return found

    def _rows(self, table: str, epoch: int) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        files = sorted(Path(self._tables.of_epoch(table, epoch)).glob("*.parquet"))
        return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


def _named(log: Path, folder: Path) -> Iterable[Path]:
    """Yields the files that the log of Spark's file sink has added: others are of batches that failed.

    A log is a line with its version, then a line of JSON for each file. `N.compact` has all up to batch N.
    """
    batches = sorted((path for path in log.iterdir() if path.name.split(".")[0].isdigit()), key=_batch)
    compact = [path for path in batches if path.suffix == ".compact"]
    start = _batch(compact[-1]) if compact else (-1, 0)
    for path in batches:
        if _batch(path) >= start:
            for line in path.read_text("utf-8").splitlines()[1:]:
                entry = json.loads(line)
                if entry["action"] == "add":
                    yield folder / unquote(entry["path"]).rsplit(f"/{folder.name}/", 1)[-1]


def _batch(path: Path) -> tuple[int, int]:
    """Returns the order of a log's file; a compact one replaces the plain one of its batch."""
    return int(path.name.split(".")[0]), int(path.suffix == ".compact")


def _count(files: Iterable[Path]) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in files)


def _some(epochs: list[int]) -> str:
    if not epochs:
        return "none yet: `treecast pipeline run` makes them"
    last = ", ".join(map(str, epochs[-3:]))
    return f"{len(epochs)}, the last ones {last}"
