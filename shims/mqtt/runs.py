"""Runs: publishes that follow each other in what a client sends and go to the same targets, kept as the bytes
in which they came.

A run of QoS 0 leaves as it is. One of QoS 1 leaves with the receiver's packet ids instead of the publisher's;
what is in flight of it is a range of ids (`inflight`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from treecast.middleware.broker.pubsub import Message, PubSub, Run, Targets

from .codec import BAD_TOPIC, V5, MqttError, protocol_error
from .codec_read import check_topic
from .codec_runs import PUBLISH_1, head_at, same, uint16_at, without_ids

OWN: Final = b"$SYS/"  # topics below it are the server's


class PublishRun(Run):
    """Publishes of QoS 0 as they came."""

    def messages(self) -> list[Message]:
        """Each of them, read again."""
        return messages_in(self, 0, 0, len(self.data))


class PromisedRun(Run):
    """Publishes of QoS 1 as they came, with their publisher's packet ids. `bodies`: bytes of all bodies;
    `size`: of topics and payloads, which is what their messages take in a queue."""

    def __init__(self, format: int, data: bytes, count: int, bodies: int) -> None:
        super().__init__(format, data, count)
        self.size = bodies - self.overhead * count
        self._messages: list[Message] | None = None
        self._plain: PublishRun | None = None

    def messages(self) -> list[Message]:
        """Each of them, the same objects for all who ask until `handed_over`."""
        if self._messages is None:
            self._messages = messages_in(self, 1, 0, len(self.data))
        return self._messages

    def as_qos_0(self) -> PublishRun:
        """The same for who was granted QoS 0."""
        if self._plain is None:
            self._plain = PublishRun(self.format, without_ids(self.data), self.count)
        return self._plain

    def handed_over(self) -> None:
        """All targets have it: what was made of it for some of them is theirs alone."""
        self._messages = None
        self._plain = None

    @property
    def overhead(self) -> int:
        """Bytes of a packet's body that are neither topic nor payload."""
        return 5 if self.format == V5 else 4


def messages_in(run: Run, qos: int, begin: i64, end: i64) -> list[Message]:
    """The messages between two places of a run."""
    data = run.data
    between: i64 = (2 if qos else 0) + (1 if run.format == V5 else 0)
    found: list[Message] = []
    at = begin
    while at < end:
        size, body = head_at(data, at, end)
        named = body + 2 + uint16_at(data, body)
        at = body + size
        found.append(Message(data[body + 2 : named], data[named + between : at], qos))
    return found


class Scan:
    """The publishes at some place of a chunk that are one run: `count`, up to `stop`, for `targets`.

    `count` 0: the first is of another kind, not whole, or breaks a rule; it is to be looked at by itself.
    `size`: bytes of their bodies.
    """

    def __init__(self, hub: PubSub, version: int, largest: int) -> None:
        self.targets: Targets | None = None
        self.count = 0
        self.stop = 0
        self.size = 0
        self._hub = hub
        self._version = version
        self._largest = largest

    def look(self, data: bytes, position: i64, end: i64) -> None:
        """Reads on from `position` as long as it is the same run. Never raises."""
        first: i64 = data[position]
        numbered: i64 = 2 if first == PUBLISH_1 else 0
        newer: i64 = 1 if self._version == V5 else 0
        largest: i64 = self._largest
        at = position
        count: i64 = 0
        sizes: i64 = 0
        known_at: i64 = 0  # the topic of the packet before
        known: i64 = -1
        while at < end and data[at] == first:
            size, body = head_at(data, at, end)
            stop = body + size
            if size < 2 or stop > end or stop - at > largest:
                break
            length = uint16_at(data, body)
            if size < 2 + length + numbered + newer:
                break
            after = body + 2 + length
            if numbered:
                if uint16_at(data, after) == 0:
                    break
                after += 2
            if newer and data[after] != 0:
                break
            if length != known or not same(data, known_at, body + 2, length):
                if not self._goes_on(data[body + 2 : body + 2 + length]):
                    break
                known_at = body + 2
                known = length
            count += 1
            sizes += size
            at = stop
        self.count = count
        self.stop = at
        self.size = sizes

    def _goes_on(self, topic: bytes) -> bool:
        """Whether who wants `topic` are the targets of the run so far."""
        found = self._hub.routes.get(topic)
        if found is None:
            try:
                check_name(topic, self._version)
            except MqttError:
                return False
            found = self._hub.targets(topic)
        if self.targets is None:
            self.targets = found
        return found is self.targets


def check_name(topic: bytes, version: int) -> None:
    """The topic of a client's publish, which has no alias. Raises MqttError."""
    if not topic and version == V5:
        raise protocol_error("3.3.2.3.4", "an empty topic name without an alias")
    check_topic(topic)
    if topic.startswith(OWN):
        raise MqttError(BAD_TOPIC, "4.7.2", "topics below $SYS are the server's own")
