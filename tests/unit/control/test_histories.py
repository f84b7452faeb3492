"""Random histories of the state machine against a plain reference, with kills."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.control.test_state import GROUP, SETTINGS, fault_of

from treecast.middleware.api.entries import (
    Change,
    HomeEntry,
    decode_change,
    encode_change,
)
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.commands import Session
from treecast.middleware.control.history import History, Revision
from treecast.middleware.control.state import step
from treecast.middleware.control.store import Commit, SqliteStore, StoredChange
from treecast.middleware.control.values import FIRST_STATE_ID, LAST_STATE_ID
from treecast.middleware.model.errors import Fault
from treecast.middleware.storage.settings import FsyncPolicy


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
                home.host, home.epoch = name, max(home.epoch, self.floor) + 1
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
