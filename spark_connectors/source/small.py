"""Small micro-batches that are read beside the driver.

A Python worker costs a task some 5 ms of a core and, as Spark hands it its input, some 10 ms before its first
row: more than to read a thousand rows. So rows may go to Spark with the plan of their batch, as those of a
`SimpleDataSourceStreamReader` do: to a single task, by Spark's block manager.

Spark asks for such rows where the reader is its own wrapper of a simple one, and only then. So a reader that
has rows passes for one as long as Spark has not taken them; all else of the wrapper's is not for us. Where a
PySpark has no such wrapper, tasks read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource_internal

if TYPE_CHECKING:
    import pyarrow

MOST_BYTES: Final = 4 << 20  # of a batch that is handed over so


class _WithRows:
    """What a reader says to be while it has rows."""


def _wrapper() -> Any:
    """PySpark's wrapper of simple readers; None if there is none."""
    found = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)
    return found if hasattr(found, "register") else None


def read_all(batches: Iterator[pyarrow.RecordBatch]) -> list[pyarrow.RecordBatch] | None:
    """Returns all of them; None if tasks had better read them.

    So it is where they are large; and where something fails, which a task will meet, too: Spark tries that
    again, and says where.
    """
    found: list[pyarrow.RecordBatch] = []
    size = 0
    try:
        for batch in batches:
            found.append(batch)
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
    except Exception:
        return None
    return found


class Giving:
    """A stream reader that may hand rows to Spark with the plan that it is asked for."""

    _rows: list[pyarrow.RecordBatch] | None = None

    def offer(self, rows: list[pyarrow.RecordBatch] | None) -> bool:
        """Returns whether Spark will be given them. The plan has to be one partition then, of which a task
        can read all of them again.
        """
        wrapper = _wrapper()
        if rows is None or wrapper is None:
            return False
        wrapper.register(_WithRows)
        self._rows = rows
        return True

    def getCache(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[pyarrow.RecordBatch]:
        """Called by Spark right after the plan."""
        rows, self._rows = self._rows, None
        return iter(rows or [])

    @property  # type: ignore[misc]  # of object it can be set; nobody sets ours
    def __class__(self) -> type:
        """What `isinstance` is told, as by a mock's `spec`."""
        return type(self) if self._rows is None else _WithRows
