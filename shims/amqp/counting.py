"""Counters of the face that are cheap for sessions to increment."""

from __future__ import annotations

from treecast.middleware.model.counters import FaceCounters


class AmqpCounting:
    """Counts since the last `fold`: frames by method, with plain attributes for the most frequent methods."""

    def __init__(self) -> None:
        self.publishes = 0  # messages
        self.acks = 0  # methods
        self.bytes_in = 0
        self.bytes_out = 0
        self._others: dict[str, int] = {}

    def count(self, method: str) -> None:
        self._others[method] = self._others.get(method, 0) + 1

    def fold(self, into: FaceCounters) -> None:
        """Adds all counts to the counters that metrics read, and resets them."""
        into.bytes_in += self.bytes_in
        into.bytes_out += self.bytes_out
        requests = into.requests
        for method, count in (("Basic.Publish", self.publishes), ("Basic.Ack", self.acks)):
            if count:
                requests[method] = requests.get(method, 0) + count
        self.bytes_in = self.bytes_out = self.publishes = self.acks = 0
        if self._others:
            for method, count in self._others.items():
                requests[method] = requests.get(method, 0) + count
            self._others = {}
