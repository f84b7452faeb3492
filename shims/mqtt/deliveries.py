"""What a session has been handed and not settled: its queue, and what is in flight."""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import Message, Owed, Run

QUEUED: Final = 0
SENT: Final = 1  # PUBLISH is out; PUBACK or PUBREC is awaited
RELEASED: Final = 2  # PUBREL is out; PUBCOMP is awaited


class Delivery(Owed):
    """One message on its way to one client, or a run of them. `packet_id` 0: none was given yet.

    `again`: the client may have been sent it before, by a process that is no more.
    """

    def __init__(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        super().__init__(message, qos, retain, identifiers)
        self.again = False
        self.packet_id = 0
        self.state = QUEUED
        self.run: Run | None = None

    @property
    def size(self) -> int:
        run = self.run
        return self.message.size if run is None else len(run.data)

    @property
    def count(self) -> int:
        run = self.run
        return 1 if run is None else run.count


EMPTY: Final = Message(b"", b"")


def run_delivery(run: Run) -> Delivery:
    found = Delivery(EMPTY, 0, False, ())
    found.run = run
    return found
