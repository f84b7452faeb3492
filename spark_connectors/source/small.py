"""Small micro-batches that are read beside the driver.

A Python worker costs a task some 5 ms of a core and, as Spark passes its input, some 10 ms before its first
row: more than reading a thousand rows. So rows may go to Spark with the plan of their batch, as those of a
`SimpleDataSourceStreamReader` do: to a single task, by Spark's block manager.

Spark requests such rows only from its own wrapper of a simple reader. So a reader with rows passes for one
until Spark has taken them; nothing else of the wrapper applies. If a PySpark has no such wrapper, tasks read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource_internal

if TYPE_CHECKING:
    import pyarrow

MOST_BYTES: Final = 4 << 20  # of a batch that is handed over so


class _WithRows:
    """The class that a reader reports while it has rows."""


def _wrapper() -> Any:
    """Returns PySpark's wrapper class of simple readers; None if it does not exist."""
    found = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)
    return found if hasattr(found, "register") else None


def read_all(batches: Iterator[pyarrow.RecordBatch]) -> list[pyarrow.RecordBatch] | None:
    """Returns all rows; None if tasks should read them.

    That is so if they are large, and on an error, which a task will also meet: Spark then retries, and
    reports its place.
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
        """Returns whether Spark will get the rows. The plan must then be one partition, which a task can read
        again completely.
        """
        wrapper = _wrapper()
        if rows is None or wrapper is None:
            return False
        wrapper.register(_WithRows)
        self._rows = rows
        return True

    def getCache(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[pyarrow.RecordBatch]:
        """Returns the rows. Spark calls it right after the plan."""
        rows, self._rows = self._rows, None
        return iter(rows or [])

    @property  # type: ignore[misc]  # of object it can be set; nobody sets ours
    def __class__(self) -> type:
        """The class seen by `isinstance`, as with a mock's `spec`."""
        return type(self) if self._rows is None else _WithRows
