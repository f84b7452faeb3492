"""The asyncio edge of the Kafka face: sockets, and nothing else that waits."""

from __future__ import annotations

from treecast.middleware.broker import Broker
from treecast.middleware.model.counters import FaceCounters

from .settings import KafkaSettings


class KafkaFace:
    """The Kafka face of one daemon, from `start` to `close`."""

    def __init__(self, broker: Broker, settings: KafkaSettings, counters: FaceCounters) -> None:
        self._broker = broker
        self._settings = settings
        self._counters = counters
        self._address = (settings.host, settings.port)

    @property
    def address(self) -> tuple[str, int]:
        """The (host, port) that it listens on."""
        return self._address

    async def start(self) -> None:
        """Listens. OSError where the address cannot be had."""

    async def close(self, grace: float = 5.0) -> None:
        """Stops accepting, answers what is in flight within `grace` seconds, closes. Safe to call twice."""


def serve(broker: Broker, settings: KafkaSettings, counters: FaceCounters) -> KafkaFace:
    """A face that serves `broker`; `await face.start()` opens it."""
    return KafkaFace(broker, settings, counters)
