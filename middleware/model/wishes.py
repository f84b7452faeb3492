"""`Wish`: the topics that somebody wants messages of, and perhaps a filter on the messages.

MQTT subscriptions, bindings to `amq.topic`, Kafka readers of other hosts' partitions, shared topics and
interest between hosts are wishes. A part that knows only patterns goes by the pattern: it lets more through,
and whoever made the wish filters again.

A pattern is a tuple of levels. `+` stands for one level, `#` as the last one for any number of levels,
including none. A pattern that begins with a wildcard does not match topics that begin with `$`
[MQTT-4.7.2-1].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from .records import Record
from .topics import TopicName

ANY: Final = "+"
REST: Final = "#"
Pattern = tuple[str, ...]

_LONGEST: Final = 0xFFFF  # bytes of a topic filter of MQTT


class RecordSchema(Protocol):
    """The declared fields of a topic's records, as rooms below the filter language see them."""

    def read(self, value: bytes | None) -> Sequence[int | float | str | bool | None] | None:
        """Returns the declared fields' values; None if the value does not meet the schema."""


class Schemas(Protocol):
    """The schemas of topics."""

    def of(self, topic: str) -> RecordSchema | None:
        """Returns the schema of a topic in MQTT's spelling; None if it declares none."""

    def unmet(self, topic: str) -> None:
        """Counts a message that does not meet its topic's schema."""

    def check(self, levels: Pattern, content: ContentFilter) -> None:
        """Raises INVALID_REQUEST if a filter does not fit the schema of the one topic that it is for. A
        pattern with wildcards is for any."""


class NoSchemas:
    """The schemas where no topic declares one."""

    def of(self, topic: str) -> RecordSchema | None:
        return None

    def unmet(self, topic: str) -> None: ...

    def check(self, levels: Pattern, content: ContentFilter) -> None: ...


class ContentFilter(Protocol):
    """A filter on the content of messages, as rooms below the filter language see it. Filters with the same
    text are equal and have the same hash."""

    @property
    def text(self) -> str:
        """The filter, written in the language of `treecast.filters`."""

    def passes(self, topic: str, record: Record, schema: RecordSchema | None = None) -> bool:
        """Whether a message passes. `topic`: in MQTT's spelling. `record`: the message as the record that a
        topic would keep; its offset and time are -1 if it has none. `schema`: of the topic, if it declares
        one: what does not meet it passes no filter."""


class Wish(Struct, frozen=True):
    """`content`: None wants all messages of the topics."""

    pattern: Pattern
    content: ContentFilter | None = None

    @classmethod
    def of_mqtt(cls, filter: bytes, content: ContentFilter | None = None) -> Wish:
        """Returns the wish of a topic filter, which has to be UTF-8."""
        return cls(tuple(filter.decode().split("/")), content)

    @classmethod
    def of_kafka(cls, topic: str) -> Wish:
        """Returns the wish of a reader of a Kafka topic."""
        return cls(TopicName.from_kafka(topic).levels)

    @property
    def filter(self) -> bytes | None:
        """The pattern as a topic filter of MQTT; None if it has no such form or would change its meaning."""
        return filter_of(self.pattern)

    @property
    def local(self) -> bool:
        """Whether its topics are those of one host only: they begin with `$`."""
        return self.pattern[0].startswith("$")

    def matches(self, levels: Pattern) -> bool:
        """Whether the wish, filter aside, includes the topic with these levels. This is the reference; the
        trie of `broker.pubsub` is the fast form."""
        return matches(self.pattern, levels)


def matches(pattern: Pattern, levels: Pattern) -> bool:
    """Whether a pattern matches the topic with these levels."""
    if levels and levels[0].startswith("$") and pattern[0] in (ANY, REST):
        return False
    for number, level in enumerate(pattern):
        if level == REST and number + 1 == len(pattern):
            return True
        if number >= len(levels) or level not in (ANY, levels[number]):
            return False
    return len(pattern) == len(levels)


def filter_of(pattern: Pattern) -> bytes | None:
    """Returns a pattern as a topic filter of MQTT; None if it has no such form, would change its meaning, or
    is for topics of one host."""
    for number, level in enumerate(pattern):
        if level == ANY or (level == REST and number + 1 == len(pattern)):
            continue
        if any(one in level for one in "/+#\0"):
            return None
    filter = "/".join(pattern).encode()
    return None if not filter or filter.startswith(b"$") or len(filter) > _LONGEST else filter
