"""The rules of syncing, heartbeats, leaving and commits, one by one."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.groups.effects import Write
from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.values import MemberIdentity
from treecast.middleware.model.errors import Fault, TreecastError

BOTH = (("sticky", b"s"), ("range", b"r"))


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


def test_an_overtaken_assignment_is_dropped(harness) -> None:
    (leader,) = harness.generation_of(harness.join())
    harness.held = []
    waiter = harness.sync(leader.member_id, 1, {leader.member_id: b"old"})
    harness.join()
    assert harness.fault(waiter) is Fault.REBALANCE_IN_PROGRESS
    harness.release()
    assert harness.group.state is State.PREPARING
    (write, *_) = harness.writes
    assert isinstance(write, Write)


def test_an_assignment_of_an_older_generation_is_dropped(harness) -> None:
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
    assert harness.synced(old) == b"x", "versions before 5 name no protocol"


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
    assert follower.member_id in harness.group.members, "the session began with the answer"
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
    assert harness.commit("", -1) is None, "an empty group accepts commits without a member"
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
    assert harness.commit("", -1) is Fault.UNKNOWN_MEMBER, "an administrator cannot reset an active group"
    assert harness.commit("", -1, in_transaction=True) is None, "producers before KIP-447 name no member"
    harness.join()
    assert harness.group.state is State.PREPARING
    assert harness.commit(leader.member_id, 1) is None, "records read before the round may be committed"


def test_a_commit_prolongs_the_session(harness) -> None:
    (one,) = harness.stable(1)
    for _ in range(4):
        harness.wait(9)
        assert harness.commit(one, 1) is None
    assert one in harness.group.members


# --- descriptions and deletion


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


def test_offsets_of_an_active_group_of_another_type_cannot_be_deleted(harness) -> None:
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
