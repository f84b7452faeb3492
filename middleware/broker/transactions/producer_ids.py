"""Producer ids: allotted in blocks. A block is durable before its first use, and no id is used twice.

A host alone counts by itself. A joined host gets blocks from the coordinator and reserves them in strides, so
that it can continue with the rest of a block if it restarts while the coordinator is away. Where the
coordinator answers, it drops that rest: a data directory that was restored has ids that were given out since.

| table             | key      | value                                                               |
| ----------------- | -------- | ------------------------------------------------------------------- |
| `producer_ids`    | `next`   | decimal, of a host alone: the first id of no block yet              |
| `producer_blocks` | `next`   | decimal, of a joined host: all ids below may be used                |
|                   | `blocks` | JSON, blocks of the coordinator: [first, first after it] for each   |
"""

from __future__ import annotations

import asyncio
import json
from typing import Protocol

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.tables import Change, Tables

BLOCK = 1000
STRIDE = 100
PRODUCER_IDS, PRODUCER_BLOCKS = "producer_ids", "producer_blocks"
_NEXT, _BLOCKS = "next", "blocks"

_log = Log(__name__)


class BlockSource(Protocol):
    """The source of a joined host's ids."""

    async def producer_ids(self, count: int) -> range:
        """Returns unused ids. Raises COORDINATOR_UNAVAILABLE."""


class ProducerIds:
    """Allots each id once. A restart skips the rest of a block or stride."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        rows = tables.load(PRODUCER_BLOCKS)
        alone = tables.load(PRODUCER_IDS).get(_NEXT, b"0")
        self._next = self._end = max(int(alone), int(rows.get(_NEXT, b"0")))
        self._blocks = [range(first, end) for first, end in json.loads(rows.get(_BLOCKS, b"[]"))]
        self._source: BlockSource | None = None  # None: a host alone
        self._fetching: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()

    def use(self, source: BlockSource) -> None:
        """Sets the source of further ids."""
        self._source = source

    async def drop_blocks(self) -> None:
        """Drops what is left of earlier blocks and strides, durably. A disk that refuses is logged."""
        async with self._taking:
            self._next = self._end
            if not self._blocks:
                return
            self._blocks = []
            try:
                await self._tables.commit([Change(PRODUCER_BLOCKS, _BLOCKS, None)])
            except TreecastError as error:
                _log.warning("producer ids of earlier runs are dropped here, but not on disk", error=error)

    async def take(self) -> int:
        """Returns an unused id. Raises COORDINATOR_UNAVAILABLE if none is left and no block comes."""
        async with self._taking:
            if self._next == self._end:
                await self._reserve()
            taken = self._next
            self._next += 1
            return taken

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    async def _reserve(self) -> None:
        if self._source is None:
            first, end = self._end, self._end + BLOCK
            changes = [Change(PRODUCER_IDS, _NEXT, str(end).encode())]
        else:
            first, end = await self._stride(self._source)
            left = json.dumps([[block.start, block.stop] for block in self._blocks])
            changes = [
                Change(PRODUCER_BLOCKS, _NEXT, str(end).encode()),
                Change(PRODUCER_BLOCKS, _BLOCKS, left.encode()),
            ]
        await self._tables.commit(changes)
        self._next, self._end = first, end

    async def _stride(self, source: BlockSource) -> tuple[int, int]:
        """Takes a stride from the blocks. Fetches the next block before the last one is empty."""
        self._drop_used()
        while not self._blocks:
            await self._fetch(source)
            self._drop_used()
        first = self._blocks[0].start
        end = min(first + STRIDE, self._blocks[0].stop)
        self._blocks[0] = range(end, self._blocks[0].stop)
        if sum(map(len, self._blocks)) <= BLOCK // 2 and self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch_ahead(source))
        return first, end

    def _drop_used(self) -> None:
        """Drops ids that this host has already used, also those from its time as a host alone."""
        left = (range(max(block.start, self._end), block.stop) for block in self._blocks)
        self._blocks = [block for block in left if block]

    async def _fetch(self, source: BlockSource) -> None:
        if self._fetching is not None:  # a fetch is in progress
            await asyncio.shield(self._fetching)
            if self._blocks:
                return
        self._blocks.append(await source.producer_ids(BLOCK))

    async def _fetch_ahead(self, source: BlockSource) -> None:
        try:
            self._blocks.append(await source.producer_ids(BLOCK))
        except TreecastError as error:
            if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                _log.warning("coordinator gives no producer ids", error=error)
        finally:
            self._fetching = None
