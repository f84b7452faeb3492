"""Effects of a group of type consumer: notes for the operator's log, and rows to write."""

from __future__ import annotations

from itertools import count

from treecast.middleware.broker.groups.effects import Note
from treecast.middleware.model.errors import TreecastError

from .members import Members
from .records import ConsumerGroupRecord, ConsumerMemberRecord, Rows, record_of


class Effects:
    """Notes, and the rows not known to be on disk. `unwritten`: member id to the stamp of its last change."""

    def __init__(self, group_id: str, members: Members) -> None:
        self.unwritten: dict[str, int] = {}
        self._group_id = group_id
        self._members = members
        self._notes: list[Note] = []
        self._stamps = count(1)
        self._group_unwritten = 0  # the same for the group's own row; 0: it is written

    def note(self, event: str, member_id: str, reason: str) -> None:
        self._notes.append(Note(event, member_id, reason))

    def mark(self, member_id: str) -> None:
        """Schedules the writing or removal of a member's row."""
        self.unwritten[member_id] = next(self._stamps)

    def mark_group(self) -> None:
        self._group_unwritten = next(self._stamps)

    def take(self, record: ConsumerGroupRecord | None) -> list[Note | Rows]:
        """Returns the notes, and one write of all rows not known to be on disk. `record`: the group's own
        row; None: the group has ended, and nothing is written.

        Thus a later row is never stored without an earlier one that it builds on.
        """
        effects: list[Note | Rows] = [*self._notes]
        self._notes = []
        if (self.unwritten or self._group_unwritten) and record is not None:
            members: list[tuple[str, ConsumerMemberRecord | None]] = []
            for member_id in self.unwritten:
                member = self._members.get(member_id)
                members.append((member_id, None if member is None else record_of(member)))
            changed = self._group_unwritten > 0
            effects.append(Rows(self._group_id, record, changed, tuple(members), next(self._stamps)))
        return effects

    def written(self, stamp: int, error: TreecastError | None) -> None:
        """Notes that the rows of `stamp` are on disk. After an `error` the next write includes them."""
        if error is not None:
            return
        self.unwritten = {member_id: at for member_id, at in self.unwritten.items() if at > stamp}
        if self._group_unwritten < stamp:
            self._group_unwritten = 0
