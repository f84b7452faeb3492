"""The lineage of a coordinator's store: the leaderships that wrote it, and the revisions that each of them
began after. It decides whether the store lacks an update that a host has taken: then the store is an older
state of itself, as after a restore from a backup. Pure.

Revisions alone do not tell: a store that came back old counts on, and the same numbers get another meaning.
So each start of a coordinator has an epoch of its own, which rises:

  epoch 5 after revision 0, epoch 9 after revision 100; the last one is 130

A host that took revision 120 in epoch 5 has what this store never had: epoch 5 ends here with revision 100. A
host at revision 90 of epoch 5 has nothing more than this store.

When a store is found to lack something, its history gets another name, so that nobody resumes at a revision
with another meaning. The histories before stay known here, with the views of them that were adopted.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.api.entries import Position

BEGINNING: Final = 1_767_225_600  # 2026-01-01, Unix time
REIGNS: Final = 1_000  # known per history; the oldest are forgotten
HISTORIES: Final = 20  # earlier ones that are known
ADOPTED: Final = 100  # views of one history that are known as adopted
PRODUCER_BITS: Final = 31  # of producer ids below the seconds of their coordinator's start


def epoch_by_clock(now: float) -> int:
    """Returns an epoch for a leadership that begins at `now` (Unix time), in seconds since 2026."""
    return min(max(int(now) - BEGINNING, 1), 2**31 - 1)


def producer_floor(now: float) -> int:
    """Returns the lowest producer id that a coordinator gives which starts at `now` (Unix time).

    It is above all ids given before, unless more than 2^31 were given per second. So a store that was
    restored from a copy does not repeat the ids that the lost state gave out.
    """
    return epoch_by_clock(now) << PRODUCER_BITS


class Reign(Struct, frozen=True, array_like=True):
    """A leadership. `after`: the last revision before it."""

    epoch: int
    after: int


class Adopted(Struct, frozen=True, array_like=True):
    """A host's view that was adopted, as of `revision` of its history. `at`: the own revision that did so."""

    revision: int
    at: int


class Past(Struct, frozen=True, array_like=True):
    """A history, to the revision `last` that this store has of it."""

    history: str
    reigns: tuple[Reign, ...]
    last: int
    adopted: tuple[Adopted, ...] = ()

    def shared(self, epoch: int) -> int:
        """Returns the last revision of a leadership that this store has too. Epoch 0: any."""
        for reign in self.reigns:
            if reign.epoch > epoch > 0:
                return reign.after
        if not self.reigns or epoch in (0, self.reigns[-1].epoch):
            return self.last
        return self.reigns[-1].after  # a later leadership, of which this store has nothing

    def lacks(self, told: Position) -> bool:
        """Returns whether this store lacks an update that a host has taken."""
        adopted = max((one.revision for one in self.adopted), default=0)
        return told.revision > max(adopted, self.shared(told.epoch))


class Lineage(Struct, frozen=True, array_like=True):
    """The lineage as stored. `past`: oldest first."""

    reigns: tuple[Reign, ...] = ()
    past: tuple[Past, ...] = ()

    @classmethod
    def of(cls, text: str) -> Lineage:
        """Returns the lineage that `text` holds; an empty one for none. Raises ValueError."""
        if not text:
            return cls()
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"a broken lineage: {error}") from error

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    def led(self, epoch: int, revision: int) -> Lineage:
        """Returns the lineage after a leadership began after `revision`."""
        return replace(self, reigns=(*self.reigns, Reign(epoch, revision))[-REIGNS:])

    def turned(self, history: str, last: int, epoch: int, revision: int) -> Lineage:
        """Returns the lineage after `history`, of which this store has `last`, was given another name. The
        leadership `epoch` goes on after `revision`. A new store has had no history: "".
        """
        past = (*self.past, Past(history, self.reigns, last)) if history else self.past
        return Lineage((Reign(epoch, revision),), past[-HISTORIES:])

    def adopted(self, told: Position, at: int) -> Lineage:
        """Returns the lineage after a view of an earlier history was adopted."""
        past = [
            replace(one, adopted=(*one.adopted, Adopted(told.revision, at))[-ADOPTED:])
            if one.history == told.history
            else one
            for one in self.past
        ]
        return replace(self, past=tuple(past))

    def known(self, history: str, last: int, told: Position) -> Past | None:
        """Returns the history of a host's view; None if this store never had it. `history`, `last`: the
        present one.
        """
        if told.history == history:
            return Past(history, self.reigns, last)
        return next((one for one in reversed(self.past) if one.history == told.history), None)

    def lacks(self, history: str, last: int, told: Position) -> bool:
        """Returns whether this store is an older state than the view of a host. `history`, `last`: the
        present one.
        """
        known = self.known(history, last, told)
        return known is not None and known.lacks(told)
