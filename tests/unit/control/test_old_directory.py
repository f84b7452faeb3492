"""A host comes back with an older state of its data directory, or a copy of it runs beside the original."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.entries import END, RUN, HostEntry, PartitionEnd
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.server import CoordinatorServer, ServerSettings
from treecast.middleware.control.state import step
from treecast.middleware.control.stored_state import CoordinatorSettings
from treecast.middleware.control.values import STAMPS, StateSettings, read_stamp
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.runs import MOST, RunMark

Connect = Callable[..., CoordinatorClient]
Hello = Callable[..., pb.AttachRequest]
A, B, C, D = (letter * 16 for letter in "abcd")
QUICK = CoordinatorSettings(StateSettings(lease=0.6, longest_step=5.0))


class Cluster:
    """A coordinator's state with one topic, which host `h` leads."""

    def __init__(self) -> None:
        self.state = ClusterState(StateSettings(lease=10))
        self.state.pass_time(0.0)
        self.now = 0.0
        self.heard: RunMark | None = None

    def attach(self, *runs: str, run: int = 1, stamp: int = 0, clock_run: int = 0) -> HostEntry:
        marks = tuple(RunMark(id, stamp if id == runs[-1] else 9) for id in runs)
        command = commands.Attach("h", "data", "h:1", "1", run, clock_run, runs=marks, heard=self.heard)
        host: HostEntry = step(self.state, command).answer
        return host

    def topic(self) -> None:
        step(self.state, commands.CreateTopic("t", uuid.UUID(int=1), 2, pinned=("h",)))

    def renew(self, host: HostEntry, stamp: int) -> None:
        session = commands.Session(host.host_id, host.incarnation)
        (item,) = step(self.state, commands.Renew(session, stamp)).items
        assert (item.home, item.value is not None) == (STAMPS, True)
        self.heard = read_stamp(item.value or b"")

    def away(self) -> None:
        for _ in range(3):
            self.now += 5
            self.state.pass_time(self.now)
        for name in self.state.overdue():
            step(self.state, commands.Expire(name))

    @property
    def waits(self) -> bool:
        topic = self.state.topic("t")
        assert topic is not None
        assert len({entry.waits for entry in topic.partitions}) == 1
        return topic.partitions[0].waits


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.attach(A)
    made.topic()
    return made


def test_a_directory_that_has_gone_on_leads_as_before(cluster: Cluster) -> None:
    for number, runs in enumerate(([A, B], [A, B, C], [A, B, C], [C, D]), 2):
        cluster.attach(*runs, run=number)  # the third one attaches twice in one run
        assert not cluster.waits
        if number % 2:
            cluster.away()
    (host,) = cluster.state.hosts()
    assert (host.run_id, host.lost_run) == (D, 0)


@pytest.mark.parametrize("detached", [False, True])
def test_one_run_missing_makes_it_an_older_state(cluster: Cluster, detached: bool) -> None:
    host = cluster.attach(A, B, run=2)
    if detached:
        step(cluster.state, commands.Detach(commands.Session(host.host_id, host.incarnation)))
    cluster.away()
    host = cluster.attach(A, C, run=2)  # the number is the one that was heard of
    assert cluster.waits
    assert (host.run, host.lost_run, host.run_id) == (3, 3, C)
    cluster.away()
    assert cluster.attach(A, C, D, run=4).lost_run == 3
    cluster.state.check_invariants()


def test_a_killed_attach_of_an_older_state_is_one_again(cluster: Cluster) -> None:
    """The answer did not reach the directory, which counts on from its own number."""
    cluster.attach(A, B, run=7)
    cluster.away()
    assert cluster.attach(A, C, run=5).run == 8
    cluster.away()
    assert cluster.attach(A, C, D, run=6).lost_run == 9


def test_a_copy_of_a_run_that_has_gone_on_is_an_older_state(cluster: Cluster) -> None:
    host = cluster.attach(A, B, run=2)
    cluster.renew(host, 5)
    cluster.away()
    cluster.attach(A, B, run=2, stamp=5)  # the daemon itself, after it lost its lease
    cluster.renew(cluster.state.hosts()[0], 6)
    cluster.away()
    cluster.attach(B, C, run=3)  # the run before came to 9
    assert not cluster.waits
    cluster.away()
    cluster.heard = RunMark(C, 4)
    marks = (RunMark(B, 9), RunMark(C, 3), RunMark(D))
    step(cluster.state, commands.Attach("h", "data", "h:1", "1", 4, runs=marks, heard=cluster.heard))
    assert cluster.waits


def test_what_was_heard_of_another_run_does_not_count(cluster: Cluster) -> None:
    host = cluster.attach(A, B, run=2)
    cluster.renew(host, 5)
    cluster.heard = RunMark(A, 100)
    cluster.away()
    cluster.attach(A, B, C, run=3)
    assert not cluster.waits


def test_a_store_that_is_older_than_the_directory_takes_it_for_what_it_is(cluster: Cluster) -> None:
    cluster.away()
    cluster.heard = RunMark(A, 2)
    cluster.attach(A, B, C, D, run=9)
    assert not cluster.waits


