"""Coroutines that wait until the turn has stored what they changed."""

from __future__ import annotations

import asyncio
from functools import partial

from .turn import StoredWaits


async def stored(waits: StoredWaits) -> bool:
    """Returns at the end of the turn whether all of it is stored; False at once when `waits` close."""
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    waits.then(partial(_resolve, told))
    return await told


def _resolve(told: asyncio.Future[bool], is_stored: bool) -> None:
    if not told.done():
        told.set_result(is_stored)
