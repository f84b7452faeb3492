"""What the replica controller knows of one VNF's updates of one state."""

from __future__ import annotations

from treecast.middleware.fabric.stare.replica import Budget, Replica

from .backlog import Backlog


class Pair:
    """`holder`: the host to ask for what is missing, the publisher's where it is known."""

    __slots__ = ("backlog", "holder", "publisher", "replica", "reported")

    def __init__(self, first: int, budget: Budget, window: int) -> None:
        self.replica = Replica(first, budget, window)
        self.backlog = Backlog(first)
        self.publisher: int | None = None
        self.holder: int | None = None
        self.reported: dict[int, int] = {}  # by subscribing host: it has all before

    @property
    def first(self) -> int:
        """The oldest update that can be given."""
        return self.backlog.first

    @property
    def end(self) -> int:
        """All before it were taken, in order."""
        return self.replica.next
