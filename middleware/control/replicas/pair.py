"""What the replica controller knows of one VNF's updates of one state."""

from __future__ import annotations

from treecast.middleware.fabric.stare.replica import Budget, Replica

from .backlog import Backlog


class Pair:
    """`holder`: the host to ask for what is missing, the publisher's where it is known.

    `sure`: whether the publisher's host has said where its updates begin. Until then there may be some before
    those that came first, which subscribers lack and the publisher has.
    """

    __slots__ = ("backlog", "holder", "publisher", "replica", "reported", "sure")

    def __init__(self, first: int, budget: Budget, window: int) -> None:
        self.replica = Replica(first, budget, window)
        self.backlog = Backlog(first)
        self.publisher: int | None = None
        self.holder: int | None = None
        self.reported: dict[int, int] = {}  # by subscribing host: it has all before
        self.sure = False

    @property
    def first(self) -> int:
        """The oldest update that can be given."""
        return self.backlog.first

    @property
    def end(self) -> int:
        """All before it were taken, in order."""
        return self.replica.next

    def begin_again(self, first: int, budget: Budget, window: int) -> None:
        """With what is before all that is here; the caller puts in what it has."""
        known = self.replica.known
        self.replica.close()
        self.replica = Replica(first, budget, window)
        self.replica.based = True
        self.replica.known = known
        self.backlog = Backlog(first)
