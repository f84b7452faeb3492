"""The state machine: its table, time, and random histories against a plain reference, with kills."""

from __future__ import annotations

import itertools
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from treecast.middleware.api.entries import (
    Change,
    Counter,
    CounterEntry,
    HomeEntry,
    HomeKind,
    Presence,
    decode_change,
    encode_change,
    put,
)
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.commands import Session
from treecast.middleware.control.history import History, Revision
from treecast.middleware.control.hosts import TABLE, Event, follow
from treecast.middleware.control.state import step
from treecast.middleware.control.store import Commit, SqliteStore, StoredChange
from treecast.middleware.control.values import FIRST_STATE_ID, LAST_STATE_ID, StateSettings
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.settings import FsyncPolicy

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


# --- random histories


@dataclass
class Host:
    """The reference's view of a host, in the time that the state counts."""

    host_id: int
    incarnation: int
    until: float | None  # end of its lease
    away_since: float | None = None


@dataclass
class Home:
    host: str
    epoch: int
    items: dict[bytes, bytes] = field(default_factory=dict)


NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from(["g", "h"])
KEYS = st.sampled_from([b"x", b"y"])
RARELY = st.sampled_from([False] * 7 + [True])
ROUNDING = 1e-6  # seconds


class Histories(RuleBasedStateMachine):
    """Compares state and store together with dictionaries. A kill leaves the files as they are."""

    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        self.runs = 0
        self.now = 100.0
        self.elapsed = 0.0
        self.hosts: dict[str, Host] = {}
        self.homes: dict[str, Home] = {}
        self.floor = 0
        self.epochs: dict[str, int] = {}
        self.given = 0
        self.watched: dict[tuple[int, str], Change] = {}
        self.position = 0
        self.state_ids: dict[str, int] = {}
        self.versions: dict[str, tuple[int, int]] = {}
        self.directories: dict[str, str] = {}
        self._open(Path(self.folder.name, "0.sqlite"))
        for name in ("a", "b"):
            self.attach(name)

    def _open(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(path, lambda: "id", fsync=FsyncPolicy.NEVER)
        loaded = self.store.load()
        self.state = ClusterState(SETTINGS)
        self.state.pass_time(self.now)
        self.state.apply(decode_change(entry) for entry in loaded.entries)
        kept = [Revision(number, changes) for number, changes in loaded.log]
        self.history = History(loaded.revision, kept, 8, 4000)

    @rule(
        by=st.one_of(st.floats(0, 3), st.floats(0, 1), st.sampled_from([-1e9, -3.0, 1e9]), st.floats(-50, 50))
    )
    def time_passes(self, by: float) -> None:
        before, self.now = self.now, self.now + by
        self.elapsed += min(max(self.now - before, 0.0), SETTINGS.longest_step)
        self.state.pass_time(self.now)
        due = {name for name, host in self.hosts.items() if host.until is not None and self._over(host)}
        assert set(self.state.overdue()) == due
        for name in sorted(due):
            self._do(commands.Expire(name))
            self.hosts[name].until, self.hosts[name].away_since = None, self.elapsed

    @rule(silent=NAMES, ticks=st.integers(1, 25))
    def one_is_silent(self, silent: str, ticks: int) -> None:
        """One host is silent, the others renew repeatedly."""
        for _ in range(ticks):
            for name, host in self.hosts.items():
                if name != silent and host.until is not None:
                    self.renew(name, False)
            self.time_passes(2.0)

    @rule(name=NAMES)
    def come_back(self, name: str) -> None:
        if name not in self.hosts or self.hosts[name].until is None:
            self.attach(name)

    def _over(self, host: Host) -> bool:
        return host.until is not None and host.until <= self.elapsed

    def _do(self, command: commands.Command) -> Any:
        """Performs a command as the coordinator does, without a loop."""
        decision = step(self.state, command)
        if decision.changes or decision.items:
            number = self.history.last + bool(decision.changes)
            stored = tuple(
                StoredChange(c.kind, c.key, encode_change(c), c.entry is None) for c in decision.changes
            )
            self.store.commit([Commit(number, stored, decision.items)], self.history.first)
            if stored:
                self.history.add(Revision(number, tuple(change.message for change in stored)))
        return decision.answer

    def _session(self, name: str, stale: bool) -> Session:
        host = self.hosts.get(name, Host(99, 1, None))
        return Session(host.host_id, host.incarnation - stale)

    def _try(self, name: str, stale: bool, make: Any) -> Any:
        """Returns the reply, or None if the reference says that the caller must be refused."""
        host = self.hosts.get(name)
        command = make(self._session(name, stale))
        if host is None or stale or host.until is None:
            assert fault_of(self.state, command) is Fault.UNKNOWN_MEMBER
            return None
        return self._do(command)

    @rule(name=NAMES)
    def attach(self, name: str) -> None:
        instance = self.directories.setdefault(name, f"data of {name}")
        got = self._do(commands.Attach(name, instance, "h:1", "1"))
        if name in self.hosts:
            assert (got.host_id, got.incarnation) == (
                self.hosts[name].host_id,
                self.hosts[name].incarnation + 1,
            )
        else:
            assert got.host_id == len(self.hosts) + 1
        self.hosts[name] = Host(got.host_id, got.incarnation, self.elapsed + SETTINGS.lease)

    @rule(name=NAMES)
    def attach_old_directory(self, name: str) -> None:
        """The host comes back with another directory: its homes get the next epoch."""
        known = self.hosts.get(name)
        if known is None or known.until is not None:
            return
        got = self._do(commands.Attach(name, f"directory {known.incarnation} of {name}", "h:1", "1"))
        self.hosts[name] = Host(got.host_id, got.incarnation, self.elapsed + SETTINGS.lease)
        self.directories[name] = got.instance
        for home in self.homes.values():
            home.epoch += home.host == name

    @rule(name=NAMES, stale=RARELY)
    def renew(self, name: str, stale: bool) -> None:
        if self._try(name, stale, commands.Renew) is not None:
            self.hosts[name].until = self.elapsed + SETTINGS.lease

    @rule(name=NAMES)
    def detach(self, name: str) -> None:
        if name in self.hosts and self.hosts[name].until is not None:
            self._do(commands.Detach(self._session(name, False)))
            self.hosts[name].until, self.hosts[name].away_since = None, float("-inf")
            self.versions.pop(name, None)

    @rule(name=NAMES, id=IDS, stale=RARELY)
    def ask_home(self, name: str, id: str, stale: bool) -> None:
        got: HomeEntry | None = self._try(name, stale, lambda s: commands.AskHome(s, GROUP, id))
        if got is None:
            return
        home = self.homes.get(id)
        if home is None:
            home = self.homes[id] = Home(name, self.floor + 1)
        else:
            owner = self.hosts[home.host]
            over = self.elapsed - (owner.away_since or 0.0) - SETTINGS.takeover
            if abs(over) < ROUNDING:  # both sum up floats, so either result is right
                over = float(got.epoch - home.epoch)
            if owner.until is None and over > 0:
                home.host, home.epoch = name, home.epoch + 1
        assert (got.host_id, got.epoch) == (self.hosts[home.host].host_id, home.epoch)
        assert got.epoch >= self.epochs.get(id, 0)
        self.epochs[id] = got.epoch

    @rule(
        name=st.none() | NAMES,
        id=IDS,
        epoch=st.sampled_from([0, 0, 0, -1, 1]),
        key=KEYS,
        value=st.none() | st.binary(max_size=3),
    )
    def write_home(self, name: str | None, id: str, epoch: int, key: bytes, value: bytes | None) -> None:
        """Writes as the home (None), or as a host that claims to be it."""
        if name is None and id not in self.homes:
            self.ask_home("a", id, False)
        home = self.homes.get(id)
        name = name or (home.host if home else "a")
        claimed = (home.epoch if home else 1) + epoch
        write = commands.HomeWrite(GROUP, id, claimed, ((key, value),))
        got = self._try(name, False, lambda s: commands.PutHomeState(s, (write,)))
        if got is None:
            return
        if home is None or home.host != name or epoch:
            assert 0 in got.refused
        elif value is None:
            home.items.pop(key, None)
        else:
            home.items[key] = value

    @rule(id=IDS, ticks=st.integers(3, 25), other=NAMES)
    def cut_off(self, id: str, ticks: int, other: str) -> None:
        """A home falls silent, another host asks for the home, and the old one comes back and writes."""
        home = self.homes.get(id)
        if home is None or home.host == other:
            return
        old, epoch = home.host, home.epoch
        self.come_back(other)
        self.one_is_silent(old, ticks)
        self.come_back(other)
        self.ask_home(other, id, False)
        self.come_back(old)
        write = commands.HomeWrite(GROUP, id, epoch, ((b"x", b"old"),))
        got = self._do(commands.PutHomeState(self._session(old, False), (write,)))
        assert (0 in got.refused) == (home.host != old)
        if not got.refused:
            home.items[b"x"] = b"old"

    @rule(id=IDS)
    def forget_home(self, id: str) -> None:
        home = self.homes.get(id)
        if home is None or self.hosts[home.host].until is None:
            return
        write = commands.HomeWrite(GROUP, id, home.epoch, forget=True)
        assert not self._do(commands.PutHomeState(self._session(home.host, False), (write,))).refused
        self.floor = max(self.floor, home.epoch)
        del self.homes[id]
        self.epochs[id] = home.epoch + 1

    @rule(name=NAMES, count=st.integers(1, 50))
    def producer_ids(self, name: str, count: int) -> None:
        got = self._try(name, False, lambda s: commands.TakeProducerIds(s, count))
        if got is not None:
            assert (got.first, got.count) == (self.given, count)
            self.given += count

    @rule(name=NAMES, topic=IDS)
    def allot_state(self, name: str, topic: str) -> None:
        got = self._try(name, False, lambda s: commands.AllotState(s, (topic,)))
        if got is not None:
            assert self.state_ids.setdefault(topic, got.state_id) == got.state_id
            assert len(set(self.state_ids.values())) == len(self.state_ids)
            assert FIRST_STATE_ID <= got.state_id <= LAST_STATE_ID

    @rule(name=NAMES, topic=IDS)
    def force_release(self, name: str, topic: str) -> None:
        if topic in self.state_ids:
            number = self.state_ids[topic]
            if self._try(name, False, lambda s: commands.ReleaseState(s, number, True)) is not None:
                del self.state_ids[topic]

    @rule(name=NAMES, version=st.integers(1, 5))
    def put_interest(self, name: str, version: int) -> None:
        got = self._try(name, False, lambda s: commands.PutInterest(s, version, (f"p{version}",)))
        if got is not None:
            newest = max(self.versions.get(name, (0, 0)), (self.hosts[name].incarnation, version))
            self.versions[name] = newest
            assert (got.incarnation, got.version) == newest

    @rule(name=st.sampled_from(["t", "u"]), partitions=st.integers(1, 4))
    def create_or_delete_topic(self, name: str, partitions: int) -> None:
        if self.state.topic(name) is not None:
            self._do(commands.DeleteTopic(name))
        elif any(host.until is not None for host in self.hosts.values()):
            topic = self._do(commands.CreateTopic(name, uuid.UUID(int=self.history.last), partitions))
            there = {host.host_id for host in self.hosts.values() if host.until is not None}
            assert {p.leader for p in topic.partitions} <= there

    @rule()
    def watch(self) -> None:
        """A watcher takes updates, or a snapshot if it is too far behind."""
        found = self.history.after(self.position, 300)
        if found is None:
            self.watched = {(c.kind, c.key): c for c in self.state.entries()}
            self.position = self.history.last
            return
        for revision in found:
            for change in map(decode_change, revision.changes):
                if change.entry is None:
                    self.watched.pop((change.kind, change.key))
                else:
                    self.watched[change.kind, change.key] = change
            self.position = revision.number
        if self.position == self.history.last:
            assert self.watched == {(c.kind, c.key): c for c in self.state.entries()}

    @rule()
    def kill(self) -> None:
        """Another coordinator starts with the files as they are."""
        self.runs += 1
        copy = Path(self.folder.name, f"{self.runs}.sqlite")
        for suffix in ("", "-wal"):
            file = Path(f"{self.path}{suffix}")
            if file.exists():
                shutil.copyfile(file, f"{copy}{suffix}")
        known, revision = set(map(encode_change, self.state.entries())), self.history.last
        abandoned = self.store
        self._open(copy)
        abandoned.close()
        assert set(map(encode_change, self.state.entries())) == known
        assert self.history.last == revision
        for host in self.hosts.values():  # leases and absences start over
            if host.until is not None:
                host.until = self.elapsed + SETTINGS.lease
            elif host.away_since != float("-inf"):
                host.away_since = self.elapsed

    @invariant()
    def holds(self) -> None:
        self.state.check_invariants()

    @precondition(lambda self: self.homes)
    @rule()
    def items(self) -> None:
        for id, home in self.homes.items():
            assert dict(self.store.items(f"g:{id}", b"", 1000)[0]) == home.items

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=60)
