"""The state machine: its table, time, and rules one by one."""

from __future__ import annotations

import itertools
import uuid

import pytest

from treecast.middleware.api.entries import (
    Counter,
    CounterEntry,
    HomeKind,
    Presence,
    put,
)
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.commands import Session
from treecast.middleware.control.hosts import TABLE, Event, follow
from treecast.middleware.control.state import step
from treecast.middleware.control.values import FIRST_STATE_ID, LAST_STATE_ID, StateSettings
from treecast.middleware.model.errors import Fault, TreecastError

SETTINGS = StateSettings(lease=10, takeover=30, longest_step=5)
GROUP = HomeKind.GROUP


def attached(state: ClusterState, name: str) -> Session:
    host = step(state, commands.Attach(name, f"data of {name}", "h:1", "1")).answer
    return Session(host.host_id, host.incarnation)


def pass_seconds(state: ClusterState, seconds: int, start: float) -> float:
    """Advances time in many small steps and expires leases, as the server does."""
    for tick in range(1, seconds + 1):
        state.pass_time(start + tick)
        for name in state.overdue():
            step(state, commands.Expire(name))
    return start + seconds


def fault_of(state: ClusterState, command: commands.Command) -> Fault:
    before = list(state.entries())
    with pytest.raises(TreecastError) as refused:
        step(state, command)
    assert list(state.entries()) == before
    return refused.value.fault


def test_every_pair_of_presence_and_event_has_its_entry() -> None:
    assert set(TABLE) == set(Presence)
    for presence, event in itertools.product(Presence, Event):
        entry = TABLE[presence][event]
        if isinstance(entry, Fault):
            with pytest.raises(TreecastError) as refused:
                follow(presence, event)
            assert refused.value.fault is entry
        else:
            assert follow(presence, event) is entry is not Presence.ABSENT


def test_a_clock_that_jumps_takes_nobody_away() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(1000.0)
    attached(state, "h1")
    for now in (1e9, 5.0, -1e9):  # the jump ahead counts as 5 s, jumps back do not count
        state.pass_time(now)
        assert state.overdue() == []
    pass_seconds(state, 4, -1e9)
    assert state.overdue() == []
    pass_seconds(state, 1, -1e9 + 4)
    host = state.host("h1")
    assert host is not None
    assert host.presence is Presence.AWAY


def test_a_home_is_taken_over_only_when_it_is_away_for_long() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    one = attached(state, "h1")
    home = step(state, commands.AskHome(one, GROUP, "g")).answer
    now = pass_seconds(state, 30, 0.0)  # away for 20 s
    two = attached(state, "h2")
    assert step(state, commands.AskHome(two, GROUP, "g")).answer == home
    now = pass_seconds(state, 5, now)
    step(state, commands.Renew(two))
    now = pass_seconds(state, 6, now)
    taken = step(state, commands.AskHome(two, GROUP, "g")).answer
    assert (taken.host_id, taken.epoch) == (2, 2)
    again = attached(state, "h1")
    write = commands.HomeWrite(GROUP, "g", 1, ((b"k", b"old"),))
    refused = step(state, commands.PutHomeState(again, (write,)))
    assert refused.answer.refused[0].fault is Fault.NOT_COORDINATOR
    assert refused.items == ()
    assert step(state, commands.AskHome(again, GROUP, "g")).answer == taken


@pytest.mark.parametrize(
    ("instance", "run", "old"),
    [("data of h1", 6, False), ("data of h1", 5, False), ("data of h1", 4, True), ("another", 1, True)],
)
def test_homes_of_an_old_directory_get_a_higher_epoch(instance: str, run: int, old: bool) -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    before = step(state, commands.Attach("h1", "data of h1", "h:1", "1", 5)).answer
    one, two = Session(before.host_id, before.incarnation), attached(state, "h2")
    kinds = [HomeKind.GROUP, HomeKind.TRANSACTION, HomeKind.REPLICAS, HomeKind.SHARE]
    for kind in kinds:
        step(state, commands.AskHome(one, kind, "x"))
    other = step(state, commands.AskHome(two, GROUP, "of h2")).answer
    step(state, commands.Detach(one))
    decision = step(state, commands.Attach("h1", instance, "h:1", "1", run))
    host = decision.answer
    assert (host.run > run) == old
    homes = [state.home(kind, "x") for kind in kinds]
    assert [(home.host_id, home.epoch) for home in homes if home] == [(before.host_id, 1 + old)] * 4
    assert state.home(GROUP, "of h2") == other
    assert len(decision.changes) == 1 + 4 * old  # in one command with the attach
    again = Session(host.host_id, host.incarnation)
    late = step(state, commands.PutHomeState(again, (commands.HomeWrite(GROUP, "x", 1, ((b"k", b"v"),)),)))
    assert (0 in late.answer.refused) == old
    assert step(state, commands.AskHome(again, GROUP, "x")).answer.epoch == 1 + old


