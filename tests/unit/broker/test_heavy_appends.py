"""Batches whose check or compression a thread does: their order, refusals, and the appends behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.test_partition import NOW_MS, PRODUCER, Bench, Waiter, batch_of, make, records_of
from tests.unit.refusals import refusal

from treecast.middleware.broker.heavy_appends import RECOMPRESS_AT_ONCE
from treecast.middleware.broker.partition import takes_runs
from treecast.middleware.broker.values import Appended, Isolation
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Compression
from treecast.middleware.wire.record_batch import AT_ONCE

__all__ = ["make"]

HEAVY = bytes(AT_ONCE + 1)


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


def append_heavy(bench: Bench, **more: Any) -> asyncio.Future[Appended]:
    appended = bench.append(HEAVY, compression=Compression.ZSTD, **more)
    assert isinstance(appended, asyncio.Future)
    return appended


async def offset_of(appended: Appended | asyncio.Future[Appended]) -> int:
    found = appended if isinstance(appended, Appended) else await appended
    return found.base_offset


async def test_appends_keep_their_order_while_one_is_prepared(bench: Bench) -> None:
    waiter = Waiter()
    bench.partition.watch(waiter, Isolation.READ_UNCOMMITTED)
    assert await offset_of(bench.append(b"before")) == 0
    assert takes_runs(bench.partition)
    appended = [append_heavy(bench), bench.append(b"x"), bench.append(b"y", b"z"), append_heavy(bench)]
    assert not takes_runs(bench.partition)
    assert (bench.log.end_offset, len(waiter.told)) == (1, 1)
    appended.append(bench.append(b"last"))
    assert [await offset_of(one) for one in appended] == [1, 2, 3, 5, 6]
    assert takes_runs(bench.partition)
    assert await offset_of(bench.append(b"after")) == 7
    sizes = [len(record.value or b"") for record in records_of(bench.read())]
    assert sizes == [6, len(HEAVY), 1, 1, 1, len(HEAVY), 4, 5]


async def test_a_heavy_batch_that_is_refused_holds_nobody_up(make: Callable[..., Bench]) -> None:
    bench = make(compression_type="uncompressed")
    appended, behind = append_heavy(bench), bench.append(b"x")
    with refusal(Fault.BATCH_TOO_LARGE):
        await appended
    assert await offset_of(behind) == 0


async def test_an_idempotent_producers_batches_and_repeats_wait_their_turn(bench: Bench) -> None:
    first = append_heavy(bench, producer=PRODUCER, base_sequence=0)
    second = bench.append(b"x", producer=PRODUCER, base_sequence=1)
    again = append_heavy(bench, producer=PRODUCER, base_sequence=0)
    gap = bench.append(b"x", producer=PRODUCER, base_sequence=9)
    assert [await offset_of(one) for one in (first, second, again)] == [0, 1, 0]
    with refusal(Fault.OUT_OF_ORDER_SEQUENCE):
        await gap
    assert bench.log.end_offset == 2


async def test_a_transaction_is_verified_when_the_batch_is_prepared(bench: Bench) -> None:
    refused = append_heavy(bench, tid="tx", producer=PRODUCER, base_sequence=0, transactional=True)
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        await refused
    taken = append_heavy(bench, tid="tx", producer=PRODUCER, base_sequence=0, transactional=True)
    bench.guard.open.add(("tx", PRODUCER))
    assert await offset_of(taken) == 0
    assert bench.log.stable_offset == 0


async def test_senders_of_several_batches_learn_of_a_refusal_at_once(bench: Bench) -> None:
    light, late = batch_of(b"a"), batch_of(b"a", timestamp=NOW_MS * 2)
    heavy = batch_of(HEAVY, compression=Compression.ZSTD)
    with refusal(Fault.BATCH_TOO_LARGE):
        bench.send(light + heavy)
    appended = append_heavy(bench)
    with refusal(Fault.BATCH_TOO_LARGE):
        bench.send(light + heavy)
    with refusal(Fault.INVALID_TIMESTAMP):
        bench.send(light + late)
    both = bench.send(light + light)
    assert [await offset_of(one) for one in (appended, both)] == [0, 1]
    assert bench.log.end_offset == 3


@pytest.mark.parametrize("size", [RECOMPRESS_AT_ONCE // 2, RECOMPRESS_AT_ONCE + 1])
async def test_much_is_compressed_on_the_thread(make: Callable[..., Bench], size: int) -> None:
    bench = make(compression_type="gzip", max_message_bytes=str(4 * RECOMPRESS_AT_ONCE))
    appended = bench.append(bytes(size), producer=PRODUCER, base_sequence=0)
    assert isinstance(appended, Appended) == (size <= RECOMPRESS_AT_ONCE)
    assert await offset_of(appended) == 0
    (record,) = records_of(bench.read())
    assert (record.value, record.timestamp) == (bytes(size), NOW_MS)
    assert bench.log.size < size // 100


async def test_rules_of_the_topic_hold_for_what_was_prepared(make: Callable[..., Bench]) -> None:
    """The check's findings survive another compression."""
    bench = make(compression_type="gzip", cleanup_policy="compact")
    with pytest.raises(TreecastError) as caught:
        await append_heavy(bench, key=None)
    assert caught.value.fault is Fault.INVALID_RECORD
    assert [index for index, _ in caught.value.records] == [0]
    bench = make(compression_type="gzip", message_timestamp_before_max_ms="1000")
    with refusal(Fault.INVALID_TIMESTAMP):
        await append_heavy(bench, timestamp=NOW_MS - 2000)


async def test_a_topic_that_goes_meanwhile_refuses_all(bench: Bench) -> None:
    appended, behind = append_heavy(bench), bench.append(b"x")
    bench.partition.release()
    for one in (appended, behind):
        with refusal(Fault.NOT_LEADER):
            await one


async def test_a_daemon_that_closes_answers_those_that_wait(bench: Bench) -> None:
    appended = [append_heavy(bench), append_heavy(bench), bench.append(b"x")]
    await bench.flusher.close()
    outcomes = await asyncio.gather(*appended, return_exceptions=True)
    assert isinstance(outcomes[0], Appended)
    assert all(isinstance(one, Appended | TreecastError | asyncio.CancelledError) for one in outcomes)
    with refusal(Fault.STORAGE):
        append_heavy(bench)
    assert not bench.partition.waits
