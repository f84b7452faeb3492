"""One classic consumer group: joins, syncs, heartbeats, leaves and time-outs, as in Kafka's brokers.

Every call takes `now` (seconds of any steady clock). A join or sync carries a number, its waiter. The group
collects answers to waiters and records to write as effects; the caller takes them after each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treecast.middleware.broker.values import (
    GroupDescription,
    GroupListing,
    Joined,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    Synced,
    SyncGroup,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.timers import NEVER
from treecast.middleware.storage.tables import Change

from .effects import Answer, AssignmentWritten, Effect, EmptyWritten, Note, TakeOverWritten, Write, Written
from .members import Member, Members
from .records import GROUPS, GroupRecord, encode
from .rounds import Round
from .settings import GroupSettings
from .state import Event, State, step
from .subscription import CONSUMER, all_subscribed
from .told import description, joined, joined_after_take_over

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
        self._settings = settings
        self._counters = counters
        self._new_member_id = new_member_id
        self._effects: list[Effect] = []
        self._reserved: dict[str, float] = {}  # member id -> until when it may be used (KIP-394)
        self._unsynced: set[str] = set()  # members without a SyncGroup in this generation
        self._subscribed: frozenset[str] | None = None
        self._sync_deadline = NEVER
        self._round = Round()
        self._earliest = NEVER  # a lower bound of all deadlines

    # --- requests

    def join(self, request: JoinGroup, waiter: int, now: float) -> None:
        """Admits `waiter` to the next generation, or answers it at once."""
        try:
            self._join(request, waiter, now)
        except TreecastError as refused:
            self._answer(waiter, refused)
        self._complete_if_all_joined(now)

    def sync(self, request: SyncGroup, waiter: int, now: float) -> None:
        """Answers `waiter` with its assignment once the leader's assignment is on disk."""
        try:
            self._sync(request, waiter, now)
        except TreecastError as refused:
            self._answer(waiter, refused)

    def heartbeat(self, identity: MemberIdentity, now: float) -> None:
        """Extends a member's session. Raises REBALANCE_IN_PROGRESS if the member must join again."""
        member = self._member_of_generation(identity)
        self._prolong(member, now)
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
        self._complete_if_all_joined(now)
        return answers

    def check_commit(self, identity: MemberIdentity, now: float, *, in_transaction: bool) -> None:
        """Raises the reason to refuse this committer. A member's commit also extends its session."""
        named = identity.generation >= 0 or identity.member_id or identity.instance_id is not None
        if identity.generation < 0 and self.state is State.EMPTY:
            step(self.state, Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT_ALONE)
        elif named:
            member = self._member_of_generation(identity)
            step(self.state, Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT)
            if not in_transaction:
                self._prolong(member, now)
        else:  # producers before KIP-447 do not name their member
            step(self.state, Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT_ALONE)

    def check_delete_offsets(self) -> None:
        """Raises the reason to refuse the deletion of offsets (KIP-496)."""
        if step(self.state, Event.DELETE_OFFSETS) is not State.EMPTY and self.protocol_type != CONSUMER:
            raise TreecastError(Fault.GROUP_NOT_EMPTY)

    def delete(self, now: float) -> None:
        self._enter(step(self.state, Event.DELETE), now)

    def forget(self, now: float) -> None:
        """Ends a group without members and offsets."""
        self._enter(step(self.state, Event.FORGET), now)

    def unload(self, now: float) -> None:
        """Answers all waiters with NOT_COORDINATOR, so that they look up the group's home again."""
        self._enter(step(self.state, Event.UNLOAD), now)
        for member in self.members:
            self._answer_both(member, TreecastError(Fault.NOT_COORDINATOR))

    def upgrade(self, now: float) -> None:
        """Hands the group over to the new protocol and tells all waiters to join again."""
        self._enter(step(self.state, Event.UPGRADE), now)
        for member in self.members:
            self._answer_both(member, TreecastError(Fault.REBALANCE_IN_PROGRESS))

    def adopt(self, epoch: int, now: float) -> None:
        """Continues with members taken over from the new protocol, starting with a round of joins."""
        self.generation, self.protocol_type = epoch, CONSUMER
        self.members.leader = next(iter(self.members)).member_id
        for member in self.members:
            self._prolong(member, now)
        self._effects.append(Write(self._record(), EmptyWritten()))
        self._enter(step(self.state, Event.ADOPT), now)
        self._arm(self._round.begin(now, self.members.rebalance_timeout()))

    # --- views

    @property
    def empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def settled_subscribed(self) -> frozenset[str] | None:
        """The topics that a stable generation of consumers reads; None if unknown."""
        stable = self.state is State.STABLE and self.protocol_type == CONSUMER
        return self._subscribed if stable else None

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
        return self.state in (State.EMPTY, State.DEAD) and not self._reserved

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read `topic`. True if unknown."""
        return self.state is not State.EMPTY and (self._subscribed is None or topic in self._subscribed)

    @property
    def subscribed(self) -> frozenset[str] | None:
        """The topics of a generation of consumers; None if unknown."""
        return self._subscribed

    def listing(self) -> GroupListing:
        return GroupListing(self.group_id, self.protocol_type, self.state.value)

    def description(self) -> GroupDescription:
        return description(self)

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # --- time

    def next_deadline(self) -> float:
        """The latest time for the next `expire`. Nothing may be due at that time."""
        return self._earliest

    def expire(self, now: float) -> None:
        """Handles what is due: silent members, unused ids, overdue syncs, the end of a round."""
        for member_id in [m for m, until in self._reserved.items() if until <= now]:
            del self._reserved[member_id]
        for member in self.members:
            if member.deadline is not None and member.deadline <= now and member.member_id in self.members:
                self._session_over(member, now)
        if self._sync_deadline <= now:
            self._syncs_overdue(now)
        if self._round.deadline <= now and not self._round.extend(now):
            self._complete_round(now)
        self._complete_if_all_joined(now)
        self._earliest = self._exact_deadline()

    def _exact_deadline(self) -> float:
        sessions = [member.deadline for member in self.members if member.deadline is not None]
        return min([*sessions, *self._reserved.values(), self._sync_deadline, self._round.deadline])

    def _arm(self, deadline: float) -> float:
        self._earliest = min(self._earliest, deadline)
        return deadline

    def _prolong(self, member: Member, now: float) -> None:
        """Restarts a session. A new member does not know its id yet, so its first join gets more time."""
        new = self._settings.new_member_timeout_ms / 1000
        member.deadline = self._arm(now + (new if member.is_new else member.session_timeout))

    def _session_over(self, member: Member, now: float) -> None:
        if member.waits and not member.is_new:
            member.deadline = None  # the member waits for this group; its session restarts with the answer
            return
        self._counters.expired_members += 1
        self._remove(member, now, "its session timed out")

    def _syncs_overdue(self, now: float) -> None:
        """Removes members that joined the round but never asked for their assignment."""
        overdue, self._unsynced = self._unsynced, set()
        self._sync_deadline = NEVER
        for member_id in sorted(overdue & {member.member_id for member in self.members}):
            self._counters.expired_members += 1
            self._remove(self.members[member_id], now, "it did not sync in time")

    # --- joining

    def _join(self, request: JoinGroup, waiter: int, now: float) -> None:
        step(self.state, Event.JOIN)
        known = self.members.get(request.member_id) or self.members.of_instance(request.instance_id)
        if not self._has_room_for(known):
            self._reserved.pop(request.member_id, None)
            if known is not None:
                self._remove(known, now, "the group is full")
            raise TreecastError(Fault.GROUP_FULL)
        if not self._speaks_with(request):
            raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
        if not request.member_id:
            self._join_without_id(request, waiter, now)
        elif request.member_id in self._reserved:
            if request.instance_id is not None:
                raise TreecastError(Fault.INVALID_REQUEST, "the member id belongs to a dynamic member")
            self._add(request.member_id, request, waiter, now)
        else:
            self._rejoin(request, waiter, now)

    def _has_room_for(self, known: Member | None) -> bool:
        """While the group collects joins, only waiting members count, so the last to rejoin are shed."""
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING:
            waits = known is not None and known.join_waiter is not None
            return waits or self.members.joined() < self._settings.max_size
        return known is not None or len(self.members) < self._settings.max_size

    def _speaks_with(self, request: JoinGroup) -> bool:
        names = [name for name, _ in request.protocols]
        if self.state is State.EMPTY:
            return bool(request.protocol_type and names)
        return request.protocol_type == self.protocol_type and self.members.agree_on(names)

    def _join_without_id(self, request: JoinGroup, waiter: int, now: float) -> None:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        member_id = self._new_member_id(prefix)
        former = self.members.of_instance(request.instance_id)
        if former is not None:
            self._take_over(former, member_id, request, waiter, now)
        elif request.require_known_member_id and request.instance_id is None:
            step(self.state, Event.RESERVE)
            self._reserved[member_id] = self._arm(now + request.session_timeout_ms / 1000)
            raise MemberIdRequired(member_id)
        else:
            self._add(member_id, request, waiter, now)

    def _add(self, member_id: str, request: JoinGroup, waiter: int, now: float) -> None:
        following = step(self.state, Event.JOIN)
        self._reserved.pop(member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
        self._round.grow()
        member = Member.of(member_id, request)
        member.join_waiter = waiter
        self.members.add(member)
        self._prolong(member, now)
        self._note("member joins", member_id, request.reason)
        self._enter(following, now)

    def _rejoin(self, request: JoinGroup, waiter: int, now: float) -> None:
        """Handles a rejoin. Starts a new generation only if something may have changed."""
        member = self.members.find(request.member_id, request.instance_id)
        leads = member.member_id == self.members.leader
        changed = member.protocols != request.protocols or (leads and self.state is State.STABLE)
        following = step(self.state, Event.CHANGE if changed else Event.REJOIN)
        if following is not State.PREPARING:
            # The answer to its join may have been lost: repeat the current generation.
            self._prolong(member, now)
            self._answer(waiter, joined(self, member))
            return
        self._note("member joins again", member.member_id, request.reason)
        self.members.update(member, request)
        self._wait_for_join(member, waiter)
        self._enter(following, now)

    def _take_over(self, member: Member, member_id: str, request: JoinGroup, waiter: int, now: float) -> None:
        """Replaces a static member by its restarted instance (KIP-345)."""
        former_id, former_leader = member.member_id, self.members.leader
        self._answer_both(member, TreecastError(Fault.FENCED_INSTANCE))
        self.members.rename(member, member_id)
        if former_id in self._unsynced:
            self._unsynced.remove(former_id)
            self._unsynced.add(member_id)
        self.members.update(member, request)
        self._note("static member restarts", member_id, request.reason)
        same = self.members.elected_protocol() == self.protocol
        following = step(self.state, Event.TAKE_OVER if same else Event.CHANGE)
        member.join_waiter = waiter
        self._prolong(member, now)
        if following is State.STABLE:
            joined = joined_after_take_over(self, member, former_leader, request.can_skip_assignment)
            written = TakeOverWritten(self.generation, waiter, member_id, joined)
            self._effects.append(Write(self._record(), written))
        self._enter(following, now)

    def _wait_for_join(self, member: Member, waiter: int) -> None:
        if member.join_waiter is not None:  # a newer join replaces the first; its waiter may retry
            self._answer(member.join_waiter, TreecastError(Fault.REBALANCE_IN_PROGRESS))
        member.join_waiter = waiter

    # --- rounds

    def _enter(self, following: State, now: float) -> None:
        """Enters the state `following` and runs its entry action."""
        before, self.state = self.state, following
        if before is not following:
            self.since = now
            if following is State.PREPARING:
                self._begin_round(before, now)
            elif following is State.DEAD:
                self._reserved.clear()
                self._sync_deadline = NEVER
                self._round.end()

    def _begin_round(self, before: State, now: float) -> None:
        """Tells members that wait for an assignment to rejoin. In an empty group, waits for more members."""
        if before is State.COMPLETING:
            self._answer_syncs(TreecastError(Fault.REBALANCE_IN_PROGRESS), now)
        self._unsynced.clear()
        self._sync_deadline = NEVER
        timeout = self.members.rebalance_timeout()
        delay = self._settings.initial_rebalance_delay_ms / 1000 if before is State.EMPTY else 0.0
        self._arm(self._round.begin(now, timeout, delay))

    def _complete_if_all_joined(self, now: float) -> None:
        """Completes the round when all have joined. Holders of reserved ids count while a member waits."""
        if self.state is not State.PREPARING or self._round.delayed:
            return
        if self.members.all_joined() and not (self.members and self._reserved):
            self._complete_round(now)

    def _complete_round(self, now: float) -> None:
        """Ends the round with the members that joined. Static members that did not join stay (KIP-345)."""
        for member in self.members:
            if member.join_waiter is None and member.instance_id is None:
                self._drop(member, "it did not join in time")
        if self.members and not self.members.elect_joined_leader():
            timeout = max(self.members.rebalance_timeout(), _SHORTEST_WAIT)
            self._arm(self._round.begin(now, timeout))
            return
        self._round.end()
        self.generation += 1
        if self.members:
            self._begin_generation(now)
        else:
            self._become_empty(now)

    def _become_empty(self, now: float) -> None:
        self.protocol = ""
        self._subscribed = None
        self._enter(step(self.state, Event.NO_GENERATION), now)
        self._effects.append(Write(self._record(), EmptyWritten()))

    def _begin_generation(self, now: float) -> None:
        self.protocol = self.members.elected_protocol()
        self._subscribed = self._find_subscribed()
        self._enter(step(self.state, Event.GENERATION), now)
        self._counters.rebalances += 1
        for member in self.members:
            member.is_new = False
            member.former_epoch = None
            member.assignment = b""
            self._prolong(member, now)
            if member.join_waiter is not None:
                waiter, member.join_waiter = member.join_waiter, None
                self._answer(waiter, joined(self, member))
            self._unsynced.add(member.member_id)
        self._sync_deadline = self._arm(now + max(self.members.rebalance_timeout(), _SHORTEST_WAIT))
        self._note("generation begins", self.members.leader, f"{len(self.members)} members")

    def _find_subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        return all_subscribed(member.metadata(self.protocol) for member in self.members)

    # --- assignments

    def _sync(self, request: SyncGroup, waiter: int, now: float) -> None:
        member = self._member_of_generation(
            MemberIdentity(request.member_id, request.instance_id, request.generation)
        )
        # Refused before the protocol is compared while joins are collected: a group that came from the new
        # protocol has not elected one, and its members may sync with what that group answered to their joins.
        following = step(self.state, Event.SYNC)
        if request.protocol_type not in (None, self.protocol_type):
            raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
        if request.protocol not in (None, self.protocol):
            raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
        self._synced(member.member_id)
        if following is State.STABLE:
            self._prolong(member, now)
            self._answer(waiter, Synced(self.protocol_type, self.protocol, member.assignment))
            return
        if member.sync_waiter is not None:
            self._answer(member.sync_waiter, TreecastError(Fault.REBALANCE_IN_PROGRESS))
        member.sync_waiter = waiter
        if member.member_id == self.members.leader:
            given = dict(request.assignments)
            assignments = {m.member_id: given.get(m.member_id, b"") for m in self.members}
            written = AssignmentWritten(self.generation, assignments)
            self._effects.append(Write(self._record(assignments), written))

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline = NEVER

    def written(self, then: Written, error: TreecastError | None, now: float) -> None:
        """Takes the result of a `Write`: on disk, or `error`."""
        if isinstance(then, EmptyWritten) or then.generation != self.generation:
            return
        if error is not None:
            error = TreecastError(Fault.COORDINATOR_UNAVAILABLE, str(error))
        if isinstance(then, TakeOverWritten):
            self._taken_over(then, error, now)
        elif self.state is State.COMPLETING and error is not None:
            self._answer_syncs(error, now)
            self._enter(step(self.state, Event.UNASSIGNED), now)
        elif self.state is State.COMPLETING:
            self._enter(step(self.state, Event.ASSIGNED), now)
            for member in self.members:
                member.assignment = then.assignments.get(member.member_id, b"")
            self._answer_syncs(None, now)
        self._complete_if_all_joined(now)

    def _taken_over(self, then: TakeOverWritten, error: TreecastError | None, now: float) -> None:
        member = self.members.get(then.member_id)
        if self.state is not State.STABLE or member is None or member.join_waiter != then.waiter:
            return  # a new round has begun and answers the waiter
        member.join_waiter = None
        self._prolong(member, now)
        self._answer(then.waiter, then.joined if error is None else error)

    def _answer_syncs(self, error: TreecastError | None, now: float) -> None:
        for member in self.members:
            if error is not None:
                member.assignment = b""
            if member.sync_waiter is not None:
                waiter, member.sync_waiter = member.sync_waiter, None
                synced = Synced(self.protocol_type, self.protocol, member.assignment)
                self._answer(waiter, synced if error is None else error)
                self._prolong(member, now)

    # --- leaving

    def _leave(self, identity: MemberIdentity, now: float) -> None:
        if identity.member_id in self._reserved:
            del self._reserved[identity.member_id]
            return
        if identity.member_id:
            member = self.members.find(identity.member_id, identity.instance_id)
        else:  # an administrator removes a static member
            found = self.members.of_instance(identity.instance_id)
            if found is None:
                raise TreecastError(Fault.UNKNOWN_MEMBER)
            member = found
        self._remove(member, now, identity.reason or "it left")

    def _remove(self, member: Member, now: float, reason: str) -> None:
        """Removes a member and starts a round for the others."""
        following = step(self.state, Event.MEMBER_GONE)
        self._drop(member, reason)
        self._enter(following, now)

    def _drop(self, member: Member, reason: str) -> None:
        self.members.remove(member)
        self._synced(member.member_id)
        self._answer_both(member, TreecastError(Fault.UNKNOWN_MEMBER))
        self._note("member is removed", member.member_id, reason)

    # --- common

    def _member_of_generation(self, identity: MemberIdentity) -> Member:
        if self.state is State.DEAD:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)
        member = self.members.find(identity.member_id, identity.instance_id)
        if identity.generation not in (self.generation, member.former_epoch):
            raise TreecastError(Fault.ILLEGAL_GENERATION)
        return member

    def _answer(self, waiter: int, result: Joined | Synced | TreecastError) -> None:
        self._effects.append(Answer(waiter, result))

    def _answer_both(self, member: Member, error: TreecastError) -> None:
        for waiter in (member.join_waiter, member.sync_waiter):
            if waiter is not None:
                self._answer(waiter, error)
        member.join_waiter = member.sync_waiter = None

    def _note(self, event: str, member_id: str, reason: str) -> None:
        self._effects.append(Note(event, member_id, reason))

    # --- durability

    def _record(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
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
            self._prolong(member, now)
        self.members.leader = record.leader
        self.state = State.STABLE if record.members else State.EMPTY
        self.since = since
        self._subscribed = self._find_subscribed() if record.members else None
        divided = any(member.former_epoch is not None for member in self.members)
        if divided or len(self.members) > self._settings.max_size:
            self._enter(step(self.state, Event.CHANGE), now)

    def resume(self, now: float) -> None:
        """Restarts all sessions, because members could not reach this host until now."""
        for member in self.members:
            if member.deadline is not None:
                self._prolong(member, now)

    def check_invariants(self) -> None:
        """Raises AssertionError if the group's state is inconsistent. For tests; slow."""
        members = list(self.members)
        assert self.next_deadline() <= self._exact_deadline(), "a deadline would be missed"
        assert (self.state in (State.EMPTY, State.DEAD)) <= (not members or self.state is State.DEAD)
        assert (self.members.leader in self.members) == bool(members), "the leader is a member"
        assert (self.state is State.PREPARING) == self._round.runs, "a round ends"
        assert (self.state in (State.COMPLETING, State.STABLE)) <= bool(members and self.protocol)
        assert bool(self._unsynced) == (self._sync_deadline < NEVER), "who has to sync has a deadline"
        assert all(member_id in self.members for member_id in self._unsynced)
        for member in members:
            self.members.check(member)
            assert member.deadline is not None or member.waits, "a member without an end"
            assert member.sync_waiter is None or self.state is State.COMPLETING, "a sync nobody answers"
            assert member.join_waiter is None or self.state in (State.PREPARING, State.STABLE)
