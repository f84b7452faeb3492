"""What a client was sent of QoS 1 and 2 and has not settled: by packet id, in the order of sending.

Messages of a run that were sent under packet ids in a row are one `Part`, for as long as their PUBACKs come
in the order of sending, as version 5 asks of clients [MQTT-4.6.0-2]. The first that does not makes single
deliveries of all parts: so a message becomes one at most once.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .codec_runs import rising_acks
from .deliveries import SENT, Delivery, Part

_IDS: Final = 65535


class InFlight:
    """Of one session.

    Packet ids are given in rising order, after 65535 from 1 on; parts are settled oldest first. So no part
    has what lies between the last id that was given and the first of the oldest part.
    """

    def __init__(self) -> None:
        self.count = 0  # messages
        self._last_id = 0
        self._sent: dict[int, Delivery] = {}  # by packet id; parts by keys of their own, which are negative
        self._parts: deque[Part] = deque()
        self._oldest: Part | None = None  # the first of them
        self._key = 0

    def __len__(self) -> int:
        return self.count

    # --- packet ids

    def next_id(self) -> int:
        """The first free one after the last. There is one where the window is open."""
        packet_id = self._last_id
        while True:
            packet_id = packet_id + 1 if packet_id < _IDS else 1
            if self._oldest_has(packet_id):
                self.spread()
            if packet_id not in self._sent:
                return packet_id

    def _oldest_has(self, packet_id: int) -> bool:
        part = self._oldest
        return part is not None and part.packet_id <= packet_id < part.packet_id + part.left

    def row(self, first: int, most: int) -> int:
        """How many ids in a row are free from `first` on, which is: at most `most`."""
        most = min(most, _IDS + 1 - first)
        oldest = self._oldest
        if oldest is not None and oldest.packet_id > first:
            most = min(most, oldest.packet_id - first)
        if len(self._sent) > len(self._parts):
            for packet_id in range(first + 1, first + most):
                if packet_id in self._sent:
                    return packet_id - first
        return most

    # --- what is sent

    def give_id(self, delivery: Delivery) -> None:
        """It is about to be sent for the first time."""
        self._last_id = delivery.packet_id = self.next_id()
        delivery.state = SENT

    def put(self, delivery: Delivery) -> None:
        """A message that was sent under its packet id."""
        self._sent[delivery.packet_id] = delivery
        self.count += 1

    def put_part(self, part: Part, first: int) -> None:
        """Messages that were sent under `first` and the ids after it, which are free."""
        part.packet_id = first
        part.state = SENT
        self._last_id = first + part.left - 1
        self.count += part.left
        if self._oldest is None:
            self._oldest = part
        elif part.continues(self._parts[-1]):
            last = self._parts[-1]
            last.end = part.end
            last.left += part.left
            return
        self._key -= 1
        part.key = self._key
        self._sent[part.key] = part
        self._parts.append(part)

    def restore(self, delivery: Delivery) -> None:
        """The same of what the journal has kept."""
        self.put(delivery)
        self._last_id = max(self._last_id, delivery.packet_id)

    # --- what is settled

    def acknowledged(self, data: bytes, position: int, end: int) -> int:
        """Settles by PUBACKs from `position` on, as long as each is for the oldest part's first; how many."""
        count = 0
        while (part := self._oldest) is not None:
            found = rising_acks(data, position + 4 * count, end, part.packet_id, part.left)
            if found == 0:
                break
            self._settle_first(part, found)
            count += found
        return count

    def _settle_first(self, part: Part, count: int) -> None:
        part.left -= count
        part.packet_id += count
        part.settled += count
        self.count -= count
        if part.left == 0:
            self._parts.popleft()
            self._oldest = self._parts[0] if self._parts else None
            del self._sent[part.key]

    def find(self, packet_id: int) -> Delivery | None:
        """The message sent under `packet_id`, by itself from now on."""
        if self._oldest is not None and packet_id not in self._sent:
            self.spread()
        return self._sent.get(packet_id)

    def remove(self, packet_id: int) -> None:
        """It is settled."""
        del self._sent[packet_id]
        self.count -= 1

    def spread(self) -> None:
        """Makes single deliveries of all parts."""
        if self._oldest is None:
            return
        sent: dict[int, Delivery] = {}
        for packet_id, delivery in self._sent.items():
            if isinstance(delivery, Part):
                for one in delivery.singles():
                    sent[one.packet_id] = one
            else:
                sent[packet_id] = delivery
        self._sent = sent
        self._parts.clear()
        self._oldest = None

    def all(self) -> list[Delivery]:
        """Message by message, in the order of sending."""
        self.spread()
        return list(self._sent.values())
