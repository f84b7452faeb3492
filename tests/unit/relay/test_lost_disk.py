"""The decisions about a partition whose leader's disk is gone."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from treecast.middleware.api.entries import LostRange
from treecast.middleware.relay.partitions.lost_disk import (
    TABLE,
    Copy,
    Event,
    Gone,
    Known,
    Recorded,
    Step,
    choose,
    follow,
    gone,
    next_epoch,
    refuses,
)

GRACE = 30.0
EMPTY = Copy(1, (), 0, 0)


def copy(host: int, end: int, epoch: int = 0, heard: int = 0) -> Copy:
    return Copy(host, ((epoch, 0),), 0, end, heard)


def known(
    *copies: Copy, own: Copy = EMPTY, record: Recorded | None = None, **absent: tuple[str, ...]
) -> Known:
    return Known(own, copies, record, **absent)


def test_every_pair_of_step_and_event_has_its_entry() -> None:
    for step, event in itertools.product(Step, Event):
        following = TABLE[step][event]
        if following is None:
            with pytest.raises(ValueError, match=event.name):
                follow(step, event)
        else:
            assert follow(step, event) is following
    assert {step for row in TABLE.values() for step in row.values() if step} == set(Step)
    assert all(following is None for following in TABLE[Step.LED].values())


def test_the_furthest_copy_counts() -> None:
    found = known(copy(2, 5), copy(3, 7), copy(4, 6), record=Recorded(0, 7))
    choice = choose(found, 0.0, GRACE)
    assert choice.event is Event.COPY_FOUND
    assert choice.source is not None
    assert choice.source.host == 3


def test_a_later_leader_epoch_counts_more_than_a_longer_log() -> None:
    found = known(copy(2, 9, epoch=1), copy(3, 7, epoch=4))
    assert found.best.host == 3
    assert choose(known(copy(2, 9, epoch=1), own=copy(1, 5, epoch=4)), 0.0, GRACE).source is None


def test_what_this_host_has_is_a_copy_like_any_other() -> None:
    found = known(copy(2, 5), own=copy(1, 5), record=Recorded(0, 5))
    assert choose(found, 0.0, GRACE).event is Event.NOTHING_TO_COPY
    assert gone(found, 5, whole=True) is None
    assert choose(known(copy(2, 6), own=copy(1, 5)), 0.0, GRACE).event is Event.COPY_FOUND


def test_an_attached_host_is_waited_for_even_where_nothing_is_lacking() -> None:
    found = known(copy(2, 5), record=Recorded(0, 5), expected=("d",))
    assert "host d" in choose(found, 29.0, GRACE).reason
    assert choose(found, 30.0, GRACE).event is Event.COPY_FOUND
    assert choose(found, 0.0, GRACE, accept_loss=True).event is Event.COPY_FOUND


def test_a_host_that_is_away_is_waited_for_where_something_is_lacking() -> None:
    assert choose(known(copy(2, 5), record=Recorded(0, 5), absent=("d",)), 0.0, GRACE).source is not None
    found = known(copy(2, 5), record=Recorded(0, 7), absent=("d", "e"))
    assert "hosts d, e" in choose(found, 0.0, GRACE).reason
    assert choose(found, 30.0, GRACE).source is not None
    assert gone(found, 5, whole=False) == Gone(5, 7)


def test_without_any_copy_it_waits_for_the_operator_for_ever() -> None:
    found = known(record=Recorded(2, 7))
    choice = choose(found, 1e9, GRACE)
    assert choice.event is Event.NOT_YET
    assert "7 records" in choice.reason
    assert choose(found, 0.0, GRACE, accept_loss=True).event is Event.NOTHING_TO_COPY
    assert gone(found, 0, whole=False) == Gone(0, 7)
    heard = known(Copy(2, (), 0, 0, heard=4))
    assert choose(heard, 1e9, GRACE).event is Event.NOT_YET


def test_what_nobody_has_heard_of_is_led_at_once() -> None:
    assert choose(known(EMPTY), 0.0, GRACE).event is Event.NOTHING_TO_COPY
    assert gone(known(), 0, whole=False) is None
    assert choose(known(absent=("d",)), 0.0, GRACE).event is Event.NOT_YET  # it may have a copy


def test_without_a_record_any_host_may_have_more() -> None:
    assert choose(known(copy(2, 5), absent=("d",)), 0.0, GRACE).event is Event.NOT_YET
    assert choose(known(copy(2, 5), absent=("d",)), 30.0, GRACE).event is Event.COPY_FOUND
    assert choose(known(copy(2, 5)), 0.0, GRACE).event is Event.COPY_FOUND


def test_what_was_heard_of_is_named() -> None:
    found = known(copy(2, 5, heard=6), copy(3, 4, heard=9), record=Recorded(0, 8))
    assert found.lacking
    assert gone(found, 5, whole=False) == Gone(5, 9)
    assert gone(known(), 0, whole=False) is None


@pytest.mark.parametrize(
    ("record", "unknown"),
    [
        (Recorded(0, 5), False),
        (Recorded(0, 5, quiet=False), True),
        (Recorded(0, 4), True),  # the copy has what was written since
        (None, True),  # all of it was
    ],
)
def test_a_disk_that_was_written_to_until_it_was_lost_may_have_had_more(
    record: Recorded | None, unknown: bool
) -> None:
    assert gone(known(copy(2, 5), record=record), 5, whole=False) == Gone(5, 5, unknown)
    quiet = Copy(2, ((0, 0),), 0, 5, 5, current=True)  # it heard for a while that nothing was written
    assert gone(known(quiet, record=record), 5, whole=False) == Gone(5, 5)


def test_a_record_of_a_later_epoch_is_more_than_a_copy_that_is_longer() -> None:
    assert known(copy(2, 9, epoch=1), record=Recorded(3, 7)).lacking


def test_an_epoch_in_which_nothing_was_written_makes_no_copy_longer() -> None:
    begun = Copy(2, ((1, 0), (9, 5)), 0, 5)
    assert begun.reach == (1, 5)
    assert not known(copy(3, 5, epoch=1), own=begun, record=Recorded(1, 5)).lacking
    assert next_epoch(known(begun), 0, []) == 10  # the epoch was used


def test_the_next_epoch_is_above_all_that_were_used() -> None:
    found = known(copy(2, 9, epoch=1), copy(3, 2, epoch=6), record=Recorded(4, 7))
    assert next_epoch(found, 0, [3]) == 7
    assert next_epoch(found, 8, [3]) == 9
    assert next_epoch(found, 0, [1000, 3]) == 1000
    assert next_epoch(known(), 0, [1]) == 1


@pytest.mark.parametrize(
    ("begin", "restart", "stranger", "refused"),
    [
        (5, False, True, False),  # nothing is cut
        (3, False, False, False),  # a power failure at the leader, or its former directory is unknown
        (3, False, True, True),
        (0, True, True, True),
        (0, True, False, True),  # the disk is the same, but its log is gone
        (5, True, True, False),  # the leader's retention was ahead of this follower
        (9, True, True, False),
    ],
)
def test_a_follower_is_not_cut_by_a_stranger(
    begin: int, restart: bool, stranger: bool, refused: bool
) -> None:
    assert refuses(0, 5, begin, restart=restart, stranger=stranger) is refused
    assert not refuses(5, 5, 5, restart=restart, stranger=stranger)  # its log is empty


# --- the record is lost with the coordinator's store

LOST = Recorded(-1, -1)


def test_where_nobody_knows_the_end_a_loss_of_unknown_size_is_named() -> None:
    found = known(copy(2, 0), record=LOST)
    assert choose(found, 0.0, GRACE).event is Event.NOTHING_TO_COPY
    assert gone(found, 0, whole=False) == Gone(0, 0, unknown=True)
    found = known(copy(2, 5, heard=7), record=LOST)
    assert choose(found, 0.0, GRACE).event is Event.COPY_FOUND
    assert gone(found, 5, whole=False) == Gone(5, 7, unknown=True)
    assert gone(known(own=copy(1, 5), record=LOST), 5, whole=True) == Gone(5, 5, unknown=True)


def test_a_host_that_is_away_is_waited_for_where_nobody_knows_the_end() -> None:
    found = known(copy(2, 0), record=LOST, absent=("d",))
    assert "host d" in choose(found, 0.0, GRACE).reason
    late = choose(found, 2 * GRACE, GRACE)
    assert (late.event, "store was lost" in late.reason) == (Event.NOT_YET, True)
    assert choose(found, 0.0, GRACE, accept_loss=True).event is Event.NOTHING_TO_COPY
    assert choose(known(copy(2, 3), record=LOST, absent=("d",)), GRACE, GRACE).event is Event.COPY_FOUND


def test_a_host_that_followed_until_the_leader_was_gone_knows_the_end() -> None:
    current = Copy(2, ((0, 0),), 0, 5, 5, current=True)
    for found in (known(current, copy(3, 4), record=LOST), known(current, own=copy(1, 5), record=LOST)):
        lost = gone(found, 5, whole=False)
        assert lost == Gone(5, 5)  # nothing is known to be lost
    behind = Copy(2, ((0, 0),), 0, 4, 4, current=True)  # of an earlier leader, as another has more
    assert gone(known(behind, copy(3, 5), record=LOST), 5, whole=False) == Gone(5, 5, unknown=True)


def test_what_is_no_loss_and_what_an_operator_has_yet_to_see() -> None:
    resumed, some = LostRange(5, 5, 1, 2, 0), LostRange(5, 7, 1, 2, 0)
    unknown = LostRange(5, 5, 1, 2, 0, unknown=True)
    assert [one.is_loss for one in (resumed, some, unknown)] == [False, True, True]
    assert [one.is_open for one in (resumed, some, unknown)] == [False, True, True]
    assert not any(replace(one, accepted=True).is_open for one in (resumed, some, unknown))
