"""A coordinator's state of one group: membership under one of the two protocols, and offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.tables import Change

from .consumer.group import ConsumerGroup
from .group import Group
from .offsets import GroupOffsets
from .records import OffsetRecord

AnyGroup = Group | ConsumerGroup


class Entry:
    """A group and its offsets. `epoch` is the epoch in which this host is the home; 0 on a host alone.

    `emptied`: a client has deleted offsets of the group since the last housekeeping. Until the next one,
    the group is listed as empty: as in Kafka, deleting the last offset does not delete the group.
    `leftovers`: rows of the group's previous protocol, which the next write removes.
    """

    __slots__ = ("config", "emptied", "epoch", "group", "leftovers", "offsets")

    def __init__(self, group: AnyGroup, offsets: GroupOffsets, epoch: int) -> None:
        self.group = group
        self.offsets = offsets
        self.epoch = epoch
        self.emptied = False
        self.leftovers: list[Change] = []
        self.config: Mapping[str, str] = {}  # the group's own settings

    @property
    def remembers(self) -> bool:
        """Whether the entry holds state that must be kept although clients see no group."""
        return self.offsets.remembers or bool(self.config)

    @property
    def blank(self) -> bool:
        """Whether clients see no such group."""
        return self.group.idle and self.group.generation == 0 and not self.offsets and not self.emptied

    def due(
        self, now: float, now_ms: int, retention_ms: int
    ) -> Callable[[TopicPartition, OffsetRecord], bool] | None:
        """Returns a predicate for offsets past their retention; None if there are none.

        As in KIP-211, retention counts from the time the group became empty; in a group of consumers with a
        stable generation, from the commit, for topics that no member reads; in a group that never had
        members, from the commit.
        """
        group = self.group
        if group.empty:
            used_ms = now_ms - int((now - group.since) * 1000) if group.protocol_type else 0
            return lambda _, record: now_ms - max(used_ms, record.committed_ms) >= retention_ms
        subscribed = group.settled_subscribed
        if subscribed is None:
            return None
        return lambda p, record: p.topic not in subscribed and now_ms - record.committed_ms >= retention_ms
