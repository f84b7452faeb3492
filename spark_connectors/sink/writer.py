"""The writers that Spark calls. `write` runs in a task; `commit` and `abort` in a process beside the driver.

Each task stages what it writes in a part of a transaction, tagged with query, batch, task and attempt:

    spark/<query id>//<batch>/<partition>-<attempt>-<a number of its own>

and tells the driver which part that is. The driver's commit names the parts that count; one host decides
(`broker/transactions/parts.py`).
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from treecast.middleware.api.discovery import Address, find_face

from .. import links
from ..errors import OptionError
from ..source.cluster import address_of
from ..workers import Sent, settle
from .frames import Staged
from .options import SinkOptions
from .producing import Producer, abort_part, end_parts
from .tables import Router

if TYPE_CHECKING:
    import pyarrow

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of Spark's tasks


class Written(WriterCommitMessage):
    """What a task tells the driver: whose batch it was, and the part, if it wrote anything."""

    def __init__(self, whole: str, staged: Staged | None, rows: int) -> None:
        self.whole = whole
        self.staged = staged
        self.rows = rows


class Batch(Struct, frozen=True):
    """What a task writes a part of."""

    whole: str
    number: int

    def part(self, context: TaskContext) -> str:
        """The transactional id of this attempt; no other attempt ever has the same."""
        attempt = f"{context.partitionId()}-{context.taskAttemptId()}-{secrets.token_hex(4)}"
        return f"{self.whole}//{self.number}/{attempt}"


def streaming_batch(context: TaskContext, options: SinkOptions) -> Batch:
    """Spark's own id of the query, which its checkpoint keeps, or `queryName`; and the batch's number."""
    query = context.getLocalProperty(_QUERY) or options.query
    number = context.getLocalProperty(_BATCH)
    if not query or number is None:
        missing = _BATCH if query else f"{_QUERY}; set the option queryName"
        raise OptionError(f"this Spark does not tell its tasks {missing}")
    return Batch(f"spark/{query}", int(number))


def put(
    rows: Iterable[pyarrow.RecordBatch], batch: Batch, options: SinkOptions, context: TaskContext
) -> Written:
    """Writes all rows of a task. What it has staged is aborted where it fails."""
    producer: Producer | None = None
    count = 0
    try:
        for arrow in rows:
            if not arrow.num_rows:
                continue
            if producer is None:
                producer = _producer(options, batch, context)
                router = Router(options.topic, producer.partitions, context.partitionId())
                if not producer.begin():
                    return Written(batch.whole, None, 0)  # committed by a run before this one
            count += arrow.num_rows
            router.take(arrow, producer.send)
        if producer is None:
            return Written(batch.whole, None, 0)
        producer.send(router.taken())
        producer.finish()
        return Written(batch.whole, producer.staged, count)
    except BaseException:
        if producer is not None and producer.staged is not None:
            abort_part(producer.address, producer.staged, options.write_timeout)
        raise
    finally:
        if producer is not None:
            producer.close()
        settle()


def _producer(options: SinkOptions, batch: Batch, context: TaskContext) -> Producer:
    return Producer(
        _nearest(options),
        batch.part(context) if options.transactional else None,
        lease_ms=options.lease_ms,
        compression=options.compression,
        timeout=options.write_timeout,
    )


def bootstrap_of(options: SinkOptions) -> Address:
    """Where the cluster is reached: as the option says, else this host's daemon."""
    return address_of(options.bootstrap) if options.bootstrap else find_face("kafka").address


def _nearest(options: SinkOptions) -> Address:
    """The daemon of this task's host, if it belongs to the cluster; else where the driver goes."""
    given = bootstrap_of(options)
    if not options.local_daemon or not options.bootstrap:
        return given
    try:
        local = find_face("kafka").address
    except ValueError:
        return given
    return given if local == given else links.nearest(given, links.cluster_id_of(given), local)


def finish(
    messages: Iterable[WriterCommitMessage | None],
    number: int,
    options: SinkOptions,
    *,
    committed: bool,
    whole: str = "",
    repeated: bool = True,
) -> None:
    """The driver's decision about a batch: its parts count, or nothing of it does.

    `whole` is needed where no task may have told it. A stream that fails before any did is repeated, and the
    commit of its next run ends what was staged. A batch that is never `repeated` is given up for good: a task
    that Spark has not stopped yet begins nothing any more, which readers would wait for.
    """
    told = [message for message in messages if isinstance(message, Written)]
    parts = [message.staged for message in told if message.staged is not None]
    whole = whole or (told[0].whole if told else "")
    if not options.transactional or not whole or (committed and not parts):
        return
    named = parts if committed else ()
    decided = committed or not repeated  # that no part counts is a decision, too
    end_parts(bootstrap_of(options), whole, number, named, options.write_timeout, committed=decided)
    settle()


class TreecastStreamWriter(Sent, DataSourceStreamArrowWriter):
    """A streaming write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        return put(iterator, streaming_batch(context, self._options), self._options, context)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        finish(messages, batchId, self._options, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        finish(messages, batchId, self._options, committed=False)


class TreecastWriter(Sent, DataSourceArrowWriter):
    """A batch write: a batch of its own, or with `queryName` and `batchId` one that may be repeated."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        if options.batch is None:
            self._batch = Batch(f"spark-write/{uuid.uuid4().hex}", 0)
        else:
            self._batch = Batch(f"spark/{options.query}", options.batch)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return put(iterator, self._batch, self._options, _context())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._finish(messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._finish(messages, committed=False)

    def _finish(self, messages: list[WriterCommitMessage | None], *, committed: bool) -> None:
        batch, options = self._batch, self._options
        repeated = options.batch is not None
        finish(messages, batch.number, options, committed=committed, whole=batch.whole, repeated=repeated)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "tasks have a context"
    return context
