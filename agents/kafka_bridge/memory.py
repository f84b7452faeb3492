"""The memory of the agent in its data directory: ids of its producers, and which offsets are which."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from treecast.middleware.model.identity import TopicId, TopicPartition

from .offsets import OffsetMap, Segment


class KnownMap(Struct):
    """The `OffsetMap` of a partition of the source."""

    topic: str
    topic_id: TopicId
    partition: int
    floor: int
    whole: bool
    segments: list[Segment]


class WayMemory(Struct):
    """`producers`: ids with which the way has written at its target."""

    producers: list[int] = field(default_factory=list)
    maps: list[KnownMap] = field(default_factory=list)


class Memory(Struct):
    """By the way's name."""

    ways: dict[str, WayMemory] = field(default_factory=dict)


class Maps:
    """The maps of one way, by the partition of the source. A topic of another id has another map."""

    def __init__(self, known: list[KnownMap]) -> None:
        self._maps = {
            TopicPartition(one.topic, one.partition): (
                one.topic_id,
                OffsetMap(one.floor, one.segments, whole=one.whole),
            )
            for one in known
        }

    def of(self, name: TopicPartition, topic_id: TopicId) -> OffsetMap:
        """Returns the map of a partition, a new one if there is none."""
        found = self._maps.get(name)
        if found is None or found[0] != topic_id:
            found = self._maps[name] = topic_id, OffsetMap()
        return found[1]

    def get(self, name: TopicPartition) -> OffsetMap | None:
        found = self._maps.get(name)
        return None if found is None else found[1]

    def known(self) -> list[KnownMap]:
        items: Mapping[TopicPartition, tuple[TopicId, OffsetMap]] = self._maps
        return [
            KnownMap(name.topic, topic_id, name.partition, one.floor, one.whole, one.segments)
            for name, (topic_id, one) in items.items()
        ]
