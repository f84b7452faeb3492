"""The core of the Kafka follower: each answer of a leader, against a plain model of two logs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.kafka.session import (
    Action,
    Advance,
    Append,
    Ask,
    Bounds,
    CopySession,
    Cut,
    Restart,
    end_in,
    whole_batches,
)
from treecast.agents.kafka.session_table import TABLE, Event, State, Step
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.wire.batch import HEADER_SIZE
from treecast.middleware.wire.record_batch import read_header
from treecast.middleware.wire.record_values import build_batch
from treecast.shims.kafka.codec_client import Fetched


def batch(offset: int, count: int, epoch: int) -> bytes:
    """Returns a batch of `count` records from `offset` on."""
    made = bytearray(build_batch([Record(key=None, value=b"x", timestamp=1)] * count))
    made[0:8] = offset.to_bytes(8, "big")
    made[12:16] = epoch.to_bytes(4, "big")
    return bytes(made)


def answer(records: bytes = b"", **fields: object) -> Fetched:
    found = Fetched("t", b"", 0, high_watermark=100, last_stable_offset=100, log_start_offset=0)
    found.records = memoryview(records)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def session(epochs: list[tuple[int, int]] | None = None, end: int = 0) -> CopySession:
    made = CopySession(lambda epoch: end_in(epochs or [], epoch, end))
    assert made.led(1, 5) == []
    return made


def test_every_event_has_an_effect_in_every_state() -> None:
    assert {(state, event) for state in State for event in Event} == set(TABLE)


def test_only_a_copy_that_is_fetched_is_changed() -> None:
    for (state, event), (after, step) in TABLE.items():
        if step in (Step.APPEND, Step.CUT):
            assert state is State.FETCHING, (state, event)
            assert after is State.FETCHING


def test_batches_are_appended_with_their_headers() -> None:
    data = batch(0, 3, 5) + batch(3, 2, 5)
    (found,) = session().fetched(answer(data, log_start_offset=0), 0, 0)
    assert isinstance(found, Append)
    assert found.batches == data
    assert [(one.base_offset, one.next_offset) for one in found.headers] == [(0, 3), (3, 5)]


def test_batches_before_the_end_and_a_cut_one_are_left_out() -> None:
    data = batch(0, 3, 5) + batch(3, 2, 5) + batch(5, 1, 5)
    found, headers = whole_batches(memoryview(data[:-1]), 3)
    assert [one.base_offset for one in headers] == [3]
    assert found == batch(3, 2, 5)


@pytest.mark.parametrize("at", [HEADER_SIZE, 30])
def test_a_batch_that_fails_its_checksum_is_refused(at: int) -> None:
    data = bytearray(batch(0, 1, 0))
    data[at] ^= 1
    with pytest.raises(TreecastError) as refused:
        whole_batches(memoryview(data), 0)
    assert refused.value.fault is Fault.CORRUPT_BATCH


def test_an_older_format_is_refused_by_its_name() -> None:
    data = bytearray(batch(0, 1, 0))
    data[16] = 1
    with pytest.raises(TreecastError) as refused:
        whole_batches(memoryview(data), 0)
    assert refused.value.fault is Fault.UNSUPPORTED_BATCH_FORMAT


def test_a_log_that_parts_is_cut_where_both_agree() -> None:
    """The leader's epoch 3 ends at 40; the copy has epoch 3 up to 30, then epoch 4."""
    made = session([(1, 0), (3, 20), (4, 30)], end=50)
    assert made.fetched(answer(diverging=(3, 40)), 50, 0) == [Cut(30)]
    assert made.fetched(answer(diverging=(3, 25)), 50, 0) == [Cut(25)]
    assert made.fetched(answer(diverging=(0, 5)), 50, 0) == [Cut(0)]
    assert made.state is State.FETCHING


def test_out_of_range_asks_for_bounds_and_then_places_the_copy() -> None:
    made = session()
    assert made.fetched(answer(error_code=1), 10, 0) == [Ask(bounds=True)]
    assert made.state is State.SEEKING
    assert made.bounds(Bounds(25, 60), 10) == [Restart(25, 15)]
    assert made.state is State.FETCHING
    assert made.fetched(answer(error_code=1), 70, 25) == [Ask(bounds=True)]
    assert made.bounds(Bounds(25, 60), 70) == [Cut(60)]
    assert made.fetched(answer(error_code=1), 40, 25) == [Ask(bounds=True)]
    assert made.bounds(Bounds(25, 60), 40) == []


