"""A coordinator whose store was restored from a copy: it notices, and takes back what a host knows."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import shutil
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.coordinator_calls import ViewWanted
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import Position, Update, encode_change
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control import stored_state
from treecast.middleware.control.coordinator import Coordinator
from treecast.middleware.control.handed_views import HandedViews
from treecast.middleware.control.hearing import COMING_SECONDS, HAND_IN_SECONDS, Hearing
from treecast.middleware.control.lineage import producer_floor
from treecast.middleware.control.restore import restored, write_store
from treecast.middleware.control.server import LocalCoordinator, OpenCoordinator, ServerSettings
from treecast.middleware.control.stored_state import CoordinatorSettings
from treecast.middleware.control.values import StateSettings
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.coordinator_link import CoordinatorLink
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.storage.settings import FsyncPolicy

LONG = 60.0  # no test waits for it


class Site:
    """A coordinator in this process with its store's file, and hosts with their links to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: OpenCoordinator
        self.hosts: dict[str, Host] = {}

    @property
    def coordinator(self) -> Coordinator:
        return self.opened.coordinator

    def start(self, hearing: float = LONG) -> None:
        state = StateSettings(lease=LONG, hearing=hearing)
        settings = ServerSettings(
            Address("127.0.0.1", 0),
            self.path / "store",
            None,
            coordinator=CoordinatorSettings(state),
            fsync=FsyncPolicy.NEVER,
        )
        self.opened = OpenCoordinator(settings, time.monotonic)
        for host in self.hosts.values():
            host.client.use(self.opened)

    async def stop(self) -> None:
        await self.opened.close()

    def copy(self, name: str = "copy") -> None:
        """Copies the store of a coordinator that is stopped."""
        (self.path / name).mkdir()
        for path in self.path.glob("store*"):
            shutil.copy(path, self.path / name / path.name)

    def restore(self, name: str = "copy") -> None:
        for path in self.path.glob("store*"):
            path.unlink()
        for path in (self.path / name).iterdir():
            shutil.copy(path, self.path / path.name)

    async def copied(self, name: str = "copy") -> None:
        """Copies the store between two runs of the coordinator."""
        await self.stop()
        self.copy(name)
        self.start()

    async def host(self, name: str) -> Host:
        made = self.hosts[name] = Host(self, name)
        await made.attachment.attach()
        await made.see()
        return made

    async def topic(self, name: str) -> uuid.UUID:
        answer = await self.opened.service.create_topic(pb.CreateTopicEntryRequest(name=name, partitions=1))
        return uuid.UUID(bytes=answer.topic.topic_id)


class Switched(LocalCoordinator):
    """Calls of whichever coordinator runs."""

    def use(self, opened: OpenCoordinator) -> None:
        self._service = opened.service


class Host:
    """A host: its view, and its calls."""

    def __init__(self, site: Site, name: str) -> None:
        self.name = name
        self.client = Switched(site.opened, random.Random(1))
        request = pb.AttachRequest(name=name, instance=f"data of {name}", address="h:1", version="1", run=1)
        self.attachment = Attachment(self.client, request)
        self.view = ClusterView()
        self.link = CoordinatorLink(self.client, self.attachment, self.view, RelayCounters())

    async def see(self) -> None:
        """Takes one update, as a watcher does."""
        async with aclosing(self.client._watch_once(self.view.position, self.attachment.watching)) as updates:
            update = await anext(updates)
        self.view.apply(update)

    async def renew(self) -> None:
        await self.client.renew(self.attachment.session)

    async def hand_in(self) -> None:
        with pytest.raises(ViewWanted) as wanted:
            await self.renew()
        await self.link._hand_in(wanted.value)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    made.start()
    yield made
    await made.stop()


async def lost(site: Site) -> tuple[Host, Host]:
    """Loses what came after a copy, and b knows: a topic, a home, a host and a state id."""
    a, b = await site.host("a"), await site.host("b")
    await site.topic("old")
    await a.see()
    await b.see()
    await site.copied()
    await a.renew()
    await b.renew()
    await site.topic("new")
    await b.client.group_home(b.attachment.session, "g")
    await b.client.allot_state(b.attachment.session, ["x"])
    c = await site.host("c")
    del site.hosts["c"], c
    await b.see()
    await site.stop()
    site.restore()
    site.start()
    return a, b


