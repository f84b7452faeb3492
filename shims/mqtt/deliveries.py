"""What a session has been handed and not settled: a message, or messages that follow each other in a run."""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import Message, Owed, Run

from .codec_runs import section, skip
from .runs import PromisedRun, messages_in

QUEUED: Final = 0
SENT: Final = 1  # PUBLISH is out; PUBACK or PUBREC is awaited
RELEASED: Final = 2  # PUBREL is out; PUBCOMP is awaited

_ANY: Final = 1 << 40


class Delivery(Owed):
    """One message on its way to one client. `packet_id` 0: none was given yet."""

    def __init__(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        super().__init__(message, qos, retain, identifiers)
        self.packet_id = 0
        self.state = QUEUED

    @property
    def size(self) -> int:
        """Bytes that it takes in a queue."""
        return self.message.size

    @property
    def count(self) -> int:
        """Messages that it is."""
        return 1


EMPTY: Final = Message(b"", b"")


class RunDelivery(Delivery):
    """A run of QoS 0 in a queue."""

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
    """Messages of QoS 1 that follow each other in a run: the bytes from `begin` to `end`.

    `left` of them are not sent, or not settled; `bytes_left` is what those in a queue take there. In flight,
    `packet_id` is the first one's that is left, the others have the ids after it, and `settled` came before.
    """

    def __init__(self, run: PromisedRun, begin: int, end: int, left: int, bytes_left: int) -> None:
        super().__init__(EMPTY, 1, False, ())
        self.run = run
        self.begin = begin
        self.end = end
        self.left = left
        self.bytes_left = bytes_left
        self.settled = 0
        self.key = 0  # where `InFlight` has it

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
        """Takes away its first messages: at most `most`, and none that begins beyond `room` bytes."""
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
        """Whether it comes right after `before`, in the run and in packet ids."""
        return (
            before.run is self.run
            and before.end == self.begin
            and before.packet_id + before.left == self.packet_id
        )

    def singles(self) -> list[Delivery]:
        """Each message that is left."""
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
    """All of a run."""
    return Part(run, 0, len(run.data), run.count, run.size)
