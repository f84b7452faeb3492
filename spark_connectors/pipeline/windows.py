"""The tables of a window, read without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from . import tables as t
from .showing import NotFound

_MOST: Final = 10  # rows of a list
_SHOWN: Final = (
    t.TALKERS,
    t.UNREAD,
    t.BEHIND,
    t.MISSING,
    t.CHURN,
    t.LINKS,
    t.FILTERS,
    t.MOVES,
    t.REPAIRS,
)

Row = dict[str, Any]
Listed = tuple[str, Sequence[str], list[Sequence[Any]]]


class Report(Struct, frozen=True):
    """The rows of a window by table, those that matter most first."""

    window: int
    tables: dict[str, list[Row]]

    def lists(self) -> Iterator[Listed]:
        """Yields (title, columns, rows) for people."""
        for title, columns, table, cells in _LISTS:
            yield title, columns, [cells(row) for row in self.tables[table]]
        foretold: list[Sequence[Any]] = [(row["text"],) for row in self.tables[t.FORECAST] if row["text"]]
        yield "forecasts", ("forecast",), foretold


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f} s"


# Title, columns, table, and the cells of a row.
_LISTS: Final[tuple[tuple[str, Sequence[str], str, Callable[[Row], Sequence[Any]]], ...]] = (
    (
        "talkers",
        ("talkers", "place", "name", "count", "share"),
        t.TALKERS,
        lambda r: (r["kind"], r["place"], r["name"], r["count"], f"{r['share']:.1%}"),
    ),
    (
        "streams that nobody reads",
        ("unread", "publisher", "records"),
        t.UNREAD,
        lambda r: (r["stream"], r["publisher"], r["addressed"]),
    ),
    (
        "hosts that fall behind",
        ("behind", "waiting", "share", "seconds"),
        t.BEHIND,
        lambda r: (r["host"], r["waiting"], f"{r['share']:.1%}", _seconds(r["seconds"])),
    ),
    ("hosts that were missing", ("missing",), t.MISSING, lambda r: (r["host"],)),
    (
        "changes of receivers",
        ("publisher", "receivers", "joined", "left", "jaccard", "half-life"),
        t.CHURN,
        lambda r: (
            *(r["publisher"], r["receivers"], r["joined"], r["left"]),
            *(f"{r['jaccard']:.2f}", _seconds(r["half_life_s"])),
        ),
    ),
    (
        "links",
        ("link", "network", "kbit/s", "share"),
        t.LINKS,
        lambda r: (r["link"], r["network"], f"{r['bits_per_s'] / 1e3:.1f}", f"{r['share']:.1%}"),
    ),
    (
        "filters",
        ("filter", "at origin", "for host", "messages", "saves", "share", "ms here"),
        t.FILTERS,
        lambda r: (
            *(r["filter"] or f"{r['filters']} filters", r["origin"], r["host"], r["messages"]),
            *(r["saved_bytes"], f"{r['share']:.1%}", f"{r['cpu_us'] / 1000:.1f}"),
        ),
    ),
    (
        "clients that moved",
        ("client", "from", "to", "pattern"),
        t.MOVES,
        lambda r: (r["client"][:12], r["source"], r["target"], r["pattern"]),
    ),
    (
        "streams that were repaired",
        ("repaired", "publisher", "again", "lost", "share", "bytes"),
        t.REPAIRS,
        lambda r: (
            *(r["stream"], r["publisher"], r["repaired"] + r["replayed"], r["lost"]),
            *(f"{r['share']:.2%}", r["bytes"]),
        ),
    ),
)


class Windows:
    """The tables by window of a pipeline's folder. `length`: of a window in seconds."""

    def __init__(self, tables: t.Tables, length: int = 300) -> None:
        self._tables = tables
        self._length = length

    def known(self, table: str = t.TALKERS) -> list[int]:
        """Returns the windows that a table has."""
        return self._tables.parts(table, "window")

    def report(self, window: int = 0) -> Report:
        """Returns a window; by default the last one that is over, as far as the archive tells. Raises
        NotFound.
        """
        known = self.known()
        if not known:
            raise NotFound("there are no windows yet: `treecast pipeline run` or `measure` makes them")
        chosen = window or self._last_whole(known)
        if chosen not in known:
            raise NotFound(f"there is no window {chosen}; there are {known[0]} to {known[-1]}")
        found = {table: _worst(table, self._rows(table, chosen)) for table in _SHOWN}
        foretold = self.known(t.FORECAST)
        found[t.FORECAST] = self._rows(t.FORECAST, foretold[-1]) if foretold else []
        return Report(chosen, found)

    def _last_whole(self, known: list[int]) -> int:
        """Returns the last window that is over: a later one may still get minutes."""
        last = max(self._tables.parts(t.MINUTES, "slot"), default=known[-1])
        return max((one for one in known if one + self._length <= last), default=known[0])

    def _rows(self, table: str, window: int) -> list[Row]:
        import pyarrow.parquet as pq

        files = sorted(Path(self._tables.path(table)).glob(f"window={window}/*.parquet"))
        return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


def _worst(table: str, rows: list[Row]) -> list[Row]:
    """Returns the rows of a table that people want to see first."""
    if table == t.CHURN:
        rows = [row for row in rows if row["jaccard"] is not None and row["jaccard"] < 1]
        return sorted(rows, key=lambda row: (row["jaccard"], row["publisher"]))[:_MOST]
    if table == t.TALKERS:
        return sorted(rows, key=lambda row: (row["kind"], row["place"]))
    if table == t.LINKS:
        return sorted(rows, key=lambda row: (-row["share"], row["network"], row["link"]))[:_MOST]
    if table == t.FILTERS:
        return sorted(rows, key=lambda row: row["place"])[:_MOST]
    if table == t.MOVES:
        return sorted(rows, key=lambda row: (row["client"], row["pattern"]))[:_MOST]
    if table == t.REPAIRS:
        return sorted(rows, key=lambda row: (-row["share"], row["publisher"], row["stream"]))[:_MOST]
    counts = {t.UNREAD: "addressed", t.BEHIND: "waiting"}
    if table in counts:
        return sorted(rows, key=lambda row: -row[counts[table]])[:_MOST]
    return sorted(rows, key=lambda row: str(row["host"]))
