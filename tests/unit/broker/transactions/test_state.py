"""The transaction state machine and the fencing rules, without a disk or a loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from treecast.middleware.broker.transactions import records
from treecast.middleware.broker.transactions.state import (
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
    following,
    taken_over,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def transaction(state: State = State.EMPTY, **values: object) -> Transaction:
    return replace(Transaction("tx", 7, 3, 60_000, state), **values)


def fault_of(call: object, *args: object, **kwargs: object) -> Fault:
    with pytest.raises(TreecastError) as caught:
        call(*args, **kwargs)  # type: ignore[operator]
    return caught.value.fault


def test_every_state_and_event_is_listed() -> None:
    assert set(TRANSITIONS) == {(state, event) for state in State for event in Event}


def test_a_decision_has_one_way_out() -> None:
    for state in DECIDED:
        ways = {TRANSITIONS[state, event] for event in Event} - {state}
        assert {way for way in ways if isinstance(way, State)} == {
            State.COMPLETE_COMMIT if state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        }


def test_nothing_leaves_dead() -> None:
    assert all(isinstance(TRANSITIONS[State.DEAD, event], Fault) for event in Event)


@pytest.mark.parametrize(
    ("state", "committed", "outcome"),
    [
        (State.EMPTY, True, Fault.INVALID_TRANSACTION_STATE),
        (State.EMPTY, False, Fault.INVALID_TRANSACTION_STATE),
        (State.ONGOING, True, State.PREPARE_COMMIT),
        (State.ONGOING, False, State.PREPARE_ABORT),
        (State.PREPARE_COMMIT, True, State.PREPARE_COMMIT),
        (State.PREPARE_COMMIT, False, Fault.INVALID_TRANSACTION_STATE),
        (State.COMPLETE_COMMIT, True, State.COMPLETE_COMMIT),
        (State.COMPLETE_COMMIT, False, Fault.INVALID_TRANSACTION_STATE),
        (State.COMPLETE_ABORT, False, State.COMPLETE_ABORT),
        (State.COMPLETE_ABORT, True, Fault.INVALID_TRANSACTION_STATE),
    ],
)
def test_end(state: State, committed: bool, outcome: State | Fault) -> None:
    before = transaction(state)
    if isinstance(outcome, Fault):
        assert fault_of(ended, before, committed=committed, now=5.0) is outcome
        return
    after = ended(before, committed=committed, now=5.0)
    assert after.state is outcome
    assert (after is before) == (outcome is state)


def test_added_partitions_gather_and_begin_the_time_out() -> None:
    begun = added(transaction(), [P0], [], 10.0)
    grown = added(begun, [P1], ["g"], 20.0)
    assert (grown.partitions, grown.groups, grown.started) == ({P0, P1}, {"g"}, 10.0)
    assert added(grown, [P0], ["g"], 30.0) is grown
    assert not grown.has_expired(69.9)
    assert grown.has_expired(70.0)


def test_a_new_transaction_forgets_the_last_one() -> None:
    done = completed(ended(added(transaction(), [P0], ["g"], 1.0), committed=True, now=2.0), 3.0)
    again = added(done, [P1], [], 9.0)
    assert (again.partitions, again.groups, again.started) == ({P1}, frozenset(), 9.0)


def test_adding_waits_for_the_decision_before() -> None:
    for state in DECIDED:
        assert fault_of(added, transaction(state), [P0], [], 1.0) is Fault.CONCURRENT_TRANSACTIONS


def test_who_owns_the_transactional_id() -> None:
    check_producer(transaction(), ProducerIdentity(7, 3))
    assert fault_of(check_producer, transaction(), ProducerIdentity(8, 3)) is Fault.INVALID_PRODUCER_MAPPING
    for epoch in (2, 4):
        assert fault_of(check_producer, transaction(), ProducerIdentity(7, epoch)) is Fault.PRODUCER_FENCED


# --- InitProducerId


def take(before: Transaction, known: ProducerIdentity = NO_PRODUCER) -> Transaction:
    return taken_over(before, entry(before, known), known, ProducerIdentity(900, 0), 60_000, 1.0)


def test_the_first_identity_is_new() -> None:
    assert entry(None, NO_PRODUCER) is Entry.NEW_ID
    assert entry(None, ProducerIdentity(5, 5)) is Entry.NEW_ID  # its id had expired


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_taking_over_bumps_the_epoch(state: State) -> None:
    assert take(transaction(state)).producer == ProducerIdentity(7, 4)


def test_taking_over_an_open_transaction_aborts_it_first() -> None:
    open_one = added(transaction(), [P0], [], 1.0)
    assert entry(open_one, NO_PRODUCER) is Entry.ABORT_FIRST
    aborting = fenced(open_one, Event.INIT, 2.0, last_epoch=-1)
    assert (aborting.state, aborting.producer) == (State.PREPARE_ABORT, ProducerIdentity(7, 4))
    assert aborting.partitions == {P0}
    assert fault_of(check_producer, aborting, open_one.producer) is Fault.PRODUCER_FENCED


def test_taking_over_waits_for_a_decision() -> None:
    for state in DECIDED:
        assert fault_of(entry, transaction(state), NO_PRODUCER) is Fault.CONCURRENT_TRANSACTIONS


def test_a_known_producer_bumps_its_own_epoch_and_may_lose_the_answer() -> None:
    known = ProducerIdentity(7, 3)
    bumped = take(transaction(), known)
    assert bumped.producer == ProducerIdentity(7, 4)
    assert take(bumped, known).producer == ProducerIdentity(7, 4)
    assert fault_of(take, bumped, ProducerIdentity(7, 2)) is Fault.PRODUCER_FENCED


def test_a_lost_answer_is_not_repeated_once_the_identity_was_used() -> None:
    known = ProducerIdentity(7, 3)
    used = added(take(transaction(), known), [P0], [], 2.0)
    done = completed(ended(used, committed=True, now=3.0), 4.0)
    for state in (used, done):
        assert fault_of(entry, state, known) is Fault.PRODUCER_FENCED


def test_a_stranger_is_fenced_and_aborts_nothing() -> None:
    open_one = added(transaction(), [P0], [], 1.0)
    for known in (ProducerIdentity(8, 3), ProducerIdentity(7, 2), ProducerIdentity(7, 4)):
        assert fault_of(entry, open_one, known) is Fault.PRODUCER_FENCED


def test_the_producer_itself_may_ask_for_the_abort() -> None:
    """librdkafka aborts a transaction that needs a new epoch by InitProducerId, not by EndTxn."""
    known = ProducerIdentity(7, 3)
    open_one = added(transaction(), [P0], [], 1.0)
    assert entry(open_one, known) is Entry.ABORT_FIRST
    aborted = completed(fenced(open_one, Event.INIT, 2.0, last_epoch=3), 3.0)
    assert take(aborted, known).producer == ProducerIdentity(7, 4)  # a crash lost the answer


def test_a_transaction_that_timed_out_fences_its_producer() -> None:
    open_one = added(transaction(), [P0], [], 1.0)
    timed_out = completed(fenced(open_one, Event.TIMEOUT, 61.0, last_epoch=-1), 62.0)
    assert fault_of(check_producer, timed_out, ProducerIdentity(7, 3)) is Fault.PRODUCER_FENCED
    assert fault_of(entry, timed_out, ProducerIdentity(7, 3)) is Fault.PRODUCER_FENCED
    assert take(timed_out).producer == ProducerIdentity(7, 5)


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    last = take(transaction(epoch=LAST_EPOCH - 1))
    assert last.producer == ProducerIdentity(7, LAST_EPOCH)
    known = last.producer
    fresh = take(last, known)
    assert fresh.producer == ProducerIdentity(900, 0)
    assert take(fresh, known).producer == ProducerIdentity(900, 0)  # the answer was lost
    assert fault_of(take, fresh, ProducerIdentity(7, LAST_EPOCH - 1)) is Fault.PRODUCER_FENCED


def test_one_epoch_is_left_to_fence_the_last_owner() -> None:
    open_one = added(transaction(epoch=LAST_EPOCH), [P0], [], 1.0)
    aborted = completed(fenced(open_one, Event.INIT, 2.0, last_epoch=LAST_EPOCH), 3.0)
    assert aborted.epoch == 2**15 - 1
    assert entry(aborted, ProducerIdentity(7, LAST_EPOCH)) is Entry.NEW_ID
    assert entry(aborted, NO_PRODUCER) is Entry.NEW_ID


def test_faults_say_which_event_met_which_state() -> None:
    with pytest.raises(TreecastError, match="the producer commits, but it is Empty"):
        following(State.EMPTY, Event.COMMIT)


transactions = st.builds(
    Transaction,
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(1, 900_000),
    st.sampled_from([state for state in State if state is not State.DEAD]),
    st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d_e"]), st.integers(0, 99))),
    st.frozensets(st.text(max_size=20)),
    st.floats(0, 4e9),
    st.floats(0, 4e9),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
)


@given(transactions)
def test_what_is_stored_is_what_is_read(stored: Transaction) -> None:
    assert records.decode(stored.transactional_id, records.encode(stored)) == stored


def test_a_dead_one_is_removed() -> None:
    change = records.change(transaction(State.DEAD))
    assert (change.key, change.value) == ("tx", None)