def test_the_first_attach_with_ids_is_believed_and_one_without_goes_by_its_number() -> None:
    cluster = Cluster()
    cluster.attach(run=3)  # an earlier version
    cluster.topic()
    cluster.attach(A, run=4)
    assert not cluster.waits
    cluster.attach(run=5)  # back to the earlier version
    assert (cluster.waits, cluster.state.hosts()[0].run_id) == (False, A)
    cluster.away()
    cluster.attach(run=4)
    assert cluster.waits


def test_a_second_daemon_on_a_copy_is_told_what_it_is(cluster: Cluster) -> None:
    cluster.attach(A, B, run=2)
    with pytest.raises(
        TreecastError, match=r"another daemon runs as host h.*copy or an older state"
    ) as found:
        cluster.attach(A, C, run=2)
    assert found.value.fault is Fault.POLICY_VIOLATION
    assert not cluster.waits
    cluster.attach(A, B, D, run=3)  # the first one, after a kill and a restart within its lease
    assert not cluster.waits


@pytest.mark.parametrize("runs", [(RunMark("no id"),), tuple([RunMark(A)] * (MOST + 1))])
def test_runs_that_are_none_are_refused(runs: Sequence[RunMark]) -> None:
    with pytest.raises(TreecastError) as found:
        step(Cluster().state, commands.Attach("h", "data", "h:1", "1", runs=tuple(runs)))
    assert found.value.fault is Fault.INVALID_REQUEST


# --- with a real store, over the network


def request(hello: Hello, *runs: RunMark, run: int = 1) -> pb.AttachRequest:
    made = hello("h1")
    made.run = run
    made.runs.extend(map(RUN.write, runs))
    return made


async def test_stamps_are_stored_and_compared_after_a_restart_of_the_coordinator(
    server: CoordinatorServer, connect: Connect, hello: Hello, restart: Callable[..., object]
) -> None:
    client = connect(server)
    first = await client.attach(request(hello, RunMark(A)))
    assert not first.older
    await client.renew(first.session, 3)
    await client.renew(first.session)  # has not moved
    await client.detach(first.session, 4)
    server = await restart(server)  # type: ignore[misc]
    client = connect(server)
    same = await client.attach(request(hello, RunMark(A, 4), RunMark(B), run=2))
    assert (same.older, same.run) == (False, 2)
    await client.detach(same.session)
    old = await client.attach(request(hello, RunMark(A, 3), RunMark(B), RunMark(C), run=3))
    assert (old.older, old.run) == (False, 3)  # of run B nothing was heard but its beginning
    await client.detach(old.session, 7)
    old = await client.attach(request(hello, RunMark(B), RunMark(C, 6), RunMark(D), run=4))
    assert (old.older, old.run) == (True, 5)
    again = await client.attach(request(hello, RunMark(C, 6), RunMark(D), run=old.run))
    assert again.older  # still the run that began on the older state
    await client.detach(again.session)
    later = await client.attach(request(hello, RunMark(D), RunMark("e" * 16), run=old.run + 1))
    assert not later.older
    await server.close(0)


async def test_an_attachment_tells_each_stamp_and_the_last_one_as_it_leaves(
    settings: ServerSettings, connect: Connect, hello: Hello
) -> None:
    server = CoordinatorServer(replace(settings, coordinator=QUICK))
    await server.start()
    disk = [0]

    def move() -> int:
        disk[0] += 1
        if disk[0] == 2:
            raise OSError("the disk refuses once")
        return disk[0]

    attachment = Attachment(connect(server), request(hello, RunMark(A)), move_stamp=move, stamp_seconds=0.02)

    async def heard() -> int:
        ((_, value),), _ = await server.coordinator.home_items(STAMPS, b"", 1000)
        found = read_stamp(value)
        assert found is not None
        assert found.id == A
        return found.stamp

    await attachment.attach()
    attachment.start()
    while disk[0] < 5 or not (await server.coordinator.home_items(STAMPS, b"", 1000))[0]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert 0 < await heard() <= disk[0]
    await attachment.close(detach=True)
    assert await heard() == disk[0] == attachment.request.runs[-1].stamp
    await server.close(0)


async def test_the_ends_of_many_topics_are_read_with_one_call(
    server: CoordinatorServer, client: CoordinatorClient, hello: Hello
) -> None:
    session = (await client.attach(hello("h1"))).session
    topics = []
    for name in ("one", "two", "three"):
        made = await client.create_topic(pb.CreateTopicEntryRequest(name=name, partitions=2))
        topics.append(made.topic.topic_id)
    ends = [PartitionEnd(uuid.UUID(bytes=topic), n % 2, 0, 5 + n) for n, topic in enumerate(topics)]
    await client.put_ends(session, [END.write(end) for end in ends])
    assert [END.read(end) for end in await client.get_ends(*topics)] == ends
    assert [END.read(end) for end in await client.get_ends(topics[1])] == ends[1:2]
