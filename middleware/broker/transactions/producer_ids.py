"""Producer ids: handed out in blocks, each block durable before its first id is used; never used again."""

from __future__ import annotations

import asyncio

from treecast.middleware.storage.tables import Change, Tables

BLOCK = 1000
PRODUCER_IDS = "producer_ids"
_NEXT = "next"


class ProducerIds:
    """Table `producer_ids`: `next` -> the first id (decimal) of no block yet.

    A restart skips what is left of a block.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._next = self._end = int(tables.load(PRODUCER_IDS).get(_NEXT, b"0"))
        self._taking = asyncio.Lock()

    async def take(self) -> int:
        """An id that nobody had before."""
        async with self._taking:
            if self._next == self._end:
                end = self._end + BLOCK
                await self._tables.commit([Change(PRODUCER_IDS, _NEXT, str(end).encode())])
                self._end = end
            taken = self._next
            self._next += 1
            return taken
