"""Coroutines that run without a task until they first wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def start(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T | asyncio.Task[T]:
    """Runs `coroutine` and returns its result; if it waits, returns a task that continues it.

    There is no current task until the first wait, so the coroutine cannot enter `asyncio.timeout` before it.
    """
    try:
        waited = coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    return loop.create_task(_go_on(coroutine, waited))


async def _go_on(coroutine: Coroutine[Any, Any, T], waited: Any) -> T:
    return await _Resumed(coroutine, waited)


class _Resumed(Generic[T]):
    """An awaitable that continues `coroutine`, which currently waits for `waited`."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waited: Any) -> None:
        self._coroutine = coroutine
        self._waited = waited

    def __await__(self) -> Generator[Any, Any, T]:
        waited = self._waited
        try:
            while True:
                try:
                    sent = yield waited
                except BaseException as error:
                    waited = self._coroutine.throw(error)
                else:
                    waited = self._coroutine.send(sent)
        except StopIteration as stop:
            value: T = stop.value
            return value
