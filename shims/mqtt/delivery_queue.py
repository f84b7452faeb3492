"""What waits for a client, in order, and how much it is."""

from __future__ import annotations

from collections import deque

from .deliveries import Delivery, Part


class DeliveryQueue:
    """Of one session. `messages` and `bytes` are what its bounds are about."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._waiting: deque[Delivery] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Delivery:
        return self._waiting[0]

    def append(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self.bytes += delivery.size
        self.messages += delivery.count

    def pop(self) -> Delivery:
        """The first of them; of a part, its first message."""
        first = self._waiting[0]
        if isinstance(first, Part) and first.left > 1:
            taken: Delivery = first.cut(1, 0)
        else:
            taken = self._waiting.popleft()
        self.bytes -= taken.size
        self.messages -= taken.count
        return taken

    def cut(self, part: Part, most: int, room: int) -> Part:
        """As `Part.cut`, of the first of them, which is `part`."""
        taken = part.cut(most, room)
        self.bytes -= taken.size
        self.messages -= taken.count
        if part.left == 0:
            self._waiting.popleft()
        return taken

    def keep_promised(self) -> None:
        """What is of QoS 0 goes."""
        kept = [delivery for delivery in self._waiting if delivery.qos]
        self._fill(kept)

    def spread(self) -> None:
        """Makes single deliveries of all parts."""
        single: list[Delivery] = []
        for delivery in self._waiting:
            if isinstance(delivery, Part):
                single += delivery.singles()
            else:
                single.append(delivery)
        self._waiting = deque(single)

    def all(self) -> list[Delivery]:
        """Message by message, but for runs of QoS 0."""
        self.spread()
        return list(self._waiting)

    def _fill(self, deliveries: list[Delivery]) -> None:
        self._waiting = deque()
        self.messages = self.bytes = 0
        for delivery in deliveries:
            self.append(delivery)
