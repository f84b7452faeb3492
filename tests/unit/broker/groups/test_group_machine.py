"""Clients join, sync, leave, fall silent, give up and come back in any order; the daemon restarts.

Holds after every step: a generation has one protocol and one leader, which is a member. Every member gets the
assignment that the leader sent. Every call is answered within the longest rebalance timeout. No deadline is
lost. A restart finds the group as it was when it was last stable or empty.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from treecast.middleware.broker.groups import GroupCoordinator, GroupSettings, LoadedGroups
from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.values import (
    CommittedOffset,
    Joined,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    Synced,
    SyncGroup,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

T0 = TopicPartition("t", 0)
SHORT, LONG = 10_000, 30_000  # rebalance timeouts, ms
JOIN_REFUSALS = {
    Fault.UNKNOWN_MEMBER,
    Fault.FENCED_INSTANCE,
    Fault.INCONSISTENT_PROTOCOL,
    Fault.GROUP_FULL,
    Fault.REBALANCE_IN_PROGRESS,
    Fault.NOT_COORDINATOR,
}
SYNC_REFUSALS = (JOIN_REFUSALS - {Fault.GROUP_FULL}) | {Fault.ILLEGAL_GENERATION}
CLIENTS = range(5)
INSTANCES = {3: "three", 4: "four"}
PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"2"),),
    (("sticky", b"1"), ("range", b"1")),
    (("sticky", b"1"),),
)


@dataclass
class Client:
    """The state of one client. `waiting`: its open calls, each with the time when it began."""

    number: int
    member_id: str = ""
    joined: Joined | None = None
    waiting: list[tuple[float, asyncio.Task]] = field(default_factory=list)

    @property
    def instance(self) -> str | None:
        return INSTANCES.get(self.number)


def who(member_id: str) -> str:
    """Names a static member by its instance, whatever its member id is."""
    return next((name for name in INSTANCES.values() if member_id.startswith(name)), member_id)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 0.0
        self.tables = Tables(Path(":memory:"), FsyncPolicy.NEVER)
        self.clients = [Client(number) for number in CLIENTS]
        self.generations: dict[int, tuple[str, str]] = {}  # protocol and leader
        self.offset = 0
        self.committed: int | None = None
        self.starts = 0

    @initialize(delay=st.sampled_from([0, 3_000]), size=st.sampled_from([3, 100]))
    def begin(self, delay: int, size: int) -> None:
        self.settings = GroupSettings(initial_rebalance_delay_ms=delay, max_size=size)
        self.coordinator = self.started()

    def started(self) -> GroupCoordinator:
        self.starts += 1
        loaded = LoadedGroups(
            self.settings,
            self.tables,
            BrokerCounters(),
            clock=lambda: 1e9 + self.now,
            rng=random.Random(self.starts),
            timer=lambda: self.now,
        )
        self.run(loaded.start())
        return GroupCoordinator(loaded)

    def run(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def teardown(self) -> None:
        if hasattr(self, "coordinator"):
            self.run(self.coordinator.loaded.close())
            self.settle()
            assert not any(client.waiting for client in self.clients), "closing answers every call"
        self.loop.close()
        self.tables.close()

    def attempt(self, awaitable) -> bool:
        """Returns whether the call succeeds; only refusals for a stale member are allowed."""

        async def refusal() -> Fault | None:
            try:
                await awaitable
            except TreecastError as error:
                return error.fault
            return None

        fault = self.run(refusal())
        assert fault is None or fault in SYNC_REFUSALS
        self.settle()
        return fault is None

    @property
    def group(self):
        entry = self.coordinator.loaded.entries.get("g")
        return None if entry is None else entry.group

    # --- answers

    def settle(self) -> None:
        """Runs the loop until nothing is ready and nothing is due, and checks the answers."""

        async def idle() -> None:
            for _ in range(8):
                await asyncio.sleep(0)
            while self.coordinator.loaded.deadlines.next() <= self.now:
                self.coordinator.loaded.expire()
                await idle()

        self.run(idle())
        for client in self.clients:
            done = [task for _, task in client.waiting if task.done()]
            client.waiting = [(since, task) for since, task in client.waiting if not task.done()]
            for task in done:
                if not task.cancelled():
                    self.take(client, task)

    def take(self, client: Client, task: asyncio.Task) -> None:
        error = task.exception()
        if isinstance(error, MemberIdRequired):
            client.member_id = error.member_id
        elif isinstance(error, TreecastError):
            assert error.fault in (JOIN_REFUSALS if task.get_name() == "join" else SYNC_REFUSALS), error
            if error.fault in (Fault.UNKNOWN_MEMBER, Fault.FENCED_INSTANCE):
                client.member_id, client.joined = "", None
        elif error is not None:
            raise error
        elif isinstance(task.result(), Joined):
            self.take_joined(client, task.result())

    def take_joined(self, client: Client, joined: Joined) -> None:
        client.member_id, client.joined = joined.member_id, joined
        known = self.generations.setdefault(joined.generation, (joined.protocol, who(joined.leader)))
        assert known[0] == joined.protocol, "one protocol"
        assert known[1] == who(joined.leader), "one leader"
        assert who(joined.member_id) == (client.instance or joined.member_id)
        ids = [member.member_id for member in joined.members]
        if ids:
            assert joined.leader == joined.member_id
            assert joined.leader in ids, "the leader is a member"
            assert len(set(ids)) == len(ids)
            assert all(member.metadata for member in joined.members), "all members support the protocol"

    def call(self, client: Client, name: str, call) -> None:
        client.waiting.append((self.now, self.loop.create_task(call, name=name)))
        self.settle()

    # --- what clients do

    clients_ = st.sampled_from(CLIENTS)

    @rule(
        number=clients_,
        protocols=st.sampled_from(PROTOCOLS),
        known=st.booleans(),
        skip=st.booleans(),
        rebalance=st.sampled_from([SHORT, LONG]),
    )
    def join(self, number, protocols, known, skip, rebalance) -> None:
        client = self.clients[number]
        request = JoinGroup(
            "g",
            client.member_id,
            client.instance,
            f"c{number}",
            "/h",
            6_000,
            rebalance,
            "consumer",
            protocols,
            known and client.instance is None,
            can_skip_assignment=skip,
        )
        self.call(client, "join", self.coordinator.join(request))

    @rule(protocols=st.sampled_from(PROTOCOLS[:3]))
    def all_join(self, protocols) -> None:
        """Makes generations more frequent than single joins would."""
        for _ in range(2):
            for client in self.clients:
                if not client.waiting:
                    self.join(client.number, protocols, True, True, SHORT)

    @rule(number=clients_)
    def sync(self, number) -> None:
        client = self.clients[number]
        if client.joined is None:
            return
        joined = client.joined
        assignments = () if joined.skip_assignment else joined.members
        request = SyncGroup(
            "g",
            joined.generation,
            client.member_id,
            client.instance,
            "consumer",
            joined.protocol,
            tuple((m.member_id, f"{joined.generation}:{who(m.member_id)}".encode()) for m in assignments),
        )

        async def synced() -> None:
            answer = await self.coordinator.sync(request)
            assert isinstance(answer, Synced)
            assert answer.protocol == joined.protocol
            assert answer.assignment.decode() == f"{joined.generation}:{who(request.member_id)}"

        self.call(client, "sync", synced())

    @rule()
    def all_sync(self) -> None:
        for client in self.clients:
            if not client.waiting:
                self.sync(client.number)

    @rule(number=clients_)
    def heartbeat(self, number) -> None:
        self.beat(self.clients[number])

    def beat(self, client: Client) -> None:
        if client.joined is not None:
            identity = MemberIdentity(client.member_id, client.instance, client.joined.generation)
            self.attempt(self.coordinator.heartbeat("g", identity))

    @rule(number=clients_)
    def leave(self, number) -> None:
        client = self.clients[number]
        identity = MemberIdentity(client.member_id, client.instance)
        self.run(self.coordinator.leave("g", [identity]))
        client.member_id, client.joined = "", None
        self.settle()

    @rule(number=clients_)
    def restart_client(self, number) -> None:
        """The client loses its identity, its connection and its open calls."""
        client = self.clients[number]
        for _, task in client.waiting:
            task.cancel()
        self.settle()
        client.member_id, client.joined = "", None

    @rule(number=clients_)
    def give_up_waiting(self, number) -> None:
        for _, task in self.clients[number].waiting[-1:]:
            task.cancel()
        self.settle()

    @rule(number=clients_)
    def commit(self, number) -> None:
        client = self.clients[number]
        if client.joined is None:
            return
        self.offset += 1
        identity = MemberIdentity(client.member_id, client.instance, client.joined.generation)
        if self.attempt(self.coordinator.commit_offsets("g", identity, {T0: CommittedOffset(self.offset)})):
            self.committed = self.offset

    # --- events at the daemon

    @rule(seconds=st.sampled_from([0.5, 2.0, 3.0, 5.9, 6.0, 10.0, 31.0]), alive=st.booleans())
    def time_passes(self, seconds, alive) -> None:
        """Stops at every deadline, as the timer would; living clients send heartbeats."""
        end = self.now + seconds
        while self.now < end:
            stop = min(end, self.now + 2.0)
            while self.coordinator.loaded.deadlines.next() <= stop:
                self.now = max(self.now, self.coordinator.loaded.deadlines.next())
                self.settle()
            self.now = stop
            for client in self.clients if alive else ():
                self.beat(client)

    @precondition(lambda self: self.starts < 10)
    @rule()
    def restart_daemon(self) -> None:
        self.run(self.coordinator.loaded.close())
        self.settle()
        assert not any(client.waiting for client in self.clients), "closing answers every call"
        self.coordinator = self.started()
        last = self.group.generation if self.group is not None else 0
        self.generations = {g: known for g, known in self.generations.items() if g <= last}

    # --- invariants

    @invariant()
    def the_group_is_consistent(self) -> None:
        if hasattr(self, "coordinator") and self.group is not None:
            self.group.check_invariants()
            exact = self.group.timeouts.exact()
            assert self.now < self.coordinator.loaded.deadlines.next() <= exact, "a deadline is lost"

    @invariant()
    def nobody_waits_too_long(self) -> None:
        for client in self.clients:
            for since, task in client.waiting:
                assert self.now - since <= LONG / 1000, (
                    f"{task.get_name()} of {client.number} is never answered"
                )

    @invariant()
    def a_restart_finds_the_same(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        again = self.started()
        self.starts -= 1
        offsets = self.run(again.fetch_offsets("g", None, require_stable=True))
        assert offsets == ({} if self.committed is None else {T0: CommittedOffset(self.committed)})
        if self.group is not None and self.group.state in (State.STABLE, State.EMPTY):
            described = self.run(self.coordinator.describe("g"))
            if self.group.generation > 0 or self.committed is not None:
                found = self.run(again.describe("g"))
                assert found == described, f"{found}\n{described}"
        again.loaded.deadlines.close()


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=50, stateful_step_count=40)
