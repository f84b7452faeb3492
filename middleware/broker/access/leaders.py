"""The partitions of all hosts, as one connection may use them."""

from __future__ import annotations

from typing import Final

from ..cluster import Leaders, PartitionLeader
from .audit import Use
from .authorizer import Operation, ResourceKind
from .granted import Granted

_KEPT: Final = 4096  # topics


class CheckedLeaders:
    """Implements `Leaders` for a connection: looks up partitions on which it has the right `operation`.

    The right is asked for at each look-up, so that one that was taken away counts at once, for fetches that
    wait as well. What was decided is kept by topic until rules change.
    """

    def __init__(self, leaders: Leaders, granted: Granted, operation: Operation) -> None:
        self._leaders = leaders
        self._granted = granted
        self._authorizer = granted.authorizer
        self._operation = operation
        self._version = granted.authorizer.version
        self._topics: dict[str, Use] = {}

    def partition(self, topic: str, index: int) -> PartitionLeader:
        """Raises FORBIDDEN_TOPIC without the right, also if there is no such topic, else as `Leaders`."""
        version = self._authorizer.version
        if version != self._version or len(self._topics) >= _KEPT:
            self._version = version
            self._topics.clear()
        found = self._topics.get(topic)
        if found is None:
            self._granted.check(self._operation, ResourceKind.TOPIC, topic)
            self._topics[topic] = self._granted.use(self._operation, ResourceKind.TOPIC, topic)
        else:
            found.count += 1
        return self._leaders.partition(topic, index)

    def check_transaction(self, transactional_id: str) -> None:
        """Raises FORBIDDEN_TRANSACTION if the connection may not write under a transactional id."""
        self._granted.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id)
