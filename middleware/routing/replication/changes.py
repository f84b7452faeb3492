"""What has to be done on nodes and at publishers so that a group has another tree: make before break.

| step | what is done | why packets do not mind |
| --- | --- | --- |
| CREATE | new segments, each after those that it leads to | nobody names them yet |
| REWRITE or ENTER | a segment gets other branches, or the publisher an entry | each meets one whole tree |
| DRAIN | twice the longest life of a packet passes | those that met the old tree have arrived |
| REMOVE | segments that nobody refers to, each before those that it leads to | nobody names them any more |

There is never more than one switch in a change: with two, packets between them would meet half of each tree.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator

from msgspec import Struct

from .segments import Branch, Segment


class StepKind(enum.Enum):
    """What a step does; each waits for the one before."""

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
    """One change of one group. `rewritten` or `entered` says where it is switched over; neither: nothing to
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
        """Messages to nodes: segments created, rewritten and removed."""
        return len(self.created) + (self.rewritten is not None) + len(self.removed)

    def steps(self) -> Iterator[Step]:
        """Yields the steps in their order."""
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
