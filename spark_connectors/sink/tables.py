"""Arrow columns into rows for partitions: detection of columns, and the destination of each row."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import OptionError, WriteError
from ..source.offsets import Partition
from .digest import Digest
from .rows import Headers, Pending, Values, add_rows, by_key

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

BATCH_BYTES = 512 * 1024  # of one partition, before compression: half of the usual max.message.bytes
ALL_BYTES = 2 << 20  # of all partitions, per send

_WANTED = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}


def check_schema(schema: StructType, topic: str) -> None:
    """Raises OptionError if a column is missing or of a type that cannot be written. Others are left
    aside.
    """
    types = {field.name: field.dataType.simpleString() for field in schema}
    for name, allowed in _WANTED.items():
        if name in types and types[name] not in allowed:
            raise OptionError(f"the column {name} is {' or '.join(allowed)}, not {types[name]}")
    if "value" not in types:
        raise OptionError(
            f"there is no column value to be written, only {', '.join(sorted(types))}; make one, for "
            "instance by to_json(struct(*)) AS value"
        )
    if not topic and "topic" not in types:
        raise OptionError("the option topic or a column topic says where to write; there is neither")


class Rows:
    """The columns of an Arrow batch, by name."""

    def __init__(self, batch: pyarrow.RecordBatch) -> None:
        self.count: int = batch.num_rows
        self.columns = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
        self.values = packed(self.columns["value"])
        self.headers: list[Headers | None] | None = (
            self.columns["headers"].to_pylist() if "headers" in self.columns else None
        )


class Contents:
    """The content of one task's rows: their number by topic, and the digest by which a repeat is known.

    `topic`: of all rows; empty: each row names its own. Without `digests` rows are only counted.
    """

    def __init__(self, topic: str, *, digests: bool = True) -> None:
        self._topic = topic
        self._digests = digests
        self.rows: Counter[str] = Counter()
        self._digest = Digest(topic)

    def add(self, rows: Rows) -> None:
        columns = rows.columns
        self.rows.update({self._topic: rows.count} if self._topic else _counted(columns["topic"]))
        if not self._digests:
            return
        self._digest.add(
            None if self._topic else packed(columns["topic"]),
            _numbers(columns["partition"]) if "partition" in columns else None,
            _numbers(_times(columns["timestamp"])) if "timestamp" in columns else None,
            packed(columns["key"]) if "key" in columns else None,
            rows.values,
            rows.headers,
        )

    @property
    def digest(self) -> tuple[int, int]:
        return self._digest.first, self._digest.second


class Router:
    """Collects rows of one task by partition. `partitions` returns a topic's number of partitions.

    Rows without a key and a partition go to one partition per Arrow batch, the next one each time.
    """

    def __init__(self, topic: str, partitions: Callable[[str], int], turn: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._turn = turn
        self._places: dict[Partition, int] = {}
        self._pending: list[Pending] = []

    def take(self, rows: Rows, send: Callable[[list[tuple[Partition, Pending]]], None]) -> None:
        """Adds all rows; `send` is called whenever enough is there."""
        columns = rows.columns
        keys = _binary(columns["key"]) if "key" in columns else None
        times = _filled(columns["timestamp"]) if "timestamp" in columns else None
        places = self._targets(columns, keys)
        place = places if isinstance(places, int) else 0
        now = int(time.time() * 1000)
        row = 0
        while row < rows.count:
            row = add_rows(
                self._pending,
                None if isinstance(places, int) else places,
                place,
                keys,
                rows.values,
                times,
                now,
                rows.headers,
                row,
                BATCH_BYTES,
            )
            if row < rows.count or sum(pending.size for pending in self._pending) > ALL_BYTES:
                send(self.taken())

    def taken(self) -> list[tuple[Partition, Pending]]:
        """Returns the collected rows and clears them, keeping the partitions' places."""
        found = []
        for partition, place in self._places.items():
            if self._pending[place].count:
                found.append((partition, self._pending[place]))
                self._pending[place] = Pending()
        return found

    def _targets(self, columns: dict[str, Any], keys: list[bytes | None] | None) -> int | list[int]:
        """Returns one place for all rows, or the place of each."""
        self._turn += 1
        if self._topic:
            return self._of_topic(self._topic, columns, keys)
        topics = columns["topic"].to_pylist()
        distinct = set(topics)
        if None in distinct:
            raise WriteError("a row has no topic: the column topic is null, and there is no option topic")
        if len(distinct) == 1:
            return self._of_topic(topics[0], columns, keys)
        by_topic = {topic: self._of_topic(topic, columns, keys) for topic in distinct}
        return [
            found if isinstance(found := by_topic[topic], int) else found[row]
            for row, topic in enumerate(topics)
        ]

    def _of_topic(
        self, topic: str, columns: dict[str, Any], keys: list[bytes | None] | None
    ) -> int | list[int]:
        total = self._partitions(topic)
        turn = self._turn % total
        numbers = columns["partition"].to_pylist() if "partition" in columns else None
        if numbers is None and (keys is None or not any(key is not None for key in keys)):
            return self._place(Partition(topic, turn))
        chosen = [turn] * (len(numbers) if numbers is not None else 0)
        if keys is not None:
            chosen = by_key(keys, total, turn)
        if numbers is not None:
            chosen = [
                place if number is None else number for number, place in zip(numbers, chosen, strict=True)
            ]
        places = {number: self._place(self._checked(topic, number, total)) for number in set(chosen)}
        return [places[number] for number in chosen]

    def _checked(self, topic: str, number: int, total: int) -> Partition:
        if not 0 <= number < total:
            raise WriteError(f"a row is for partition {number} of {topic}, which has {total}")
        return Partition(topic, number)

    def _place(self, partition: Partition) -> int:
        place = self._places.get(partition)
        if place is None:
            place = self._places[partition] = len(self._pending)
            self._pending.append(Pending())
        return place


