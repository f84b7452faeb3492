"""Objects of closed connections: reference counts alone must free them, since buffers wait with a cycle."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.unit.loops import holds

from treecast.middleware.model.counters import FaceCounters


@asynccontextmanager
async def uncollected(*names: str) -> AsyncIterator[Callable[[], Counter[str]]]:
    """Keeps the collector from finding cycles meanwhile. Gives a function that returns how many more objects
    of these classes of ours there are than at first: other tests of the process may have left some.
    """
    gc.collect()
    gc.disable()
    before = alive(*names)
    try:
        yield lambda: alive(*names) - before
    finally:
        gc.enable()


async def visit(
    address: tuple[str, int],
    counters: FaceCounters,
    *sent: bytes,
    times: int = 3,
    bytes_in: Callable[[], int] | None = None,
) -> None:
    """Connects, sends, and leaves without waiting for the rest; so many times. `bytes_in`: the bytes that
    have arrived, if the counters learn of them later.
    """
    arrived = bytes_in or (lambda: counters.bytes_in)
    for _ in range(times):
        before, taken = counters.connections_closed, arrived()
        _, writer = await asyncio.open_connection(*address)
        for data in sent:
            taken += len(data)
            writer.write(data)
            await holds(lambda taken=taken: arrived() >= taken)  # type: ignore[misc]
        writer.close()
        await writer.wait_closed()
        await holds(lambda before=before: counters.connections_closed > before)  # type: ignore[misc]
    for _ in range(10):
        await asyncio.sleep(0)


def alive(*names: str) -> Counter[str]:
    """Returns how many objects of these classes of ours there are."""
    return Counter(
        kind.__name__
        for kind in map(type, gc.get_objects())
        if kind.__name__ in names and kind.__module__.startswith("treecast.")
    )
