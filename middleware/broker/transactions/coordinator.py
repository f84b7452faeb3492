"""`TransactionCoordinator`: the transactional ids whose home is this host.

The order that survives a crash at any point: an addition is on disk before it is answered, so that no
record of a transaction is in a log without the transaction naming the partition; the decision is on
disk before the first marker; the end is on disk after the last one. At start every decided transaction
is completed again: markers and offset decisions may be repeated.

Calls on one transactional id are served one after another, under its lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.broker.cluster import GroupHome, PartitionLeader
from treecast.middleware.broker.values import InitProducer, PartitionErrors
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER_EPOCH, ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Tables

from . import records
from .producer_ids import ProducerIds
from .state import (
    DECIDED,
    TRANSITIONS,
    Entry,
    Event,
    State,
    Transaction,
    added,
    check_producer,
    completed,
    ended,
    entry,
    fenced,
    taken_over,
)

_log = logging.getLogger(__name__)

# One home on a host alone; with a fabric it rises when the home moves.
COORDINATOR_EPOCH = 0


class TransactionSettings(Struct, frozen=True):
    """Times in ms."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000


class Reach(Protocol):
    """What a coordinator needs of the cluster."""

    def partition(self, topic: str, index: int) -> PartitionLeader: ...

    def group_home(self, group_id: str) -> GroupHome: ...


class _Slot:
    """A transactional id: its transaction, None until the first one is on disk, and who is at it."""

    __slots__ = ("lock", "transaction")

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.transaction = transaction
        self.lock = asyncio.Lock()


