"""The topics that the regular expressions of all groups match, updated as topics come and go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Protocol

from treecast.middleware.broker.internal import INTERNAL
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.budget import WorkBudget, unbounded
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.logs import Log
from treecast.middleware.model.regex import Regex, too_long
from treecast.middleware.model.regex_syntax import InvalidRegex

_log = Log(__name__)
_REMEMBERED: Final = 1_000  # expressions
_REMEMBERED_BYTES: Final = 32 << 20  # of them, about
_BASE_BYTES: Final = 64 << 10  # of one: what the automaton remembers
_STATE_BYTES: Final = 200
_NAME_BYTES: Final = 64  # of a matched topic
_CHANGES: Final = 1_000  # changes of the topics that are remembered, for expressions that missed them
_AT_ONCE: Final = 64  # names matched before the work budget is asked
_FREE_WORK: Final = 100_000  # visited states that an expression may cost; takes some 25 milliseconds
_WORK_PER_LETTER: Final = 8  # what each letter of a name adds to that
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
    """An expression. `left`: names that are still to be matched, up to the change number `seen`."""

    __slots__ = ("counted", "left", "letters", "matched", "regex", "seen")

    def __init__(self, text: str) -> None:
        self.regex = Regex(text)
        self.matched: frozenset[str] = frozenset()
        self.left: list[str] = []
        self.seen = -1
        self.letters = 0
        self.counted = 0  # the size that `Patterns` has added up

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _BASE_BYTES + _STATE_BYTES * self.regex.states + _NAME_BYTES * len(self.matched)

    def match_some(self) -> list[str]:
        """Matches the next of `left`. Returns the names that take too long, in relation to all so far."""
        names, self.left = self.left[:_AT_ONCE], self.left[_AT_ONCE:]
        found, left_out = [], []
        for name in names:
            self.letters += len(name)
            if self.regex.work > _FREE_WORK + _WORK_PER_LETTER * self.letters:
                left_out.append(name)
                continue
            try:
                if self.regex.matches(name):
                    found.append(name)
            except InvalidRegex:
                left_out.append(name)
        if found:
            self.matched = self.matched.union(found)
        return left_out


class Patterns:
    """Matches topics. After a change of the topics only new topics are matched, whatever the number of
    others, and for each expression only once it is asked for.

    Internal topics are included, because Kafka's brokers assign them to members that name or match them.
    """

    def __init__(self, known: KnownTopics) -> None:
        self._known = known
        self._patterns: OrderedDict[str, _Pattern] = OrderedDict()
        self._bytes = 0
        self._names: set[str] = set()
        self._revision = -1
        self._changes: list[tuple[set[str], set[str]]] = []  # names added and removed
        self._first = 0  # the number of the first of `_changes`

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
        self.learn(text, unbounded())

    def learn(self, text: str, work: WorkBudget) -> bool:
        """Matches the existing topics until the budget is spent. Returns whether `matching` will then answer
        at once. Raises as `check`."""
        pattern = self._pattern(text)
        while pattern.left:
            if pattern.match_some():
                self._forget(text)
                raise too_long()
            if pattern.left and work.spent():
                break
        self._count(pattern)
        return not pattern.left

    def matching(self, text: str) -> frozenset[str]:
        """Returns the names of all matching topics. A group has used the expression since `check`, so topics
        that now take too long are left out."""
        try:
            pattern = self._pattern(text)
        except InvalidRegex as error:  # an earlier version of the daemon has accepted it
            _log.warning("subscription pattern cannot be used", pattern=text, error=error)
            return frozenset()
        while pattern.left:
            left_out = pattern.match_some()
            if left_out:
                _log.warning("topics take too long and are left out", pattern=text, topics=left_out)
        self._count(pattern)
        return pattern.matched

    def _pattern(self, text: str) -> _Pattern:
        """Returns an expression, with the names that it has not been matched with yet."""
        self._refresh()
        pattern = self._patterns.get(text)
        if pattern is None:
            pattern = self._patterns[text] = _Pattern(text)
        self._patterns.move_to_end(text)
        last = self._first + len(self._changes)
        if pattern.seen < self._first:
            pattern.matched, pattern.left = frozenset(), list(self._names)
        else:
            for added, removed in self._changes[pattern.seen - self._first :]:
                pattern.matched -= removed
                pattern.left = [*[name for name in pattern.left if name not in removed], *added]
        pattern.seen = last
        return pattern

    def _count(self, pattern: _Pattern) -> None:
        """Adds up what is remembered, and forgets the expressions that were not asked for the longest."""
        self._bytes += pattern.size - pattern.counted
        pattern.counted = pattern.size
        while len(self._patterns) > 1 and (
            len(self._patterns) > _REMEMBERED or self._bytes > _REMEMBERED_BYTES
        ):
            self._forget(next(iter(self._patterns)))

    def _forget(self, text: str) -> None:
        self._bytes -= self._patterns.pop(text).counted

    def _refresh(self) -> None:
        if self._revision == self._known.revision:
            return
        self._revision = self._known.revision
        names = self._known.topics().keys() | INTERNAL.keys()
        added, removed = names - self._names, self._names - names
        if added or removed:
            self._names = names
            self._changes.append((added, removed))
            if len(self._changes) > _CHANGES:
                self._first += 1
                del self._changes[0]
