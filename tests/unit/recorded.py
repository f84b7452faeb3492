"""Topics that are recorded in memory, in place of the bridge to Kafka's."""

from __future__ import annotations

from treecast.middleware.broker.pubsub import Message, Recorder, Target
from treecast.middleware.model.errors import Fault

LARGE = 6  # bytes of a payload that are refused


class Topics(Recorder):
    """Records in memory. Refuses large payloads, and everything while there is a `fault`."""

    def __init__(self, *topics: bytes) -> None:
        super().__init__()
        self.topics = topics
        self.fault: Fault | None = None
        self.got: list[tuple[bytes, bytes, bytes]] = []

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload, _ in self.got]

    def records(self, topic: bytes) -> bool:
        return topic in self.topics

    def take(self, message: Message, target: Target) -> None:
        self.refusal = self.fault or (Fault.BATCH_TOO_LARGE if len(message.payload) >= LARGE else None)
        if self.refusal is None:
            self.got.append((message.topic, message.payload, self.lane))