async def test_what_a_host_knows_comes_back(site: Site) -> None:
    a, b = await lost(site)
    history, known = site.coordinator.stored.history_id, {encode_change(one) for one in b.view.entries()}
    await a.renew()
    assert site.coordinator.stored.state.topic("new") is None
    await b.hand_in()
    assert site.coordinator.stored.history_id != history
    assert site.coordinator.stored.revision > b.view.position.revision
    await b.renew()  # under its session of before
    await b.see()
    found = {encode_change(one) for one in b.view.entries()}
    kinds = (b"\x08\x02", b"\x08\x03", b"\x08\x04")  # topics, homes, state ids
    assert {one for one in known - found if one.startswith(kinds)} == set()
    assert site.coordinator.older.problems() == []
    assert site.coordinator.older.adopted == b.link._counters.views_handed_in == 1
    d = await site.host("d")
    assert d.attachment.session.host_id == 4


async def test_a_host_that_knows_more_is_told_nothing_before_its_view_is_adopted(site: Site) -> None:
    """A snapshot of the older state would take topics, homes and ids from it."""
    _, b = await lost(site)
    before = b.view.position
    writes = [pb.HomeWrite(kind=pb.HOME_KIND_GROUP, id="g", epoch=1)]
    session = b.attachment.session
    for call in (
        b.see,
        lambda: b.client.put_home_state(session, writes),
        lambda: b.client.allot_state(session, ["y"]),
        lambda: b.client.put_interest(session, 1, ["y"]),
    ):
        with pytest.raises(TreecastError, match="older state") as refused:
            await call()
        assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
    with pytest.raises(ViewWanted):
        await b.attachment.attach()
    assert b.view.position == before
    (problem,) = site.coordinator.older.problems()
    assert "host b has revision" in problem
    status = await b.client.status()
    assert list(status.missing) == list(status.problems) == [problem]


async def test_nothing_is_given_out_before_all_hosts_were_heard(site: Site) -> None:
    a, b = await lost(site)
    session = a.attachment.session
    calls = [
        asyncio.ensure_future(site.topic("new")),
        asyncio.ensure_future(a.client.group_home(session, "g")),
        asyncio.ensure_future(a.client.allot_state(session, ["y"])),
        asyncio.ensure_future(site.host("e")),
    ]
    assert len(await a.client.producer_ids(session)) == 1000  # which are above all of before
    await a.renew()
    await asyncio.sleep(0.05)
    assert not any(call.done() for call in calls)
    await b.hand_in()
    await b.renew()
    topic, home, state, host = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(topic, TreecastError)
    assert topic.fault is Fault.TOPIC_EXISTS
    assert (home.host_id, home.epoch) == (2, 1)  # type: ignore[union-attr]
    assert state.state_id == 257  # type: ignore[union-attr]
    assert host.attachment.session.host_id == 4  # type: ignore[union-attr]


async def test_a_host_that_is_gone_is_waited_for_only_for_a_while(site: Site) -> None:
    await lost(site)
    await site.stop()
    site.restore()
    site.start(hearing=0.01)
    await site.topic("another")
    d = site.hosts["d"] = Host(site, "d")
    await d.attachment.attach()
    assert d.attachment.session.host_id > 3, "an id that the lost state may have given out is left out"


async def test_a_host_that_comes_late_brings_what_it_knows(site: Site) -> None:
    """Meanwhile the store went on, and counted the same revisions again."""
    a, b = await lost(site)
    await site.stop()
    site.start(hearing=0.01)
    for name in ("one", "two", "three", "four", "five", "six", "seven", "new"):
        await site.topic(name)
    assert site.coordinator.stored.revision > b.view.position.revision
    await a.renew()
    await b.hand_in()
    state = site.coordinator.stored.state
    assert {topic.name for topic in state.topics()} == {
        *("old", "one", "two", "three", "four", "five", "six", "seven", "new")
    }
    assert state.host("c") is not None
    (missing,) = site.coordinator.older.problems()
    assert missing.startswith("topic new: another topic of this name was created since")


