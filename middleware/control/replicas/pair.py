"""The replica controller's state for one VNF's updates of one state."""

from __future__ import annotations

from treecast.middleware.fabric.stare.replica import Budget, Replica

from .backlog import Backlog


class Pair:
    """A pair. `holder`: the host to request missing updates from, the publisher's if known.

    `sure`: whether the publisher's host has reported where its updates begin. Until then there may be earlier
    ones than those received first, which the publisher has and subscribers lack.
    """

    __slots__ = ("backlog", "holder", "publisher", "replica", "reported", "sure")

    def __init__(self, first: int, budget: Budget, window: int) -> None:
        self.replica = Replica(first, budget, window)
        self.backlog = Backlog(first)
        self.publisher: int | None = None
        self.holder: int | None = None
        self.reported: dict[int, int] = {}  # by subscribing host: it has all updates before this number
        self.sure = False

    @property
    def first(self) -> int:
        """The oldest available update."""
        return self.backlog.first

    @property
    def end(self) -> int:
        """All updates before it were received in order."""
        return self.replica.next

    def begin_again(self, first: int, budget: Budget, window: int) -> None:
        """Restarts at the earlier number `first`; the caller adds the updates that it holds."""
        known = self.replica.known
        self.replica.close()
        self.replica = Replica(first, budget, window)
        self.replica.based = True
        self.replica.known = known
        self.backlog = Backlog(first)
