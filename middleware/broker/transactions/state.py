"""The transaction of one transactional id: states, events, and the rules of fencing. Pure.

`TRANSITIONS` is total: every (state, event) pair leads to a state or to a fault.

    Empty ──ADD──> Ongoing ──COMMIT──> PrepareCommit ──COMPLETE──> CompleteCommit
                      │                                                  │
                      └─ABORT, TIMEOUT, INIT──> PrepareAbort ──COMPLETE──> CompleteAbort

From a complete state, ADD leads to Ongoing and INIT to Empty. EXPIRE leads an idle transaction to Dead, which
is not stored. A prepare state has one exit, because the decision is final and markers follow.

Sources: KIP-98 (transactions), KIP-360 (a producer that continues after an error bumps its own epoch),
KIP-890 (the leader checks that the transaction of a batch is open).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER_EPOCH, ProducerIdentity, TopicPartition

# The last epoch that a producer gets (a signed 16-bit number). One more is reserved for fencing it.
LAST_EPOCH = 2**15 - 2


class State(enum.Enum):
    """Values are Kafka's names, as tools print them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


class Event(enum.Enum):
    INIT = "a producer takes the transactional id over"
    ADD = "a partition or a group joins the transaction"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts"
    TIMEOUT = "the transaction was open too long"
    COMPLETE = "all markers are written"
    EXPIRE = "the transactional id was idle too long"


_BAD = Fault.INVALID_TRANSACTION_STATE
_WAIT = Fault.CONCURRENT_TRANSACTIONS
_GONE = Fault.INVALID_PRODUCER_MAPPING

_ROWS: Mapping[State, Mapping[Event, State | Fault]] = {
    State.EMPTY: {
        Event.INIT: State.EMPTY,
        Event.ADD: State.ONGOING,
        Event.COMMIT: _BAD,
        Event.ABORT: _BAD,
        Event.TIMEOUT: _BAD,
        Event.COMPLETE: _BAD,
        Event.EXPIRE: State.DEAD,
    },
    State.ONGOING: {
        Event.INIT: State.PREPARE_ABORT,
        Event.ADD: State.ONGOING,
        Event.COMMIT: State.PREPARE_COMMIT,
        Event.ABORT: State.PREPARE_ABORT,
        Event.TIMEOUT: State.PREPARE_ABORT,
        Event.COMPLETE: _BAD,
        Event.EXPIRE: _BAD,
    },
    State.PREPARE_COMMIT: {
        Event.INIT: _WAIT,
        Event.ADD: _WAIT,
        Event.COMMIT: State.PREPARE_COMMIT,
        Event.ABORT: _BAD,
        Event.TIMEOUT: _BAD,
        Event.COMPLETE: State.COMPLETE_COMMIT,
        Event.EXPIRE: _BAD,
    },
    State.PREPARE_ABORT: {
        Event.INIT: _WAIT,
        Event.ADD: _WAIT,
        Event.COMMIT: _BAD,
        Event.ABORT: State.PREPARE_ABORT,
        Event.TIMEOUT: _BAD,
        Event.COMPLETE: State.COMPLETE_ABORT,
        Event.EXPIRE: _BAD,
    },
    State.COMPLETE_COMMIT: {
        Event.INIT: State.EMPTY,
        Event.ADD: State.ONGOING,
        Event.COMMIT: State.COMPLETE_COMMIT,
        Event.ABORT: _BAD,
        Event.TIMEOUT: _BAD,
        Event.COMPLETE: _BAD,
        Event.EXPIRE: State.DEAD,
    },
    State.COMPLETE_ABORT: {
        Event.INIT: State.EMPTY,
        Event.ADD: State.ONGOING,
        Event.COMMIT: _BAD,
        Event.ABORT: State.COMPLETE_ABORT,
        Event.TIMEOUT: _BAD,
        Event.COMPLETE: _BAD,
        Event.EXPIRE: State.DEAD,
    },
    State.DEAD: {
        Event.INIT: _WAIT,
        Event.ADD: _GONE,
        Event.COMMIT: _GONE,
        Event.ABORT: _GONE,
        Event.TIMEOUT: _GONE,
        Event.COMPLETE: _GONE,
        Event.EXPIRE: _GONE,
    },
}

TRANSITIONS: Mapping[tuple[State, Event], State | Fault] = MappingProxyType(
    {(state, event): outcome for state, row in _ROWS.items() for event, outcome in row.items()}
)

DECIDED = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))


class Transaction(Struct, frozen=True):
    """The state of a transactional id. Times in seconds since the Unix epoch.

    `last_producer_id` and `last_epoch` are the identity that the producer presented when it got its present
    one. If the answer is lost, the producer presents it again and gets the same identity. The first use of
    the present identity clears them. `batch` is the last batch committed in parts, `winners` the names of its
    parts that count, `content` the content named by its writer (`parts`).
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    started: float = 0.0
    updated: float = 0.0
    last_producer_id: int = -1
    last_epoch: int = NO_PRODUCER_EPOCH
    batch: int = -1
    winners: frozenset[str] = frozenset()
    content: str = ""

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def committed(self) -> bool:
        """Whether a decided transaction commits."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def has_expired(self, now: float) -> bool:
        """Whether the transaction is open for longer than its time-out."""
        return self.state is State.ONGOING and now >= self.started + self.timeout_ms / 1000