class TransactionCoordinator:
    """Implements `cluster.TransactionHome`. `clock` gives seconds since the Unix epoch."""

    def __init__(
        self,
        settings: TransactionSettings,
        tables: Tables,
        producer_ids: ProducerIds,
        counters: BrokerCounters,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._producer_ids = producer_ids
        self._reach: Reach
        self._counters = counters
        self._clock = clock
        self._slots: dict[str, _Slot] = {}

    async def start(self, reach: Reach) -> None:
        """Loads all transactions and completes those that are decided; partitions and groups are open."""
        self._reach = reach
        for transactional_id, value in self._tables.load(records.TRANSACTIONS).items():
            self._slots[transactional_id] = _Slot(records.decode(transactional_id, value))
        await self._complete_decided()

    def transactions(self) -> Iterable[Transaction]:
        """All that are known, as they stand."""
        return [slot.transaction for slot in self._slots.values() if slot.transaction is not None]

    # --- requests

    async def init_producer(self, request: InitProducer) -> ProducerIdentity:
        """A fresh identity; the former owner is fenced and what it left open is aborted."""
        if request.transactional_id is None:
            return ProducerIdentity(await self._producer_ids.take(), 0)
        if not request.transactional_id:
            raise TreecastError(Fault.INVALID_REQUEST, "a transactional id cannot be empty")
        if not 0 < request.transaction_timeout_ms <= self._settings.max_timeout_ms:
            raise TreecastError(
                Fault.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms must be 1 to {self._settings.max_timeout_ms},"
                f" not {request.transaction_timeout_ms}",
            )
        slot = self._slots.setdefault(request.transactional_id, _Slot())
        async with slot.lock:
            return await self._take_over(slot, request.transactional_id, request)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> PartitionErrors:
        """Partitions that do not exist are refused, the others are part of the transaction."""
        refused: dict[TopicPartition, TreecastError] = {}
        for partition in partitions:
            try:
                self._reach.partition(partition.topic, partition.partition)
            except TreecastError as error:
                refused[partition] = error
        await self._add(transactional_id, producer, [p for p in partitions if p not in refused], ())
        return refused

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        """The group's pending offsets share the transaction's fate."""
        if not group_id:
            raise TreecastError(Fault.INVALID_GROUP, "a group id cannot be empty")
        await self._add(transactional_id, producer, (), (group_id,))

    async def end(self, transactional_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        """Decides and completes; a repeat of the same decision waits for, or finds, its completion."""
        slot = self._slot(transactional_id)
        async with slot.lock:
            transaction = self._owned(slot, producer)
            decided = ended(transaction, committed=committed, now=self._clock())
            if decided is not transaction:
                await self._keep(slot, decided)
            if decided.state in DECIDED:
                await self._complete(slot, decided)

    def verify(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> None:
        """Whether `producer` may append to `partition` now (KIP-890); looks only, for the hot path.

        INVALID_PRODUCER_MAPPING, INVALID_PRODUCER_EPOCH, or INVALID_TRANSACTION_STATE where no open
        transaction holds the partition.
        """
        if partition not in self._ongoing(transactional_id, producer).partitions:
            raise _not_in(transactional_id, str(partition))

    def verify_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        """The same for offsets of `group_id`."""
        if group_id not in self._ongoing(transactional_id, producer).groups:
            raise _not_in(transactional_id, f"group {group_id}")

    def _ongoing(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        slot = self._slots.get(transactional_id)
        transaction = slot.transaction if slot is not None else None
        if transaction is None or transaction.producer_id != producer.producer_id:
            raise TreecastError(Fault.INVALID_PRODUCER_MAPPING)
        if transaction.epoch != producer.epoch:
            raise TreecastError(Fault.INVALID_PRODUCER_EPOCH)
        if transaction.state is not State.ONGOING:
            raise _not_in(transactional_id, "anything")
        return transaction

    # --- housekeeping

    async def expire(self) -> None:
        """Aborts transactions that are open too long, completes what was left, forgets idle ids."""
        now = self._clock()
        idle = now - self._settings.expiration_ms / 1000
        for slot in list(self._slots.values()):
            transaction = slot.transaction
            if transaction is None or slot.lock.locked():
                continue
            if transaction.has_expired(now):
                async with slot.lock:
                    await self._time_out(slot)
            elif transaction.updated <= idle and TRANSITIONS[transaction.state, Event.EXPIRE] is State.DEAD:
                async with slot.lock:
                    await self._forget(slot)
        await self._complete_decided()

    async def _time_out(self, slot: _Slot) -> None:
        transaction, now = slot.transaction, self._clock()
        if transaction is None or not transaction.has_expired(now):
            return
        _log.warning("transaction of %r timed out, aborting it", transaction.transactional_id)
        await self._keep(slot, fenced(transaction, Event.TIMEOUT, now, last_epoch=NO_PRODUCER_EPOCH))
        self._counters.transactions_timed_out += 1
        # Completed by the caller with all others that are decided.

    async def _forget(self, slot: _Slot) -> None:
        transaction = slot.transaction
        if transaction is None:
            return
        await self._keep(slot, replace(transaction, state=State.DEAD))
        del self._slots[transaction.transactional_id]

    async def _complete_decided(self) -> None:
        for slot in list(self._slots.values()):
            if slot.transaction is None or slot.transaction.state not in DECIDED or slot.lock.locked():
                continue
            async with slot.lock:
                if slot.transaction.state in DECIDED:
                    try:
                        await self._complete(slot, slot.transaction)
                    except TreecastError as error:
                        _log.warning("markers of %r wait: %s", slot.transaction.transactional_id, error)

    # --- steps; the slot's lock is held

    async def _take_over(self, slot: _Slot, transactional_id: str, request: InitProducer) -> ProducerIdentity:
        known, timeout_ms, now = request.known, request.transaction_timeout_ms, self._clock()
        how = entry(slot.transaction, known)
        if how is Entry.ABORT_FIRST:
            assert slot.transaction is not None
            aborted = fenced(slot.transaction, Event.INIT, now, last_epoch=known.epoch)
            await self._keep(slot, aborted)
            await self._complete(slot, aborted)
            how = entry(slot.transaction, known)
            if how is Entry.REPEAT:  # the fencing epoch is taken, hand out the next one
                how = Entry.BUMP
        fresh = await self._producer_ids.take() if how is Entry.NEW_ID else -1
        before = slot.transaction or Transaction(transactional_id, -1, NO_PRODUCER_EPOCH, timeout_ms)
        taken = taken_over(before, how, known, fresh, timeout_ms, now)
        await self._keep(slot, taken)
        return taken.producer

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        groups: Sequence[str],
    ) -> None:
        slot = self._slot(transactional_id)
        async with slot.lock:
            transaction = self._owned(slot, producer)
            if not partitions and not groups:
                return
            grown = added(transaction, partitions, groups, self._clock())
            if grown is not transaction:
                await self._keep(slot, grown)

    def _slot(self, transactional_id: str) -> _Slot:
        slot = self._slots.get(transactional_id)
        if slot is None:
            raise TreecastError(
                Fault.INVALID_PRODUCER_MAPPING, f"nothing is known of transactional id {transactional_id!r}"
            )
        return slot

    def _owned(self, slot: _Slot, producer: ProducerIdentity) -> Transaction:
        if slot.transaction is None:
            raise TreecastError(Fault.INVALID_PRODUCER_MAPPING)
        check_producer(slot.transaction, producer)
        return slot.transaction

    async def _keep(self, slot: _Slot, transaction: Transaction) -> None:
        """On disk first, then in memory: what memory says has been promised."""
        await self._tables.commit([records.change(transaction)])
        slot.transaction = transaction

    async def _complete(self, slot: _Slot, transaction: Transaction) -> None:
        """Markers to all partitions, the decision to all groups, then the end. May be repeated.

        Raises the first refusal after all were tried; the transaction stays decided then.
        """
        pending = [*self._write_markers(transaction), *self._decide_offsets(transaction)]
        failures = [
            result
            for result in await asyncio.gather(*pending, return_exceptions=True)
            if isinstance(result, BaseException) and not _is_gone(result)
        ]
        if failures:
            raise failures[0]
        await self._keep(slot, completed(transaction, self._clock()))
        if transaction.committed:
            self._counters.transactions_committed += 1
        else:
            self._counters.transactions_aborted += 1

    def _write_markers(self, transaction: Transaction) -> list[Awaitable[None]]:
        return [self._write_marker(transaction, partition) for partition in sorted(transaction.partitions)]

    async def _write_marker(self, transaction: Transaction, partition: TopicPartition) -> None:
        leader = self._reach.partition(partition.topic, partition.partition)
        waiting = leader.append_marker(
            transaction.producer, committed=transaction.committed, coordinator_epoch=COORDINATOR_EPOCH
        )
        if waiting is not None:
            await waiting

    def _decide_offsets(self, transaction: Transaction) -> list[Awaitable[None]]:
        return [
            self._reach.group_home(group).end_transaction_offsets(
                group, transaction.producer, committed=transaction.committed
            )
            for group in sorted(transaction.groups)
        ]


def _is_gone(error: BaseException) -> bool:
    """A topic that was deleted needs no marker."""
    return isinstance(error, TreecastError) and error.fault is Fault.UNKNOWN_TOPIC


def _not_in(transactional_id: str, what: str) -> TreecastError:
    return TreecastError(
        Fault.INVALID_TRANSACTION_STATE, f"no open transaction of {transactional_id!r} holds {what}"
    )
