"""Content headers of messages at their origin, and the hosts that a topic's stream by content serves.

A message goes into such a stream if the `content` carrier is in use, some host wants its topic with a filter,
and several hosts want the topic at all. The origin has evaluated the filters that other hosts have announced:
it knows for whom the message is, whatever switches do, and answers the holes of the others as filtered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from treecast.middleware.broker.pubsub import Message, PubSub, Run, Targets
from treecast.middleware.broker.pubsub.subscriptions import record_of
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.filters.content import ContentReader
from treecast.middleware.filters.schemas.reader import SchemaReader
from treecast.middleware.filters.tree import Field
from treecast.middleware.wire.content import Layout, number_of

_LEAST_HOSTS = 2


class Content(Struct, frozen=True):
    """A message as switches see it: its content header, and the hosts that it is for."""

    header: bytes
    hosts: frozenset[int]


class Remote(Protocol):
    """Another host as a subscriber. `deaf`: it does not take event streams."""

    serial: int
    deaf: bool


class Contents:
    """The content headers of one host's messages."""

    def __init__(self, hub: PubSub, fabric: Fabric, remotes: Mapping[int, Remote]) -> None:
        """`remotes`: other hosts as subscribers."""
        self._hub = hub
        self._remotes = remotes
        self._targets: Targets | None = None
        self._members: frozenset[int] = frozenset()
        self._fabric = fabric
        self._reader: tuple[Layout, ContentReader] | None = None
        # Hosts that take the word that a message was filtered. Those of earlier versions get all messages.
        self.aware: set[int] = set()

    @property
    def used(self) -> bool:
        """Whether a carrier for messages with content headers is available."""
        return self._fabric.carriers.content is not None

    def changed(self) -> None:
        """Notes that a host takes event streams now, or no longer."""
        self._targets = None

    def members(self, topic: bytes) -> frozenset[int]:
        """Returns the hosts with interest in a topic, whatever their filters, that take event streams."""
        targets = self._hub.routes.targets(topic)
        if targets is not self._targets:  # the same object for the same subscriptions
            self._targets = targets
            serials = {target.subscriber.serial for target in targets.direct if target.subscriber.foreign}
            self._members = frozenset(
                [
                    host
                    for host, remote in self._remotes.items()
                    if remote.serial in serials and not remote.deaf
                ]
            )
        return self._members

    def of(self, part: Message | Run, hosts: list[int]) -> Content | None:
        """Returns the content of a message for `hosts`; None if it goes by a stream to exactly these."""
        carrier = self._fabric.carriers.content
        if carrier is None or not isinstance(part, Message) or part.retain:
            return None  # what a topic retains is for all
        targets = self._hub.routes.targets(part.topic)
        if not targets.filtered:
            return None
        members = self.members(part.topic)
        # A stream brings nothing to hosts that are not its members.
        if len(members) < _LEAST_HOSTS or not members.issuperset(hosts):
            return None
        return Content(self._header(carrier.layout, part), frozenset(hosts) | (members - self.aware))

    def _header(self, layout: Layout, message: Message) -> bytes:
        if self._reader is None or self._reader[0] is not layout:
            self._reader = layout, ContentReader([Field(field.path) for field in layout.fields])
        topic = message.topic.decode()
        schema = self._hub.schemas.of(topic)
        assert schema is None or isinstance(schema, SchemaReader)
        values = self._reader[1].read(topic, record_of(message), schema)
        return layout.encode(number_of(message.topic), values or [None] * len(layout.fields))
