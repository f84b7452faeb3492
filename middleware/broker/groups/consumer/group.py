"""One group of type consumer: heartbeats, epochs, targets and deadlines, as in Kafka's brokers.

Every call takes `now` (seconds of any steady clock) and answers at once. Rows to write are collected as
effects, which the caller takes after each call. An answer may be sent once all effects before it are written.
`classic` serves members that speak the classic protocol.

The group epoch rises with every change of members, subscriptions or topics. The next heartbeat computes the
target assignment. Each member moves to it in its own steps (`reconcile`).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from treecast.middleware.broker.groups.effects import Note
from treecast.middleware.broker.groups.subscription import CONSUMER
from treecast.middleware.broker.values import (
    AWAY_EPOCH,
    LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupDescription,
    GroupListing,
    GroupType,
    MemberIdentity,
    Places,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.timers import NEVER
from treecast.middleware.storage.tables import Change

from .assignors import ASSIGNORS, DEFAULT
from .describe import describe_member
from .effects import Effects
from .members import NOTHING, Member, Members
from .patterns import Patterns
from .reconcile import next_step
from .records import ConsumerGroupRecord, ConsumerMemberRecord, Rows, member_of, record_of
from .state import Event, Outcome, Standing, State, follow, step
from .topics import SubscribedTopics


def check_request(request: ConsumerHeartbeat) -> None:
    """Raises a fault if a heartbeat is invalid for any member, except for its regular expression. After
    Kafka's validation of the request."""
    if request.member_epoch < AWAY_EPOCH:
        raise TreecastError(Fault.INVALID_REQUEST, f"invalid member epoch {request.member_epoch}")
    if request.member_epoch != 0 and not request.member_id:
        raise TreecastError(Fault.INVALID_REQUEST, "the member id is missing")
    if request.member_epoch == AWAY_EPOCH and request.instance_id is None:
        raise TreecastError(Fault.INVALID_REQUEST, "only a member with an instance id can leave temporarily")
    if request.instance_id == "" or request.rack_id == "":
        raise TreecastError(Fault.INVALID_REQUEST, "an instance id or a rack id cannot be empty")
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise TreecastError(Fault.INVALID_REQUEST, "a joining member must name its rebalance timeout")
        if request.owned is None or request.owned:
            raise TreecastError(
                Fault.INVALID_REQUEST, "a joining member must send an empty list of partitions"
            )
        if request.topics is None and request.regex is None:
            raise TreecastError(
                Fault.INVALID_REQUEST, "a joining member must name its topics or its regular expression"
            )
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise TreecastError(
            Fault.UNSUPPORTED_ASSIGNOR, f"unknown assignor {request.assignor}; use one of {known}"
        )


class Timing(Struct, frozen=True):
    """The session timeout in seconds, and the heartbeat interval that members are told, in ms."""

    session_timeout: float
    heartbeat_interval_ms: int


