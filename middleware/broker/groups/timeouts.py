"""The time-outs of one classic group: sessions, member ids given out, overdue syncs, the round of joins."""

from __future__ import annotations

from treecast.middleware.model.timers import NEVER

from .members import Member, Members
from .rounds import Round
from .settings import GroupSettings


class Timeouts:
    """Times are in seconds of the group's clock.

    `reserved`: member ids given out for a first join, and until when they may be used (KIP-394). `unsynced`:
    members without a SyncGroup in this generation, which have until `sync_deadline`.
    """

    def __init__(self, settings: GroupSettings, members: Members) -> None:
        self.reserved: dict[str, float] = {}
        self.unsynced: set[str] = set()
        self.sync_deadline = NEVER
        self.round = Round()
        self.earliest = NEVER  # a lower bound of all deadlines
        self._new_member = settings.new_member_timeout_ms / 1000
        self._members = members

    def arm(self, deadline: float) -> float:
        self.earliest = min(self.earliest, deadline)
        return deadline

    def exact(self) -> float:
        """Returns the earliest deadline."""
        sessions = [member.deadline for member in self._members if member.deadline is not None]
        return min([*sessions, *self.reserved.values(), self.sync_deadline, self.round.deadline])

    def prolong(self, member: Member, now: float) -> None:
        """Restarts a session. A new member does not know its id yet, so its first join gets more time."""
        member.deadline = self.arm(now + (self._new_member if member.is_new else member.session_timeout))

    def synced(self, member_id: str) -> None:
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.sync_deadline = NEVER

    def end_syncs(self) -> set[str]:
        """Ends the wait for syncs. Returns the members that have sent none."""
        overdue, self.unsynced = self.unsynced, set()
        self.sync_deadline = NEVER
        return overdue

    def end(self) -> None:
        """Ends all waits but sessions, because the group ends."""
        self.reserved.clear()
        self.end_syncs()
        self.round.end()
