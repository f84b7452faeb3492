"""Which stream each topic went by last, so that a topic that moves keeps its order.

The first message of a topic in another stream waits, at every host that receives both, for all that was
placed in the stream before. Of topics that were forgotten every stream that was in use then counts.
"""

from __future__ import annotations

from .stream import EventStream


class Places:
    """At most `most` topics are remembered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: dict[bytes, EventStream] = {}
        self._floor: dict[EventStream, None] = {}  # what the forgotten topics went by

    def move(self, topic: bytes, to: EventStream) -> list[EventStream]:
        """The topic's next message is placed in `to`: the streams that it has to wait for."""
        last = self._last.get(topic)
        if last is to:
            return []
        before = [last] if last is not None else list(self._floor)
        if last is None and len(self._last) >= self._most:
            self._forget_topics()
        self._last[topic] = to
        return [one for one in before if one is not to and not one.members.isdisjoint(to.members)]

    def _forget_topics(self) -> None:
        self._floor.update(dict.fromkeys(self._last.values()))
        self._last.clear()

    def forget(self, stream: EventStream) -> None:
        """All of it is settled, and it is no more."""
        self._floor.pop(stream, None)
        for topic in [topic for topic, last in self._last.items() if last is stream]:
            del self._last[topic]
