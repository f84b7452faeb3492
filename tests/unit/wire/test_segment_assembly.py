"""Messages cut and reassembled: any order, repeats, bounds, and expiry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire.segment import (
    HEADER_SIZE,
    NO_KEYS,
    TAG_SIZE,
    After,
    KeyRing,
    Kind,
    Message,
    Parted,
    cut,
    cut_encoded,
    encode,
    part_size,
    parts_of,
)
from treecast.middleware.wire.segment_assembly import Assembly, AssemblyBudget

KEY = (1, 2, 3)
MTU = 200
KEYS = KeyRing({1: b"k" * 16}, 1)
messages = st.builds(
    lambda payload, after, words: Message(5, 3, payload, (After(1, 1, 9),) * after, b"word" * words),
    st.binary(max_size=900),
    st.integers(0, 3),
    st.integers(0, 4),
)


def assembly(max_bytes: int = 1 << 20, total: int = 1 << 20) -> Assembly:
    return Assembly(AssemblyBudget(total), max_bytes)


@given(messages)
def test_segments_fit_the_path_and_hold_the_message(message: Message) -> None:
    segments = list(cut(message, MTU, KEY, 4))
    assert len(segments) == parts_of(message, MTU) == segments[0].total
    assert all(len(encode(one, KEYS)) <= MTU for one in segments)
    assert b"".join(one.payload for one in segments) == message.payload


@given(messages, st.integers(150, 1000), st.integers(150, 1000), st.data())
def test_parts_of_two_cuts_are_never_joined(
    message: Message, one: int, other: int, data: st.DataObject
) -> None:
    """A host may get parts cut for two paths, in any order: what is complete is the message."""
    both = [*cut(message, one, KEY, 4), *cut(message, other, KEY, 5, Kind.REPAIR)]
    held = assembly()
    for segment in data.draw(st.permutations(both)):
        done = held.add(segment)
        assert done is None or done[0] == message


@given(messages, st.data())
def test_any_order_with_repeats_gives_the_message_once(message: Message, data: st.DataObject) -> None:
    segments = list(cut(message, MTU, KEY, 4))
    order = data.draw(st.permutations(segments))
    repeats = data.draw(st.lists(st.sampled_from(segments), max_size=5))
    held = assembly()
    done = [held.add(one) for one in [*order[:-1], *[r for r in repeats if r is not order[-1]], order[-1]]]
    assert [one for one in done if one is not None] == [(message, Kind.DATA)]
    assert (held.used, held.budget.used, len(held), held.budget.assemblies) == (0, 0, 0, {})


def test_a_repaired_part_makes_a_repaired_message() -> None:
    message = Message(0, 1, bytes(300))
    first, *rest = cut(message, MTU, KEY, 4)
    (again,) = cut(message, MTU, KEY, 9, Kind.REPAIR, range(1))
    assert (again.number, again.sender, first.number) == (0, 9, 0)
    held = assembly()
    assert [held.add(one) for one in [again, *rest]][-1] == (message, Kind.REPAIR)


def test_a_message_of_which_a_part_was_replayed_was_replayed() -> None:
    message = Message(0, 1, bytes(3 * MTU))
    first = next(cut(message, MTU, KEY, 4))
    (repaired,) = cut(message, MTU, KEY, 4, Kind.REPAIR, range(1))
    replayed = cut(message, MTU, KEY, 4, Kind.REPLAY, range(1, first.total))
    held = assembly()
    assert [held.add(one) for one in [*replayed, repaired]][-1] == (message, Kind.REPLAY)


def test_missing_parts_are_named_in_runs() -> None:
    held = assembly()
    segments = list(cut(Message(0, 1, bytes(1000)), MTU, KEY, 4))
    for number in (1, 2, 4):
        held.add(segments[number])
    partial = held.partial(0)
    assert partial is not None
    assert list(partial.missing()) == [range(1), range(3, 4), range(5, len(segments))]
    assert [one.number for one in cut(Message(0, 1, bytes(1000)), MTU, KEY, 4, only=range(5, 99))] == list(
        range(5, len(segments))
    )


def test_contradicting_segments_are_refused() -> None:
    held = assembly()
    first, second, *_ = cut(Message(0, 1, bytes(500)), MTU, KEY, 4)
    held.add(first)
    second.records += 1
    with pytest.raises(ValueError):
        held.add(second)


def test_the_oldest_incomplete_message_of_a_full_stream_goes() -> None:
    held = assembly(max_bytes=1200)
    for sequence in range(5):
        held.add(next(cut(Message(sequence, 1, bytes(3 * part_size(MTU))), MTU, KEY, 4)))
        assert held.used <= 1200
    assert (held.evicted, held.partial(0), held.partial(1)) == (3, None, None)
    assert held.partial(4) is not None


def test_beyond_the_hosts_budget_the_stream_that_holds_most_gives() -> None:
    budget = AssemblyBudget(2000)
    small, large = Assembly(budget, 10_000), Assembly(budget, 10_000)
    small.add(next(cut(Message(0, 1, bytes(300)), MTU, KEY, 4)))
    for sequence in range(20):
        large.add(next(cut(Message(sequence, 1, bytes(300)), MTU, (1, 9, 3), 4)))
    assert budget.used <= 2000
    assert (small.evicted, large.evicted > 10) == (0, True)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=200))
def test_memory_is_bounded_under_garbage(parts: list[tuple[int, int]]) -> None:
    held = assembly(max_bytes=3000, total=2000)
    for sequence, number in parts:
        held.add(next(cut(Message(sequence, 1, bytes(900)), MTU, KEY, 4, only=range(number, number + 1))))
        assert held.used == held.budget.used <= 2000
    held.drop_below(20)
    assert all(held.partial(sequence) is None for sequence in range(20))
    held.clear()
    assert (held.used, held.budget.used, len(held)) == (0, 0, 0)


def test_sizes_that_cannot_be_cut() -> None:
    assert part_size(1500) == 1500 - HEADER_SIZE - TAG_SIZE
    for mtu, content, after in ((HEADER_SIZE + TAG_SIZE, 0, 0), (1500, 3, 0), (9000, 1024, 0), (9000, 0, 17)):
        with pytest.raises(ValueError):
            part_size(mtu, content, after)
    with pytest.raises(ValueError):
        parts_of(Message(0, 1, bytes(70_000)), HEADER_SIZE + TAG_SIZE + 1)


@given(
    messages,
    st.integers(130, 1500),
    st.none() | st.builds(range, st.integers(0, 30), st.integers(0, 40)),
    st.sampled_from([NO_KEYS, KEYS]),
)
def test_segments_made_fast_are_those_made_one_by_one(
    message: Message, mtu: int, only: range | None, keys: KeyRing
) -> None:
    slow = [encode(one, keys) for one in cut(message, mtu, KEY, 4, Kind.REPAIR, only)]
    fast = cut_encoded(message, mtu, KEY, 4, Kind.REPAIR, only, keys)
    assert [bytes(one) for one in fast] == slow


@given(st.integers(0, 70_000), st.integers(9000, 65_000), st.sampled_from([NO_KEYS, KEYS]))
def test_large_parts_are_sent_from_where_they_lie(size: int, mtu: int, keys: KeyRing) -> None:
    message = Message(7, 3, bytes(range(256)) * (size // 256) + bytes(size % 256))
    slow = [encode(one, keys) for one in cut(message, mtu, KEY, 4)]
    fast = cut_encoded(message, mtu, KEY, 4, Kind.DATA, None, keys)
    assert [bytes(one) for one in fast] == slow
    assert [len(one) for one in fast] == [len(one) for one in slow]
    long = [one for one in fast if len(one) > 9000 and len(fast) > 1]
    assert all(isinstance(one, Parted) for one in long)
