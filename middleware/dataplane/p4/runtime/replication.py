"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

from .errors import ControlError, Problem
from .values import CloneSession, MulticastGroup, Replica

MAX_GROUP = 0xFFFF
MAX_SESSION = 0x7FFF
MAX_REPLICAS = 4096  # per group: bounds the cost that a controller can give one packet


class Replication:
    """`copies` and `clones` are for the pipeline: (port, rid) pairs by id, in the order written."""

    def __init__(self) -> None:
        self.copies: dict[int, tuple[tuple[int, int], ...]] = {}
        self.clones: dict[int, tuple[tuple[int, int], ...]] = {}
        self._groups: dict[int, MulticastGroup] = {}
        self._sessions: dict[int, CloneSession] = {}

    def insert_group(self, group: MulticastGroup) -> None:
        _check_id("multicast group", group.group, 1, MAX_GROUP)
        if group.group in self._groups:
            raise ControlError(Problem.EXISTS, f"multicast group {group.group} exists")
        self._put_group(group)

    def modify_group(self, group: MulticastGroup) -> None:
        self._need_group(group.group)
        self._put_group(group)

    def delete_group(self, group: int) -> None:
        self._need_group(group)
        del self._groups[group], self.copies[group]

    def group(self, group: int) -> MulticastGroup:
        self._need_group(group)
        return self._groups[group]

    def groups(self) -> list[MulticastGroup]:
        return list(self._groups.values())

    def insert_session(self, session: CloneSession) -> None:
        _check_id("clone session", session.session, 0, MAX_SESSION)
        if session.session in self._sessions:
            raise ControlError(Problem.EXISTS, f"clone session {session.session} exists")
        self._put_session(session)

    def modify_session(self, session: CloneSession) -> None:
        self._need_session(session.session)
        self._put_session(session)

    def delete_session(self, session: int) -> None:
        self._need_session(session)
        del self._sessions[session], self.clones[session]

    def session(self, session: int) -> CloneSession:
        self._need_session(session)
        return self._sessions[session]

    def sessions(self) -> list[CloneSession]:
        return list(self._sessions.values())

    def packet_length(self, session: int) -> int:
        """Returns how much of a clone is left; 0: all."""
        found = self._sessions.get(session)
        return found.packet_length if found is not None else 0

    def _put_group(self, group: MulticastGroup) -> None:
        self.copies[group.group] = _pairs(group.replicas)
        self._groups[group.group] = group

    def _put_session(self, session: CloneSession) -> None:
        if session.packet_length < 0:
            raise ControlError(Problem.INVALID, "a clone's length is not negative")
        self.clones[session.session] = _pairs(session.replicas)
        self._sessions[session.session] = session

    def _need_group(self, group: int) -> None:
        if group not in self._groups:
            raise ControlError(Problem.NOT_FOUND, f"there is no multicast group {group}")

    def _need_session(self, session: int) -> None:
        if session not in self._sessions:
            raise ControlError(Problem.NOT_FOUND, f"there is no clone session {session}")


def _check_id(kind: str, number: int, low: int, high: int) -> None:
    if not low <= number <= high:
        raise ControlError(Problem.INVALID, f"{kind} ids go from {low} to {high}, not {number}")


def _pairs(replicas: tuple[Replica, ...]) -> tuple[tuple[int, int], ...]:
    if len(replicas) > MAX_REPLICAS:
        raise ControlError(Problem.FULL, f"{len(replicas)} replicas, at most {MAX_REPLICAS} are allowed")
    pairs = tuple((replica.port, replica.instance) for replica in replicas)
    for port, instance in pairs:
        if not 0 <= port <= 0x1FF or not 0 <= instance <= 0xFFFF:
            raise ControlError(
                Problem.INVALID, f"replica of port {port}, instance {instance} is out of range"
            )
    if len(set(pairs)) != len(pairs):
        raise ControlError(Problem.INVALID, "a replica (port and instance) is named twice")
    return pairs