def following(state: State, event: Event) -> State:
    """Returns the next state. Raises the fault as a TreecastError."""
    outcome = TRANSITIONS[state, event]
    if isinstance(outcome, Fault):
        raise TreecastError(outcome, f"{outcome.value}: {event.value}, but it is {state.value}")
    return outcome


def check_producer(transaction: Transaction, producer: ProducerIdentity) -> None:
    """Raises INVALID_PRODUCER_MAPPING or PRODUCER_FENCED unless `producer` owns the transactional id."""
    if producer.producer_id != transaction.producer_id:
        raise TreecastError(Fault.INVALID_PRODUCER_MAPPING)
    if producer.epoch != transaction.epoch:
        raise TreecastError(
            Fault.PRODUCER_FENCED,
            f"producer epoch {producer.epoch} of {transaction.transactional_id!r} was replaced"
            f" by epoch {transaction.epoch}",
        )


def added(
    transaction: Transaction, partitions: Iterable[TopicPartition], groups: Iterable[str], now: float
) -> Transaction:
    """ADD. Returns the same object if nothing is new."""
    state = following(transaction.state, Event.ADD)
    partitions, groups = frozenset(partitions), frozenset(groups)
    if transaction.state is not State.ONGOING:
        return replace(
            transaction,
            state=state,
            partitions=partitions,
            groups=groups,
            started=now,
            updated=now,
            last_producer_id=-1,
            last_epoch=NO_PRODUCER_EPOCH,
        )
    if partitions <= transaction.partitions and groups <= transaction.groups:
        return transaction
    return replace(
        transaction,
        partitions=transaction.partitions | partitions,
        groups=transaction.groups | groups,
        updated=now,
    )


def ended(transaction: Transaction, *, committed: bool, now: float) -> Transaction:
    """COMMIT or ABORT by the producer. Returns the same object for a repeat."""
    state = following(transaction.state, Event.COMMIT if committed else Event.ABORT)
    if state is transaction.state:
        return transaction
    return replace(transaction, state=state, updated=now)


def fenced(transaction: Transaction, event: Event, now: float, *, last_epoch: int) -> Transaction:
    """INIT or TIMEOUT of an open transaction: aborts it under the next epoch, which fences its producer.

    `last_epoch`: the epoch with which the producer itself requested this, else -1.
    """
    state = following(transaction.state, event)
    return replace(
        transaction,
        state=state,
        epoch=transaction.epoch + 1,
        updated=now,
        last_producer_id=transaction.producer_id,
        last_epoch=last_epoch,
    )


def completed(transaction: Transaction, now: float) -> Transaction:
    """COMPLETE: all markers and offset decisions are done."""
    state = following(transaction.state, Event.COMPLETE)
    return replace(transaction, state=state, partitions=frozenset(), groups=frozenset(), updated=now)


class Entry(enum.Enum):
    """Kinds of answers to InitProducerId."""

    NEW_ID = "a new producer id: the first one, or the epochs of the old one are used up"
    BUMP = "the next epoch"
    REPEAT = "the present identity once more: the answer was lost"
    ABORT_FIRST = "the open transaction is aborted, then ask again"


def entry(transaction: Transaction | None, known: ProducerIdentity) -> Entry:
    """Returns the kind of answer. Raises PRODUCER_FENCED if `known` is not the present identity (KIP-360)."""
    if transaction is None:
        return Entry.NEW_ID
    given = known.producer_id >= 0 and known.epoch >= 0
    lost_answer = given and _lost_answer(transaction, known)
    if given and not lost_answer and known != transaction.producer:
        raise TreecastError(
            Fault.PRODUCER_FENCED,
            f"producer {known.producer_id} epoch {known.epoch} was replaced by {transaction.producer_id}"
            f" epoch {transaction.epoch} of {transaction.transactional_id!r}",
        )
    if following(transaction.state, Event.INIT) is State.PREPARE_ABORT:
        return Entry.ABORT_FIRST
    if transaction.epoch >= LAST_EPOCH:
        return Entry.NEW_ID
    return Entry.REPEAT if lost_answer else Entry.BUMP


def _lost_answer(transaction: Transaction, known: ProducerIdentity) -> bool:
    return known == ProducerIdentity(transaction.last_producer_id, transaction.last_epoch)


def taken_over(
    transaction: Transaction,
    how: Entry,
    known: ProducerIdentity,
    fresh: ProducerIdentity,
    timeout_ms: int,
    now: float,
) -> Transaction:
    """INIT of a transaction that is not open: sets the identity to answer. `fresh`: the new one, if due."""
    state = following(transaction.state, Event.INIT)
    producer = {
        Entry.NEW_ID: fresh,
        Entry.BUMP: ProducerIdentity(transaction.producer_id, transaction.epoch + 1),
        Entry.REPEAT: transaction.producer,
    }[how]
    return replace(
        transaction,
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(),
        groups=frozenset(),
        updated=now,
        last_producer_id=known.producer_id,
        last_epoch=known.epoch,
    )
