"""A coordinator's store is rebuilt from what a host knows of the lost one."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from treecast.middleware.api.entries import (
    Counter,
    CounterEntry,
    HomeKind,
    Presence,
    decode_change,
    encode_change,
)
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.leads import UNKNOWN_END, read_ends
from treecast.middleware.control.restore import restored, write_store
from treecast.middleware.control.state import step
from treecast.middleware.control.store import SqliteStore
from treecast.middleware.control.values import StateSettings, ends_home
from treecast.middleware.model.errors import Fault, TreecastError


def told() -> list[bytes]:
    """Returns a host's view of a cluster of two hosts, with a topic, a home, and allotted producer ids."""
    state = ClusterState(StateSettings())
    state.pass_time(0.0)
    for name in ("a", "b"):
        host = step(state, commands.Attach(name, f"data of {name}", "h:1", "1", 3)).answer
    session = commands.Session(host.host_id, host.incarnation)
    step(state, commands.CreateTopic("t", uuid.UUID(int=1), 3))
    step(state, commands.AskHome(session, HomeKind.GROUP, "g"))
    step(state, commands.TakeProducerIds(session))
    return [encode_change(change) for change in state.entries()]


def opened(path: Path) -> ClusterState:
    store = SqliteStore(path, lambda: "a name", cluster_id="cluster")
    loaded = store.load()
    store.close()
    state = ClusterState(StateSettings())
    state.apply(decode_change(entry) for entry in loaded.entries)
    state.check_invariants()
    return state


def test_all_is_there_and_hosts_are_away_until_they_attach(tmp_path: Path) -> None:
    write_store(tmp_path / "store", "cluster", restored(told()))
    state = opened(tmp_path / "store")
    state.pass_time(0.0)
    assert [host.presence for host in state.hosts()] == [Presence.AWAY] * 2
    topic = state.topic("t")
    assert topic is not None
    assert len(topic.partitions) == 3
    assert state.home(HomeKind.GROUP, "g") is not None
    a = step(state, commands.Attach("a", "data of a", "h:1", "1", 4)).answer
    assert (a.host_id, a.incarnation, a.run) == (1, 2, 4)
    c = step(state, commands.Attach("c", "data of c", "h:1", "1", 1)).answer
    assert c.host_id == 3
    b = step(state, commands.Attach("b", "a new disk", "h:1", "1", 1)).answer
    waits = [entry.waits for entry in state.topic("t").partitions if entry.leader == b.host_id]  # type: ignore[union-attr]
    assert waits
    assert all(waits)


def test_what_was_given_out_is_not_given_again() -> None:
    found = {
        change.entry.name: change.entry.value
        for change in restored(told())
        if isinstance(change.entry, CounterEntry)
    }
    assert found[Counter.PRODUCER_ID] == 1000 + 1_000_000
    assert found[Counter.HOST_ID] == 2
    without = [one for one in told() if not isinstance(decode_change(one).entry, CounterEntry)]
    (host_id,) = [change.entry for change in restored(without) if isinstance(change.entry, CounterEntry)]
    assert host_id == CounterEntry(Counter.HOST_ID, 2)  # an older daemon has kept no counters


def test_a_store_that_is_there_is_left_alone(tmp_path: Path) -> None:
    write_store(tmp_path / "store", "cluster", restored(told()))
    with pytest.raises(TreecastError) as refused:
        write_store(tmp_path / "store", "cluster", [])
    assert refused.value.fault is Fault.STORAGE
    assert opened(tmp_path / "store").topic("t") is not None


def test_where_logs_end_is_unknown_until_their_leaders_tell_it(tmp_path: Path) -> None:
    write_store(tmp_path / "store", "cluster", restored(told()))
    store = SqliteStore(tmp_path / "store", lambda: "a name", cluster_id="cluster")
    try:
        items, more = store.items(ends_home(uuid.UUID(int=1)), b"", 1 << 20)
    finally:
        store.close()
    assert not more
    assert [(end.partition, end.leader_epoch, end.end) for end in read_ends(uuid.UUID(int=1), items)] == [
        (number, *UNKNOWN_END) for number in range(3)
    ]
