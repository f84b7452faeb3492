"""`TransactionCoordinator`: the transactional ids whose home is this host.

A crash at any point is safe because of this order (`tests/unit/broker/transactions/test_against_reference.py`
kills at every step). An addition is on disk before its answer, so a log never holds a record of a transaction
that does not name the partition. The decision is on disk before the first marker, and the end is on disk
after the last marker. At start, every decided transaction is completed again: markers and offset decisions
are idempotent.

Calls on one transactional id run one after another, under its lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.broker.homes import HomeStore, HomeWrite, TableStore
from treecast.middleware.broker.values import InitProducer, PartitionErrors, TransactionListing
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    ProducerIdentity,
    TopicPartition,
)
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.tables import Change, Tables

from . import records
from .markers import ELSEWHERE, Owners, carry_out
from .parts import (
    check_begin,
    check_fresh,
    check_names,
    check_open,
    check_repeat,
    compared,
    fate,
    given_up,
    home_name,
    part_of,
    with_batch,
)
from .producer_ids import ProducerIds
from .slots import Slot, Slots
from .state import (
    DECIDED,
    LAST_EPOCH,
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

_log = Log(__name__)

MOST_IDLE = 4096


class TransactionSettings(Struct, frozen=True):
    """Times in ms."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000


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
        self._homes: HomeStore | None = None  # None: a host alone
        self._store: HomeStore = TableStore(tables)
        self._producer_ids = producer_ids
        self._owners: Owners
        self._counters = counters
        self._clock = clock
        self._slots = Slots()
        self._idle: list[ProducerIdentity] = []  # identities of finished parts, for reuse
        self._started = False
        self._completing: set[asyncio.Task[None]] = set()

    def use(self, store: HomeStore) -> None:
        """Sets the store that knows which transactional ids have their home here. Call before `start`."""
        self._homes = self._store = store

    def restore(self) -> None:
        """Loads all transactions. On a joined host, `own` sets their epochs later."""
        for transactional_id, value in self._tables.load(records.TRANSACTIONS).items():
            transaction = records.decode(transactional_id, value)
            self._slots.put(transactional_id, Slot(0, transaction, confirmed=self._homes is None))
        for whole in self._slots.wholes():
            self._recall(whole)

    async def start(self, owners: Owners) -> None:
        """Completes decided transactions. Partitions and groups must be open."""
        self._owners = owners
        self._started = True
        await self._complete_decided()

    async def close(self) -> None:
        """Awaits completions in progress."""
        await asyncio.gather(*self._completing, return_exceptions=True)

    # --- the homes of a joined host

    def known(self) -> Sequence[str]:
        """All loaded transactional ids that have their own home. Parts share the home of their whole."""
        return self._slots.wholes()

    def own(self, transactional_id: str, epoch: int) -> None:
        """Makes this host the home in `epoch` with the loaded state, and completes decided transactions."""
        for _, slot in self._slots.at_home(transactional_id):
            slot.epoch = epoch
            self._complete_soon(slot)

    def items(self, transactional_id: str) -> Mapping[bytes, bytes]:
        """The items from which another host can become the home."""
        kept = [slot.transaction for _, slot in self._slots.at_home(transactional_id)]
        return records.items_of(transaction for transaction in kept if transaction is not None)

    def rows(self, transactional_id: str, items: Mapping[bytes, bytes]) -> Sequence[Change]:
        """Returns `items` as table rows, to be stored before `load`. Raises INTERNAL for a bad item."""
        try:
            return records.rows_of(transactional_id, items)
        except ValueError as error:
            raise TreecastError(
                Fault.INTERNAL,
                f"the coordinator's store holds a bad item for {transactional_id!r}: {error}",
            ) from error

    def load(self, transactional_id: str, epoch: int, rows: Sequence[Change]) -> None:
        """Becomes the home in `epoch` with the rows of the previous home."""
        self.unload(transactional_id)
        for row in rows:
            self._slots.put(row.key, Slot(epoch, records.decode(row.key, row.value or b"")))
        self._recall(transactional_id)
        self.own(transactional_id, epoch)

    def unload(self, transactional_id: str) -> Sequence[Change]:
        """Gives up the home. Returns the removal of its rows.

        Calls in progress continue, and the store refuses their writes.
        """
        gone = [name for name, _ in self._slots.at_home(transactional_id)]
        for name in gone:
            self._slots.pop(name)
        return [Change(records.TRANSACTIONS, name, None) for name in gone]

    def _recall(self, whole: str) -> None:
        """Applies the row of `whole` to its parts, whose own rows may be older."""
        slot = self._slots.get(whole)
        for name, held in self._slots.parts(whole):
            part = part_of(name)
            if slot is not None and part is not None and held.transaction is not None:
                held.transaction = fate(slot.transaction, part, held.transaction, self._clock())

    def _epoch(self, transactional_id: str) -> int:
        """Raises NOT_COORDINATOR if the home is elsewhere."""
        if self._homes is None:
            return 0
        return self._homes.epoch(home_name(transactional_id))

    def _is_home(self, transactional_id: str, slot: Slot) -> bool:
        try:
            return self._epoch(transactional_id) == slot.epoch
        except TreecastError:
            return False

    def transactions(self) -> Iterable[Transaction]:
        """All loaded transactions in their present state."""
        return [slot.transaction for _, slot in self._slots.all() if slot.transaction is not None]

    def list_transactions(self, transactional_ids: Collection[str] | None = None) -> list[TransactionListing]:
        """Returns the transactions whose home is this host, for admin tools. Leaves out all others."""
        named = None if transactional_ids is None else frozenset(transactional_ids)
        return [
            listing(slot.transaction)
            for transactional_id, slot in self._slots.all()
            if slot.transaction is not None
            and (named is None or transactional_id in named)
            and self._is_home(transactional_id, slot)
        ]

    # --- requests

    async def init_producer(self, request: InitProducer) -> ProducerIdentity:
        """Returns a fresh identity. Fences the former owner and aborts its open transaction."""
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
        epoch = self._epoch(request.transactional_id)
        part = part_of(request.transactional_id)
        if part is not None:
            whole = self._slots.get(part.whole)
            check_begin(None if whole is None else whole.transaction, part)
        slot = self._slots.made(request.transactional_id, epoch)
        async with slot.lock:
            return await self._take_over(slot, request.transactional_id, request)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> PartitionErrors:
        """Adds the partitions that exist. Returns an error for each of the others."""
        refused: dict[TopicPartition, TreecastError] = {}
        for partition in partitions:
            try:
                self._owners.partition(partition.topic, partition.partition)
            except TreecastError as error:
                refused[partition] = error
        await self._add(transactional_id, producer, [p for p in partitions if p not in refused], ())
        return refused

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        """Ties the group's pending offsets to the decision of the transaction."""
        if not group_id:
            raise TreecastError(Fault.INVALID_GROUP, "a group id cannot be empty")
        await self._add(transactional_id, producer, (), (group_id,))

    async def end(self, transactional_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        """Decides and completes. A repeat of the same decision waits for its completion."""
        slot = self._slot(transactional_id)
        async with slot.lock:
            transaction = self._owned(slot, producer)
            decided = ended(transaction, committed=committed, now=self._clock())
            if decided is not transaction:
                await self._keep(slot, decided)
            if decided.state in DECIDED:
                await self._carry_out(slot, decided)

    async def end_parts(
        self,
        whole: str,
        batch: int,
        parts: Mapping[str, ProducerIdentity],
        *,
        committed: bool,
        content: str = "",
    ) -> None:
        """Commits `batch` of `whole`: the named parts count; all other parts up to `batch` are aborted.

        If `batch` is the last committed batch, changes nothing and aborts further parts of it. Raises
        INVALID_TRANSACTION_STATE for a call that cannot be a repeat of it (`parts.check_repeat`). Without
        `committed`, aborts all open parts up to `batch`.
        """
        check_names(whole, batch, parts)
        slot = self._slots.made(whole, self._epoch(whole))
        async with slot.lock:
            last = slot.transaction
            if committed and last is not None and batch <= last.batch:
                self._repeated(last, batch, parts, content)
            elif committed:
                check_fresh(whole, batch, parts, content)
                await self._note_parts(whole)
                await self._commit_parts(slot, whole, batch, parts, content)
            for name, held in self._slots.parts(whole):
                part = part_of(name)
                if part is not None and part.batch <= batch:
                    await self._end_part(held, slot.transaction)

    async def _note_parts(self, whole: str) -> None:
        """Writes the decision into the rows of parts of the previous batch that still wait for markers."""
        for _, held in self._slots.parts(whole):
            async with held.lock:
                if held.transaction is not None and held.transaction.state in DECIDED:
                    await self._keep(held, held.transaction)

    def _repeated(
        self, whole: Transaction, batch: int, parts: Mapping[str, ProducerIdentity], content: str
    ) -> None:
        """Counts and logs a repeated batch instead of writing it. A retry with exactly the committed parts,
        after a lost answer, is not counted."""
        check_repeat(whole, batch, content)
        names = {part.name for part in map(part_of, parts) if part is not None}
        if names and names == whole.winners:
            return
        self._counters.batches_skipped += 1
        _log.warning(
            "batch is already committed and is not written again",
            transaction=whole.transactional_id,
            batch=batch,
            content=content or "not named by its writer",
            compared=compared(whole, content),
        )

    async def _commit_parts(
        self, slot: Slot, whole: str, batch: int, parts: Mapping[str, ProducerIdentity], content: str
    ) -> None:
        """Writes the row that decides. Holds the locks of the parts, so that none times out meanwhile."""
        held = {name: self._slots.get(name) for name in sorted(parts)}
        async with AsyncExitStack() as locks:
            for name, part_slot in held.items():
                if part_slot is not None:
                    await locks.enter_async_context(part_slot.lock)
                check_open(name, None if part_slot is None else part_slot.transaction, parts[name])
            names = frozenset(part.name for part in map(part_of, held) if part is not None)
            decided = with_batch(slot.transaction, whole, batch, names, content, self._clock())
            await self._keep(slot, decided)
            for name, part_slot in held.items():
                part = part_of(name)
                if part_slot is not None and part_slot.transaction is not None and part is not None:
                    part_slot.transaction = fate(decided, part, part_slot.transaction, self._clock())

    async def _end_part(self, slot: Slot, whole: Transaction | None) -> None:
        """Aborts an open part, completes a decided part, forgets a part that was not begun."""
        async with slot.lock:
            transaction = slot.transaction
            if transaction is None:
                return
            if transaction.state is State.EMPTY:
                await self._forget(slot)
            elif transaction.state is State.ONGOING:
                aborted = given_up(transaction, self._clock())
                await self._keep(slot, aborted)
                await self._carry_out(slot, aborted)
            elif transaction.state in DECIDED:
                await self._carry_out(slot, transaction)

    async def _carry_out(self, slot: Slot, decided: Transaction) -> None:
        """Completes the transaction. `expire` retries for owners that cannot be reached now."""
        try:
            await self._complete(slot, decided)
        except TreecastError as error:
            if self._homes is None or error.fault not in ELSEWHERE:
                raise
            _log.info("end of a transaction is sent later", transaction=decided.transactional_id, error=error)

    def verify(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> None:
        """Checks that `producer` may append to `partition` now (KIP-890). Read-only, for the hot path.

        Raises INVALID_PRODUCER_MAPPING, INVALID_PRODUCER_EPOCH, or NOT_IN_TRANSACTION if no open transaction
        includes the partition.
        """
        if partition not in self._ongoing(transactional_id, producer).partitions:
            raise _not_in(transactional_id, str(partition))

    def verify_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        """Like `verify`, for offsets of `group_id`."""
        if group_id not in self._ongoing(transactional_id, producer).groups:
            raise _not_in(transactional_id, f"group {group_id}")

    def _ongoing(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        self._epoch(transactional_id)
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
        """Aborts transactions that exceed their time-out, completes decided ones, forgets idle ids."""
        now = self._clock()
        idle = now - self._settings.expiration_ms / 1000
        for transactional_id, slot in self._slots.all():
            transaction = slot.transaction
            if transaction is None or slot.lock.locked() or not self._is_home(transactional_id, slot):
                continue
            try:
                if transaction.has_expired(now):
                    async with slot.lock:
                        await self._time_out(slot)
                elif _left_unused(transaction, now):
                    async with slot.lock:
                        await self._forget_unused(slot)
                elif (
                    transaction.updated <= idle and TRANSITIONS[transaction.state, Event.EXPIRE] is State.DEAD
                ):
                    async with slot.lock:
                        await self._forget(slot)
            except TreecastError as error:
                if self._homes is None:
                    raise
                _log.warning("transaction cannot be expired", transaction=transactional_id, error=error)
        await self._complete_decided()

    async def _time_out(self, slot: Slot) -> None:
        transaction, now = slot.transaction, self._clock()
        if transaction is None or not transaction.has_expired(now):
            return
        await self._keep(slot, fenced(transaction, Event.TIMEOUT, now, last_epoch=NO_PRODUCER_EPOCH))
        _log.warning("transaction timed out and is aborted", transaction=transaction.transactional_id)
        self._counters.transactions_timed_out += 1
        # The caller completes it with all other decided transactions.

    async def _forget(self, slot: Slot) -> None:
        transaction = slot.transaction
        if transaction is None:
            return
        await self._keep(slot, replace(transaction, state=State.DEAD))
        self._slots.pop(transaction.transactional_id)

    async def _forget_unused(self, slot: Slot) -> None:
        if slot.transaction is not None and _left_unused(slot.transaction, self._clock()):
            await self._forget(slot)

    async def _complete_decided(self) -> None:
        for transactional_id, slot in self._slots.all():
            if slot.lock.locked() or not self._is_home(transactional_id, slot):
                continue
            if self._homes is None:
                await self._complete_slot(slot)
            else:  # a leader without an answer does not delay other transactions
                self._complete_soon(slot)

    def _complete_soon(self, slot: Slot) -> None:
        decided = slot.transaction is not None and slot.transaction.state in DECIDED
        if decided and self._started:
            task = asyncio.create_task(self._complete_slot(slot))
            self._completing.add(task)
            task.add_done_callback(self._completing.discard)

    async def _complete_slot(self, slot: Slot) -> None:
        async with slot.lock:
            transaction = slot.transaction
            if transaction is None or transaction.state not in DECIDED:
                return
            try:
                if not slot.confirmed:  # a kill may have preceded the store's copy of the decision
                    await self._keep(slot, transaction)
                    slot.confirmed = True
                await self._complete(slot, transaction)
            except TreecastError as error:
                _log.warning(
                    "transaction markers wait", transaction=transaction.transactional_id, error=error
                )

    # --- steps; the caller holds the slot's lock

    async def _take_over(self, slot: Slot, transactional_id: str, request: InitProducer) -> ProducerIdentity:
        known, timeout_ms, now = request.known, request.transaction_timeout_ms, self._clock()
        how = entry(slot.transaction, known)
        if how is Entry.ABORT_FIRST:
            assert slot.transaction is not None
            aborted = fenced(slot.transaction, Event.INIT, now, last_epoch=known.epoch)
            await self._keep(slot, aborted)
            await self._carry_out(slot, aborted)
            how = entry(slot.transaction, known)
            if how is Entry.REPEAT:  # the fencing epoch is in use: hand out the next one
                how = Entry.BUMP
        fresh = await self._fresh(transactional_id) if how is Entry.NEW_ID else NO_PRODUCER
        before = slot.transaction or Transaction(transactional_id, -1, NO_PRODUCER_EPOCH, timeout_ms)
        taken = taken_over(before, how, known, fresh, timeout_ms, now)
        await self._keep(slot, taken)
        return taken.producer

    async def _fresh(self, transactional_id: str) -> ProducerIdentity:
        """Returns an unused identity. A part may get the next epoch of a finished part's identity."""
        if self._idle and part_of(transactional_id) is not None:
            done = self._idle.pop()
            return ProducerIdentity(done.producer_id, done.epoch + 1)
        return ProducerIdentity(await self._producer_ids.take(), 0)

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

    def _slot(self, transactional_id: str) -> Slot:
        self._epoch(transactional_id)
        slot = self._slots.get(transactional_id)
        if slot is None:
            raise TreecastError(
                Fault.INVALID_PRODUCER_MAPPING, f"unknown transactional id {transactional_id!r}"
            )
        return slot

    def _owned(self, slot: Slot, producer: ProducerIdentity) -> Transaction:
        if slot.transaction is None:
            raise TreecastError(Fault.INVALID_PRODUCER_MAPPING)
        check_producer(slot.transaction, producer)
        return slot.transaction

    async def _keep(self, slot: Slot, transaction: Transaction) -> None:
        """Stores the transaction on disk, then in memory. Memory never promises more than the disk."""
        name = home_name(transaction.transactional_id)
        forget = transaction.state is State.DEAD and len(self._slots.at_home(name.id)) <= 1
        refused = await self._store.commit(
            [HomeWrite(name, slot.epoch, [records.change(transaction)], forget=forget)]
        )
        if refused:
            raise TreecastError(refused[0].fault, refused[0].detail)
        slot.transaction = transaction

    async def _complete(self, slot: Slot, transaction: Transaction) -> None:
        """Sends markers to all partitions and the decision to all groups, then writes the end. Idempotent.

        Tries all of them, then raises the first refusal; the transaction stays decided.
        """
        await carry_out(self._owners, transaction, slot.epoch, joined=self._homes is not None)
        if part_of(transaction.transactional_id) is None:
            await self._keep(slot, completed(transaction, self._clock()))
        else:
            await self._forget(slot)
            if transaction.epoch < LAST_EPOCH - 1 and len(self._idle) < MOST_IDLE:
                self._idle.append(transaction.producer)
        if transaction.committed:
            self._counters.transactions_committed += 1
        else:
            self._counters.transactions_aborted += 1


def listing(transaction: Transaction) -> TransactionListing:
    started = transaction.state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return TransactionListing(
        transaction.transactional_id,
        transaction.state.value,
        transaction.producer,
        transaction.timeout_ms,
        int(transaction.started * 1000) if started else -1,
        tuple(sorted(transaction.partitions)),
    )


def _left_unused(transaction: Transaction, now: float) -> bool:
    """Whether the part's producer only took an identity."""
    unused = transaction.state is State.EMPTY and now >= transaction.updated + transaction.timeout_ms / 1000
    return unused and part_of(transaction.transactional_id) is not None


def _not_in(transactional_id: str, what: str) -> TreecastError:
    return TreecastError(
        Fault.NOT_IN_TRANSACTION, f"no open transaction of {transactional_id!r} holds {what}"
    )
