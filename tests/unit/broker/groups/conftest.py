"""A group without a coordinator: answers are kept by the number of the request, writes succeed at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest
from tests.unit.broker.groups.host import Host

from treecast.middleware.broker.groups import joining, syncing
from treecast.middleware.broker.groups.effects import Answer, Write
from treecast.middleware.broker.groups.group import Group
from treecast.middleware.broker.groups.settings import GroupSettings
from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.values import (
    Joined,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    Synced,
    SyncGroup,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.settings import FsyncPolicy

RANGE = (("range", b"meta"),)


class Harness:
    """Drives one group. Times are in seconds; `wait` moves `now`."""

    def __init__(self, settings: GroupSettings) -> None:
        self.now = 1000.0
        self.counters = BrokerCounters()
        numbers = count(1)
        self.group = Group("g", settings, self.counters, lambda prefix: f"{prefix}-{next(numbers)}", self.now)
        self.answers: dict[int, Joined | Synced | TreecastError] = {}
        self.held: list[Write] | None = None  # if it is a list, writes are held back in it
        self.writes: list[Write] = []
        self._waiters = count(1)

    def settle(self) -> None:
        for effect in self.group.take_effects():
            if isinstance(effect, Answer):
                assert effect.waiter not in self.answers, "the request was answered twice"
                self.answers[effect.waiter] = effect.result
            elif isinstance(effect, Write):
                self.writes.append(effect)
                if self.held is not None:
                    self.held.append(effect)
                else:
                    syncing.written(self.group, effect.then, None, self.now)
                    self.settle()
        self.group.check_invariants()

    def release(self, error: TreecastError | None = None) -> None:
        """Completes the writes that were held back."""
        held, self.held = self.held or [], None
        for write in held:
            syncing.written(self.group, write.then, error, self.now)
            self.settle()

    def wait(self, seconds: float) -> None:
        """Moves the time, stopping at every deadline on the way."""
        end = self.now + seconds
        while self.group.next_deadline() <= end:
            self.now = max(self.now, self.group.next_deadline())
            self.group.expire(self.now)
            self.settle()
        self.now = end

    def join(
        self,
        member_id: str = "",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        *,
        known: bool = False,
        session: int = 10_000,
        rebalance: int = 60_000,
        protocol_type: str = "consumer",
        client: str = "c",
        skip: bool = False,
    ) -> int:
        waiter = next(self._waiters)
        request = JoinGroup(
            "g",
            member_id,
            instance,
            client,
            "/host",
            session,
            rebalance,
            protocol_type,
            protocols,
            known,
            can_skip_assignment=skip,
        )
        joining.join(self.group, request, waiter, self.now)
        self.settle()
        return waiter

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = None,
    ) -> int:
        waiter = next(self._waiters)
        pairs = tuple((assignments or {}).items())
        request = SyncGroup("g", generation, member_id, instance, protocol_type, protocol, pairs)
        syncing.sync(self.group, request, waiter, self.now)
        self.settle()
        return waiter

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> Fault | None:
        try:
            self.group.heartbeat(MemberIdentity(member_id, instance, generation), self.now)
        except TreecastError as refused:
            return refused.fault
        finally:
            self.group.check_invariants()
        return None

    def leave(self, *identities: MemberIdentity) -> list[Fault | None]:
        answers = self.group.leave(identities, self.now)
        self.settle()
        return [None if answer is None else answer.fault for answer in answers]

    def commit(self, member_id: str, generation: int, *, in_transaction: bool = False) -> Fault | None:
        try:
            identity = MemberIdentity(member_id, None, generation)
            self.group.check_commit(identity, self.now, in_transaction=in_transaction)
        except TreecastError as refused:
            return refused.fault
        return None

    # --- answers

    def joined(self, waiter: int) -> Joined:
        answer = self.answers[waiter]
        assert isinstance(answer, Joined), answer
        return answer

    def synced(self, waiter: int) -> bytes:
        answer = self.answers[waiter]
        assert isinstance(answer, Synced), answer
        return answer.assignment

    def fault(self, waiter: int) -> Fault:
        answer = self.answers[waiter]
        assert isinstance(answer, TreecastError), answer
        return answer.fault

    def new_id(self, **how: object) -> str:
        """Returns the member id that KIP-394 gives to a first join."""
        answer = self.answers[self.join(known=True, **how)]
        assert isinstance(answer, MemberIdRequired)
        return answer.member_id

    # --- ways into a state

    def generation_of(self, *waiters: int) -> list[Joined]:
        """Lets the initial delays pass. Returns the answers to the joins."""
        while self.group.state is State.PREPARING:
            self.wait(self.group.next_deadline() - self.now)
        return [self.joined(waiter) for waiter in waiters]

    def stable(self, members: int = 2, **how: object) -> list[str]:
        """Makes a stable generation of dynamic members; the first leads. Returns their ids."""
        waiters = [self.join(**how) for _ in range(members)]
        joined = self.generation_of(*waiters)
        ids = [answer.member_id for answer in joined]
        leader = joined[0].leader
        for member_id in sorted(ids, key=lambda m: m == leader):
            given = {m: m.encode() for m in ids} if member_id == leader else None
            self.sync(member_id, joined[0].generation, given)
        assert self.group.state is State.STABLE
        return ids


@pytest.fixture
def new_group() -> Callable[..., Harness]:
    """Returns a function that makes a harness; its keywords are settings."""
    return lambda **settings: Harness(GroupSettings(**settings))


@pytest.fixture
def harness(new_group: Callable[..., Harness]) -> Harness:
    """A group with the default settings."""
    return new_group()


@pytest.fixture(params=[FsyncPolicy.NEVER, FsyncPolicy.BATCH], ids=["never", "batch"])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    """A coordinator that is started."""
    made = Host(tmp_path / "tables", request.param)
    await made.start()
    yield made
    await made.coordinator.loaded.close()
    made.tables.close()
