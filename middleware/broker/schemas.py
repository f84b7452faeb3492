"""The schemas that topics declare: looked up for filters of all faces, and checked when either changes.

A schema is the setting `treecast.schema` of its topic, so it is stored, known at all hosts, and deleted with
its topic, as views are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.schemas.check import check_filter
from treecast.middleware.filters.schemas.reader import SchemaReader, reader_of
from treecast.middleware.filters.tree import Filter
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import VIEW
from treecast.middleware.model.topic_schema import SCHEMA, read_schema
from treecast.middleware.model.topics import TopicName
from treecast.middleware.model.wishes import ContentFilter

from .values import Topic

_WILD: Final = ("+", "#", "*")  # levels of patterns that may be several topics


class Topics(Protocol):
    """The part of `cluster.Definitions` that schemas need."""

    def topics(self) -> Mapping[str, Topic]: ...


class TopicSchemas:
    """Implements `model.wishes.Schemas`."""

    def __init__(self, topics: Topics, counters: BrokerCounters) -> None:
        self._topics = topics
        self._counters = counters
        self._readers: dict[str, tuple[str, SchemaReader | None]] = {}  # by topic: the setting, its reader

    def of(self, topic: str) -> SchemaReader | None:
        """Returns the schema of a topic in MQTT's spelling."""
        name = TopicName.from_mqtt(topic).spelled()
        return self.of_kafka(name)

    def of_kafka(self, name: str) -> SchemaReader | None:
        """Returns the schema of a Kafka topic, or of the topic that a view shows."""
        topics = self._topics.topics()
        topic = topics.get(name)
        if topic is None:
            base, _, view = name.rpartition(".view.")
            topic = topics.get(base)
            if topic is not None and view not in topic.config.views:
                return None  # publishers choose names: only a topic's own views have its schema
        if topic is None or not topic.config.schema:
            return None
        kept = self._readers.get(topic.name)
        if kept is not None and kept[0] == topic.config.schema:
            return kept[1]
        if len(self._readers) > len(topics):
            self._readers = {name: one for name, one in self._readers.items() if name in topics}
        found = _readable(topic.config.schema)
        self._readers[topic.name] = topic.config.schema, found
        return found

    def unmet(self, topic: str, count: int = 1) -> None:
        counted = self._counters.schema_unmet
        counted[topic] = counted.get(topic, 0) + count

    def check(self, levels: tuple[str, ...], content: ContentFilter) -> None:
        """Raises INVALID_REQUEST if a filter does not fit the schema of the one topic that it is for."""
        if any(level in _WILD for level in levels):
            return
        schema = self.of_kafka(TopicName(levels).spelled())
        if schema is not None and isinstance(content, StatelessFilter):
            check_filter(content.tree, schema.schema)


def _readable(text: str) -> SchemaReader | None:
    """Returns the reader of a topic's setting; None if a later version wrote it: its records pass as they did
    without."""
    try:
        return reader_of(text)
    except TreecastError:
        return None


def check_schema(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Checks a topic's new settings. Raises INVALID_CONFIG for a schema that cannot be read, or does not
    extend the one before."""
    text, had = after.get(SCHEMA), before.get(SCHEMA)
    if not text or text == had:
        return
    reader_of(text)
    if had:
        new, old = read_schema(text), read_schema(had)
        kept = new.versions[: len(old.versions)]
        if (new.format, new.framed, kept) != (old.format, old.framed, old.versions):
            raise TreecastError(
                Fault.INVALID_CONFIG,
                "the topic has another schema: add to it with `treecast schema evolve`, or delete it first",
            )


def check_view(tree: Filter, overrides: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST if a view's filter does not fit the schema among its topic's settings."""
    text = overrides.get(SCHEMA)
    if text:
        check_filter(tree, reader_of(text).schema)


def views_to_check(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Returns the settings of views that are to be checked: all of them if the schema changes."""
    anew = before.get(SCHEMA) != after.get(SCHEMA)
    return [key for key, text in after.items() if key.startswith(VIEW) and (anew or before.get(key) != text)]
