"""The topics that the regular expressions of all groups match, updated as topics come and go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Protocol

from treecast.middleware.broker.internal import INTERNAL
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.logs import Log

from .regex import Regex

_log = Log(__name__)
_REMEMBERED = 1_000  # expressions
_INTERNAL_NAMES = {topic.topic_id: name for name, topic in INTERNAL.items()}


class KnownTopics(Protocol):
    """The part of `cluster.Definitions` that groups use."""

    def topics(self) -> Mapping[str, Topic]: ...

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """Returns a topic. Raises UNKNOWN_TOPIC_ID if there is none."""

    @property
    def revision(self) -> int:
        """A number that rises with every change of the topics."""


class NoTopics:
    """An empty set of topics, until the topics are known."""

    revision = 0

    def topics(self) -> Mapping[str, Topic]:
        return {}

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        raise TreecastError(Fault.UNKNOWN_TOPIC_ID)


class _Pattern:
    __slots__ = ("matched", "regex")

    def __init__(self, regex: Regex) -> None:
        self.regex = regex
        self.matched: frozenset[str] = frozenset()


class Patterns:
    """Matches topics. After a change of the topics only new topics are matched, whatever the number of
    others.

    Internal topics are included, because Kafka's brokers assign them to members that name or match them.
    """

    def __init__(self, known: KnownTopics) -> None:
        self._known = known
        self._patterns: OrderedDict[str, _Pattern] = OrderedDict()
        self._names: set[str] = set()
        self._revision = -1

    @property
    def revision(self) -> int:
        return self._known.revision

    def topic(self, name: str) -> Topic | None:
        return self._known.topics().get(name) or INTERNAL.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        try:
            return self._known.topic_by_id(topic_id).name
        except TreecastError:
            return _INTERNAL_NAMES.get(topic_id)

    def check(self, text: str) -> None:
        """Raises INVALID_REGEX if `text` is no expression or takes too long to match the existing topics."""
        self._matching(text)

    def matching(self, text: str) -> frozenset[str]:
        """Returns the names of all matching topics; none if `check` would now refuse the expression."""
        try:
            return self._matching(text)
        except TreecastError as error:
            _log.warning("subscription pattern cannot be used", pattern=text, error=error)
            return frozenset()

    def _matching(self, text: str) -> frozenset[str]:
        self._refresh()
        pattern = self._patterns.get(text)
        if pattern is None:
            pattern = _Pattern(Regex(text))
            pattern.matched = frozenset(name for name in self._names if pattern.regex.matches(name))
            self._patterns[text] = pattern
            if len(self._patterns) > _REMEMBERED:
                self._patterns.popitem(last=False)
        self._patterns.move_to_end(text)
        return pattern.matched

    def _refresh(self) -> None:
        if self._revision == self._known.revision:
            return
        self._revision = self._known.revision
        names = self._known.topics().keys() | INTERNAL.keys()
        added, removed = names - self._names, self._names - names
        self._names -= removed
        self._names |= added
        for text, pattern in self._patterns.items():
            found = {name for name in added if self._matches(text, pattern, name)}
            if found or not pattern.matched.isdisjoint(removed):
                pattern.matched = (pattern.matched - removed) | found

    def _matches(self, text: str, pattern: _Pattern, name: str) -> bool:
        try:
            return pattern.regex.matches(name)
        except TreecastError as error:
            _log.warning("topic is left out of a subscription pattern", topic=name, pattern=text, error=error)
            return False
