"""Counts of the face that are cheap for sessions to increment."""

from __future__ import annotations


class AmqpCounting:
    """Counts since the face took them last: frames by method, with plain attributes for the most frequent
    methods.
    """

    def __init__(self) -> None:
        self.publishes = 0  # messages
        self.acks = 0  # methods
        self.bytes_in = 0
        self.bytes_out = 0
        self.others: dict[str, int] = {}

    def count(self, method: str) -> None:
        self.others[method] = self.others.get(method, 0) + 1
