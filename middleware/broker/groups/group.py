"""One classic consumer group: its rounds of joins, heartbeats, leaves and time-outs, as in Kafka's brokers.
`joining` and `syncing` handle the two requests of which a round consists.

Every call takes `now` (seconds of any steady clock). A join or sync carries a number, its waiter. The group
collects answers to waiters and records to write as effects; the caller takes them after each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treecast.middleware.broker.values import (
    GroupDescription,
    GroupListing,
    GroupMember,
    Joined,
    MemberIdentity,
    Synced,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.timers import NEVER
from treecast.middleware.storage.tables import Change

from .effects import Effect, Effects, EmptyWritten, Write
from .members import Member, Members
from .records import GROUPS, GroupRecord, encode
from .settings import GroupSettings
from .state import Event, State, step
from .subscription import CONSUMER, all_subscribed
from .timeouts import Timeouts

_SHORTEST_WAIT = 1.0  # seconds; a lower bound for tiny rebalance time-outs


class Group:
    """A group's membership. `new_member_id` returns a fresh id that starts with the given text."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        counters: BrokerCounters,
        new_member_id: Callable[[str], str],
        now: float,
    ) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.since = now  # time of the last state change
        self.generation = 0
        self.protocol_type = ""  # "" until a member joins: the group only holds offsets
        self.protocol = ""
        self.members = Members()
        self.subscribed: frozenset[str] | None = None  # topics of a generation of consumers; None if unknown
        self.settings = settings
        self.new_member_id = new_member_id
        self.effects = Effects()
        self.timeouts = Timeouts(settings, self.members)
        self._counters = counters

    # --- requests

    def heartbeat(self, identity: MemberIdentity, now: float) -> None:
        """Extends a member's session. Raises REBALANCE_IN_PROGRESS if the member must join again."""
        member = self.find(identity)
        self.timeouts.prolong(member, now)
        step(self.state, Event.HEARTBEAT)

    def leave(self, identities: Sequence[MemberIdentity], now: float) -> list[TreecastError | None]:
        """Removes members. Returns one result per member."""
        step(self.state, Event.LEAVE)
        answers: list[TreecastError | None] = []
        for identity in identities:
            try:
                self._leave(identity, now)
                answers.append(None)
            except TreecastError as refused:
                answers.append(refused)
        self.complete_if_all_joined(now)
        return answers

    def check_commit(self, identity: MemberIdentity, now: float, *, in_transaction: bool) -> None:
        """Raises the reason to refuse this committer. A member's commit also extends its session."""
        named = identity.generation >= 0 or identity.member_id or identity.instance_id is not None
        if identity.generation < 0 and self.state is State.EMPTY:
            step(self.state, Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT_ALONE)
        elif named:
            member = self.find(identity)
            step(self.state, Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT)
            if not in_transaction:
                self.timeouts.prolong(member, now)
        else:  # producers before KIP-447 do not name their member
            step(self.state, Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT_ALONE)

    def check_delete_offsets(self) -> None:
        """Raises the reason to refuse the deletion of offsets (KIP-496)."""
        if step(self.state, Event.DELETE_OFFSETS) is not State.EMPTY and self.protocol_type != CONSUMER:
            raise TreecastError(Fault.GROUP_NOT_EMPTY)

    def delete(self, now: float) -> None:
        self.enter(step(self.state, Event.DELETE), now)

    def forget(self, now: float) -> None:
        """Ends a group without members and offsets."""
        self.enter(step(self.state, Event.FORGET), now)

    def unload(self, now: float) -> None:
        """Answers all waiters with NOT_COORDINATOR, so that they look up the group's home again."""
        self.enter(step(self.state, Event.UNLOAD), now)
        for member in self.members:
            self.effects.answer_both(member, TreecastError(Fault.NOT_COORDINATOR))

    def upgrade(self, now: float) -> None:
        """Hands the group over to the new protocol and tells all waiters to join again."""
        self.enter(step(self.state, Event.UPGRADE), now)
        for member in self.members:
            self.effects.answer_both(member, TreecastError(Fault.REBALANCE_IN_PROGRESS))

    def adopt(self, epoch: int, now: float) -> None:
        """Continues with members taken over from the new protocol, starting with a round of joins."""
        self.generation, self.protocol_type = epoch, CONSUMER
        self.members.leader = next(iter(self.members)).member_id
        for member in self.members:
            self.timeouts.prolong(member, now)
        self.effects.add(Write(self.record(), EmptyWritten()))
        self.enter(step(self.state, Event.ADOPT), now)
        self.timeouts.arm(self.timeouts.round.begin(now, self.members.rebalance_timeout()))

    # --- views

    @property
    def empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def settled_subscribed(self) -> frozenset[str] | None:
        """The topics that a stable generation of consumers reads; None if unknown."""
        stable = self.state is State.STABLE and self.protocol_type == CONSUMER
        return self.subscribed if stable else None

    def rows(self, now_ms: int) -> list[Change]:
        """The rows from which another host continues the group. They hold no members: these join again."""
        if not self.generation:
            return []
        record = GroupRecord(self.generation, self.protocol_type, "", "", (), now_ms)
        return [Change(GROUPS, self.group_id, encode(record))]

    def removal(self) -> list[Change]:
        return [Change(GROUPS, self.group_id, None)]

    @property
    def idle(self) -> bool:
        """Whether the group has no members and no pending joins."""
        return self.state in (State.EMPTY, State.DEAD) and not self.timeouts.reserved

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read `topic`. True if unknown."""
        return self.state is not State.EMPTY and (self.subscribed is None or topic in self.subscribed)

    def listing(self) -> GroupListing:
        return GroupListing(self.group_id, self.protocol_type, self.state.value)

    def description(self) -> GroupDescription:
        """For DescribeGroups. Metadata and assignments appear only in a stable generation."""
        stable = self.state is State.STABLE
        members = tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(self.protocol) if stable else b"",
                member.assignment if stable else b"",
            )
            for member in self.members
        )
        protocol = self.protocol if stable else ""
        return GroupDescription(
            self.group_id, self.state.value, self.protocol_type, protocol, members, epoch=self.generation
        )

    def joined(self, member: Member) -> Joined:
        """Returns the current generation as the join answer for `member`."""
        leads = member.member_id == self.members.leader and self.state is State.COMPLETING
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader,
            member.member_id,
            self.members.metadata(self.protocol) if leads else (),
        )

    def take_effects(self) -> list[Effect]:
        return self.effects.take()

    # --- time

    def next_deadline(self) -> float:
        """The latest time for the next `expire`. Nothing may be due at that time."""
        return self.timeouts.earliest

    def expire(self, now: float) -> None:
        """Handles what is due: silent members, unused ids, overdue syncs, the end of a round."""
        reserved, rounds = self.timeouts.reserved, self.timeouts.round
        for member_id in [m for m, until in reserved.items() if until <= now]:
            del reserved[member_id]
        for member in self.members:
            if member.deadline is not None and member.deadline <= now and member.member_id in self.members:
                self._session_over(member, now)
        if self.timeouts.sync_deadline <= now:
            self._syncs_overdue(now)
        if rounds.deadline <= now and not rounds.extend(now):
            self._complete_round(now)
        self.complete_if_all_joined(now)
        self.timeouts.earliest = self.timeouts.exact()

    def _session_over(self, member: Member, now: float) -> None:
        if member.waits and not member.is_new:
            member.deadline = None  # the member waits for this group; its session restarts with the answer
            return
        self._counters.expired_members += 1
        self.remove(member, now, "its session timed out")

    def _syncs_overdue(self, now: float) -> None:
        """Removes members that joined the round but never asked for their assignment."""
        overdue = self.timeouts.end_syncs()
        for member_id in sorted(overdue & {member.member_id for member in self.members}):
            self._counters.expired_members += 1
            self.remove(self.members[member_id], now, "it did not sync in time")

    # --- rounds

    def enter(self, following: State, now: float) -> None:
        """Enters the state `following` and runs its entry action."""
        before, self.state = self.state, following
        if before is not following:
            self.since = now
            if following is State.PREPARING:
                self._begin_round(before, now)
            elif following is State.DEAD:
                self.timeouts.end()

    def _begin_round(self, before: State, now: float) -> None:
        """Tells members that wait for an assignment to rejoin. In an empty group, waits for more members."""
        if before is State.COMPLETING:
            self.answer_syncs(TreecastError(Fault.REBALANCE_IN_PROGRESS), now)
        self.timeouts.end_syncs()
        timeout = self.members.rebalance_timeout()
        delay = self.settings.initial_rebalance_delay_ms / 1000 if before is State.EMPTY else 0.0
        self.timeouts.arm(self.timeouts.round.begin(now, timeout, delay))

    def complete_if_all_joined(self, now: float) -> None:
        """Completes the round when all have joined. Holders of reserved ids count while a member waits."""
        if self.state is not State.PREPARING or self.timeouts.round.delayed:
            return
        if self.members.all_joined() and not (self.members and self.timeouts.reserved):
            self._complete_round(now)

    def _complete_round(self, now: float) -> None:
        """Ends the round with the members that joined. Static members that did not join stay (KIP-345)."""
        for member in self.members:
            if member.join_waiter is None and member.instance_id is None:
                self._drop(member, "it did not join in time")
        if self.members and not self.members.elect_joined_leader():
            timeout = max(self.members.rebalance_timeout(), _SHORTEST_WAIT)
            self.timeouts.arm(self.timeouts.round.begin(now, timeout))
            return
        self.timeouts.round.end()
        self.generation += 1
        if self.members:
            self._begin_generation(now)
        else:
            self._become_empty(now)

    def _become_empty(self, now: float) -> None:
        self.protocol = ""
        self.subscribed = None
        self.enter(step(self.state, Event.NO_GENERATION), now)
        self.effects.add(Write(self.record(), EmptyWritten()))

    def _begin_generation(self, now: float) -> None:
        self.protocol = self.members.elected_protocol()
        self.subscribed = self._find_subscribed()
        self.enter(step(self.state, Event.GENERATION), now)
        self._counters.rebalances += 1
        for member in self.members:
            member.is_new = False
            member.former_epoch = None
            member.assignment = b""
            self.timeouts.prolong(member, now)
            if member.join_waiter is not None:
                waiter, member.join_waiter = member.join_waiter, None
                self.effects.answer(waiter, self.joined(member))
            self.timeouts.unsynced.add(member.member_id)
        longest = max(self.members.rebalance_timeout(), _SHORTEST_WAIT)
        self.timeouts.sync_deadline = self.timeouts.arm(now + longest)
        self.effects.note("generation begins", self.members.leader, f"{len(self.members)} members")

    def _find_subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        return all_subscribed(member.metadata(self.protocol) for member in self.members)

    def answer_syncs(self, error: TreecastError | None, now: float) -> None:
        """Answers all open syncs with the members' assignments, or with `error`."""
        for member in self.members:
            if error is not None:
                member.assignment = b""
            if member.sync_waiter is not None:
                waiter, member.sync_waiter = member.sync_waiter, None
                synced = Synced(self.protocol_type, self.protocol, member.assignment)
                self.effects.answer(waiter, synced if error is None else error)
                self.timeouts.prolong(member, now)

    # --- leaving

    def _leave(self, identity: MemberIdentity, now: float) -> None:
        if identity.member_id in self.timeouts.reserved:
            del self.timeouts.reserved[identity.member_id]
            return
        if identity.member_id:
            member = self.members.find(identity.member_id, identity.instance_id)
        else:  # an administrator removes a static member
            found = self.members.of_instance(identity.instance_id)
            if found is None:
                raise TreecastError(Fault.UNKNOWN_MEMBER)
            member = found
        self.remove(member, now, identity.reason or "it left")

    def remove(self, member: Member, now: float, reason: str) -> None:
        """Removes a member and starts a round for the others."""
        following = step(self.state, Event.MEMBER_GONE)
        self._drop(member, reason)
        self.enter(following, now)

    def _drop(self, member: Member, reason: str) -> None:
        self.members.remove(member)
        self.timeouts.synced(member.member_id)
        self.effects.answer_both(member, TreecastError(Fault.UNKNOWN_MEMBER))
        self.effects.note("member is removed", member.member_id, reason)

    # --- common

    def find(self, identity: MemberIdentity) -> Member:
        """Returns the member of a request. Raises ILLEGAL_GENERATION if the request is not of this one."""
        if self.state is State.DEAD:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)
        member = self.members.find(identity.member_id, identity.instance_id)
        if identity.generation not in (self.generation, member.former_epoch):
            raise TreecastError(Fault.ILLEGAL_GENERATION)
        return member

    # --- durability

    def record(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
        """The record to restore the group from, with `assignments` if they are new."""
        members = tuple(
            member.record(member.assignment if assignments is None else assignments[member.member_id])
            for member in self.members
        )
        return GroupRecord(self.generation, self.protocol_type, self.protocol, self.members.leader, members)

    def restore(self, record: GroupRecord, since: float, now: float) -> None:
        """Continues the stored generation. The sessions of its members restart."""
        self.generation = record.generation
        self.protocol_type, self.protocol = record.protocol_type, record.protocol
        for saved in record.members:
            member = Member.of_record(saved)
            self.members.add(member)
            self.timeouts.prolong(member, now)
        self.members.leader = record.leader
        self.state = State.STABLE if record.members else State.EMPTY
        self.since = since
        self.subscribed = self._find_subscribed() if record.members else None
        divided = any(member.former_epoch is not None for member in self.members)
        if divided or len(self.members) > self.settings.max_size:
            self.enter(step(self.state, Event.CHANGE), now)

    def resume(self, now: float) -> None:
        """Restarts all sessions, because members could not reach this host until now."""
        for member in self.members:
            if member.deadline is not None:
                self.timeouts.prolong(member, now)

    def check_invariants(self) -> None:
        """Raises AssertionError if the group's state is inconsistent. For tests; slow."""
        members = list(self.members)
        assert self.next_deadline() <= self.timeouts.exact(), "a deadline would be missed"
        assert (self.state in (State.EMPTY, State.DEAD)) <= (not members or self.state is State.DEAD)
        assert (self.members.leader in self.members) == bool(members), "the leader is a member"
        assert (self.state is State.PREPARING) == self.timeouts.round.runs, "a round ends"
        assert (self.state in (State.COMPLETING, State.STABLE)) <= bool(members and self.protocol)
        syncs = self.timeouts.sync_deadline < NEVER
        assert bool(self.timeouts.unsynced) == syncs, "who has to sync has a deadline"
        assert all(member_id in self.members for member_id in self.timeouts.unsynced)
        for member in members:
            self.members.check(member)
            assert member.deadline is not None or member.waits, "a member without an end"
            assert member.sync_waiter is None or self.state is State.COMPLETING, "a sync nobody answers"
            assert member.join_waiter is None or self.state in (State.PREPARING, State.STABLE)
