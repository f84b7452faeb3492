"""The members of a group of type consumer, and the holders of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from treecast.middleware.broker.values import AWAY_EPOCH, ConsumerHeartbeat, Place, Places
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.timers import NEVER

from .state import Standing

NOTHING: Places = frozenset()


class ClassicSide(Struct, frozen=True):
    """The JoinGroup data of a member that speaks the classic protocol. `session_timeout` in seconds."""

    session_timeout: float
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)


class Member(Struct):
    """One member. Times in seconds; an inactive deadline is NEVER.

    `assigned`: partitions that it may use. `revoking`: partitions that it was told to give up and still
    holds.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: float = 0.0
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str = ""
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = 0
    standing: Standing = Standing.STABLE
    assigned: Places = NOTHING
    revoking: Places = NOTHING
    target: Places = NOTHING
    session_deadline: float = NEVER
    revoke_deadline: float = NEVER
    join_deadline: float = NEVER  # of a classic member that was told to join again
    sync_deadline: float = NEVER  # of a classic member that has joined

    @property
    def away(self) -> bool:
        return self.epoch == AWAY_EPOCH

    @property
    def held(self) -> Places:
        return self.assigned | self.revoking

    @property
    def deadline(self) -> float:
        return min(self.session_deadline, self.revoke_deadline, self.join_deadline, self.sync_deadline)

    def subscription(self) -> tuple[frozenset[str], str]:
        return self.topics, self.regex

    def described(self) -> tuple[object, ...]:
        """Returns all values that a request can change, for comparison."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout,
            self.topics,
            self.regex,
            self.assignor,
            self.classic,
        )

    def update(self, request: ConsumerHeartbeat) -> None:
        """Takes the values of a heartbeat. From then on the member speaks the new protocol."""
        self.client_id, self.client_host = request.client_id, request.client_host
        if request.rack_id is not None:
            self.rack_id = request.rack_id
        if request.rebalance_timeout_ms >= 0:
            self.rebalance_timeout = request.rebalance_timeout_ms / 1000
        if request.topics is not None:
            self.topics = frozenset(request.topics)
        if request.regex is not None:
            self.regex = request.regex
        if request.assignor is not None:
            self.assignor = request.assignor
        self.classic = None
        self.join_deadline = self.sync_deadline = NEVER


class Members:
    """Members by id in order of arrival, static members by instance id, holders by partition."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # instance id -> member id
        self._holders: dict[Place, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """Returns the member that a request names.

        Raises FENCED_INSTANCE if another member has its instance id, UNKNOWN_MEMBER if there is none.
        """
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                raise TreecastError(Fault.UNKNOWN_MEMBER, f"there is no member of instance id {instance_id}")
            if current != member_id:
                raise TreecastError(Fault.FENCED_INSTANCE)
        member = self._by_id.get(member_id)
        if member is None:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        return member

    def holder(self, place: Place) -> str | None:
        return self._holders.get(place)

    def add(self, member: Member) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        for place in member.held:
            self._holders[place] = member.member_id

    def remove(self, member: Member) -> None:
        del self._by_id[member.member_id]
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        for place in member.held:
            if self._holders.get(place) == member.member_id:
                del self._holders[place]

    def hold(self, member: Member, assigned: Places, revoking: Places) -> None:
        """Sets the partitions that `member` holds."""
        before, after = member.held, assigned | revoking
        member.assigned, member.revoking = assigned, revoking
        for place in before - after:
            if self._holders.get(place) == member.member_id:
                del self._holders[place]
        for place in after - before:
            self._holders[place] = member.member_id

    def drop_contradictions(self) -> list[Member]:
        """Removes and returns members whose rows claim a partition of a member with a newer epoch.

        The broker's own writes never leave such rows. The removed members must rejoin, without partitions.
        """
        taken: set[Place] = set()
        members = sorted(self, key=lambda member: -member.epoch)
        doubtful = []
        for member in members:
            if not taken.isdisjoint(member.held):
                doubtful.append(member)
            taken |= member.held
        if doubtful:
            for member in members:
                self.remove(member)
            for member in members:
                if member not in doubtful:
                    self.add(member)
        return doubtful

    def speaks(self, names: Iterable[str]) -> bool:
        """Whether one of these protocols is spoken by all classic members."""
        classic = [member.classic.names for member in self._by_id.values() if member.classic is not None]
        return any(all(name in spoken for spoken in classic) for name in names)

    def all_classic(self) -> bool:
        return bool(self._by_id) and all(member.classic is not None for member in self._by_id.values())

    def preferred_assignor(self, default: str) -> str:
        """Returns the assignor that most members ask for."""
        asked = Counter(member.assignor for member in self._by_id.values() if member.assignor)
        return max(asked, key=lambda name: (asked[name], name)) if asked else default

    def check(self) -> None:
        """For tests: raises AssertionError if the look-ups contradict each other."""
        holders: dict[Place, str] = {}
        for member_id, member in self._by_id.items():
            assert member.member_id == member_id
            assert member.instance_id is None or self._static[member.instance_id] == member_id
            assert member.assigned.isdisjoint(member.revoking), "assigned and to be given up"
            for place in member.held:
                assert place not in holders, f"{place} is held by {holders[place]} and by {member_id}"
                holders[place] = member_id
        assert holders == self._holders, "holders are not who holds"
        assert len(self._static) == sum(m.instance_id is not None for m in self._by_id.values())
