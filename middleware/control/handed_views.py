"""The pages of views that hosts hand in, until a view is whole. Bounded: one view at a time."""

from __future__ import annotations

from typing import Final

from treecast.middleware.api.entries import Change, Position, put, read_change
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError

MOST_ENTRIES: Final = 5_000_000  # as a watcher takes


class HandedViews:
    """The view that is being handed in."""

    def __init__(self) -> None:
        self._of: tuple[str, Position] | None = None
        self._entries: list[Change] = []

    def page(self, request: pb.HandInRequest, told: Position) -> tuple[Change, ...] | None:
        """Takes a page. Returns the view when it is whole. Raises INVALID_REQUEST."""
        sender = request.name, told
        if request.first == 0:
            self._of, self._entries = sender, []
        if self._of != sender or request.first != len(self._entries):
            raise TreecastError(
                Fault.INVALID_REQUEST, "the pages before are missing: begin again with the first"
            )
        try:
            self._entries += map(_entry, request.changes)
        except ValueError as error:
            self.forget(request.name)
            raise TreecastError(Fault.INVALID_REQUEST, f"the view has an invalid entry: {error}") from error
        if len(self._entries) > MOST_ENTRIES:
            self.forget(request.name)
            raise TreecastError(Fault.INVALID_REQUEST, f"a view has at most {MOST_ENTRIES} entries")
        if request.more:
            return None
        whole = tuple(self._entries)
        self.forget(request.name)
        return whole

    def forget(self, name: str) -> None:
        """Drops what host `name` has sent."""
        if self._of is not None and self._of[0] == name:
            self._of, self._entries = None, []


def _entry(message: pb.EntryChange) -> Change:
    """Returns an entry of a view. Raises ValueError if it is none, or under another key."""
    change = read_change(message)
    if change.entry is None or put(change.entry).key != change.key:
        raise ValueError(f"{change.key[:100]!r} is not the key of its entry")
    return change
