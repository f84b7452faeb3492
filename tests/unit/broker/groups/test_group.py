"""The rules of joining, syncing, heartbeats and leaving, one by one."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.groups.effects import Write
from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.values import MemberIdentity
from treecast.middleware.model.errors import Fault, TreecastError

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
    assert first not in harness.answers, "somebody came: another delay"
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
    """The first answer may have been lost; the leader is told of the members again."""
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


# --- syncs


def test_followers_wait_for_the_leaders_assignment(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    waiting = harness.sync(follower.member_id, 1)
    assert waiting not in harness.answers
    first = harness.sync(leader.member_id, 1, {leader.member_id: b"a", follower.member_id: b"b"})
    assert harness.synced(first) == b"a"
    assert harness.synced(waiting) == b"b"


def test_a_late_follower_gets_its_assignment_at_once(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    harness.sync(leader.member_id, 1, {follower.member_id: b"b"})
    assert harness.synced(harness.sync(follower.member_id, 1)) == b"b"


def test_whom_the_leader_forgets_gets_nothing(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    harness.sync(leader.member_id, 1, {"stranger": b"x"})
    assert harness.synced(harness.sync(follower.member_id, 1)) == b""


def test_nobody_has_the_assignment_before_it_is_on_disk(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    harness.held = []
    waiters = [harness.sync(follower.member_id, 1), harness.sync(leader.member_id, 1)]
    assert not harness.answers.keys() & set(waiters)
    assert harness.group.state is State.COMPLETING
    harness.release()
    assert harness.group.state is State.STABLE
    assert harness.answers.keys() >= set(waiters)


def test_an_assignment_that_cannot_be_written_begins_a_round(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    harness.held = []
    waiters = [harness.sync(follower.member_id, 1), harness.sync(leader.member_id, 1)]
    harness.release(TreecastError(Fault.STORAGE))
    assert [harness.fault(w) for w in waiters] == [Fault.COORDINATOR_UNAVAILABLE] * 2
    assert harness.group.state is State.PREPARING


def test_an_assignment_that_was_overtaken_is_let_go(harness) -> None:
    (leader,) = harness.generation_of(harness.join())
    harness.held = []
    waiter = harness.sync(leader.member_id, 1, {leader.member_id: b"old"})
    harness.join()
    assert harness.fault(waiter) is Fault.REBALANCE_IN_PROGRESS
    harness.release()
    assert harness.group.state is State.PREPARING
    (write, *_) = harness.writes
    assert isinstance(write, Write)


def test_an_assignment_of_an_older_generation_is_let_go(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    harness.held = []
    harness.sync(leader.member_id, 1, {follower.member_id: b"old"})
    harness.leave(MemberIdentity(leader.member_id))
    assert harness.joined(harness.join(follower.member_id)).generation == 2
    harness.release()
    assert harness.group.state is State.COMPLETING
    assert harness.synced(harness.sync(follower.member_id, 2, {follower.member_id: b"new"})) == b"new"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"generation": 2}, Fault.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, Fault.UNKNOWN_MEMBER),
        ({"instance": "nobody"}, Fault.UNKNOWN_MEMBER),
        ({"protocol_type": "connect"}, Fault.INCONSISTENT_PROTOCOL),
        ({"protocol": "sticky"}, Fault.INCONSISTENT_PROTOCOL),
    ],
)
def test_a_sync_has_to_fit_the_generation(harness, change, fault) -> None:
    (joined,) = harness.generation_of(harness.join())
    right = {"member_id": joined.member_id, "generation": 1}
    assert harness.fault(harness.sync(**{**right, **change})) is fault
    old = harness.sync(**right, protocol_type=None, assignments={joined.member_id: b"x"})
    assert harness.synced(old) == b"x", "before version 5 no protocol is named"


def test_a_sync_while_joins_are_collected_is_refused(harness) -> None:
    leader, _ = harness.stable()
    harness.join()
    assert harness.fault(harness.sync(leader, 1)) is Fault.REBALANCE_IN_PROGRESS


def test_who_does_not_sync_is_removed(harness) -> None:
    leader, follower = harness.generation_of(harness.join(session=6_000), harness.join())
    waiting = harness.sync(follower.member_id, 1)
    for _ in range(13):
        harness.wait(4.9)
        harness.heartbeat(leader.member_id, 1)
    assert harness.fault(waiting) is Fault.REBALANCE_IN_PROGRESS
    assert leader.member_id not in harness.group.members
    assert harness.joined(harness.join(follower.member_id)).leader == follower.member_id


def test_in_a_stable_group_too_who_does_not_sync_is_removed(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    harness.sync(leader.member_id, 1)
    assert harness.group.state is State.STABLE
    for _ in range(13):
        harness.wait(4.9)
        harness.heartbeat(leader.member_id, 1)
        harness.heartbeat(follower.member_id, 1)
    assert follower.member_id not in harness.group.members
    assert harness.group.state is State.PREPARING


# --- sessions


def test_a_silent_member_is_removed_and_the_others_join_again(harness) -> None:
    one, two = harness.stable(session=10_000)
    harness.wait(9.9)
    assert harness.heartbeat(one, 1) is None
    harness.wait(0.1)
    assert two not in harness.group.members
    assert harness.counters.expired_members == 1
    assert harness.heartbeat(one, 1) is Fault.REBALANCE_IN_PROGRESS
    assert harness.joined(harness.join(one)).generation == 2


def test_when_all_are_silent_the_group_is_empty(harness) -> None:
    harness.stable()
    harness.wait(10)
    assert harness.group.state is State.EMPTY
    assert harness.group.generation == 2
    assert harness.group.next_deadline() == float("inf")
    assert harness.writes[-1].record.members == ()


def test_sessions_do_not_end_while_members_wait(harness) -> None:
    leader, follower = harness.generation_of(harness.join(session=6_000), harness.join(session=6_000))
    waiting = harness.sync(follower.member_id, 1)
    for _ in range(4):
        harness.wait(5)
        harness.heartbeat(leader.member_id, 1)
    assert follower.member_id in harness.group.members
    harness.sync(leader.member_id, 1)
    assert waiting in harness.answers
    harness.wait(5.9)
    assert follower.member_id in harness.group.members, "its session began with the answer"
    harness.wait(0.2)
    assert follower.member_id not in harness.group.members


def test_a_new_members_join_does_not_wait_for_ever(new_group) -> None:
    harness = new_group(new_member_timeout_ms=300_000)
    (one,) = harness.stable(1, rebalance=3_600_000, session=1_800_000)
    waiter = harness.join(rebalance=3_600_000, session=6_000)
    for _ in range(3):
        harness.wait(99)
        harness.heartbeat(one, 1)
    assert waiter not in harness.answers
    harness.wait(3)
    assert harness.fault(waiter) is Fault.UNKNOWN_MEMBER


def test_a_heartbeat_has_to_fit_the_generation(harness) -> None:
    one, _ = harness.stable()
    assert harness.heartbeat(one, 0) is Fault.ILLEGAL_GENERATION
    assert harness.heartbeat("nobody", 1) is Fault.UNKNOWN_MEMBER
    assert harness.heartbeat(one, 1) is None


def test_heartbeats_are_good_before_the_assignment(harness) -> None:
    (joined,) = harness.generation_of(harness.join())
    assert harness.heartbeat(joined.member_id, 1) is None


# --- leaving


def test_leaving_makes_the_others_join_again(harness) -> None:
    one, two = harness.stable()
    assert harness.leave(MemberIdentity(two)) == [None]
    assert harness.group.state is State.PREPARING
    assert [m.member_id for m in harness.joined(harness.join(one)).members] == [one]


def test_each_leaving_member_has_its_answer(harness) -> None:
    one, two = harness.stable()
    answers = harness.leave(MemberIdentity(one), MemberIdentity("nobody"), MemberIdentity(two))
    assert answers == [None, Fault.UNKNOWN_MEMBER, None]
    assert harness.group.state is State.EMPTY
    assert harness.group.generation == 2


def test_who_leaves_while_it_waits_is_answered(harness) -> None:
    leader, follower = harness.generation_of(harness.join(), harness.join())
    waiting = harness.sync(follower.member_id, 1)
    harness.leave(MemberIdentity(follower.member_id))
    assert harness.fault(waiting) is Fault.UNKNOWN_MEMBER
    joining = harness.join(leader.member_id, protocols=(("range", b"x"),))
    assert harness.joined(joining).generation == 2


def test_an_emptied_group_keeps_its_type_until_another_comes(harness) -> None:
    ids = harness.stable()
    harness.leave(*map(MemberIdentity, ids))
    assert harness.group.listing().protocol_type == "consumer"
    (joined,) = harness.generation_of(harness.join(protocol_type="connect"))
    assert joined.protocol_type == "connect"
    assert joined.generation == 3


# --- size


def test_a_full_group_takes_no_more(new_group) -> None:
    harness = new_group(max_size=2)
    _one, two = harness.stable(2)
    assert harness.fault(harness.join()) is Fault.GROUP_FULL
    assert harness.group.state is State.STABLE
    assert harness.joined(harness.join(two)).generation == 1, "members may join again"


def test_while_joins_are_collected_the_last_to_join_are_shed(new_group) -> None:
    harness = new_group(max_size=2)
    waiters = [harness.join() for _ in range(3)]
    assert harness.fault(waiters[2]) is Fault.GROUP_FULL
    assert len(harness.generation_of(*waiters[:2])) == 2


# --- commits


def test_who_may_commit(harness) -> None:
    assert harness.commit("", -1) is None, "an empty group takes commits of no member"
    assert harness.commit("nobody", 1) is Fault.UNKNOWN_MEMBER
    leader, follower = harness.generation_of(harness.join(), harness.join())
    assert harness.commit(leader.member_id, 1) is Fault.REBALANCE_IN_PROGRESS
    assert harness.commit(leader.member_id, 1, in_transaction=True) is None
    harness.sync(leader.member_id, 1)
    harness.sync(follower.member_id, 1)
    assert harness.commit(leader.member_id, 1) is None
    assert harness.commit(leader.member_id, 0) is Fault.ILLEGAL_GENERATION
    assert harness.commit(leader.member_id, -1) is Fault.ILLEGAL_GENERATION
    assert harness.commit("nobody", 1) is Fault.UNKNOWN_MEMBER
    assert harness.commit("", -1) is Fault.UNKNOWN_MEMBER, "an administrator cannot reset a group at work"
    assert harness.commit("", -1, in_transaction=True) is None, "producers before KIP-447"
    harness.join()
    assert harness.group.state is State.PREPARING
    assert harness.commit(leader.member_id, 1) is None, "what was read before the round may be committed"


def test_a_commit_prolongs_the_session(harness) -> None:
    (one,) = harness.stable(1)
    for _ in range(4):
        harness.wait(9)
        assert harness.commit(one, 1) is None
    assert one in harness.group.members


# --- looking and ending


def test_description(harness) -> None:
    ids = harness.stable()
    described = harness.group.description()
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.metadata, m.assignment) for m in described.members] == [
        (member_id, b"meta", member_id.encode()) for member_id in ids
    ]
    harness.join()
    described = harness.group.description()
    assert described.state == "PreparingRebalance"
    assert described.protocol == ""
    assert {(m.metadata, m.assignment) for m in described.members} == {(b"", b"")}


def test_only_an_empty_group_can_be_deleted(harness) -> None:
    ids = harness.stable()
    with pytest.raises(TreecastError) as refused:
        harness.group.delete(harness.now)
    assert refused.value.fault is Fault.GROUP_NOT_EMPTY
    harness.leave(*map(MemberIdentity, ids))
    harness.group.delete(harness.now)
    assert harness.group.state is State.DEAD
    assert harness.fault(harness.join()) is Fault.COORDINATOR_UNAVAILABLE
    assert harness.heartbeat(ids[0], 2) is Fault.COORDINATOR_UNAVAILABLE


def test_offsets_of_a_group_at_work_can_be_deleted_for_topics_it_does_not_read(harness) -> None:
    harness.group.check_delete_offsets()
    assert not harness.group.is_subscribed("t")
    subscription = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\0"
    harness.stable(protocols=(("range", subscription),))
    harness.group.check_delete_offsets()
    assert harness.group.is_subscribed("t")
    assert not harness.group.is_subscribed("other")


def test_offsets_of_a_group_at_work_that_is_no_consumers_cannot_be_deleted(harness) -> None:
    harness.join(protocol_type="connect")
    with pytest.raises(TreecastError) as refused:
        harness.group.check_delete_offsets()
    assert refused.value.fault is Fault.GROUP_NOT_EMPTY


def test_unloading_answers_everybody(harness) -> None:
    _leader, follower = harness.generation_of(harness.join(), harness.join())
    waiting = harness.sync(follower.member_id, 1)
    harness.group.unload(harness.now)
    for effect in harness.group.take_effects():
        harness.answers[effect.waiter] = effect.result
    assert harness.fault(waiting) is Fault.NOT_COORDINATOR


# --- after a restart


def test_a_stable_generation_goes_on(harness, new_group) -> None:
    one, two = harness.stable()
    again = new_group()
    again.group.restore(harness.writes[-1].record, again.now - 5, again.now)
    assert again.group.description() == harness.group.description()
    assert again.heartbeat(one, 1) is None
    again.wait(9)
    assert again.heartbeat(one, 1) is None
    again.wait(1)
    assert two not in again.group.members, "sessions began at the restart"
    assert again.joined(again.join(one)).generation == 2


def test_a_group_over_its_size_after_a_restart_begins_a_round(harness, new_group) -> None:
    one, _ = harness.stable()
    again = new_group(max_size=1)
    again.group.restore(harness.writes[-1].record, again.now, again.now)
    assert again.group.state is State.PREPARING
    waiter = again.join(one)
    again.wait(60)
    assert again.joined(waiter).generation == 2
