"""The coordinator between loop and disk: group commits, a failing disk, kills, and the store by itself."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.api.entries import (
    Counter,
    CounterEntry,
    HomeEntry,
    HomeKind,
    HostEntry,
    InterestEntry,
    Kind,
    PartitionEntry,
    Presence,
    StateEntry,
    TopicEntry,
    decode_change,
    encode_change,
    put,
)
from treecast.middleware.control import commands
from treecast.middleware.control import store as store_module
from treecast.middleware.control.commands import Session
from treecast.middleware.control.coordinator import Coordinator
from treecast.middleware.control.history import History, Revision
from treecast.middleware.control.store import Commit, Loaded, SqliteStore, StoredChange
from treecast.middleware.control.stored_state import CoordinatorSettings
from treecast.middleware.control.values import ItemWrite
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.settings import FsyncPolicy


class Disk(SqliteStore):
    """A store whose disk can be made to fail; it counts transactions."""

    refuses: Exception | None = None
    transactions = 0

    def commit(self, commits: Sequence[Commit], trim: int) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.transactions += 1
        super().commit(commits, trim)


def open_store(path: Path) -> Disk:
    return Disk(path, lambda: uuid.uuid4().hex, fsync=FsyncPolicy.BATCH)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return open_store(tmp_path / "c.sqlite")


@pytest.fixture
async def coordinator(disk: Disk) -> AsyncIterator[Coordinator]:
    made = Coordinator(disk, CoordinatorSettings(), lambda: 0.0)
    yield made
    await made.close()


def attach(name: str) -> commands.Attach:
    return commands.Attach(name, "i", "h:1", "1")


async def test_commands_that_wait_together_are_written_together(coordinator: Coordinator, disk: Disk) -> None:
    hosts = await asyncio.gather(*(coordinator.do(attach(f"h{n}")) for n in range(50)))
    assert [host.host_id for host in hosts] == list(range(1, 51))
    assert (coordinator.stored.revision, disk.transactions) == (50, 1)


async def test_one_bad_command_refuses_nobody_else(coordinator: Coordinator) -> None:
    answers = await asyncio.gather(
        coordinator.do(attach("a")),
        coordinator.do(attach("!")),
        coordinator.do(commands.TakeProducerIds(Session(1, 1), 10)),
        coordinator.do(commands.Renew(Session(1, 2))),
        return_exceptions=True,
    )
    assert [isinstance(answer, TreecastError) for answer in answers] == [False, True, False, True]
    assert coordinator.stored.revision == 2


@pytest.mark.parametrize("error", [TreecastError(Fault.STORAGE, "disk full"), ValueError("surprise")])
async def test_a_disk_that_refuses_is_as_if_nothing_was_asked(
    coordinator: Coordinator, disk: Disk, error: Exception
) -> None:
    host = await coordinator.do(attach("a"))
    session = Session(host.host_id, host.incarnation)
    before = list(coordinator.stored.state.entries())
    disk.refuses = error
    answers = await asyncio.gather(
        coordinator.do(attach("b")),
        coordinator.do(commands.TakeProducerIds(session, 10)),
        return_exceptions=True,
    )
    assert [getattr(answer, "fault", None) for answer in answers] == [Fault.STORAGE] * 2
    assert (list(coordinator.stored.state.entries()), coordinator.stored.revision) == (before, 1)
    disk.refuses = None
    assert (await coordinator.do(commands.TakeProducerIds(session, 10))).first == 0
    assert (await coordinator.do(attach("b"))).host_id == 2


@pytest.mark.parametrize("error", [TreecastError(Fault.STORAGE, "no answer"), ValueError("surprise")])
async def test_a_store_that_could_not_be_read_for_a_moment_is_read_again(
    coordinator: Coordinator, disk: Disk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await coordinator.do(attach("a"))
    before = list(coordinator.stored.state.entries())

    def refuse() -> Loaded:
        raise error

    monkeypatch.setattr("treecast.middleware.control.coordinator._READ_AGAIN", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "load", refuse)
        disk.refuses = TreecastError(Fault.STORAGE, "disk full")
        with pytest.raises(TreecastError, match="disk full"):
            await coordinator.do(attach("b"))
        disk.refuses = None
        waits = asyncio.ensure_future(coordinator.do(attach("c")))
        assert not (await asyncio.wait([waits], timeout=0.1))[0]  # not decided on what the disk lacks
    host = await asyncio.wait_for(waits, 10)
    assert (host.host_id, coordinator.stored.revision) == (2, 2)
    assert [change for change in coordinator.stored.state.entries() if change in before]


async def test_a_store_that_cannot_be_read_does_not_keep_a_coordinator_from_closing(tmp_path: Path) -> None:
    disk = open_store(tmp_path / "other.sqlite")
    coordinator = Coordinator(disk, CoordinatorSettings(), lambda: 0.0)

    def refuse() -> Loaded:
        raise TreecastError(Fault.STORAGE, "no answer")

    disk.load = refuse  # type: ignore[method-assign]
    disk.refuses = TreecastError(Fault.STORAGE, "disk full")
    with pytest.raises(TreecastError, match="disk full"):
        await coordinator.do(attach("b"))
    waits = asyncio.ensure_future(coordinator.do(attach("c")))
    await asyncio.sleep(0)
    await asyncio.wait_for(coordinator.close(), 10)
    with pytest.raises(TreecastError):
        await waits


async def test_nothing_is_decided_on_what_the_store_refused_while_a_coordinator_closes(
    tmp_path: Path,
) -> None:
    disk = open_store(tmp_path / "other.sqlite")
    coordinator = Coordinator(disk, CoordinatorSettings(), lambda: 0.0)

    def refuse() -> Loaded:
        raise TreecastError(Fault.STORAGE, "no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "load", refuse)
        disk.refuses = TreecastError(Fault.STORAGE, "disk full")
        with pytest.raises(TreecastError, match="disk full"):
            await coordinator.do(attach("b"))
        disk.refuses = None
        waits = asyncio.ensure_future(coordinator.do(attach("c")))
        seen = asyncio.ensure_future(coordinator.snapshot())
        await asyncio.sleep(0)
        await asyncio.wait_for(coordinator.close(), 10)
        for asked in (waits, seen):
            with pytest.raises(TreecastError, match="closing"):
                await asked
    again = open_store(tmp_path / "other.sqlite")
    assert again.load().revision == 0
    again.close()


async def test_a_snapshot_is_never_ahead_of_the_disk(coordinator: Coordinator) -> None:
    pending = [asyncio.ensure_future(coordinator.do(attach(f"h{n}"))) for n in range(10)]
    await asyncio.sleep(0)
    first, second = await asyncio.gather(coordinator.snapshot(), coordinator.snapshot())
    assert first is second
    assert first.revision == coordinator.stored.revision == 10
    assert len(first.changes) == 11  # 10 changes and the counter of host ids
    await asyncio.gather(*pending)
    await coordinator.do(attach("later"))
    assert (await coordinator.snapshot()).revision == 11


async def test_a_caller_that_goes_away_hurts_nobody(coordinator: Coordinator) -> None:
    gone = asyncio.ensure_future(coordinator.do(attach("a")))
    stays = asyncio.ensure_future(coordinator.do(attach("b")))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays).host_id == 2


async def test_too_many_waiting_are_refused(disk: Disk) -> None:
    coordinator = Coordinator(disk, CoordinatorSettings(queue=2), lambda: 0.0)
    answers = await asyncio.gather(
        *(coordinator.do(attach(f"h{n}")) for n in range(4)), return_exceptions=True
    )
    assert [getattr(answer, "fault", None) for answer in answers][2:] == [Fault.COORDINATOR_UNAVAILABLE] * 2
    await coordinator.close()
    with pytest.raises(TreecastError, match="closing"):
        await coordinator.do(attach("late"))


async def test_after_a_kill_everything_acknowledged_is_there(disk: Disk, tmp_path: Path) -> None:
    coordinator = Coordinator(disk, CoordinatorSettings(), lambda: 0.0)
    for name in ("a", "b"):
        await coordinator.do(attach(name))
    await coordinator.do(commands.CreateTopic("t", uuid.UUID(int=5), 3, {"retention.ms": "1"}))
    session = Session(1, 1)
    await coordinator.do(commands.AskHome(session, HomeKind.GROUP, "g"))
    write = commands.HomeWrite(HomeKind.GROUP, "g", 1, ((b"k", b"v"),))
    await coordinator.do(commands.PutHomeState(session, (write,)))
    for suffix in ("", "-wal"):
        shutil.copyfile(tmp_path / f"c.sqlite{suffix}", tmp_path / f"d.sqlite{suffix}")
    later = Coordinator(open_store(tmp_path / "d.sqlite"), CoordinatorSettings(), lambda: 0.0)
    assert list(later.stored.state.entries()) == list(coordinator.stored.state.entries())
    assert (later.stored.revision, later.stored.history_id) == (
        coordinator.stored.revision,
        coordinator.stored.history_id,
    )
    assert len(later.stored.after(coordinator.stored.history_id, 0, 10**6) or ()) == later.stored.revision
    assert await later.home_items("g:g", b"", 100) == ([(b"k", b"v")], False)
    for each in (coordinator, later):
        await each.close()


def test_a_store_of_another_format_or_no_store_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(TreecastError, match="not a database"):
        open_store(path)
    store = open_store(tmp_path / "y")
    store._put_meta({"format": "2"})
    store.close()
    with pytest.raises(TreecastError, match="format 2"):
        open_store(tmp_path / "y")


def test_a_commit_is_whole_or_not_at_all(disk: Disk) -> None:
    entry = put(CounterEntry(Counter.HOST_ID, 1))
    good = Commit(1, (StoredChange(entry.kind, entry.key, encode_change(entry), False),), ())
    bad = Commit(1, good.changes, (ItemWrite("g:x", b"k", b"v"),))  # this revision exists already
    with pytest.raises(TreecastError):
        disk.commit([good, bad], 0)
    assert (disk.load().revision, disk.load().entries, disk.items("g:x", b"", 9)) == (0, (), ([], False))
    disk.close()


@pytest.mark.parametrize(
    ("closed", "same_boot", "goes_on"),
    [(True, True, True), (True, False, True), (False, True, True), (False, False, False)],
)
def test_a_history_ends_only_where_power_may_have_been_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool, same_boot: bool, goes_on: bool
) -> None:
    """Without an fsync for each commit, only a power loss may have cut off the end of the file."""
    ids, boots = iter("ab"), iter(("boot 1", "boot 1" if same_boot else "boot 2"))
    histories = []
    for _ in range(2):
        boot = next(boots)
        monkeypatch.setattr(store_module, "_boot", lambda boot=boot: boot)
        store = SqliteStore(tmp_path / "s", lambda: next(ids), cluster_id="k", fsync=FsyncPolicy.INTERVAL)
        histories.append(store.load().history)
        if closed:
            store.close()
        else:
            store._database.close()
    assert (histories == ["a", "a"]) is goes_on


TEXT = st.text(max_size=20)
NUMBER = st.integers(0, 2**31 - 1)
ENTRIES = st.one_of(
    st.builds(HostEntry, NUMBER, TEXT, TEXT, TEXT, TEXT, NUMBER, st.sampled_from(list(Presence)[1:])),
    st.builds(
        TopicEntry,
        TEXT,
        st.uuids(),
        st.lists(st.builds(PartitionEntry, NUMBER, NUMBER)).map(tuple),
        st.dictionaries(TEXT, TEXT),
    ),
    st.builds(HomeEntry, st.sampled_from(HomeKind), TEXT, NUMBER, st.integers(0, 2**64 - 1)),
    st.builds(StateEntry, NUMBER, st.lists(TEXT).map(tuple), st.lists(NUMBER).map(tuple)),
    st.builds(InterestEntry, NUMBER, NUMBER, NUMBER, st.lists(TEXT).map(tuple)),
    st.builds(CounterEntry, st.sampled_from(Counter), st.integers(0, 2**63)),
)


@given(ENTRIES)
def test_entries_go_round(entry: HostEntry) -> None:
    assert decode_change(encode_change(put(entry))) == put(entry)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_entry_are_told(data: bytes) -> None:
    with contextlib.suppress(TreecastError):
        assert decode_change(data).kind in Kind


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 10), st.integers(10, 100), st.data())
def test_history_gives_what_follows_or_nothing(
    sizes: list[int], revisions: int, size: int, data: st.DataObject
) -> None:
    made = [Revision(number + 1, (bytes(length),)) for number, length in enumerate(sizes)]
    history = History(0, [], revisions, size)
    for revision in made:
        history.add(revision)
    kept = made[history.first - 1 :]
    assert len(kept) <= revisions
    assert sum(revision.size for revision in kept) <= size
    after = data.draw(st.integers(-1, len(made) + 2))
    found = history.after(after, 20)
    if history.first - 1 <= after <= len(made):
        assert found == made[after : after + len(found or ())]
        assert bool(found) == (after < len(made))
        assert found is not None
        assert len(found) <= 1 or sum(revision.size for revision in found) <= 20
    else:
        assert found is None