def test_any_attached_host_may_compare_with_a_homes_items() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    one, two = attached(state, "h1"), attached(state, "h2")
    step(state, commands.AskHome(one, GROUP, "g"))
    step(state, commands.CheckHome(two, GROUP, "g", 0))
    assert fault_of(state, commands.CheckHome(two, GROUP, "g", 1)) is Fault.NOT_COORDINATOR
    assert fault_of(state, commands.CheckHome(Session(9, 1), GROUP, "g", 0)) is Fault.UNKNOWN_MEMBER


def test_leaders_are_spread_and_stay() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    for name in ("a", "b", "c"):
        attached(state, name)
    topic = step(state, commands.CreateTopic("t", uuid.UUID(int=1), 7)).answer
    assert [p.leader for p in topic.partitions] == [1, 2, 3, 1, 2, 3, 1]
    pass_seconds(state, 100, 0.0)
    assert state.topic("t") == topic
    attached(state, "c")
    more = step(state, commands.CreateTopic("u", uuid.UUID(int=2), 2)).answer
    assert [p.leader for p in more.partitions] == [3, 3]
    step(state, commands.DeleteTopic("t"))
    assert (state.led(1), state.led(3), state.partitions) == (0, 2, 2)


def test_a_host_without_a_broker_leads_nothing() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    attached(state, "a")
    step(state, commands.Attach("agent", "i", "h:1", "1", leads_nothing=True))
    topic = step(state, commands.CreateTopic("t", uuid.UUID(int=1), 3)).answer
    assert [p.leader for p in topic.partitions] == [1, 1, 1]
    with pytest.raises(TreecastError, match="no broker") as refused:
        step(state, commands.CreateTopic("u", uuid.UUID(int=2), 1, {}, ("agent",)))
    assert refused.value.fault is Fault.INVALID_ASSIGNMENT
    step(state, commands.Attach("agent", "i", "h:1", "2"))  # this time it has a broker
    more = step(state, commands.CreateTopic("u", uuid.UUID(int=2), 1)).answer
    assert [p.leader for p in more.partitions] == [2]


def test_a_host_tells_its_zone_at_each_attach() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    assert step(state, commands.Attach("a", "i", "h:1", "1", zone="eu/berlin")).answer.zone == "eu/berlin"
    assert step(state, commands.Attach("a", "i", "h:1", "1")).answer.zone == ""
    for label in ("eu/", "e u", "x" * 300):
        with pytest.raises(TreecastError, match="zone") as refused:
            step(state, commands.Attach("a", "i", "h:1", "1", zone=label))
        assert refused.value.fault is Fault.INVALID_REQUEST


def test_state_ids_come_back_as_late_as_they_can() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    host = attached(state, "h")
    state.apply([put(CounterEntry(Counter.STATE_ID, LAST_STATE_ID))])
    ids = [step(state, commands.AllotState(host, (str(n),))).answer.state_id for n in range(3)]
    assert ids == [LAST_STATE_ID, FIRST_STATE_ID, FIRST_STATE_ID + 1]
    step(state, commands.ReleaseState(host, FIRST_STATE_ID, force=True))
    assert step(state, commands.AllotState(host, ("new",))).answer.state_id == FIRST_STATE_ID + 2
    # the counter wraps around: ids in use are skipped
    state.apply([put(CounterEntry(Counter.STATE_ID, LAST_STATE_ID))])
    ids = [step(state, commands.AllotState(host, (f"later {n}",))).answer.state_id for n in range(2)]
    assert ids == [FIRST_STATE_ID, FIRST_STATE_ID + 3]
    state.check_invariants()


