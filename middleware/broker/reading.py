"""Reads what is committed in one partition as it comes, across changes of leader, for one taker."""

from __future__ import annotations

import asyncio
import random
from asyncio import Future, Task
from collections.abc import Callable
from typing import Final, Protocol

from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Record

from .cluster import PartitionLeader
from .committed import CommittedRecords
from .values import Isolation, OffsetAtTime, PartitionRead

_COMMITTED: Final = Isolation.READ_COMMITTED
_LOOK_AGAIN: Final = 5.0
_GONE: Final = (Fault.UNKNOWN_TOPIC, Fault.UNKNOWN_TOPIC_ID)


class Taker(Protocol):
    """The receiver of a `PartitionReading`."""

    async def begin(self, leader: PartitionLeader) -> int:
        """Returns the offset to start at. Called while the offset is unknown."""

    async def room(self) -> None:
        """Returns once records are wanted. The partition is watched from before the first call."""

    def take(self, records: list[Record], offset: int) -> None:
        """Takes what was read, which may be nothing but markers. `offset`: of the next record."""

    async def beyond(self, leader: PartitionLeader, offset: int) -> int:
        """Returns where to go on, as the log has no longer, or not, the record at `offset`."""

    def failed(self, error: TreecastError) -> None:
        """The partition cannot be read now. It is read again later."""

    def ended(self) -> None:
        """The topic does not exist any longer. Nothing is read after that."""


class PartitionReading:
    """The task that reads for a taker. Implements `cluster.ReadWaiter`.

    `chunk`: bytes of one read. `retry`: seconds after a failure. `look_again`: seconds without news until the
    partition is read anyway.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], PartitionLeader],
        taker: Taker,
        chunk: int,
        retry: float,
        look_again: float = _LOOK_AGAIN,
    ) -> None:
        self._records = CommittedRecords()
        self._find = find
        self._taker = taker
        self._chunk = chunk
        self._retry = retry
        self._look_again = look_again
        self._more = asyncio.Event()
        self._watched: PartitionLeader | None = None
        self._task: Task[None] = asyncio.get_running_loop().create_task(
            lasting(name, self._run, BackOff(random.Random())), name=name
        )

    @property
    def offset(self) -> int:
        """The offset of the next record; -1 while unknown."""
        return self._records.offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self._records.offset = offset

    def stop(self) -> Task[None]:
        """Stops the reading. Returns its cancelled task."""
        self._unwatch()
        self._task.cancel()
        return self._task

    def grown(self, size: int) -> None:
        self._more.set()

    def foreseen(self, size: int) -> None:
        """Does nothing: the taker gets only records that are in the log."""

    def gone(self) -> None:
        self._watched = None
        self._more.set()

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._watched.unwatch(self)
            self._watched = None

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except TreecastError as error:
                if error.fault in _GONE:
                    self._taker.ended()
                    return
                self._taker.failed(error)
            await asyncio.sleep(self._retry)

    async def _follow(self) -> None:
        leader = self._find()
        if self.offset < 0:
            self.offset = await self._taker.begin(leader)
        if self._watched is not leader:
            self._unwatch()
            leader.watch(self, _COMMITTED)
            self._watched = leader
        while self._watched is leader:
            await self._taker.room()
            # Before the read: what arrives during it must end the wait that follows.
            self._more.clear()
            try:
                found = await read_at(leader, self.offset, self._chunk)
            except TreecastError as error:
                if error.fault is not Fault.OFFSET_OUT_OF_RANGE:
                    raise
                self.offset = await self._taker.beyond(leader, self.offset)
                continue
            if found.size:
                records = await self._records.read(found)
                self._taker.take(records, self.offset)
                await asyncio.sleep(0)
            elif not self._more.is_set():
                await _set_within(self._more, self._look_again)


async def read_at(leader: PartitionLeader, offset: int, size: int) -> PartitionRead:
    """Reads committed batches from `offset` on, at least one if there is one."""
    found = leader.read(offset, size, _COMMITTED, at_least_one=True)
    return await found if isinstance(found, Future) else found


async def committed_offset(leader: PartitionLeader, timestamp: int) -> int:
    """Returns the offset of a time, or of `EARLIEST_TIMESTAMP` or `LATEST_TIMESTAMP`."""
    found = leader.offset_for_time(timestamp, _COMMITTED)
    at: OffsetAtTime = await found if isinstance(found, Future) else found
    return at.offset


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
