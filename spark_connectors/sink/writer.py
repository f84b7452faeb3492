"""The writers that Spark calls. `write` runs in a task; `commit` and `abort` in a process beside the driver.

Each task stages its rows in a part of a transaction, named by query, target, batch, task and attempt:

    spark/<query id>/<topic>@<its id>//<batch>/<partition>-<attempt>-<a random number>

and reports the part and its number of rows per topic to the driver. The driver's commit names the valid
parts; one host decides (`broker/transactions/parts.py`).

A task whose batch is already decided writes nothing but still counts its rows: the driver's commit must then
equal the earlier one. So a batch is skipped only if it can be a repeat.
"""

from __future__ import annotations

import secrets
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from treecast.middleware.api.discovery import find_face
from treecast.middleware.model.logs import Log

from .. import links
from ..errors import OptionError, WriteError
from ..servers import Servers, one, servers_of
from ..workers import Sent, settle
from . import naming
from .frames import Staged
from .naming import Batch
from .options import COMPARE, SKIP, SinkOptions
from .producing import Producer, abort_part, end_parts
from .tables import Contents, Router, Rows

if TYPE_CHECKING:
    import pyarrow

_log = Log("treecast.spark")

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of Spark's tasks


Naming = Callable[[str], Batch]  # a target as the batch that a task writes to it


class Written(WriterCommitMessage):
    """A task's report to the driver: its batch, the part, if any, its rows by topic, and their digest.

    `decided`: it wrote nothing, because an earlier run committed the batch or a later one. `name`: of a task
    without rows, which does not ask for the topic's id and so does not know its batch.
    """

    def __init__(
        self,
        whole: str,
        staged: Staged | None,
        rows: Mapping[str, int],
        *,
        decided: bool,
        digest: tuple[int, int] = (0, 0),
        name: Naming | None = None,
    ) -> None:
        self.whole = whole
        self.staged = staged
        self.rows = rows
        self.digest = digest
        self.decided = decided
        self.name = name


def streaming_batch(context: TaskContext, options: SinkOptions) -> Naming:
    """Returns Spark's own id of the query, which its checkpoint keeps, or `queryName`; and the batch's
    number.
    """
    query = context.getLocalProperty(_QUERY) or options.query
    number = context.getLocalProperty(_BATCH)
    if not query or number is None:
        missing = _BATCH if query else f"{_QUERY}; set the option queryName"
        raise OptionError(f"this Spark does not tell its tasks {missing}")
    return partial(naming.of_stream, query, int(number))


def named_batch(context: TaskContext, options: SinkOptions) -> Naming:
    """Returns a batch write that has a name. In foreachBatch tasks know the id in the stream's checkpoint."""
    assert options.batch is not None
    return partial(naming.of_named, options.query, context.getLocalProperty(_QUERY) or "", options.batch)


def put(
    rows: Iterable[pyarrow.RecordBatch], name: Naming, options: SinkOptions, context: TaskContext
) -> Written:
    """Writes all rows of a task. Aborts the staged part on failure."""
    producer: Producer | None = None
    contents = Contents(options.topic, digests=options.transactional)
    decided, whole = False, ""
    try:
        for arrow in rows:
            if not arrow.num_rows:
                continue
            if producer is None:
                producer = _producer(options)
                router = Router(options.topic, producer.partitions, context.partitionId())
                topic_id = producer.topic_id(options.topic) if options.topic else ""
                batch = name(naming.target(options.topic, topic_id))
                whole = batch.whole
                decided = not producer.begin(batch.part(_attempt(context)) if options.transactional else None)
            table = Rows(arrow)
            contents.add(table)
            if not decided:
                router.take(table, producer.send)
        if producer is None:
            return Written("", None, {}, decided=False, name=name)
        if not decided:
            producer.send(router.taken())
            producer.finish()
        return Written(whole, producer.staged, contents.rows, decided=decided, digest=contents.digest)
    except BaseException:
        if producer is not None and producer.staged is not None:
            abort_part(producer.servers, producer.staged, options.write_timeout)
        raise
    finally:
        if producer is not None:
            producer.close()
        settle()


def _attempt(context: TaskContext) -> str:
    """Returns a unique name of the attempt."""
    return f"{context.partitionId()}-{context.taskAttemptId()}-{secrets.token_hex(4)}"


def _producer(options: SinkOptions) -> Producer:
    return Producer(
        _nearest(options),
        lease_ms=options.lease_ms,
        compression=options.compression,
        timeout=options.write_timeout,
    )


