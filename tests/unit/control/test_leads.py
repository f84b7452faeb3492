"""A host comes back with another data directory: its partitions wait until a host may lead them again."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.entries import (
    HostEntry,
    LostRange,
    PartitionEntry,
    TopicEntry,
    decode_change,
    encode_change,
)
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.commands import Session
from treecast.middleware.control.state import step
from treecast.middleware.control.values import Limits, StateSettings
from treecast.middleware.model.errors import Fault, TreecastError

SETTINGS = StateSettings(lease=10, limits=Limits(lost=3))
T = uuid.UUID(int=7)


def attach(
    state: ClusterState, name: str, directory: str = "d1", run: int = 1, clock_run: int = 0
) -> HostEntry:
    command = commands.Attach(name, f"{name} {directory}", "h:1", "1", run, clock_run)
    host: HostEntry = step(state, command).answer
    return host


def session(host: HostEntry) -> Session:
    return Session(host.host_id, host.incarnation)


def away(state: ClusterState) -> None:
    """Lets all leases expire."""
    for _ in range(5):
        state.pass_time((state._seen or 0.0) + 5)
    for name in state.overdue():
        step(state, commands.Expire(name))


def cluster() -> tuple[ClusterState, HostEntry, HostEntry]:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    a, b = attach(state, "a"), attach(state, "b")
    step(state, commands.CreateTopic("t", T, 3, pinned=("b", "a", "b")))
    return state, a, b


def partitions(state: ClusterState) -> tuple[PartitionEntry, ...]:
    topic = state.topic("t")
    assert topic is not None
    return topic.partitions


def refused(state: ClusterState, command: commands.Command) -> Fault:
    with pytest.raises(TreecastError) as error:
        step(state, command)
    return error.value.fault


def test_what_a_host_led_waits_when_it_has_another_directory() -> None:
    state, _, _ = cluster()
    away(state)
    attach(state, "b", run=2)
    assert [entry.waits for entry in partitions(state)] == [False, False, False]
    away(state)
    attach(state, "b", "d2")
    assert [entry.waits for entry in partitions(state)] == [True, False, True]
    state.check_invariants()


def test_a_directory_that_was_put_back_to_an_older_run_counts_as_another() -> None:
    state, _, _ = cluster()
    attach(state, "b", run=9)
    away(state)
    assert attach(state, "b", run=5, clock_run=3).run == 10
    assert [entry.waits for entry in partitions(state)] == [True, False, True]


def test_runs_rise_over_directories() -> None:
    state, _, b = cluster()
    assert b.run == 1
    assert attach(state, "b", run=4).run == 4
    assert attach(state, "b", run=4).run == 4  # it had lost its lease
    away(state)
    assert attach(state, "b", "d2").run == 5
    away(state)
    assert attach(state, "b", "d3", clock_run=1000).run == 1000
    away(state)
    assert attach(state, "b", "d4", clock_run=1000).run == 1001
    assert attach(state, "b", "d4", run=0).run == 1001  # it does not report its run


def test_the_host_that_is_waited_for_takes_the_lead_with_a_higher_epoch() -> None:
    state, a, _ = cluster()
    away(state)
    a, b = attach(state, "a"), attach(state, "b", "d2")
    lost = LostRange(5, 7, 3, b.host_id, 1000)
    take = commands.TakeLead(session(b), T, 0, 0, 3, lost=lost)
    assert refused(state, commands.TakeLead(session(a), T, 0, 0, 3)) is Fault.NOT_LEADER
    assert refused(state, commands.TakeLead(session(b), T, 0, 0, 0)) is Fault.INVALID_REQUEST
    assert refused(state, commands.TakeLead(session(b), T, 0, 1, 3)) is Fault.FENCED_LEADER_EPOCH
    assert refused(state, commands.TakeLead(session(b), T, 5, 0, 3)) is Fault.UNKNOWN_TOPIC_ID
    assert refused(state, commands.TakeLead(session(b), T, 1, 0, 3)) is Fault.NOT_LEADER
    topic: TopicEntry = step(state, take).answer
    assert topic.partitions[0] == PartitionEntry(b.host_id, 3, False, (lost,))
    assert topic.partitions[2].waits
    assert step(state, take).changes == ()  # a repeat
    (change,) = [change for change in state.entries() if change.entry == topic]
    assert decode_change(encode_change(change)) == change


def test_an_operator_moves_what_waits_or_whose_leader_is_away() -> None:
    state, a, b = cluster()
    promote = commands.TakeLead(session(a), T, 0, 0, 2, promoted=True)
    assert refused(state, promote) is Fault.POLICY_VIOLATION  # its leader is present
    away(state)
    a = attach(state, "a")
    promote = commands.TakeLead(session(a), T, 0, 0, 2, promoted=True)
    assert step(state, promote).answer.partitions[0] == PartitionEntry(a.host_id, 2)
    assert (state.led(a.host_id), state.led(b.host_id)) == (2, 1)
    attach(state, "b", "d2")
    assert [entry.waits for entry in partitions(state)] == [False, False, True]
    promote = commands.TakeLead(session(a), T, 2, 0, 2, promoted=True)
    assert step(state, promote).answer.partitions[2] == PartitionEntry(a.host_id, 2)


def test_a_host_gives_up_what_it_has_lost_records_of() -> None:
    state, a, b = cluster()
    given = step(state, commands.GiveUp(session(b), T, (0, 1, 9))).answer
    # the second is led by another host
    assert [entry.waits for entry in given.partitions] == [True, False, False]
    assert step(state, commands.GiveUp(session(b), T, (0,))).changes == ()
    assert refused(state, commands.GiveUp(session(a), uuid.UUID(int=9), (0,))) is Fault.UNKNOWN_TOPIC_ID
    taken = step(state, commands.TakeLead(session(b), T, 0, 0, 1)).answer
    assert not taken.partitions[0].waits


def test_losses_are_bounded_and_never_named_as_less() -> None:
    state, _, _ = cluster()
    for number in range(5):
        away(state)
        b = attach(state, "b", f"directory {number}")
        lost = LostRange(10 * number, 10 * number + 3, number + 1, b.host_id, number)
        step(state, commands.TakeLead(session(b), T, 0, number, number + 1, lost=lost))
    kept = partitions(state)[0].lost
    assert [(lost.first, lost.heard) for lost in kept] == [(0, 23), (30, 33), (40, 43)]


def test_ends_are_of_those_who_lead() -> None:
    state, _, b = cluster()
    end = commands.PartitionEnd
    told = (end(T, 0, 1, 100), end(T, 1, 1, 5), end(T, 9, 1, 5), end(uuid.UUID(int=8), 0, 1, 5))
    written = step(state, commands.PutEnds(session(b), told)).items
    assert [item.home for item in written] == ["e:" + T.hex]
    away(state)
    b = attach(state, "b", "d2")
    assert step(state, commands.PutEnds(session(b), told)).items == ()
    (gone,) = step(state, commands.DeleteTopic("t")).items
    assert (gone.home, gone.key) == ("e:" + T.hex, None)


async def test_over_the_network(client: CoordinatorClient, hello: Callable[..., pb.AttachRequest]) -> None:
    attached = await client.attach(hello("h1"))
    made = await client.create_topic(pb.CreateTopicEntryRequest(name="t", partitions=2))
    topic_id = made.topic.topic_id
    ends = [pb.PartitionEnd(topic_id=topic_id, partition=n, leader_epoch=2, end=100 + n) for n in range(2)]
    await client.put_ends(attached.session, ends)
    assert list(await client.get_ends(topic_id)) == ends
    await client.put_ends(attached.session, [pb.PartitionEnd(topic_id=topic_id, leader_epoch=2, end=200)])
    assert [end.end for end in await client.get_ends(topic_id)] == [200, 101]
    await client.detach(attached.session)
    again = await client.attach(hello("h1", instance="another directory"))
    taken = await client.take_lead(
        pb.TakeLeadRequest(
            session=again.session,
            topic_id=topic_id,
            partition=1,
            leader_epoch=5,
            lost=pb.LostRange(first=90, heard=101, leader_epoch=5, host=1),
        )
    )
    assert [partition.waits for partition in taken.topic.partitions] == [True, False]
    assert taken.topic.partitions[1].lost[0].heard == 101


def test_an_operator_accepts_what_a_partition_has_lost() -> None:
    state, a, _ = cluster()
    away(state)
    a, b = attach(state, "a"), attach(state, "b", "d2")
    for epoch, lost in enumerate(
        (LostRange(5, 7, 3, b.host_id, 1), LostRange(5, 5, 4, b.host_id, 2, True)), 3
    ):
        step(state, commands.TakeLead(session(b), T, 0, partitions(state)[0].leader_epoch, epoch, lost=lost))
        step(state, commands.GiveUp(session(b), T, (0,)))
    assert [lost.is_open for lost in partitions(state)[0].lost] == [True, True]
    assert refused(state, commands.AcceptLosses(session(a), T, 9)) is Fault.UNKNOWN_TOPIC_ID
    accept = commands.AcceptLosses(session(a), T, 0)  # any host may ask
    topic: TopicEntry = step(state, accept).answer
    assert [lost.accepted for lost in topic.partitions[0].lost] == [True, True]
    assert topic.partitions[0].waits
    assert step(state, accept).changes == ()
    (change,) = [change for change in state.entries() if change.entry == topic]
    assert decode_change(encode_change(change)) == change


def test_losses_that_are_merged_stay_unknown_and_open() -> None:
    state, _, _ = cluster()
    away(state)
    b = attach(state, "b", "d2")
    ranges = [LostRange(5, 5, 0, b.host_id, 1, True), LostRange(9, 9, 0, b.host_id, 2, accepted=True)]
    ranges += [LostRange(n, n, 0, b.host_id, n) for n in (20, 30)]
    for epoch, lost in enumerate(ranges, 3):
        step(state, commands.TakeLead(session(b), T, 0, partitions(state)[0].leader_epoch, epoch, lost=lost))
        step(state, commands.GiveUp(session(b), T, (0,)))
    merged, *rest = partitions(state)[0].lost
    assert (merged.first, merged.heard, merged.unknown, merged.is_open) == (5, 9, True, True)
    assert len(rest) == 2
