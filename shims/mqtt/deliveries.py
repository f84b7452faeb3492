"""The unsettled deliveries of a session: single messages, or consecutive messages of a run.

Waiting deliveries are in a queue, in order; sent ones are in flight.

Messages of a run sent under consecutive packet ids form one `Part` as long as their PUBACKs arrive in
sending order, as version 5 requires of clients [MQTT-4.6.0-2]. The first PUBACK out of order splits all
parts into single deliveries. A message is therefore split off at most once.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from treecast.middleware.broker.pubsub import Creditor, Message, Owed, PromisedRun, Run, messages_in
from treecast.middleware.wire.mqtt_publish import rising_acks, section, skip

QUEUED: Final = 0
SENT: Final = 1  # PUBLISH sent; awaits PUBACK or PUBREC
RELEASED: Final = 2  # PUBREL sent; awaits PUBCOMP

_ANY: Final = 1 << 40
_IDS: Final = 65535


class Delivery(Owed):
    """One message on its way to one client. `packet_id` is 0 until one is assigned. `creditor`: the record of
    its shared subscription, if that owes it and not the session's. `held`: it is in `Again`."""

    packet_id: int = 0
    state: int = QUEUED
    held: bool = False
    creditor: Creditor | None = None

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        share: bytes = b"",
    ) -> None:
        super().__init__(message, qos, retain, identifiers)
        self.share = share

    @property
    def size(self) -> int:
        """The bytes that it counts for in a queue."""
        return self.message.size

    @property
    def count(self) -> int:
        """The number of messages that it stands for."""
        return 1


EMPTY: Final = Message(b"", b"")


class RunDelivery(Delivery):
    """A QoS 0 run in a queue."""

    def __init__(self, run: Run) -> None:
        super().__init__(EMPTY, 0, False, ())
        self.run = run

    @property
    def size(self) -> int:
        return len(self.run.data)

    @property
    def count(self) -> int:
        return self.run.count


class Part(Delivery):
    """Consecutive QoS 1 messages of a run: the bytes from `begin` to `end`.

    `left` counts the messages that are still unsent (in a queue) or unsettled (in flight); `bytes_left` is
    the size that they count for in a queue. In flight, `packet_id` belongs to the first unsettled message,
    the others have the ids after it, and `settled` counts the messages before it.
    """

    def __init__(self, run: PromisedRun, begin: int, end: int, left: int, bytes_left: int) -> None:
        super().__init__(EMPTY, 1, False, ())
        self.run = run
        self.begin = begin
        self.end = end
        self.left = left
        self.bytes_left = bytes_left
        self.settled = 0
        self.key = 0  # its key in `session_state.InFlight`

    @property
    def size(self) -> int:
        return self.bytes_left

    @property
    def count(self) -> int:
        return self.left

    @property
    def data(self) -> bytes:
        return section(self.run.data, self.begin, self.end)

    def cut(self, most: int, room: int) -> Part:
        """Splits off its first messages: at most `most`, and none that begins beyond `room` bytes."""
        run = self.run
        # All of it fits: no need to walk over the messages to find where to cut.
        if most >= self.left and self.end - self.begin <= room:
            count, end, size = self.left, self.end, self.bytes_left
        else:
            count, end, lengths = skip(run.data, self.begin, most, room)
            # Limits of a queue count topics and payloads only, not the other bytes of a packet.
            size = lengths - run.overhead * count
        found = Part(run, self.begin, end, count, size)
        self.begin = end
        self.left -= count
        self.bytes_left -= size
        return found

    def continues(self, before: Part) -> bool:
        """Whether it directly follows `before`, both in the run and in packet ids."""
        return (
            before.run is self.run
            # The same run alone is not enough: messages between the two may have been dropped or sent
            # otherwise.
            and before.end == self.begin
            and before.packet_id + before.left == self.packet_id
        )

    def singles(self) -> list[Delivery]:
        """Returns each unsettled message as a single delivery."""
        # Settled messages are still in the bytes of the part: only its counts have moved past them.
        begin = skip(self.run.data, self.begin, self.settled, _ANY)[1]
        found: list[Delivery] = []
        packet_id = self.packet_id
        for message in messages_in(self.run, 1, begin, self.end):
            one = Delivery(message, 1, False, ())
            one.state = self.state
            one.packet_id = packet_id
            if packet_id:
                packet_id += 1
            found.append(one)
        return found


