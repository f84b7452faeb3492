"""Answers that have to wait, and coroutines that are run at once as far as they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from treecast.middleware.model.buffers import Chunk

T = TypeVar("T")

Deliver = Callable[["Pending", "list[Chunk] | None"], None]


class Refused(Exception):
    """The connection cannot go on: it gets no answer and is closed. The text says why."""


class Pending:
    """An answer on its way. Whoever waits sets `deliver`, which is called once, from the loop.

    None in place of the answer says that there will be none: an error of our own, logged already.
    `pipelined`: the connection's later requests need not wait for it.
    """

    pipelined = False

    def __init__(self) -> None:
        self.deliver: Deliver | None = None

    def finish(self, buffers: list[Chunk] | None) -> None:
        deliver, self.deliver = self.deliver, None
        if deliver is not None:
            deliver(self, buffers)

    def hurry(self) -> None:
        """The face is closing: answer with what there is."""

    def abandon(self) -> None:
        """Nobody waits any more."""
        self.deliver = None


def start(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T | asyncio.Task[T]:
    """Runs `coroutine` until it ends, and gives its result, or until it waits: then a task goes on.

    Until it first waits there is no current task: `asyncio.timeout` cannot be entered before that.
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
    """`coroutine`, which waits for `waited`, as something that can be awaited."""

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
