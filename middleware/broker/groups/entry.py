"""What a coordinator keeps of a group: its membership by one of the two protocols, and its offsets."""

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
    """A group and its offsets. `epoch`: in which this host is its home; 0 on a host alone.

    `emptied`: a client has deleted offsets of it, and no housekeeping has come since. Till then it is seen as
    a group without members, as in Kafka: who deletes the last offset has not deleted the group.
    `leftovers`: rows of the protocol that it had before, to be removed with the next write.
    """

    __slots__ = ("config", "emptied", "epoch", "group", "leftovers", "offsets")

    def __init__(self, group: AnyGroup, offsets: GroupOffsets, epoch: int) -> None:
        self.group = group
        self.offsets = offsets
        self.epoch = epoch
        self.emptied = False
        self.leftovers: list[Change] = []
        self.config: Mapping[str, str] = {}  # what it has set of its own

    @property
    def remembers(self) -> bool:
        """Whether there is nothing that clients find, but something to be kept."""
        return self.offsets.remembers or bool(self.config)

    @property
    def blank(self) -> bool:
        """Whether clients can find nothing of it."""
        return self.group.idle and self.group.generation == 0 and not self.offsets and not self.emptied

    def due(
        self, now: float, now_ms: int, retention_ms: int
    ) -> Callable[[TopicPartition, OffsetRecord], bool] | None:
        """Which offsets have outlived the retention; None: none of them.

        After KIP-211: in an empty group, those not committed since it became empty; in a group of consumers
        that is not in the midst of a round, those of topics that no member reads; without members ever, by
        age alone.
        """
        group = self.group
        if group.empty:
            used_ms = now_ms - int((now - group.since) * 1000) if group.protocol_type else 0
            return lambda _, record: now_ms - max(used_ms, record.committed_ms) >= retention_ms
        subscribed = group.settled_subscribed
        if subscribed is None:
            return None
        return lambda p, record: p.topic not in subscribed and now_ms - record.committed_ms >= retention_ms
