"""The unsettled deliveries of a session: single messages, or consecutive messages of a run.

Waiting deliveries are in a queue, in order; `session_state` has those in flight.

Messages of a run sent under consecutive packet ids form one `Part` as long as their PUBACKs arrive in
sending order, as version 5 requires of clients [MQTT-4.6.0-2]. The first PUBACK out of order splits all
parts into single deliveries. A message is therefore split off at most once.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from treecast.middleware.broker.pubsub import Creditor, Message, Owed, PromisedRun, Run, messages_in
from treecast.middleware.wire.mqtt_publish import section, skip

QUEUED: Final = 0
SENT: Final = 1  # PUBLISH sent; awaits PUBACK or PUBREC
RELEASED: Final = 2  # PUBREL sent; awaits PUBCOMP

_ANY: Final = 1 << 40


class Delivery(Owed):
    """One message on its way to one client. `packet_id` is 0 until one is assigned. `creditor`: the record of
    its shared subscription, if that owes it and not the session's."""

    packet_id: int = 0
    state: int = QUEUED
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
        if most >= self.left and self.end - self.begin <= room:
            count, end, size = self.left, self.end, self.bytes_left
        else:
            count, end, lengths = skip(run.data, self.begin, most, room)
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
            and before.end == self.begin
            and before.packet_id + before.left == self.packet_id
        )

    def singles(self) -> list[Delivery]:
        """Returns each unsettled message as a single delivery."""
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
