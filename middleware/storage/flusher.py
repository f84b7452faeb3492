"""Slow work of logs outside the event loop: fsyncs with group commit, compaction, removal of files, and
whatever an append needs that would hold up the loop (`apart`).

The kernel runs the fdatasync of a single log asynchronously if it can (`kernel_sync`). Threads do the rest.

With fsync per batch every append waits for an fsync, but not for one of its own. All appends that arrive
while an fsync of their log is running share the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from treecast.middleware.model.errors import Fault, TreecastError

from . import compaction
from .disk import Disk, refused
from .durability import FlushTicket
from .log import PartitionLog

if TYPE_CHECKING:
    from .kernel_sync import KernelSync

_THREADS: Final = 4
_SLICE: Final = 0.002  # seconds
_TOGETHER: Final = 16  # background flushes that one thread does in a row
_UNDER_WAY: Final = 16  # concurrent rows; the limit bounds open files, because each flush keeps one open

T = TypeVar("T")
Work = list[tuple[PartitionLog, FlushTicket]]


class Flusher:
    """Flushes the logs of a daemon. All calls come from one event loop."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._executor = ThreadPoolExecutor(threads, "flush")
        self._waiting: dict[PartitionLog, list[tuple[int, asyncio.Future[None]]]] = {}
        self._busy: set[PartitionLog] = set()
        self._due: dict[PartitionLog, None] = {}  # waiting background flushes, in order
        self._rows = 0  # running rows of background flushes
        self._jobs: set[asyncio.Future[Any]] = set()
        self._now_ms = 0
        self._compactor = ThreadPoolExecutor(1, "compact")
        self._preparer = ThreadPoolExecutor(1, "prepare")
        self._compacting = asyncio.Lock()
        self._round: compaction.CompactionPlan | None = None
        self._closing = False
        self._kernel: KernelSync | None = None
        self._kernel_asked = False

    def acknowledged(self, log: PartitionLog, now_ms: int) -> asyncio.Future[None] | None:
        """Returns a future that is done when all current records of `log` may be acknowledged.

        Returns None if they may be already. The future fails with STORAGE if the disk fails: the records are
        in the log, but must not be acknowledged. Raises STORAGE while closing.
        """
        if not log.flush_needed:
            return None
        if self._closing:
            raise TreecastError(Fault.STORAGE, "the log is being closed")
        self._now_ms = now_ms
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(log, []).append((log.end_offset, done))
        if log not in self._busy:
            self._flush([log])
        return done

    def flush_due(self, logs: Iterable[PartitionLog], now_ms: int) -> int:
        """Schedules the background flushes that are due. Returns their number."""
        self._now_ms = now_ms
        due = [
            log
            for log in logs
            if log not in self._busy and log not in self._due and log.durability.due(now_ms)
        ]
        self._due.update(dict.fromkeys(due))
        self._flush_more()
        return len(due)

    def _flush_more(self) -> None:
        """Starts waiting background flushes, up to the limit."""
        while self._due and self._rows < _UNDER_WAY and not self._closing:
            row: list[PartitionLog] = []
            while self._due and len(row) < _TOGETHER:
                log = next(iter(self._due))
                del self._due[log]
                if log not in self._busy and not log.closed:  # else a flush is under way for a waiting append
                    row.append(log)
            self._rows += self._flush(row, self._row_done)

    def _row_done(self) -> None:
        self._rows -= 1
        self._flush_more()

    def remove_doomed(self, log: PartitionLog) -> None:
        """Unlinks the files of deleted segments."""
        if log.doomed:
            self._submit(partial(_unlink, log.shared.disk, log.take_doomed()), _nothing_more)

    def apart(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Runs `work` on the one thread for such work: its memory is taken once. Raises STORAGE while
        closing; work that has not begun is cancelled then.
        """
        if self._closing:
            raise TreecastError(Fault.STORAGE, "the log is being closed")
        future = asyncio.get_running_loop().run_in_executor(self._preparer, work)
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        return future

    async def compact(self, log: PartitionLog, now_ms: int) -> bool:
        """Runs one round of compaction if `log` needs one. Returns whether anything was done.

        A daemon runs one round at a time, which uses at most half of a processor. Raises STORAGE if the disk
        fails.
        """
        async with self._compacting:
            round_ = compaction.plan(log, now_ms)
            if round_ is None or self._closing:
                return False
            self._round = round_
            try:
                await asyncio.get_running_loop().run_in_executor(self._compactor, round_.run, _Throttle())
                return compaction.install(log, round_)
            except compaction.Stopped:
                compaction.discard(round_)
                return False
            except OSError as error:
                log.counters.write_errors += 1
                compaction.discard(round_)
                raise refused(error, f"compact {log.directory}") from error
            finally:
                self._round = None
                self.remove_doomed(log)

    async def settle(self) -> None:
        """Waits until no job is running."""
        while self._jobs:
            await asyncio.wait(self._jobs)

    async def close(self) -> None:
        """Waits for running jobs and stops. Call it before the logs are closed."""
        self._closing = True
        self._preparer.shutdown(wait=False, cancel_futures=True)
        if self._round is not None:
            self._round.stop()
        async with self._compacting:
            await self.settle()
        self._executor.shutdown()
        self._compactor.shutdown()
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def _flush(self, logs: list[PartitionLog], then: Callable[[], None] | None = None) -> bool:
        """Starts flushes. Returns whether any was started; `then` is called after they have ended."""
        work: Work = []
        for log in logs:
            try:
                ticket = log.durability.begin(self._now_ms)
            except TreecastError as error:
                self._tell(log, error)
                continue
            if ticket is None:
                self._tell(log, None)
            else:
                self._busy.add(log)
                work.append((log, ticket))
        if work and not self._by_kernel(work, then):
            self._submit(partial(_run, work), partial(self._flushed, work, then))
        return bool(work)

    def _by_kernel(self, work: Work, then: Callable[[], None] | None) -> bool:
        """Hands the flush of a single log to the kernel. Returns False if it cannot."""
        loop = asyncio.get_running_loop()
        if not self._kernel_asked:
            self._kernel_asked = True
            self._kernel = _kernel(loop)
        if self._kernel is None or len(work) != 1:
            return False
        descriptor = work[0][1].only_descriptor()
        if descriptor < 0:
            return False
        job: asyncio.Future[None] = loop.create_future()
        if not self._kernel.sync(descriptor, partial(self._synced, work, then, job)):
            return False
        self._jobs.add(job)
        return True

    def _synced(
        self,
        work: Work,
        then: Callable[[], None] | None,
        job: asyncio.Future[None],
        error: OSError | None,
    ) -> None:
        self._jobs.discard(job)
        job.set_result(None)
        self._flushed(work, then, [error])

    def _submit(self, call: Callable[[], Any], then: Callable[[Any], None]) -> None:
        future = asyncio.get_running_loop().run_in_executor(self._executor, call)
        self._jobs.add(future)
        future.add_done_callback(partial(self._finished, then))

    def _finished(self, then: Callable[[Any], None], future: asyncio.Future[Any]) -> None:
        self._jobs.discard(future)
        then(future.result())

    def _flushed(self, work: Work, then: Callable[[], None] | None, errors: list[OSError | None]) -> None:
        again: list[PartitionLog] = []
        for (log, ticket), error in zip(work, errors, strict=True):
            self._busy.discard(log)
            try:
                log.durability.end(ticket, error)
            except TreecastError as refused:
                self._tell(log, refused)
                continue
            self._tell(log, None)
            if log in self._waiting:
                again.append(log)
        for log in again:
            self._flush([log])
        if then is not None:
            then()

    def _tell(self, log: PartitionLog, error: TreecastError | None) -> None:
        """Answers waiters: all of them after an error, else those whose records are flushed."""
        waiting = self._waiting.pop(log, [])
        if error is None and log.closed:
            error = TreecastError(Fault.STORAGE, f"{log.directory} is closed")
        still = [entry for entry in waiting if error is None and entry[0] > log.flushed_offset]
        if still:
            self._waiting[log] = still
        for offset, done in waiting:
            if done.done() or (error is None and offset > log.flushed_offset):
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)


def _kernel(loop: asyncio.AbstractEventLoop) -> KernelSync | None:
    """Returns the kernel's asynchronous fdatasync, or None if it is unavailable.

    Importing ctypes allocates a callback, which hardened systems may refuse (MemoryError).
    """
    try:
        from .kernel_sync import KernelSync
    except (ImportError, OSError, MemoryError):
        return None
    return KernelSync.begin(loop)


class _Throttle:
    """Sleeps as long as the thread has worked, to leave the interpreter to the loop's thread."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        worked = time.perf_counter() - self._since
        if worked > _SLICE:
            time.sleep(worked)
            self._since = time.perf_counter()


def _run(work: Work) -> list[OSError | None]:
    """Flushes logs one after another, on a thread. An error of one does not affect the others."""
    errors: list[OSError | None] = []
    for _, ticket in work:
        try:
            ticket.run()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


def _unlink(disk: Disk, paths: list[str]) -> None:
    with suppress(OSError):  # remaining files are removed at the next opening of the log
        for path in paths:
            disk.unlink(path)


def _nothing_more(_: Any) -> None:
    pass