class ConsumerGroup:
    """A group's membership. `patterns` as in `SubscribedTopics`."""

    def __init__(
        self,
        group_id: str,
        max_size: int,
        timing: Callable[[], Timing],
        counters: BrokerCounters,
        patterns: Patterns,
        new_member_id: Callable[[str], str],
        now: float,
    ) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.since = now  # time of entering the state
        self.epoch = 0
        self.assigned_epoch = 0
        self.assignor = DEFAULT
        self.protocol_type = CONSUMER
        self.members = Members()
        self.topics = SubscribedTopics(self.members, patterns)
        self.effects = Effects(group_id, self.members)
        self.new_member_id = new_member_id
        self._max_size = max_size
        self._timing = timing
        self._counters = counters
        self._earliest = NEVER  # lower bound of all deadlines

    # --- requests

    def heartbeat(self, request: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatAnswer:
        """Handles a ConsumerGroupHeartbeat that has passed `check_request`."""
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._leave(request, now)
        joins = request.member_epoch == 0
        step(self.state, Event.JOIN if joins else Event.HEARTBEAT)
        member = self._joining(request, now) if joins else self._alive(request)
        before, described = member.assigned, member.described()
        subscription = member.subscription()
        member.update(request)
        self.admit(member, described, subscription)
        self.settle(member, request.owned, now)
        timing = self._timing()
        member.session_deadline = self.arm(now + timing.session_timeout)
        whole = joins or (
            request.rebalance_timeout_ms != -1 and request.owned is not None and request.topics is not None
        )
        told = member.assigned if whole or member.assigned != before else None
        return ConsumerHeartbeatAnswer(member.member_id, member.epoch, timing.heartbeat_interval_ms, told)

    def check_commit(self, identity: MemberIdentity, now: float, *, in_transaction: bool) -> None:
        """Checks a commit's sender. Raises a fault if it may not commit."""
        named = identity.generation >= 0 or identity.member_id or identity.instance_id is not None
        if not named or (identity.generation < 0 and self.state is State.EMPTY):
            step(self.state, Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT_ALONE)
            return
        step(self.state, Event.COMMIT)
        member = self.members.find(identity.member_id, identity.instance_id)
        self.check_epoch(member, identity.generation)
        if member.classic is not None and not in_transaction:
            member.session_deadline = self.arm(now + member.classic.session_timeout)

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Checks the member of an OffsetFetch (version 9). Raises a fault if its epoch is not current."""
        if not member_id and epoch < 0:
            return
        step(self.state, Event.FETCH)
        self.check_epoch(self.members.find(member_id, None), epoch)

    def check_epoch(self, member: Member, epoch: int) -> None:
        """Raises STALE_MEMBER_EPOCH (classic protocol: ILLEGAL_GENERATION) unless `epoch` is the member's."""
        if epoch != member.epoch:
            fault = Fault.STALE_MEMBER_EPOCH if member.classic is None else Fault.ILLEGAL_GENERATION
            raise TreecastError(fault, f"epoch {epoch} is not the member's, which is {member.epoch}")

    def check_delete_offsets(self) -> None:
        """Raises a fault if the group's offsets may not be deleted for any topic (KIP-496)."""
        step(self.state, Event.DELETE_OFFSETS)

    def delete(self, now: float) -> None:
        self.enter(step(self.state, Event.DELETE), now)

    def forget(self, now: float) -> None:
        """Ends a group without members and offsets."""
        self.enter(step(self.state, Event.FORGET), now)

    def unload(self, now: float) -> None:
        self.enter(step(self.state, Event.UNLOAD), now)

    def downgrade(self, now: float) -> None:
        """Ends this group, which continues as a classic one."""
        self.enter(step(self.state, Event.DOWNGRADE), now)

    # --- views

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def idle(self) -> bool:
        return self.state in (State.EMPTY, State.DEAD)

    @property
    def empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def subscribed(self) -> frozenset[str] | None:
        """The names of the topics that members read; empty without members."""
        return self.topics.names() if self.members else frozenset()

    @property
    def settled_subscribed(self) -> frozenset[str] | None:
        return self.subscribed

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.topics.names()

    def listing(self) -> GroupListing:
        return GroupListing(self.group_id, self.protocol_type, self.state.value, GroupType.CONSUMER)

    def description(self) -> GroupDescription:
        return GroupDescription(
            self.group_id,
            self.state.value,
            self.protocol_type,
            self.members.preferred_assignor(DEFAULT),
            tuple(describe_member(member, self.topics.named) for member in self.members),
            GroupType.CONSUMER,
            self.epoch,
            self.assigned_epoch,
        )

    # --- joining and leaving

    def _joining(self, request: ConsumerHeartbeat, now: float) -> Member:
        """Returns the member that `request` joins as: a new one, a known one, or a static one it replaces."""
        known = self.members.get(request.member_id) if request.member_id else None
        static = self.members.of_instance(request.instance_id)
        if known is None and static is None and len(self.members) >= self._max_size:
            raise TreecastError(Fault.GROUP_FULL, f"the group has {len(self.members)} members")
        if static is not None and static is not known:
            if static.classic is None and not static.away:
                raise TreecastError(
                    Fault.UNRELEASED_INSTANCE,
                    f"instance id {request.instance_id} belongs to {static.member_id}, which has not left",
                )
            return self.replace(static, request.member_id or self.new_member_id(request.client_id), now)
        if known is not None:
            self._return(known, request.instance_id)
            return known
        return self.create(request.member_id or self.new_member_id(request.client_id), request.instance_id)

    def create(self, member_id: str, instance_id: str | None) -> Member:
        member = Member(member_id, instance_id)
        self.members.add(member)
        self.effects.note(
            "member joins", member_id, "" if instance_id is None else f"instance id {instance_id}"
        )
        self.topics.changed = True
        return member

    def replace(self, former: Member, member_id: str, now: float) -> Member:
        """Restores a returning static member under a new id, with its former partitions (KIP-345)."""
        self.members.remove(former)
        self.effects.mark(former.member_id)
        self.effects.note("static member is back", member_id, f"it was {former.member_id}")
        former.member_id = member_id
        former.epoch = former.previous_epoch = 0
        former.standing = follow(former.standing, Outcome.RETURNS)
        former.revoking = NOTHING
        former.revoke_deadline = former.join_deadline = former.sync_deadline = NEVER
        self.members.add(former)
        self.effects.mark(member_id)
        return former

    def _return(self, member: Member, instance_id: str | None) -> None:
        """Resets a member that was fenced or missed the answer to its join. It holds nothing afterwards."""
        self.members.remove(member)
        member.assigned = member.revoking = NOTHING
        member.instance_id = instance_id
        self.members.add(member)
        member.epoch = member.previous_epoch = 0
        member.standing = follow(member.standing, Outcome.RETURNS)
        member.revoke_deadline = NEVER
        self.effects.note("member joins again", member.member_id, "")
        self.effects.mark(member.member_id)

    def _alive(self, request: ConsumerHeartbeat) -> Member:
        """Returns the member of a heartbeat. Raises FENCED_MEMBER_EPOCH if the heartbeat's epoch is wrong."""
        member = self.members.find(request.member_id, request.instance_id)
        epoch, owned = request.member_epoch, request.owned
        # it may have missed the answer that raised its epoch
        unheard = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
        if epoch != member.epoch and not (epoch < member.epoch and unheard):
            raise TreecastError(
                Fault.FENCED_MEMBER_EPOCH,
                f"epoch {epoch} is not the member's, which is {member.epoch}: join again without partitions",
            )
        return member

    def _leave(self, request: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatAnswer:
        step(self.state, Event.LEAVE)
        member = self.members.find(request.member_id, request.instance_id)
        if request.member_epoch == AWAY_EPOCH:
            self.effects.note("static member leaves for a while", member.member_id, "")
            member.epoch = AWAY_EPOCH
            member.standing = follow(member.standing, Outcome.DEPARTS)
            self.members.hold(member, member.assigned, NOTHING)
            member.revoke_deadline = NEVER
            self.effects.mark(member.member_id)
            self._take_stock(now)
        else:
            self.remove(member, now, "it left")
        interval_ms = self._timing().heartbeat_interval_ms
        return ConsumerHeartbeatAnswer(member.member_id, request.member_epoch, interval_ms)

    def remove(self, member: Member, now: float, reason: str) -> None:
        """Removes a member. Its partitions become free, and the epoch rises."""
        self.members.remove(member)
        self.effects.mark(member.member_id)
        self.effects.note("member is removed", member.member_id, reason)
        self.topics.changed = True
        self.topics.look()
        self._raise_epoch(now)
        if not self.members:
            self.enter(step(self.state, Event.LAST_GONE), now)

    # --- towards the target

    def admit(
        self, member: Member, described: tuple[object, ...], subscription: tuple[frozenset[str], str]
    ) -> None:
        """Notes what a request has changed of a member. The arguments are its former values."""
        if member.described() != described:
            self.effects.mark(member.member_id)
        if member.subscription() != subscription:
            self.topics.changed = True

    def settle(self, member: Member, owned: Places | None, now: float) -> None:
        """Raises the epoch if something has changed, computes the target, takes the member's next step."""
        if self.topics.look():
            self._raise_epoch(now)
        if self.epoch > self.assigned_epoch:
            self._assign(now)
        found = next_step(member, self.assigned_epoch, owned, self.members.holder)
        if found is None:
            return
        standing, epoch = follow(member.standing, found.outcome), member.epoch
        before = (member.standing, epoch, member.assigned, member.revoking)
        if (standing, found.epoch, found.assigned, found.revoking) == before:
            return
        member.standing = standing
        if found.epoch != epoch:
            member.previous_epoch, member.epoch = epoch, found.epoch
        self.members.hold(member, found.assigned, found.revoking)
        revokes = standing is Standing.UNREVOKED and member.classic is None
        member.revoke_deadline = self.arm(now + member.rebalance_timeout) if revokes else NEVER
        self.effects.mark(member.member_id)
        self._take_stock(now)

    def _raise_epoch(self, now: float) -> None:
        self.epoch += 1
        self._counters.rebalances += 1
        self.effects.mark_group()
        self.enter(step(self.state, Event.CHANGED), now)

    def _assign(self, now: float) -> None:
        """Computes the target of the group epoch."""
        self.assignor = self.members.preferred_assignor(DEFAULT)
        before = {member.member_id: member.target for member in self.members}
        target = ASSIGNORS[self.assignor](self.topics.subscribers(), self.topics.partitions(), before)
        for member in self.members:
            if member.target != target[member.member_id]:
                member.target = target[member.member_id]
                self.effects.mark(member.member_id)
        self.assigned_epoch = self.epoch
        self.effects.mark_group()
        self.effects.note(
            "target is computed", "", f"epoch {self.epoch}, {len(self.members)} members, {self.assignor}"
        )
        self.enter(step(self.state, Event.ASSIGNED), now)
        self._take_stock(now)

    def _take_stock(self, now: float) -> None:
        """Updates the group's state. It is stable once all members are."""
        reached = all(
            member.standing is Standing.STABLE and member.epoch == self.assigned_epoch
            for member in self.members
        )
        self.enter(step(self.state, Event.RECONCILED if reached else Event.MOVED), now)

    # --- time

    def next_deadline(self) -> float:
        """Returns the latest time for the next call of `expire`. There may be nothing due then."""
        return self._earliest

    def expire(self, now: float) -> None:
        """Removes members that were silent, or did not revoke, rejoin or sync in time."""
        for member in self.members:
            if member.deadline > now:
                continue
            self._counters.expired_members += 1
            reasons = (
                (member.session_deadline, "its session timed out"),
                (member.revoke_deadline, "it did not give up partitions in time"),
                (member.join_deadline, "it did not join again in time"),
                (member.sync_deadline, "it did not sync in time"),
            )
            self.remove(member, now, next(reason for deadline, reason in reasons if deadline <= now))
        self._earliest = min((member.deadline for member in self.members), default=NEVER)

    def arm(self, deadline: float) -> float:
        self._earliest = min(self._earliest, deadline)
        return deadline

    # --- effects

    def enter(self, following: State, now: float) -> None:
        if following is not self.state:
            self.state, self.since = following, now
            if following is State.EMPTY:
                self.effects.mark_group()  # stores the time at which it became empty

    def take_effects(self) -> list[Note | Rows]:
        return self.effects.take(None if self.state is State.DEAD else self._record())

    def _record(self) -> ConsumerGroupRecord:
        return ConsumerGroupRecord(self.epoch, self.assigned_epoch, self.assignor, self.topics.digest)

    def rows(self, now_ms: int) -> list[Change]:
        """Returns all rows, for another host."""
        members = tuple((member.member_id, record_of(member)) for member in self.members)
        return Rows(self.group_id, self._record(), True, members, 0).changes(now_ms)

    def removal(self) -> list[Change]:
        """Returns the removal of all rows that are on disk or may be written soon."""
        ids = {member.member_id for member in self.members} | self.effects.unwritten.keys()
        return Rows(self.group_id, None, True, tuple((member_id, None) for member_id in ids), 0).changes(0)

    # --- after a restart

    def restore(self, record: ConsumerGroupRecord, since: float) -> None:
        self.epoch, self.assigned_epoch = record.epoch, record.assigned_epoch
        self.assignor, self.topics.digest = record.assignor, record.topics
        self.since = since

    def restore_member(self, member_id: str, record: ConsumerMemberRecord) -> None:
        self.members.add(member_of(member_id, record))

    def resume(self, now: float) -> None:
        """Ends the restoring. Restarts all sessions, because members could not reach this host until now."""
        for member in self.members.drop_contradictions():
            self.effects.mark(member.member_id)
            self.effects.note("member is removed", member.member_id, "its row contradicts another member's")
        for member in self.members:
            classic = member.classic
            seconds = self._timing().session_timeout if classic is None else classic.session_timeout
            member.session_deadline = self.arm(now + seconds)
            if member.standing is Standing.UNREVOKED and classic is None:
                member.revoke_deadline = self.arm(now + member.rebalance_timeout)
        if self.members and self.state is not State.DEAD:
            since = self.since
            self.state = State.ASSIGNING
            if self.epoch == self.assigned_epoch:
                self.state = State.RECONCILING
                self._take_stock(now)
            self.since = since

    def check_invariants(self) -> None:
        """For tests: raises AssertionError if the group contradicts itself. Slow."""
        self.members.check()
        members = list(self.members)
        assert (self.state is State.EMPTY) <= (not members)
        assert (not members) <= (self.state in (State.EMPTY, State.DEAD))
        assert self.assigned_epoch <= self.epoch
        assert (
            self.state is State.DEAD
            or not members
            or ((self.state is State.ASSIGNING) == (self.assigned_epoch < self.epoch))
        )
        assert self.next_deadline() <= min((m.deadline for m in members), default=NEVER), (
            "a deadline is missed"
        )
        targets = [place for member in members for place in member.target]
        assert len(targets) == len(set(targets)), "a partition is in two targets"
        for member in members:
            assert member.epoch <= self.assigned_epoch
            assert member.session_deadline < NEVER, "a member without an end"
            assert bool(member.revoking) <= (member.standing is Standing.UNREVOKED)