def whole(run: PromisedRun) -> Part:
    """Returns a part that covers the whole run."""
    return Part(run, 0, len(run.data), run.count, run.size)


class DeliveryQueue:
    """The delivery queue of one session. `messages` and `bytes` are the totals that its limits apply to."""

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
        """Removes and returns the first delivery, or the first message if that is a part."""
        first = self._waiting[0]
        if isinstance(first, Part) and first.left > 1:
            # No room is asked for: a message that begins within it is taken, and the first one always is.
            taken: Delivery = first.cut(1, 0)
        else:
            taken = self._waiting.popleft()
        self.bytes -= taken.size
        self.messages -= taken.count
        return taken

    def cut(self, part: Part, most: int, room: int) -> Part:
        """Applies `Part.cut` to `part`, which is the first delivery."""
        taken = part.cut(most, room)
        self.bytes -= taken.size
        self.messages -= taken.count
        if part.left == 0:
            self._waiting.popleft()
        return taken

    def shares(self) -> list[bytes]:
        """Returns the shared subscriptions of the deliveries, each once."""
        return list(dict.fromkeys([delivery.share for delivery in self._waiting if delivery.share]))

    def take_unsent(self, shares: list[bytes]) -> list[Delivery]:
        """Removes and returns the deliveries of `shares` that were never sent."""
        taken: list[Delivery] = []
        kept: list[Delivery] = []
        for delivery in self._waiting:
            unsent = not delivery.sent and delivery.share in shares
            (taken if unsent else kept).append(delivery)
        self._fill(kept)
        return taken

    def keep_promised(self) -> None:
        """Drops all QoS 0 deliveries."""
        kept = [delivery for delivery in self._waiting if delivery.qos]
        self._fill(kept)

    def spread(self) -> None:
        """Splits all parts into single deliveries."""
        single: list[Delivery] = []
        for delivery in self._waiting:
            if isinstance(delivery, Part):
                single += delivery.singles()
            else:
                single.append(delivery)
        self._waiting = deque(single)

    def all(self) -> list[Delivery]:
        """Returns all deliveries as single messages, except QoS 0 runs."""
        self.spread()
        return list(self._waiting)

    def _fill(self, deliveries: list[Delivery]) -> None:
        self._waiting = deque()
        self.messages = self.bytes = 0
        for delivery in deliveries:
            self.append(delivery)


