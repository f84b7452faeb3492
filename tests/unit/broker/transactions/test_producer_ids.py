"""Producer ids of a joined host: none is given twice, also where the directory was restored."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from treecast.middleware.broker.transactions.producer_ids import BLOCK, STRIDE, ProducerIds
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables


class Coordinator:
    """Gives out blocks, each once."""

    def __init__(self) -> None:
        self.next = 5000
        self.away = False

    async def producer_ids(self, count: int) -> range:
        if self.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)
        self.next += count
        return range(self.next - count, self.next)


class Host:
    def __init__(self, path: Path, coordinator: Coordinator) -> None:
        self.tables = Tables(path, FsyncPolicy.NEVER)
        self.ids = ProducerIds(self.tables)
        self.ids.use(coordinator)

    async def take(self, count: int) -> list[int]:
        return [await self.ids.take() for _ in range(count)]

    async def close(self) -> None:
        await self.ids.close()
        self.tables.close()


async def test_a_restart_without_the_coordinator_goes_on_with_the_rest_of_a_block(tmp_path: Path) -> None:
    coordinator = Coordinator()
    host = Host(tmp_path / "tables", coordinator)
    first = await host.take(STRIDE + 1)
    await host.close()
    coordinator.away = True
    host = Host(tmp_path / "tables", coordinator)
    again = await host.take(STRIDE)
    assert not set(first) & set(again)
    assert max(again) < 5000 + BLOCK
    await host.close()


async def test_a_restored_directory_gives_no_id_again(tmp_path: Path) -> None:
    coordinator = Coordinator()
    path, copy = tmp_path / "tables", tmp_path / "copy"
    host = Host(path, coordinator)
    given = await host.take(1)
    await host.close()
    shutil.copy(path, copy)
    host = Host(path, coordinator)
    given += await host.take(3 * STRIDE)
    await host.close()
    shutil.copy(copy, path)
    host = Host(path, coordinator)
    await host.ids.drop_blocks()
    await host.close()  # before an id was asked for
    host = Host(path, coordinator)
    coordinator.away = True
    with pytest.raises(TreecastError) as refused:
        await host.take(1)
    assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
    coordinator.away = False
    later = await host.take(2 * STRIDE)
    assert len(set(given) | set(later)) == len(given) + len(later)
    await host.close()


async def test_the_rest_of_a_stride_is_dropped_where_the_coordinator_is_back(tmp_path: Path) -> None:
    coordinator = Coordinator()
    host = Host(tmp_path / "tables", coordinator)
    before = await host.take(1)
    await host.ids.drop_blocks()
    assert min(await host.take(1)) >= before[0] + BLOCK
    await host.close()
