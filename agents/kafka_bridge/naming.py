"""Names of topics at the other cluster, as MirrorMaker 2's replication policies give them. Pure.

prefix   DefaultReplicationPolicy: `orders` of `lisbon` is `lisbon.orders` elsewhere
same     IdentityReplicationPolicy: `orders` is `orders`; heartbeats get the prefix all the same
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treecast.agents.kafka.settings import Names, matches

SEPARATOR: Final = "."
HEARTBEATS: Final = "heartbeats"
GROUP: Final = "treecast-bridge"


class Naming(Struct, frozen=True):
    """The topics that go from `source` to `target`, both aliases, and their names there."""

    source: str
    target: str
    prefix: bool
    topics: Names
    not_topics: Names = ()

    def at_target(self, topic: str) -> str | None:
        """Returns a topic's name at the target; None: it is not carried."""
        if is_heartbeats(topic):
            return None if self.returns(topic) else f"{self.source}{SEPARATOR}{topic}"
        if is_internal(topic) or not matches(topic, self.topics) or matches(topic, self.not_topics):
            return None
        if not self.prefix:
            return topic
        return None if self.returns(topic) else f"{self.source}{SEPARATOR}{topic}"

    def returns(self, topic: str) -> bool:
        """Whether a topic has come from the target, over any number of clusters: the loop guard by names."""
        while SEPARATOR in topic:
            alias, topic = topic.split(SEPARATOR, 1)
            if alias == self.target:
                return True
        return False

    @property
    def group(self) -> str:
        """The group of the target that holds what was carried, and the transactional id of the way."""
        return f"{GROUP}{SEPARATOR}{self.source}{SEPARATOR}{self.target}"


def is_heartbeats(topic: str) -> bool:
    return topic == HEARTBEATS or topic.endswith(SEPARATOR + HEARTBEATS)


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to Kafka, Connect or a mirror, as MirrorMaker's `topics.exclude` says."""
    return topic.startswith("__") or topic.endswith((".internal", "-internal", ".replica"))
