"""The view: the effect of updates, its listeners, and its storage in the tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.api.entries import (
    Change,
    HomeEntry,
    HomeKind,
    HostEntry,
    InterestEntry,
    Kind,
    PartitionEntry,
    Position,
    Presence,
    StateEntry,
    TopicEntry,
    Update,
    heard_change,
)
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.relay.view_store import ViewStore
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables


def topic(name: str, *leaders: int, number: int = 1, **config: str) -> Change:
    entry = TopicEntry(
        name, uuid.UUID(int=number), tuple(PartitionEntry(host, 0) for host in leaders), config
    )
    return Change(Kind.TOPIC, name, entry)


def host(host_id: int, presence: Presence = Presence.ATTACHED) -> Change:
    name = f"h{host_id}"
    return Change(Kind.HOST, name, HostEntry(host_id, name, "i", f"10.0.0.{host_id}:7672", "1", 1, presence))


def update(revision: int, *changes: Change, snapshot: bool = False, history: str = "x") -> Update:
    return Update(snapshot, Position(history, revision), changes)


def test_look_ups() -> None:
    view = ClusterView()
    state = StateEntry(256, ("a", "b"), (1,))
    view.apply(
        update(
            7,
            host(1),
            topic("t", 1, 2),
            Change(Kind.HOME, "g:g", HomeEntry(HomeKind.GROUP, "g", 2, 5)),
            Change(Kind.HOME, "t:g", HomeEntry(HomeKind.TRANSACTION, "g", 1, 6)),
            Change(Kind.STATE, "256", state),
            Change(Kind.INTEREST, "1", InterestEntry(1, 1, 3, ("a.*",))),
            Change(Kind.COUNTER, "host-id", None),
            snapshot=True,
        )
    )
    view.check_invariants()
    assert view.position == Position("x", 7)
    assert (view.host(1), view.host(2)) == (view.host_named("h1"), None)
    assert view.topic_by_id(uuid.UUID(int=1)) == view.topic("t")
    assert [view.leader("t", index) for index in (0, 1, 2, -1)] == [
        PartitionEntry(1, 0),
        PartitionEntry(2, 0),
        None,
        None,
    ]
    assert view.leader("u", 0) is None
    assert view.group_home("g").epoch == 5
    assert view.transaction_home("g").epoch == 6
    assert view.state_of(("a", "b")) == state
    assert view.interest_of(1).patterns == ("a.*",)


def test_listeners_hear_of_each_change_when_all_of_it_is_in_place() -> None:
    view = ClusterView()
    heard: list[tuple[str | None, str | None, int]] = []

    def listen(before: TopicEntry | None, after: TopicEntry | None) -> None:
        names = [entry.name if entry is not None else None for entry in (before, after)]
        heard.append((names[0], names[1], len(view.topics)))

    view.topics.subscribe(listen)
    view.apply(update(1, topic("t", 1), topic("u", 1, number=2), snapshot=True))
    assert heard == [(None, "t", 2), (None, "u", 2)]
    heard.clear()
    view.apply(update(2, topic("t", 1)))  # nothing has changed
    assert heard == []
    view.apply(update(3, topic("t", 1, 1), Change(Kind.TOPIC, "u", None)))
    assert heard == [("t", "t", 1), ("u", None, 1)]
    view.check_invariants()


def test_a_snapshot_takes_the_place_of_what_was_known() -> None:
    view = ClusterView()
    view.apply(update(5, topic("t", 1), host(1), snapshot=True))
    gone: list[tuple[str, bool]] = []
    view.topics.subscribe(lambda before, after: after or gone.append((before.name, view.doubtful)))
    view.apply(update(9, host(1), snapshot=True))
    assert gone == [("t", False)]  # same history: it was deleted
    view.apply(update(10, topic("v", 1)))
    gone.clear()
    view.apply(update(2, host(1), snapshot=True, history="y"))
    assert gone == [("v", True)]  # another history: it may only be forgotten
    view.check_invariants()


def test_a_name_that_is_used_again_and_a_host_that_moves() -> None:
    view = ClusterView()
    view.apply(update(1, topic("t", 1), snapshot=True))
    heard: list[tuple[int | None, int | None]] = []
    view.topics.subscribe(
        lambda before, after: heard.append((before and before.topic_id.int, after and after.topic_id.int))
    )
    view.apply(update(3, Change(Kind.TOPIC, "t", None), topic("t", 1, number=9)))
    assert heard == [(1, None), (None, 9)]
    assert view.topic_by_id(uuid.UUID(int=1)) is None
    assert view.topic_by_id(uuid.UUID(int=9)).name == "t"
    view.check_invariants()


CHANGES = st.one_of(
    st.builds(topic, st.sampled_from("tuv"), st.integers(1, 3), number=st.integers(1, 9)),
    st.builds(lambda name: Change(Kind.TOPIC, name, None), st.sampled_from("tuv")),
    st.builds(host, st.integers(1, 3), st.sampled_from(list(Presence))),
)


@given(st.lists(st.tuples(st.booleans(), st.lists(CHANGES, max_size=4)), max_size=8))
def test_listeners_can_follow_what_the_view_says(updates: list[tuple[bool, list[Change]]]) -> None:
    view, mirror = ClusterView(), {}

    def listen(before: TopicEntry | None, after: TopicEntry | None) -> None:
        name = (after or before).name
        assert mirror.get(name) == before
        mirror.pop(name, None)
        if after is not None:
            mirror[name] = after

    view.topics.subscribe(listen)
    for revision, (snapshot, changes) in enumerate(updates, 1):
        ids = [change.entry.topic_id for change in changes if isinstance(change.entry, TopicEntry)]
        held = {entry.topic_id for entry in view.topics}
        if len(set(ids)) < len(ids) or held & set(ids):
            continue  # the coordinator never reuses an id
        view.apply(update(revision, *changes, snapshot=snapshot))
        view_topics = {entry.name: entry for entry in view.topics}
        assert mirror == view_topics
        assert {entry.topic_id for entry in view.topics} == {
            entry.topic_id for entry in view_topics.values() if view.topic_by_id(entry.topic_id) == entry
        }


# --- storage in the tables


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    made = Tables(tmp_path / "tables", FsyncPolicy.NEVER)
    yield made
    made.close()


def gone(name: str) -> Change:
    return Change(Kind.TOPIC, name, None)


def names(tables: Tables) -> tuple[list[str], Position]:
    known = ViewStore(tables).load()
    assert known is not None
    assert known.snapshot
    return sorted(change.key for change in known.changes), known.position


async def test_what_is_kept_is_what_was_told(tables: Tables) -> None:
    store = ViewStore(tables)
    assert store.load() is None
    await store.save(
        Update(
            True,
            Position("x", 3),
            (
                topic("t", 1),
                topic("u", 2),
            ),
        )
    )
    assert names(tables) == (["t", "u"], Position("x", 3))
    await store.save(
        Update(
            False,
            Position("x", 5),
            (
                gone("t"),
                topic("v", 1),
            ),
        )
    )
    assert names(tables) == (["u", "v"], Position("x", 5))
    later = ViewStore(tables)
    later.load()
    await later.save(Update(True, Position("y", 1), (topic("w", 1),)))
    assert names(tables) == (["w"], Position("y", 1))


async def test_what_the_disk_refuses_is_kept_with_the_next(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ViewStore(tables)
    await store.save(
        Update(
            True,
            Position("x", 1),
            (
                topic("t", 1),
                topic("u", 1),
            ),
        )
    )

    async def refuse(changes: object) -> None:
        raise TreecastError(Fault.STORAGE, "full")

    with monkeypatch.context() as patched:
        patched.setattr(tables, "commit", refuse)
        await store.save(
            Update(
                False,
                Position("x", 2),
                (
                    gone("t"),
                    topic("v", 1),
                ),
            )
        )
    assert names(tables) == (["t", "u"], Position("x", 1))
    await store.save(Update(False, Position("x", 3), (topic("w", 1),)))
    assert names(tables) == (["u", "v", "w"], Position("x", 3))


@pytest.mark.parametrize(
    "change",
    [
        pb.EntryChange(kind=pb.ENTRY_KIND_TOPIC, key="t", topic=pb.TopicEntry(name="t", topic_id=b"x")),
        pb.EntryChange(kind=pb.ENTRY_KIND_HOST, key="h", host=pb.HostEntry(name="h")),
        pb.EntryChange(kind=pb.ENTRY_KIND_HOME, key="g:g", home=pb.HomeEntry(id="g")),
        pb.EntryChange(key="?"),
    ],
)
def test_nonsense_is_refused(change: pb.EntryChange) -> None:
    with pytest.raises(TreecastError, match="sent an invalid entry") as refused:
        heard_change(change)
    assert refused.value.fault is Fault.INTERNAL
