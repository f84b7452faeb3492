"""A host that leads for another system, and a second one of its name with another data directory."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from treecast.agents.kafka.cluster import KafkaCluster
from treecast.agents.kafka.following import Following
from treecast.agents.kafka.settings import KafkaSettings
from treecast.middleware.api.join_token import JoinToken, new_token
from treecast.middleware.broker.values import GroupListing, TransactionListing
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.relay.brokerless import FabricHostSettings
from treecast.middleware.relay.leading_host import LeadingHost

WAIT = 30.0  # seconds
FACES_OFF = [word for face in ("kafka", "amqp", "mqtt", "stare", "admin") for word in (f"--{face}", "off")]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    flags = ["--name", "first", "--fabric", "127.0.0.1:0", *FACES_OFF]
    with DaemonProcess(tmp_path_factory.mktemp("host"), flags) as started:
        yield started


class Homes:
    """An owner without groups and transactions."""

    def __getattr__(self, name: str) -> Any:
        return self

    async def list_groups(self) -> list[GroupListing]:
        return []

    async def list_transactions(self, ids: Sequence[str] | None) -> list[TransactionListing]:
        return []


class Side:
    """A leading host with the part of an agent that keeps its copies."""

    def __init__(self, daemon: DaemonProcess, data: Path, token: JoinToken | None = None) -> None:
        self.waited = 0
        self.ended: list[str] = []
        token = token or JoinToken.parse((daemon.data / "join-token").read_text().strip())
        settings = FabricHostSettings("site", data, daemon.control, token, standby=self.wait)
        cluster = cast(KafkaCluster, SimpleNamespace(found=SimpleNamespace(topics={})))
        notes = SimpleNamespace(note=self.ended.append, settled=None)
        self.following = Following(cluster, KafkaSettings(bootstrap=("127.0.0.1:1",)), cast(Any, notes))
        self.host = LeadingHost(settings, Counters(), self.following.made, cast(Any, Homes()))
        self.host.on_successor = lambda entry: self.ended.append(entry.address)
        self.following.host = self.host

    async def wait(self, reason: TreecastError) -> None:
        self.waited += 1
        await asyncio.sleep(0.05)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[LeadingHost]:
        try:
            await self.host.open()
            yield self.host
        finally:
            await self.host.close()

    async def bring(self, name: str) -> None:
        await self.host.bring(name, uuid4(), 2, {})

    def copied(self) -> set[str]:
        return {name.topic for name in self.following.partitions}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_host_whose_name_another_directory_has_taken_is_told(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    one, other = Side(daemon, tmp_path / "one"), Side(daemon, tmp_path / "other")
    async with one.opened() as first:
        taking = asyncio.create_task(other.host.open())
        await until(lambda: other.waited)
        assert not one.ended
        await first.link.client.detach(first.link.session, 0)  # its lease is over, and it does not know
        try:
            await taking
            await until(lambda: one.ended)
            entry = other.host.link.view.host_named("site")
            assert entry is not None
            assert one.ended[0] == entry.address
            assert not other.ended
        finally:
            await other.host.close()


async def test_topics_that_another_directory_brought_and_withdrew_meanwhile_are_taken_over(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    """The view that the directory has stored is from before."""
    async with Side(daemon, tmp_path / "one").opened() as first:
        pass
    one = Side(daemon, tmp_path / "one")
    async with one.opened() as first:
        await one.bring("old")
        assert one.copied() == {"old"}
    other = Side(daemon, tmp_path / "other")
    async with other.opened() as second:
        other.following._keep_to_view()
        await other.bring("new")
        await second.withdraw(second.led.topics()["old"])
    again = Side(daemon, tmp_path / "one")
    async with again.opened() as first:
        await until(lambda: first.leader_of("new") is not None and first.leader_of("old") is None)
        again.following._keep_to_view()
        assert again.copied() == {"new"}
        assert {name for name, _ in first.waiting()} == {TopicPartition("new", 0), TopicPartition("new", 1)}
        assert first.led.store.find("old", 0) is None
        assert not again.ended


async def test_a_standby_with_a_wrong_token_does_not_wait_for_ever(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    right = JoinToken.parse((daemon.data / "join-token").read_text().strip())
    side = Side(daemon, tmp_path / "one", new_token(right.cluster_id))
    with pytest.raises(TreecastError):
        async with side.opened():
            pass
    assert not side.waited


async def test_a_standby_on_a_copy_of_the_directory_waits_too(daemon: DaemonProcess, tmp_path: Path) -> None:
    async with Side(daemon, tmp_path / "one").opened():
        pass
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    copy = Side(daemon, tmp_path / "copy")
    async with Side(daemon, tmp_path / "one").opened() as first:
        taking = asyncio.create_task(copy.host.open())
        await until(lambda: copy.waited)
        await first.link.client.detach(first.link.session, 0)
        try:
            await taking
        finally:
            await copy.host.close()
