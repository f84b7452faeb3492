"""Which streams each topic went by last, so that a topic that moves keeps its order.

The first message of a topic in another stream waits, at every host that receives both, for all that was
placed in the stream before. That is not always the last one: a topic that goes to hosts 2 and 3, then to 3
alone, then to 2 alone, has at host 2 to wait for the first of these streams. Of topics that were forgotten
every stream that was in use then counts.
"""

from __future__ import annotations

from .stream import EventStream


class _Way:
    """The streams of one topic: to each, the hosts whose last one it was."""

    __slots__ = ("hosts", "latest")

    def __init__(self) -> None:
        self.latest: EventStream | None = None
        self.hosts: dict[EventStream, set[int]] = {}

    def move(self, to: EventStream) -> list[EventStream]:
        """The streams that went before `to` at some host."""
        before = []
        for stream, hosts in list(self.hosts.items()):
            if stream is not to and not hosts.isdisjoint(to.members):
                before.append(stream)
                hosts -= to.members
                if not hosts:
                    del self.hosts[stream]
        self.latest = to
        self.hosts[to] = set(to.members)
        return before


class Places:
    """At most `most` topics are remembered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ways: dict[bytes, _Way] = {}
        self._floor: dict[EventStream, None] = {}  # what the forgotten topics went by

    def move(self, topic: bytes, to: EventStream) -> list[EventStream]:
        """The topic's next message is placed in `to`: the streams that it has to wait for."""
        way = self._ways.get(topic)
        if way is not None:
            return [] if way.latest is to else way.move(to)
        before = [one for one in self._floor if one is not to and not one.members.isdisjoint(to.members)]
        if len(self._ways) >= self._most:
            self._forget_topics()
        way = self._ways[topic] = _Way()
        way.move(to)
        return before

    def _forget_topics(self) -> None:
        for way in self._ways.values():
            self._floor.update(dict.fromkeys(way.hosts))
        self._ways.clear()

    def forget(self, stream: EventStream) -> None:
        """All of it is settled, and it is no more."""
        self._floor.pop(stream, None)
        for topic, way in list(self._ways.items()):
            way.hosts.pop(stream, None)
            if way.latest is stream:
                way.latest = None
            if not way.hosts:
                del self._ways[topic]
