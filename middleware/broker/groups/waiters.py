"""Requests that wait until their group answers them."""

from __future__ import annotations

import asyncio
from itertools import count

from treecast.middleware.broker.values import Joined, Synced
from treecast.middleware.model.errors import TreecastError

from .effects import Answer


class Waiters:
    """Joins and syncs by number: a group names its answer's waiter by it."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[Joined | Synced]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._futures)

    def begin(self) -> tuple[int, asyncio.Future[Joined | Synced]]:
        """Returns a new waiter's number, and the future for `wait`."""
        waiter = next(self._numbers)
        self._futures[waiter] = future = asyncio.get_running_loop().create_future()
        return waiter, future

    async def wait(self, waiter: int, future: asyncio.Future[Joined | Synced]) -> Joined | Synced:
        try:
            return await future
        finally:
            self._futures.pop(waiter, None)

    def answer(self, answer: Answer) -> None:
        future = self._futures.pop(answer.waiter, None)
        if future is None or future.done():
            return  # the requester has gone
        if isinstance(answer.result, TreecastError):
            future.set_exception(answer.result)
        else:
            future.set_result(answer.result)