async def test_a_later_view_of_the_same_history_is_adopted_as_well(site: Site) -> None:
    a, b = await lost(site)
    later = Host(site, "a")
    later.view.apply(replaced(b, site, a.view.position.revision))
    later.attachment._session = a.attachment._session
    await later.hand_in()  # it knows less than b, and more than the store
    assert site.coordinator.stored.state.topic("new") is None
    await b.hand_in()
    assert site.coordinator.stored.state.topic("new") is not None
    await later.renew()
    assert site.coordinator.older.adopted == 2


def replaced(b: Host, site: Site, revision: int) -> Update:
    """Returns the view of b without its topic, one revision after the copy."""
    entries = [one for one in b.view.entries() if one.key != "new"]
    at = b.view.position
    assert revision + 1 < at.revision
    return Update(True, Position(at.history, site.coordinator.stored.revision + 1, at.epoch), tuple(entries))


async def test_one_host_at_a_time_hands_in_its_view(site: Site) -> None:
    _, b = await lost(site)
    c = Host(site, "c")
    c.view.apply(replaced(b, site, 1))
    with pytest.raises(ViewWanted):
        await b.renew()
    with pytest.raises(TreecastError, match="another host's view"):
        await c.attachment.attach()
    await b.hand_in()
    await c.attachment.attach()


async def test_nothing_is_given_out_while_a_host_goes_on_to_know_more(site: Site) -> None:
    """A home that was given out then would take what the host holds."""
    a, b = await lost(site)
    await site.stop()
    site.start(hearing=0.05)

    async def insist() -> None:
        while True:
            with contextlib.suppress(TreecastError):
                await b.renew()
            await asyncio.sleep(0.01)

    insisting = asyncio.ensure_future(insist())
    await a.renew()
    await asyncio.sleep(0.02)
    with pytest.raises(TreecastError, match="host b has revision") as refused:
        await a.client.group_home(a.attachment.session, "g")
    assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
    insisting.cancel()
    await asyncio.gather(insisting, return_exceptions=True)
    await b.hand_in()
    assert (await a.client.group_home(a.attachment.session, "g")).host_id == 2


async def test_a_host_that_the_store_does_not_know_hands_in_its_view(site: Site) -> None:
    """It has a session of the lost state, with an id that the store has not given out."""
    await lost(site)
    c = Host(site, "c")
    c.view.apply(Update(True, site.hosts["b"].view.position, tuple(site.hosts["b"].view.entries())))
    c.attachment._session = pb.HostSession(host_id=3, incarnation=1)
    await c.hand_in()
    assert site.coordinator.stored.state.topic("new") is not None


async def test_a_restart_after_the_copy_was_noticed_goes_on(site: Site) -> None:
    _, b = await lost(site)
    with pytest.raises(ViewWanted):
        await b.renew()
    await site.stop()
    site.start()
    await b.hand_in()
    await b.renew()
    assert site.coordinator.stored.state.topic("new") is not None
    await site.stop()
    site.start()
    await b.renew()
    await b.see()


async def test_a_cluster_of_one_waits_for_nobody(site: Site) -> None:
    await site.host("a")
    await site.stop()
    site.start()
    a = site.hosts["a"]
    await a.attachment.attach()
    async with asyncio.timeout(LONG / 2):
        await site.topic("t")


async def test_a_view_of_another_history_is_not_wanted(site: Site) -> None:
    a = await site.host("a")
    a.client.position = lambda: Position("of another store", 10**6, 5)
    await a.renew()
    assert site.coordinator.older.problems() == []


async def test_the_epoch_rises_above_what_hosts_have_heard_of(site: Site) -> None:
    """As after a clock that went back. A view that was told in the higher epoch is not lost then."""
    a = await site.host("a")
    a.client.epoch = site.coordinator.stored.epoch + 1000
    await a.renew()
    assert site.coordinator.stored.epoch == a.client.epoch + 1
    await site.topic("t")
    await a.see()
    assert a.view.position.epoch == site.coordinator.stored.epoch
    await site.stop()
    site.start()
    await a.renew()
    assert site.coordinator.stored.epoch > a.view.position.epoch


