"""Appends whose check or compression would hold up the event loop: a thread prepares them, in order.

A batch that decompresses to more than `AT_ONCE` bytes, or that has more than `RECOMPRESS_AT_ONCE` bytes to
compress, is *heavy*. One thread prepares the heavy batches of a daemon, so that one of them at a time takes
memory. While a partition's batch is prepared, later appends to that partition wait behind it.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.records import Compression
from treecast.middleware.wire.record_batch import BatchHeader, check_batches

from .batch_sizes import recompressed
from .values import Appended

RECOMPRESS_AT_ONCE: Final = 1 << 20  # bytes of records; compression is ten times slower than the opposite

Prepared = tuple[memoryview, list[BatchHeader]]
Outcome = Appended | Future[Appended]


class Apart(Protocol):
    """Runs slow work outside the loop, one piece after the other."""

    def apart(self, work: Callable[[], Prepared]) -> Future[Prepared]: ...


def prepare(batches: memoryview, max_bytes: int, codec: Compression | None) -> Prepared:
    """Checks and recompresses a producer's batches. Runs on a thread. Raises as `check_batches`."""
    try:
        headers = check_batches(batches, max_bytes)
        return (batches, headers) if codec is None else recompressed(batches, headers, codec, max_bytes)
    except TreecastError as error:
        # its frames hold what was decompressed, and the futures that hand it on make a cycle with them
        raise error.with_traceback(None) from None


def is_heavy(headers: Sequence[BatchHeader], codec: Compression) -> bool:
    """Whether the compression of deeply checked batches takes too long for the loop."""
    return sum(one.record_bytes for one in headers if one.compression != codec) > RECOMPRESS_AT_ONCE


class _Waiting:
    """An append that waits behind a heavy one. `again` appends it."""

    def __init__(self, again: Callable[[], Outcome], answer: Future[Appended]) -> None:
        self.again = again
        self.answer = answer


class HeavyAppends:
    """The heavy appends of one partition, and those behind them. All calls come from the loop. While one is
    prepared, or some are behind it, a new append has to wait."""

    def __init__(self, apart: Apart) -> None:
        self._apart = apart
        self.preparing = False
        self.behind: deque[_Waiting] = deque()

    def prepare(
        self, work: Callable[[], Prepared], append: Callable[[memoryview, list[BatchHeader]], Outcome]
    ) -> Future[Appended]:
        """Runs `work` on the thread, then `append` on the loop."""
        prepared = self._apart.apart(work)
        self.preparing = True
        answer: Future[Appended] = get_running_loop().create_future()
        prepared.add_done_callback(partial(self._prepared, append, answer))
        return answer

    def wait(self, again: Callable[[], Outcome]) -> Future[Appended]:
        """Calls `again` when the earlier appends are over. It may be heavy itself."""
        answer: Future[Appended] = get_running_loop().create_future()
        self.behind.append(_Waiting(again, answer))
        return answer

    def _prepared(
        self,
        append: Callable[[memoryview, list[BatchHeader]], Outcome],
        answer: Future[Appended],
        prepared: Future[Prepared],
    ) -> None:
        self.preparing = False
        settle(answer, partial(_append, append, prepared))
        while self.behind and not self.preparing:
            one = self.behind.popleft()
            settle(one.answer, one.again)


def _append(
    append: Callable[[memoryview, list[BatchHeader]], Outcome], prepared: Future[Prepared]
) -> Outcome:
    batches, headers = prepared.result()
    return append(batches, headers)


def settle(answer: Future[Appended], work: Callable[[], Outcome]) -> None:
    """Runs `work`, and gives its result or error to `answer`, now or when it is known."""
    try:
        outcome = work()
    except BaseException as error:
        _fail(answer, error)
        return
    if isinstance(outcome, Future):
        outcome.add_done_callback(partial(hand_on, answer))
    elif not answer.done():
        answer.set_result(outcome)


def _fail(answer: Future[Appended], error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, Exception):
        answer.set_exception(error)
    else:
        answer.cancel()


def hand_on(answer: Future[Appended], appended: Future[Appended]) -> None:
    """Gives the outcome of one future to another."""
    if answer.done():
        appended.cancelled() or appended.exception()
    elif appended.cancelled():
        answer.cancel()
    elif (error := appended.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(appended.result())
