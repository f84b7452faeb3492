"""The steps on nodes and at publishers that give a group another tree: make before break.

| step | action | why packets are safe |
| --- | --- | --- |
| CREATE | write new segments, each after those that it leads to | nothing refers to them yet |
| REWRITE or ENTER | new branches of a segment, or a new entry of the publisher | a packet meets one tree |
| DRAIN | wait for twice the longest life of a packet | packets on the old tree have arrived |
| REMOVE | remove unreferenced segments, each before those it leads to | nothing refers to them now |

A change has at most one switch-over: with two, packets between them would meet half of each tree.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator

from msgspec import Struct

from .segments import Branch, Segment


class StepKind(enum.Enum):
    """The action of a step; each waits for the one before."""

    CREATE = "write a new segment to its node"
    REWRITE = "give a segment other branches, all at once"
    ENTER = "tell the publisher its entry, and wait until it has acknowledged"
    DRAIN = "wait for twice the longest life of a packet"
    REMOVE = "take a segment from its node"


class Step(Struct, frozen=True):
    """`segment` of CREATE, REWRITE and REMOVE; `entry` of ENTER, None if nobody listens."""

    kind: StepKind
    segment: Segment | None = None
    entry: Branch | None = None


class Change(Struct, frozen=True):
    """One change of one group. `rewritten` or `entered` is its switch-over; with neither there is nothing to
    do.
    """

    group: Hashable
    created: tuple[Segment, ...] = ()
    rewritten: Segment | None = None
    entered: bool = False
    entry: Branch | None = None
    removed: tuple[Segment, ...] = ()

    @property
    def writes(self) -> int:
        """The number of messages to nodes: segments created, rewritten and removed."""
        return len(self.created) + (self.rewritten is not None) + len(self.removed)

    def steps(self) -> Iterator[Step]:
        """Yields the steps in order."""
        for segment in self.created:
            yield Step(StepKind.CREATE, segment)
        if self.rewritten is not None:
            yield Step(StepKind.REWRITE, self.rewritten)
        if self.entered:
            yield Step(StepKind.ENTER, entry=self.entry)
        if self.removed:
            yield Step(StepKind.DRAIN)
        for segment in self.removed:
            yield Step(StepKind.REMOVE, segment)