async def test_producer_ids_are_above_all_of_earlier_starts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has told the restored store of the lost ids, and still it repeats none."""
    days = itertools.count(2_000_000_000, 86_400)
    monkeypatch.setattr(stored_state, "producer_floor", lambda now: producer_floor(next(days)))
    a = await site.host("a")
    given = await a.client.producer_ids(a.attachment.session)
    await site.copied()
    later = await a.client.producer_ids(a.attachment.session)
    await site.stop()
    site.restore()
    site.start()
    again = await a.client.producer_ids(a.attachment.session)
    assert given.stop <= later.start < later.stop <= again.start


async def test_what_a_power_loss_took_comes_back(site: Site) -> None:
    """The history has another name after such a start; a host with later revisions of the first is heard."""
    _, b = await lost(site)
    history = site.coordinator.stored.history_id
    await site.stop()
    with closing(sqlite3.connect(site.path / "store")) as store, store:
        store.executemany("UPDATE meta SET value = ? WHERE name = ?", [("0", "closed"), ("?", "boot")])
    site.start()
    assert site.coordinator.stored.history_id != history
    await b.hand_in()
    assert site.coordinator.stored.state.topic("new") is not None


async def test_a_store_rebuilt_from_one_host_takes_what_another_knows_more(site: Site) -> None:
    a, b = await lost(site)
    await site.stop()
    for path in site.path.glob("store*"):
        path.unlink()
    told = [encode_change(change) for change in a.view.entries()]
    cluster = site.coordinator.stored.cluster_id
    write_store(site.path / "store", cluster, restored(told), a.view.position)
    site.start()
    await a.attachment.attach()  # it knows nothing more than the store
    await site.topic("since")
    with pytest.raises(ViewWanted):
        await b.attachment.attach()
    await b.hand_in()
    names = {topic.name for topic in site.coordinator.stored.state.topics()}
    assert names == {"old", "new", "since"}


async def test_pages_of_a_view() -> None:
    views, at = HandedViews(), Position("h", 9, 1)
    entry = pb.EntryChange(kind=pb.ENTRY_KIND_COUNTER, key="host-id", counter={"name": "host-id", "value": 3})
    first = pb.HandInRequest(name="a", changes=[entry, entry], more=True)
    last = pb.HandInRequest(name="a", first=2, changes=[entry])
    assert views.page(first, at) is None
    whole = views.page(last, at)
    assert whole is not None
    assert len(whole) == 3
    assert views.page(first, at) is None
    for wrong, position in (
        (pb.HandInRequest(name="b", first=2), at),
        (pb.HandInRequest(name="a", first=1), at),
        (last, Position("h", 10, 1)),
    ):
        with pytest.raises(TreecastError, match="begin again"):
            views.page(wrong, position)
    entry.key = "another"
    for changes in ([entry], [pb.EntryChange(kind=pb.ENTRY_KIND_TOPIC, key="t")]):
        with pytest.raises(TreecastError, match="invalid entry"):
            views.page(pb.HandInRequest(name="a", changes=changes), at)


def test_who_is_waited_for_and_how_long() -> None:
    hearing = Hearing([1, 2], 100.0, 8.0)
    assert hearing.left(101.0) == 7.0
    assert not hearing.heard(3)
    assert not hearing.heard(1)
    assert hearing.wanted("b", 101.0)
    assert not hearing.wanted("c", 101.0)
    assert hearing.wanted("c", 101.0 + HAND_IN_SECONDS)
    assert hearing.heard(2)
    assert hearing.left(105.0) == 7.0, "as long as a host says that it knows more"
    assert hearing.left(113.0) == 0.0, "it is gone"
    assert hearing.wanted("c", 111.0)
    hearing.handed_in()
    assert hearing.left(111.0) == 0.0
    assert hearing.wanted("b", 112.0)
    assert hearing.left(112.0) == 8.0
    assert Hearing([], 0.0, 8.0).left(0.0) == 0.0


def test_one_of_the_hosts_that_were_not_attached_is_waited_for_when_none_was() -> None:
    hearing = Hearing([], 100.0, 8.0)
    hearing.hear_any([1, 2], 100.0)
    assert hearing.left(101.0) == COMING_SECONDS - 1.0
    assert not hearing.heard(3)
    assert hearing.heard(2), "it is enough"
    assert hearing.left(101.0) == 0.0
    hearing.hear_any([1], 101.0)
    assert hearing.wanted("a", 102.0)
    hearing.handed_in()
    assert hearing.left(103.0) == 0.0
