"""Handlers that await, and the work budget: they rest between pieces of a costly request."""

from __future__ import annotations

import asyncio
from functools import partial

from treecast.middleware.model.budget import WorkBudget


async def rest(work: WorkBudget) -> None:
    """Waits for a later pass of the loop if the budget of this one is spent."""
    if work.spent():
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.later(partial(_wake, turn), alone=True)
        await turn


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # else its request was cancelled
        turn.set_result(None)