def test_interest_goes_by_version_within_an_incarnation() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    session = attached(state, "h")
    for version, pattern, recorded in ((5, "a", "a"), (5, "b", "a"), (4, "c", "a"), (1, "anew", "anew")):
        if pattern == "anew":
            session = attached(state, "h")
        step(state, commands.PutInterest(session, version, (pattern,)))
        entry = state.interest(1)
        assert entry is not None
        assert entry.patterns == (recorded,)
    step(state, commands.Detach(session))
    assert state.interest(1) is None


def test_the_first_definition_of_a_name_stays() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    one, two = attached(state, "h1"), attached(state, "h2")
    write = commands.DefinitionWrite
    step(state, commands.PutDefinitions(one, (write("q", b"one"), write("gone", b"x"))))
    assert not step(state, commands.PutDefinitions(two, (write("q", b"two"),))).changes
    assert not step(state, commands.PutDefinitions(one, (write("q", b"one"),))).changes
    known = state.definition("q")
    assert known is not None
    assert (known.host_id, known.value) == (one.host_id, b"one")
    step(state, commands.PutDefinitions(two, (write("q", b"two", replace=True), write("gone", None))))
    known = state.definition("q")
    assert known is not None
    assert (known.host_id, known.value) == (two.host_id, b"two")
    assert state.definition("gone") is None
    within_one = (write("a", b"1"), write("a", None), write("a", b"2"), write("b", b"1"), write("b", None))
    step(state, commands.PutDefinitions(one, within_one))
    again = state.definition("a")
    assert again is not None
    assert again.value == b"2"
    assert state.definition("b") is None
    state.check_invariants()


def test_forgotten_epochs_are_never_given_again() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    one, two = attached(state, "h1"), attached(state, "h2")
    step(state, commands.AskHome(one, GROUP, "low"))
    step(state, commands.AskHome(one, GROUP, "high"))
    step(state, commands.Detach(one))
    assert step(state, commands.AskHome(two, GROUP, "high")).answer.epoch == 2
    for id, epoch, host in (("high", 2, two), ("low", 1, attached(state, "h1"))):
        step(state, commands.PutHomeState(host, (commands.HomeWrite(GROUP, id, epoch, forget=True),)))
    assert step(state, commands.AskHome(two, GROUP, "high")).answer.epoch == 3


def test_a_second_absence_begins_anew() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    one = attached(state, "h1")
    home = step(state, commands.AskHome(one, GROUP, "g")).answer
    now = pass_seconds(state, 35, 0.0)
    attached(state, "h1")
    now = pass_seconds(state, 20, now)  # away for 10 s of these
    two = attached(state, "h2")
    assert step(state, commands.AskHome(two, GROUP, "g")).answer == home


def test_a_refusal_changes_nothing() -> None:
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    host = attached(state, "h")
    home = commands.HomeWrite(GROUP, "g", 1)
    step(state, commands.AskHome(host, GROUP, "g"))
    assert fault_of(state, commands.PutHomeState(host, (home, home))) is Fault.INVALID_REQUEST
    assert fault_of(state, commands.Expire("nobody")) is Fault.INTERNAL
    assert fault_of(state, commands.Attach("h", "other", "h:1", "1")) is Fault.POLICY_VIOLATION
    assert fault_of(state, commands.CreateTopic("t", uuid.UUID(int=1), 10**6)) is Fault.INVALID_PARTITIONS


def test_a_host_without_a_broker_leads_what_it_brings() -> None:
    """Its topics are another system's: they keep their ids, and grow only by the host that brought them."""
    state = ClusterState(SETTINGS)
    state.pass_time(0.0)
    attached(state, "a")
    step(state, commands.Attach("agent", "i", "h:1", "1", leads_nothing=True))
    bring = commands.CreateTopic("t", uuid.UUID(int=7), 2, {}, ("agent",), brought=True)
    topic = step(state, bring).answer
    assert [p.leader for p in topic.partitions] == [2, 2]
    for pinned in ((), ("a",)):
        with pytest.raises(TreecastError, match="change it there") as refused:
            step(state, commands.CreatePartitions("t", 3, pinned))
        assert refused.value.fault is Fault.POLICY_VIOLATION
    grown = step(state, commands.CreatePartitions("t", 3, ("agent",))).answer
    assert [p.leader for p in grown.partitions] == [2, 2, 2]
    step(state, commands.CreateTopic("own", uuid.UUID(int=8), 1))
    with pytest.raises(TreecastError, match="no broker"):
        step(state, commands.CreatePartitions("own", 2, ("agent",)))
