"""The members of a classic group: identities, protocols, leader, waiters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from treecast.middleware.broker.values import JoinedMember, JoinGroup
from treecast.middleware.model.errors import Fault, TreecastError

from .records import MemberRecord


class Member(Struct):
    """One member. Times in seconds. `deadline` is None while the member does not depend on its session."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]  # by preference, with the metadata for each
    assignment: bytes = b""
    is_new: bool = False  # until its first join is answered
    join_waiter: int | None = None
    sync_waiter: int | None = None
    deadline: float | None = None
    former_epoch: int | None = None  # its epoch in a group of the new protocol, until the next generation

    @property
    def waits(self) -> bool:
        return self.join_waiter is not None or self.sync_waiter is not None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for `protocol`; empty if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def update(self, request: JoinGroup) -> None:
        """Takes over the fields of a new join."""
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout = request.session_timeout_ms / 1000
        self.rebalance_timeout = max(request.rebalance_timeout_ms, 0) / 1000
        self.protocols = request.protocols

    @classmethod
    def of(cls, member_id: str, request: JoinGroup) -> Member:
        """Returns a new member from its first join."""
        member = cls(member_id, request.instance_id, "", "", 0.0, 0.0, (), is_new=True)
        member.update(request)
        return member

    def record(self, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout,
            self.rebalance_timeout,
            self.protocols,
            assignment,
            self.former_epoch,
        )

    @classmethod
    def of_record(cls, record: MemberRecord) -> Member:
        return cls(
            record.member_id,
            record.instance_id,
            record.client_id,
            record.client_host,
            record.session_timeout,
            record.rebalance_timeout,
            record.protocols,
            record.assignment,
            former_epoch=record.former_epoch,
        )


class Members:
    """The members by id, in order of arrival, with the counts for protocol selection."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # instance id -> member id
        self._speakers: Counter[str] = Counter()  # protocol -> number of members that support it
        self.leader: str = ""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str | None) -> Member | None:
        """The static member with this instance id."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """Returns the member of a request. Raises FENCED_INSTANCE if its instance id belongs to another."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                raise TreecastError(Fault.UNKNOWN_MEMBER)
            if current != member_id:
                raise TreecastError(Fault.FENCED_INSTANCE)
        member = self._by_id.get(member_id)
        if member is None:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        return member

    def add(self, member: Member) -> None:
        self._by_id[member.member_id] = member
        self._speakers.update(member.names)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Removes a member. If it was the leader, the oldest remaining member becomes leader."""
        del self._by_id[member.member_id]
        self._unspeak(member)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a static member another member id."""
        old = member.member_id
        del self._by_id[old]
        member.member_id = member_id
        self._by_id[member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        if self.leader == old:
            self.leader = member_id

    def update(self, member: Member, request: JoinGroup) -> None:
        self._unspeak(member)
        member.update(request)
        self._speakers.update(member.names)

    def _unspeak(self, member: Member) -> None:
        self._speakers.subtract(member.names)
        for name in member.names:
            if not self._speakers[name]:
                del self._speakers[name]

    def agree_on(self, names: Iterable[str]) -> bool:
        """Whether all members support one of these protocols."""
        return any(self._speakers[name] == len(self._by_id) for name in names)

    def elected_protocol(self) -> str:
        """The protocol that all support and most prefer. The earliest voter breaks ties."""
        votes: Counter[str] = Counter()
        for member in self._by_id.values():
            votes[next(name for name, _ in member.protocols if self.agree_on((name,)))] += 1
        return max(votes, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined, else elects the oldest member that has. False if none has."""
        if self.leader in self._by_id and self._by_id[self.leader].join_waiter is not None:
            return True
        joined = next((m.member_id for m in self._by_id.values() if m.join_waiter is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def all_joined(self) -> bool:
        return all(member.join_waiter is not None for member in self._by_id.values())

    def joined(self) -> int:
        return sum(member.join_waiter is not None for member in self._by_id.values())

    def rebalance_timeout(self) -> float:
        """The longest rebalance time-out of the members, in seconds."""
        return max((member.rebalance_timeout for member in self._by_id.values()), default=0.0)

    def metadata(self, protocol: str) -> tuple[JoinedMember, ...]:
        """The metadata of all members, for the leader."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self._by_id.values()
        )

    def check(self, member: Member) -> None:
        """Raises AssertionError if the look-up tables disagree. For tests."""
        assert self._by_id[member.member_id] is member
        assert member.instance_id is None or self._static[member.instance_id] == member.member_id
        assert len(self._static) == sum(m.instance_id is not None for m in self._by_id.values())
        assert all(self._speakers[n] == sum(n in m.names for m in self._by_id.values()) for n in member.names)
        assert self.agree_on(member.names), "no protocol is common to all"