def test_a_log_start_that_moves_without_records_is_followed() -> None:
    assert session().fetched(answer(log_start_offset=7), 10, 5) == [Advance(7)]
    assert session().fetched(answer(log_start_offset=5), 10, 5) == []


def test_a_leader_that_moved_is_looked_for() -> None:
    made = session()
    assert made.fetched(answer(error_code=6), 0, 0) == [Ask(bounds=False)]
    assert made.state is State.LOST
    assert made.led(2, 6) == []
    assert made.state is State.FETCHING
    assert (made.leader, made.epoch) == (2, 6)


def test_an_older_epoch_is_not_obeyed_and_is_said() -> None:
    made = session()
    assert made.led(2, 4) == [Ask(bounds=False)]
    assert made.state is State.LOST
    assert "not obeyed" in made.trouble
    assert made.leader == 1
    assert made.led(1, 5) == []
    assert made.trouble == ""
    assert made.fetched(answer(error_code=6, leader=(3, 2)), 0, 0) == [Ask(bounds=False)]
    assert "not obeyed" in made.trouble


def test_answers_that_come_after_the_leader_was_lost_change_nothing() -> None:
    made = session()
    made.failed("gone away")
    assert made.fetched(answer(batch(0, 1, 5)), 0, 0) == []
    made.led(1, 5)
    made.gone()
    assert made.fetched(answer(batch(0, 1, 5)), 0, 0) == []
    assert made.led(1, 6) == []
    assert made.state is State.GONE


# --- against a plain model: a leader's log of (epoch) per offset, which loses its end and gets another


def first_difference(ours: list[int], theirs: list[int]) -> int:
    shared = min(len(ours), len(theirs))
    return next((at for at in range(shared) if ours[at] != theirs[at]), shared)


def entries_of(log: list[int]) -> list[tuple[int, int]]:
    return [(epoch, at) for at, epoch in enumerate(log) if at == 0 or log[at - 1] != epoch]


def leader_says(log: list[int], last_epoch: int, offset: int) -> Fetched:
    """Returns the answer of Kafka's leader to a fetch with a last fetched epoch (KIP-595)."""
    if last_epoch >= 0:
        of_epoch = [epoch for epoch in log if epoch <= last_epoch]
        found = max(of_epoch, default=-1)
        end = end_in(entries_of(log), last_epoch, len(log)) if found >= 0 else 0
        if found < last_epoch or end < offset:
            return answer(diverging=(found, end))
    if offset > len(log):
        return answer(error_code=1)
    data = b"".join(batch(at, 1, log[at]) for at in range(offset, min(offset + 3, len(log))))
    return answer(data, high_watermark=len(log))


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_the_copy_becomes_the_leaders_log_after_any_unclean_elections(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    log: list[int] = []
    copy: list[int] = []
    made = CopySession(lambda epoch: end_in(entries_of(copy), epoch, len(copy)))
    epoch = 0

    def fetch() -> None:
        made.led(1, epoch)
        found = leader_says(log, copy[-1] if copy else -1, len(copy))
        for action in made.fetched(found, len(copy), 0):
            apply(action)

    def apply(action: Action) -> None:
        match action:
            case Append(batches=data):
                position = 0
                while position < len(data):
                    header = read_header(data, position)
                    assert header.base_offset == len(copy)
                    copy.append(header.leader_epoch)
                    position += header.size
            case Cut(offset=offset):
                agreed = first_difference(copy, log)
                assert offset <= len(copy)
                assert (
                    offset >= min(agreed, len(copy)) or offset in (0, agreed) or copy[:offset] == log[:offset]
                )
                del copy[offset:]
            case Ask(bounds=True):
                for more in made.bounds(Bounds(0, len(log)), len(copy)):
                    apply(more)

    for _ in range(steps):
        kind = rng.random()
        if kind < 0.3 and log:  # an unclean election: the end is lost, and others write in a new epoch
            del log[rng.randrange(len(log)) :]
            epoch += 1
        elif kind < 0.7:
            log += [epoch] * rng.randint(1, 4)
        else:
            fetch()
    epoch += 1
    log.append(epoch)
    for _ in range(len(log) + 2 * steps + 5):
        fetch()
    assert copy == log
