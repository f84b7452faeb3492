"""The face's counters in a form that a compiled core adds to cheaply."""

from __future__ import annotations

from treecast.middleware.model.counters import FaceCounters


class MqttCounting:
    """Since the last `fold`. Packets by type, but for those that come by the hundred thousand."""

    def __init__(self) -> None:
        self.publishes_in = 0
        self.acks_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._others: dict[str, int] = {}

    def count(self, packet: str) -> None:
        self._others[packet] = self._others.get(packet, 0) + 1

    def fold(self, into: FaceCounters) -> None:
        """Adds all to what metrics read."""
        into.bytes_in += self.bytes_in
        into.bytes_out += self.bytes_out
        requests = into.requests
        if self.publishes_in:
            requests["PUBLISH"] = requests.get("PUBLISH", 0) + self.publishes_in
        if self.acks_in:
            requests["PUBACK"] = requests.get("PUBACK", 0) + self.acks_in
        self.bytes_in = self.bytes_out = self.publishes_in = self.acks_in = 0
        if self._others:
            for packet, count in self._others.items():
                requests[packet] = requests.get(packet, 0) + count
            self._others = {}