def _nearest(options: SinkOptions) -> Servers:
    """Returns the daemon of this task's host if it belongs to the cluster; else the driver's servers."""
    given = servers_of(options.bootstrap)
    if not options.local_daemon or not options.bootstrap:
        return given
    try:
        local = find_face("kafka").address
    except ValueError:
        return given
    return given if one(local) == given else links.nearest(given, links.cluster_id_of(given), local)


def finish(
    messages: Iterable[WriterCommitMessage | None],
    number: int,
    options: SinkOptions,
    *,
    committed: bool,
    whole: str = "",
    repeated: bool = True,
) -> None:
    """Applies the driver's decision about a batch: all of its parts are committed, or none.

    `whole` is needed if possibly no task has reported it. A stream that fails before any task reports is
    repeated, and the commit of its next run ends the staged parts. A batch that is never `repeated` is
    abandoned for good: a task that Spark has not stopped yet starts nothing more, which readers would wait
    for.
    """
    told = [message for message in messages if isinstance(message, Written)]
    wholes = {message.whole for message in told if message.whole}
    if not options.transactional:
        return
    if committed and wholes:
        _commit(told, wholes, number, options)
    elif committed:
        if repeated:
            check_empty(told, number, options)
    elif whole := whole or min(wholes, default=""):
        gone = not repeated  # that no part counts is a decision, too
        end_parts(servers_of(options.bootstrap), whole, number, (), options.write_timeout, committed=gone)
    settle()


def _commit(told: Sequence[Written], wholes: Set[str], number: int, options: SinkOptions) -> None:
    """Commits the parts; if an earlier run has decided the batch, writes nothing again.

    An additionally staged part is left to be aborted: the home checks whether the batch is the same.
    """
    if len(wholes) > 1:
        raise WriteError(
            f"batch {number} is not committed: its topic was deleted and created again while it was written "
            f"({' and '.join(sorted(wholes))}). Start the query again: it repeats the batch"
        )
    (whole,) = wholes
    decided = any(message.decided for message in told)
    parts = [message.staged for message in told if message.staged is not None]
    rows: Counter[str] = Counter()
    for message in told:
        rows.update(message.rows)
    content = naming.content(rows, naming.summed(message.digest for message in told))
    named = () if decided else parts
    asked = content
    if decided and options.repeated != COMPARE:
        asked = naming.ANYTHING if options.repeated == SKIP else naming.content(rows)
    timeout = options.write_timeout
    end_parts(servers_of(options.bootstrap), whole, number, named, timeout, committed=True, content=asked)
    if decided:
        _log.warning(
            "batch is already committed and is not written again",
            batch=number,
            transaction=whole,
            content=content,
        )


def check_empty(told: Sequence[Written], number: int, options: SinkOptions) -> None:
    """Raises WriteError if a batch without rows was committed with rows, or a later one was: then it is no
    repeat, and the next batch would write rows twice.
    """
    name = next((message.name for message in told if message.name is not None), None)
    if name is None or options.repeated == SKIP:
        return
    producer = _producer(options)
    try:
        if options.topic and not producer.exists(options.topic):
            return
        topic_id = producer.topic_id(options.topic) if options.topic else ""
        batch = name(naming.target(options.topic, topic_id))
        decided = not producer.begin(batch.part(f"empty-{secrets.token_hex(4)}"))
    finally:
        producer.close()
    content = naming.NO_ROWS if decided else ""
    servers, timeout = servers_of(options.bootstrap), options.write_timeout
    end_parts(servers, batch.whole, number, (), timeout, committed=decided, content=content)


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
        self._batch = naming.of_its_own(uuid.uuid4().hex)  # if the options name none

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        context, options = _context(), self._options
        name = named_batch(context, options) if self._is_named() else partial(_always, self._batch)
        return put(iterator, name, options, context)

    def _is_named(self) -> bool:
        return self._options.batch is not None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._finish(messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._finish(messages, committed=False)

    def _finish(self, messages: list[WriterCommitMessage | None], *, committed: bool) -> None:
        options = self._options
        if options.batch is not None:
            finish(messages, options.batch, options, committed=committed)
        else:
            batch = self._batch
            finish(messages, batch.number, options, committed=committed, whole=batch.whole, repeated=False)


def _always(batch: Batch, where: str) -> Batch:
    return batch


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "tasks have a context"
    return context
