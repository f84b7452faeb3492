"""The topics that the members of one group read, by name or by regular expression."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from treecast.middleware.broker.values import Places
from treecast.middleware.model.identity import TopicId

from .assignors import Subscriber
from .members import Member, Members
from .patterns import Patterns

_Seen = dict[str, tuple[TopicId, int]]  # by name: a topic's id and its partition count


def _digest_of(seen: _Seen) -> bytes:
    rows = sorted((name, topic_id.hex, partitions) for name, (topic_id, partitions) in seen.items())
    return hashlib.blake2b(repr(rows).encode(), digest_size=16).digest()


class SubscribedTopics:
    """`patterns`: the existing topics and those that regular expressions match. `changed`: members or
    subscriptions have changed since the last `look`. `digest`: of the topics at that time.
    """

    def __init__(self, members: Members, patterns: Patterns) -> None:
        self.changed = False
        self.digest = b""
        self._patterns = patterns
        self._members = members
        self._seen: _Seen = {}
        self._looked_at = -1  # revision of the topics at the last `look`
        self._names: frozenset[str] = frozenset()

    def look(self) -> bool:
        """Refreshes subscribed topics. Returns whether the target must be recomputed."""
        changed, self.changed = self.changed, False
        if not changed and self._looked_at == self._patterns.revision:
            return False
        self._names = frozenset[str]().union(*map(self._names_of, self._members))
        self._seen = {
            name: (topic.topic_id, topic.partitions)
            for name in self._names
            if (topic := self._patterns.topic(name)) is not None
        }
        self._looked_at = self._patterns.revision
        digest, self.digest = self.digest, _digest_of(self._seen)
        return changed or digest != self.digest

    def names(self) -> frozenset[str]:
        """Returns the names of all topics that members read."""
        if self._looked_at < 0:  # no `look` since the restart
            return frozenset[str]().union(*map(self._names_of, self._members))
        return self._names

    def unseen_expressions(self) -> frozenset[str]:
        """The regular expressions of the members, if topics have changed since they were last matched."""
        if self._looked_at == self._patterns.revision:
            return frozenset()
        return frozenset(member.regex for member in self._members if member.regex)

    def subscribers(self) -> dict[str, Subscriber]:
        """Returns the existing topics of each member, for an assignor."""
        topics = {name: topic_id for name, (topic_id, _) in self._seen.items()}
        return {
            member.member_id: Subscriber(
                frozenset(topics[name] for name in self._names_of(member) if name in topics),
                member.instance_id,
            )
            for member in self._members
        }

    def partitions(self) -> dict[TopicId, int]:
        """Returns the partition counts of the existing topics."""
        return dict(self._seen.values())

    def places(self, partitions: Mapping[str, Iterable[int]]) -> Places:
        """Returns partitions given by topic name, without those of topics that do not exist."""
        return frozenset(
            (topic.topic_id, number)
            for name, numbers in partitions.items()
            if (topic := self._patterns.topic(name)) is not None
            for number in numbers
        )

    def named(self, places: Places) -> dict[str, list[int]]:
        """Returns partition numbers by topic name, without those of deleted topics."""
        found: dict[str, list[int]] = {}
        names: dict[TopicId, str | None] = {}
        for topic, number in sorted(places):
            if topic not in names:
                names[topic] = self._patterns.name_of(topic)
            name = names[topic]
            if name is not None:
                found.setdefault(name, []).append(number)
        return found

    def _names_of(self, member: Member) -> frozenset[str]:
        return member.topics | self._patterns.matching(member.regex) if member.regex else member.topics
