"""How members join: ids, the choice of the protocol, and the rounds in which joins are collected."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.values import MemberIdentity
from treecast.middleware.model.errors import Fault

BOTH = (("sticky", b"s"), ("range", b"r"))


def test_a_first_member_leads_a_generation(harness) -> None:
    waiter = harness.join()
    assert waiter not in harness.answers
    assert harness.group.state is State.PREPARING
    (joined,) = harness.generation_of(waiter)
    assert joined.generation == 1
    assert joined.protocol == "range"
    assert joined.protocol_type == "consumer"
    assert joined.leader == joined.member_id == "c-1"
    assert [(m.member_id, m.metadata) for m in joined.members] == [("c-1", b"meta")]
    assert not joined.skip_assignment
    synced = harness.sync("c-1", 1, {"c-1": b"all"})
    assert harness.synced(synced) == b"all"
    assert harness.group.state is State.STABLE
    assert harness.counters.rebalances == 1


def test_only_the_leader_is_told_of_the_members(harness) -> None:
    first, second = harness.generation_of(harness.join(), harness.join())
    assert first.leader == second.leader == first.member_id
    assert {m.member_id for m in first.members} == {first.member_id, second.member_id}
    assert second.members == ()


def test_member_id_required(harness) -> None:
    """KIP-394: the first join only reserves an id, the second one joins with it."""
    member_id = harness.new_id(client="app")
    assert member_id == "app-1"
    assert harness.group.state is State.EMPTY
    (joined,) = harness.generation_of(harness.join(member_id, known=True))
    assert joined.member_id == member_id


def test_a_reserved_id_holds_up_the_round(new_group) -> None:
    harness = new_group(initial_rebalance_delay_ms=0)
    first, second = harness.new_id(), harness.new_id()
    one = harness.join(first, known=True)
    assert one not in harness.answers
    two = harness.join(second, known=True)
    assert harness.joined(one).generation == harness.joined(two).generation == 1


def test_a_reserved_id_that_is_not_used_lets_the_round_go_on(new_group) -> None:
    harness = new_group(initial_rebalance_delay_ms=0)
    harness.new_id(session=6_000)
    waiter = harness.join()
    harness.wait(5.9)
    assert waiter not in harness.answers
    harness.wait(0.1)
    assert harness.joined(waiter).generation == 1


def test_a_reserved_id_does_not_hold_up_a_group_that_nobody_is_left_in(harness) -> None:
    (one,) = harness.stable(1)
    member_id = harness.new_id()
    assert harness.leave(MemberIdentity(one)) == [None]
    assert harness.group.state is State.EMPTY
    (joined,) = harness.generation_of(harness.join(member_id, known=True))
    assert joined.generation == 3


def test_a_reserved_id_expires(harness) -> None:
    member_id = harness.new_id(session=6_000)
    harness.wait(6.0)
    assert harness.fault(harness.join(member_id, known=True)) is Fault.UNKNOWN_MEMBER
    assert harness.group.idle


def test_a_reserved_id_can_leave(new_group) -> None:
    harness = new_group(initial_rebalance_delay_ms=0)
    member_id = harness.new_id()
    waiter = harness.join()
    assert harness.leave(MemberIdentity(member_id)) == [None]
    assert harness.joined(waiter).generation == 1


def test_a_reserved_id_belongs_to_a_dynamic_member(harness) -> None:
    member_id = harness.new_id()
    assert harness.fault(harness.join(member_id, instance="i")) is Fault.INVALID_REQUEST


def test_an_unknown_id_cannot_join(harness) -> None:
    harness.stable()
    assert harness.fault(harness.join("nobody")) is Fault.UNKNOWN_MEMBER


def test_an_id_cannot_join_an_empty_group(harness) -> None:
    assert harness.fault(harness.join("nobody")) is Fault.UNKNOWN_MEMBER
    assert harness.group.idle


# --- protocols


@pytest.mark.parametrize(
    "how", [{"protocol_type": ""}, {"protocols": ()}], ids=["no protocol type", "no protocols"]
)
def test_an_empty_group_needs_a_protocol(harness, how) -> None:
    assert harness.fault(harness.join(**how)) is Fault.INCONSISTENT_PROTOCOL


@pytest.mark.parametrize(
    "how", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}], ids=["type", "protocol"]
)
def test_members_have_to_have_a_protocol_in_common(harness, how) -> None:
    harness.stable()
    assert harness.fault(harness.join(**how)) is Fault.INCONSISTENT_PROTOCOL
    assert harness.group.state is State.STABLE


def test_the_protocol_with_most_votes_is_taken(harness) -> None:
    reverse = tuple(reversed(BOTH))
    waiters = [harness.join(protocols=p) for p in (reverse, BOTH, BOTH)]
    answers = harness.generation_of(*waiters)
    assert {a.protocol for a in answers} == {"sticky"}
    assert {m.metadata for m in answers[0].members} == {b"s"}


def test_votes_count_only_for_what_all_speak(harness) -> None:
    waiters = [harness.join(protocols=p) for p in (BOTH, BOTH, (("range", b""),))]
    assert {a.protocol for a in harness.generation_of(*waiters)} == {"range"}


# --- rounds


def test_the_first_round_waits_for_more_members_and_no_longer_than_bounded(new_group) -> None:
    harness = new_group(initial_rebalance_delay_ms=3_000)
    first = harness.join(rebalance=8_000)
    harness.wait(2.9)
    harness.join(rebalance=8_000)
    harness.wait(0.1)
    assert first not in harness.answers, "another member joined: one more delay"
    harness.wait(2.9)
    harness.join(rebalance=8_000)
    harness.wait(0.1)
    assert first not in harness.answers
    harness.join(rebalance=8_000)
    harness.wait(2.0)
    assert harness.joined(first).generation == 1
    assert len(harness.joined(first).members) == 4


def test_the_first_round_ends_after_one_delay_if_nobody_comes(new_group) -> None:
    harness = new_group(initial_rebalance_delay_ms=3_000)
    waiter = harness.join()
    harness.wait(2.999)
    assert waiter not in harness.answers
    harness.wait(0.001)
    assert waiter in harness.answers


def test_without_initial_delay_a_member_need_not_wait(new_group) -> None:
    harness = new_group(initial_rebalance_delay_ms=0)
    assert harness.joined(harness.join()).generation == 1


def test_a_new_member_makes_the_others_join_again(harness) -> None:
    one, two = harness.stable()
    third = harness.join()
    assert harness.group.state is State.PREPARING
    assert harness.heartbeat(one, 1) is Fault.REBALANCE_IN_PROGRESS
    first, second = harness.join(one), harness.join(two)
    answers = [harness.joined(w) for w in (first, second, third)]
    assert {a.generation for a in answers} == {2}
    assert {a.leader for a in answers} == {one}


def test_who_does_not_join_in_time_is_removed(harness) -> None:
    one, two = harness.stable(rebalance=20_000)
    third = harness.join()
    first = harness.join(one)
    for _ in range(4):
        harness.wait(4.9)
        assert harness.heartbeat(two, 1) is Fault.REBALANCE_IN_PROGRESS
    harness.wait(0.3)
    harness.wait(40)
    assert harness.joined(first).generation == 2
    assert {m.member_id for m in harness.joined(first).members} == {one, harness.joined(third).member_id}
    assert harness.heartbeat(two, 1) is Fault.UNKNOWN_MEMBER


def test_the_round_lasts_as_long_as_the_most_patient_member_asks(harness) -> None:
    one, two = harness.stable(rebalance=30_000)
    third = harness.join(rebalance=90_000)
    first = harness.join(one, rebalance=30_000)
    for _ in range(9):
        harness.wait(9.5)
        harness.heartbeat(two, 1)
    assert third not in harness.answers
    harness.wait(4.5)
    assert harness.joined(first).generation == harness.joined(third).generation == 2


def test_a_leader_that_does_not_join_is_replaced(harness) -> None:
    leader, other = harness.stable()
    harness.leave(MemberIdentity(leader))
    assert harness.joined(harness.join(other)).leader == other


def test_a_follower_that_joins_again_unchanged_is_told_the_generation(harness) -> None:
    _, follower = harness.stable()
    joined = harness.joined(harness.join(follower))
    assert joined.generation == 1
    assert joined.members == ()
    assert harness.group.state is State.STABLE


def test_a_follower_that_joins_again_changed_begins_a_round(harness) -> None:
    _, follower = harness.stable()
    assert harness.join(follower, protocols=(("range", b"other"),)) not in harness.answers
    assert harness.group.state is State.PREPARING


def test_a_leader_that_joins_again_begins_a_round(harness) -> None:
    leader, follower = harness.stable()
    waiter = harness.join(leader)
    assert harness.group.state is State.PREPARING
    harness.join(follower)
    assert harness.joined(waiter).generation == 2
    assert len(harness.joined(waiter).members) == 2


def test_before_the_assignment_a_repeated_join_is_answered_again(harness) -> None:
    """The first answer may have been lost; the leader gets the list of members again."""
    leader, follower = harness.generation_of(harness.join(), harness.join())
    again = harness.joined(harness.join(leader.member_id))
    assert again == leader
    assert len(again.members) == 2
    assert harness.joined(harness.join(follower.member_id)) == follower
    assert harness.group.state is State.COMPLETING


def test_before_the_assignment_a_changed_join_begins_a_round(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    waiting = harness.sync(follower.member_id, 1)
    harness.join(leader.member_id, protocols=(("range", b"new"),))
    assert harness.fault(waiting) is Fault.REBALANCE_IN_PROGRESS
    assert harness.group.state is State.PREPARING


def test_a_join_that_is_repeated_while_it_waits_replaces_the_first(harness) -> None:
    leader, follower = harness.stable()
    first = harness.join(leader)
    second = harness.join(leader)
    assert harness.fault(first) is Fault.REBALANCE_IN_PROGRESS
    harness.join(follower)
    assert harness.joined(second).generation == 2
