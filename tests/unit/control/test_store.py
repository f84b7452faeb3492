"""One suite for both stores: what a store has to do, in a file and in PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from treecast.middleware.control.postgres import PostgresStore
from treecast.middleware.control.store import Commit, SqliteStore, Store, StoredChange
from treecast.middleware.control.values import ItemWrite
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.storage.settings import FsyncPolicy

CLUSTER = "c" * 22
Open = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store again and again; the one before has to be closed."""
    made: list[Store] = []
    names = map(str, itertools.count(1))
    url = request.getfixturevalue("database") if request.param == "postgresql" else ""

    def opened() -> Store:
        if url:
            made.append(leading(url, lambda: next(names)))
        else:
            path = tmp_path / "s"
            made.append(SqliteStore(path, lambda: next(names), cluster_id=CLUSTER, fsync=FsyncPolicy.BATCH))
        return made[-1]

    yield opened
    for store in made:
        store.close()


def leading(url: str, new_id: Callable[[], str]) -> PostgresStore:
    store = PostgresStore(url, new_id, cluster_id=CLUSTER)
    store.connect()
    assert store.lead(30)
    return store


def change(key: str, value: bytes | None = b"v", kind: int = 2) -> StoredChange:
    return StoredChange(kind, key, value if value is not None else b"gone", removed=value is None)


def items(store: Store, home: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    after, more = b"", True
    while more:
        page, more = store.items(home, after, 20)
        found.update(page)
        after = page[-1][0] if page else after
    return found


def test_a_new_store_is_empty_and_keeps_its_names(open_store: Open) -> None:
    store = open_store()
    loaded = store.load()
    assert (loaded.cluster_id, loaded.revision, loaded.entries, loaded.log) == (CLUSTER, 0, (), ())
    store.close()
    assert replace(open_store().load(), lineage=loaded.lineage) == loaded


def test_what_was_committed_is_there_after_a_new_start(open_store: Open) -> None:
    store = open_store()
    store.commit([Commit(1, (change("a", b"1"), change("b", b"2"))), Commit(2, (change("a", b"3"),))], 0)
    store.commit([Commit(3, (change("b", None), change("ä\0", b"4", kind=1)))], 2)
    store.close()
    loaded = open_store().load()
    assert loaded.entries == (b"4", b"3")  # by kind and key
    assert (loaded.revision, loaded.log) == (3, ((2, (b"3",)), (3, (b"gone", b"4"))))


def test_a_commit_is_whole_or_not_at_all(open_store: Open) -> None:
    store = open_store()
    good = Commit(1, (change("a"),))
    bad = Commit(1, good.changes, (ItemWrite("g:x", b"k", b"v"),))  # the revision is there already
    with pytest.raises(TreecastError):
        store.commit([good, bad], 0)
    assert (store.load().revision, store.load().entries, items(store, "g:x")) == (0, (), {})
    store.commit([good], 0)
    assert store.load().revision == 1


def test_a_commit_of_items_alone_has_no_revision(open_store: Open) -> None:
    store = open_store()
    store.commit([Commit(0, (), (ItemWrite("g:x", b"k", b"v"),))], 1)
    store.confirm()
    assert (store.load().revision, items(store, "g:x")) == (0, {b"k": b"v"})


def test_items_come_page_by_page_in_the_order_of_their_keys(open_store: Open) -> None:
    store = open_store()
    writes = tuple(ItemWrite("g:x", bytes([number]), bytes(9)) for number in (200, 3, 0, 90))
    store.commit([Commit(0, (), (*writes, ItemWrite("g:y", b"other", b"")))], 1)
    assert store.items("g:x", b"", 1) == ([(b"\0", bytes(9))], True)
    assert store.items("g:x", b"\0", 20) == ([(b"\3", bytes(9)), (b"\x5a", bytes(9))], True)
    assert store.items("g:x", b"\x5a", 20) == ([(b"\xc8", bytes(9))], False)
    assert store.items("g:x", b"\xc8", 20) == ([], False)


WRITES = st.lists(
    st.builds(
        ItemWrite,
        st.sampled_from(["g:a", "g:b", "t:\0ü"]),
        st.one_of(st.none(), st.binary(min_size=1, max_size=2)),
        st.one_of(st.none(), st.binary(max_size=3)),
    ),
    max_size=12,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(WRITES, max_size=3), max_size=3))
def test_items_are_as_if_written_one_after_the_other(
    open_store: Open, groups: list[list[list[ItemWrite]]]
) -> None:
    store = open_store()
    homes = ("g:a", "g:b", "t:\0ü")
    store.commit([Commit(0, (), tuple(ItemWrite(home, None, None) for home in homes))], 1)
    expected: dict[str, dict[bytes, bytes]] = {home: {} for home in homes}
    for group in groups:
        store.commit([Commit(0, (), tuple(writes)) for writes in group], 1)
        for write in (write for writes in group for write in writes):
            if write.key is None:
                expected[write.home].clear()
            elif write.value is None:
                expected[write.home].pop(write.key, None)
            else:
                expected[write.home][write.key] = write.value
    found = {home: items(store, home) for home in homes}
    store.close()
    assert found == expected