class InFlight:
    """The deliveries in flight of one session.

    Packet ids are assigned in ascending order and wrap from 65535 to 1; parts are settled oldest first.
    Hence no part holds an id between the last one assigned and the first of the oldest part.
    """

    def __init__(self) -> None:
        self.count = 0  # messages
        self.bytes = 0  # that they count for in a queue; of settled ones of a part, about their share
        self._last_id = 0
        self._sent: dict[int, Delivery] = {}  # by packet id; parts have negative keys
        self._parts: deque[Part] = deque()
        self._oldest: Part | None = None  # the first of `_parts`
        self._key = 0

    def __len__(self) -> int:
        return self.count

    # --- packet ids

    def next_id(self) -> int:
        """Returns the first free id after the last one assigned. One exists while the window is open."""
        packet_id = self._last_id
        while True:
            packet_id = packet_id + 1 if packet_id < _IDS else 1
            # Ids have come round to those that an old part still uses: only single deliveries can be skipped
            # one by one.
            if self._oldest_has(packet_id):
                self.spread()
            if packet_id not in self._sent:
                return packet_id

    def _oldest_has(self, packet_id: int) -> bool:
        part = self._oldest
        return part is not None and part.packet_id <= packet_id < part.packet_id + part.left

    def row(self, first: int, most: int) -> int:
        """Counts the consecutive free ids from `first` on, at most `most`. `first` itself must be free."""
        # A row does not wrap: a part's ids are consecutive numbers.
        most = min(most, _IDS + 1 - first)
        oldest = self._oldest
        if oldest is not None and oldest.packet_id > first:
            most = min(most, oldest.packet_id - first)
        # There are single deliveries, so each id is looked up. With parts alone, the oldest one is the only
        # bound.
        if len(self._sent) > len(self._parts):
            for packet_id in range(first + 1, first + most):
                if packet_id in self._sent:
                    return packet_id - first
        return most

    # --- sending

    def give_id(self, delivery: Delivery) -> None:
        """Assigns a packet id to a delivery that is about to be sent for the first time."""
        self._last_id = delivery.packet_id = self.next_id()
        delivery.state = SENT

    def put(self, delivery: Delivery) -> None:
        """Adds a message that was sent under its packet id."""
        self._sent[delivery.packet_id] = delivery
        self.count += 1
        self.bytes += delivery.size

    def put_part(self, part: Part, first: int) -> None:
        """Adds messages that were sent under `first` and the ids after it, which must be free."""
        part.packet_id = first
        part.state = SENT
        self._last_id = first + part.left - 1
        self.count += part.left
        self.bytes += part.bytes_left
        if self._oldest is None:
            self._oldest = part
        # Merged: a client that reads in small pieces would otherwise get a part for each of them.
        elif part.continues(self._parts[-1]):
            last = self._parts[-1]
            last.end = part.end
            last.left += part.left
            last.bytes_left += part.bytes_left
            return
        self._key -= 1
        part.key = self._key
        self._sent[part.key] = part
        self._parts.append(part)

    def restore(self, delivery: Delivery) -> None:
        """Adds a delivery restored from the journal."""
        self.put(delivery)
        # The highest id, not the last restored one: the next id must be free of all that were restored.
        self._last_id = max(self._last_id, delivery.packet_id)

    # --- settling

    def acknowledged(self, data: bytes, position: int, end: int) -> int:
        """Settles messages while each PUBACK from `position` on is for the oldest part's first message.

        Returns the number of PUBACKs used.
        """
        count = 0
        # PUBACKs of several parts may arrive together; settling one part makes the next the oldest.
        while (part := self._oldest) is not None:
            found = rising_acks(data, position + 4 * count, end, part.packet_id, part.left)
            if found == 0:
                break
            self._settle_first(part, found)
            count += found
        return count

    def _settle_first(self, part: Part, count: int) -> None:
        size = part.bytes_left * count // part.left
        part.bytes_left -= size
        self.bytes -= size
        part.left -= count
        part.packet_id += count
        part.settled += count
        self.count -= count
        if part.left == 0:
            self._parts.popleft()
            self._oldest = self._parts[0] if self._parts else None
            del self._sent[part.key]

    def find(self, packet_id: int) -> Delivery | None:
        """Returns the message sent under `packet_id`. If it may be in a part, splits all parts first."""
        # Also an id that nobody has: whether a part covers it is known only once the parts are split.
        if self._oldest is not None and packet_id not in self._sent:
            self.spread()
        return self._sent.get(packet_id)

    def remove(self, packet_id: int) -> None:
        """Removes a settled message."""
        self.bytes -= self._sent.pop(packet_id).size
        self.count -= 1

    def released(self, delivery: Delivery) -> None:
        """The client has a message of QoS 2: only its packet id is in flight from now on."""
        self.bytes -= delivery.size
        delivery.message = EMPTY

    def spread(self) -> None:
        """Splits all parts into single deliveries."""
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
        self.bytes = sum([delivery.size for delivery in sent.values()])
        self._parts.clear()
        self._oldest = None

    def all(self) -> list[Delivery]:
        """Returns all deliveries as single messages, in sending order."""
        self.spread()
        return list(self._sent.values())


class Again:
    """The deliveries in flight that the present connection of a session has not been sent yet, in order: its
    window may be smaller than that of the connection before [MQTT-3.3.4-9]."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: deque[Delivery] = deque()

    def put(self, delivery: Delivery) -> None:
        delivery.held = True
        self.count += 1
        self._waiting.append(delivery)

    def take_out(self, delivery: Delivery) -> None:
        """The delivery is sent, or settled before that. Nothing if it is not held."""
        if delivery.held:
            delivery.held = False
            self.count -= 1

    def next(self) -> Delivery | None:
        """Takes out and returns the first."""
        while self._waiting:
            delivery = self._waiting.popleft()
            if delivery.held:
                self.take_out(delivery)
                return delivery
        return None

    def clear(self) -> None:
        while self.next() is not None:
            pass