def _counted(topics: pyarrow.Array) -> dict[str, int]:
    return {str(one["values"]): one["counts"] for one in topics.value_counts().to_pylist()}


def packed(column: pyarrow.Array) -> Values:
    """Strings or binary, of usual or large size, without an object for each."""
    import numpy as np
    import pyarrow as pa

    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    count = len(column)
    _, ends, data = column.buffers()
    places = np.zeros(1, np.int64)  # an empty column may have no buffers
    if count:
        width = np.int64 if large else np.int32
        places = np.frombuffer(ends, width)[column.offset : column.offset + count + 1].astype(np.int64)
    first, last = int(places[0]), int(places[-1])
    there = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else np.empty(0)
    return Values(
        count,
        (places - first).tobytes(),
        data.slice(first, last - first).to_pybytes() if last > first else b"",
        there.astype(np.uint8).tobytes(),
    )


def _binary(column: pyarrow.Array) -> list[bytes | None]:
    import pyarrow as pa

    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    found: list[bytes | None] = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return found


def _times(column: pyarrow.Array) -> pyarrow.Array:
    """Returns ms since the Unix epoch."""
    import pyarrow as pa

    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())


def _filled(column: pyarrow.Array) -> list[int]:
    """Returns times; rows without one get the present time, as without the column."""
    times = _times(column)
    if times.null_count:
        times = times.fill_null(int(time.time() * 1000))
    found: list[int] = times.to_pylist()
    return found


def _numbers(column: pyarrow.Array) -> Values:
    """Returns numbers as values of 8 bytes."""
    import numpy as np
    import pyarrow as pa

    count = len(column)
    numbers = column.cast(pa.int64())
    present = b""
    if numbers.null_count:
        present = numbers.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8).tobytes()
        numbers = numbers.fill_null(0)
    data = numbers.to_numpy(zero_copy_only=False).astype("<i8").tobytes()
    return Values(count, (np.arange(count + 1, dtype=np.int64) * 8).tobytes(), data, present)
