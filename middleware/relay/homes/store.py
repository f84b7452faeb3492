"""`JoinedStore`: writes of a joined host's homes, to its own tables and to the coordinator's store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from treecast.middleware.broker.homes import HomeName, HomeWrite, Refusals
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.tables import Change, Tables

from . import rows
from .mirror import HomeMirror, Kept, Outcome
from .ports import StateWrite


def not_home(name: HomeName) -> TreecastError:
    return TreecastError(Fault.NOT_COORDINATOR, f"this host is not the home of {name} now")


class JoinedStore:
    """Implements `broker.homes.HomeStore`. `owned`: the homes of this host, and their epochs.

    A write is on this host's disk before the coordinator gets it, so this host always has what it answered
    for. `next_row` counts a write of a home and returns its row; `forgotten` is called for homes after their
    last write.
    """

    def __init__(
        self,
        tables: Tables,
        mirror: HomeMirror,
        owned: Mapping[HomeName, int],
        next_row: Callable[[HomeName], rows.HomeRow],
        forgotten: Callable[[HomeName, int], None],
    ) -> None:
        self._tables = tables
        self._mirror = mirror
        self._owned = owned
        self._next_row = next_row
        self._forgotten = forgotten

    def epoch(self, name: HomeName) -> int:
        epoch = self._owned.get(name)
        if epoch is None:
            raise not_home(name)
        return epoch

    async def commit(self, writes: Sequence[HomeWrite]) -> Refusals:
        taken = {place: w for place, w in enumerate(writes) if self._owned.get(w.name) == w.epoch}
        refused = {place: not_home(w.name) for place, w in enumerate(writes) if place not in taken}
        states = {
            place: StateWrite(w.name, w.epoch, rows.items_of(w), w.forget) for place, w in taken.items()
        }
        counts = {place: self._next_row(w.name) for place, w in taken.items()}
        changes = [change for w in taken.values() for change in w.changes]
        changes += [rows.home_row(states[place].name, row) for place, row in counts.items()]
        # Asked before the commit, so that rows of writes alone go with it and cost no second one.
        noted = self._mirror.away
        if noted:
            changes += _alone((state, counts[place].count) for place, state in states.items())
        await self._tables.commit(changes)
        for place in [place for place, s in states.items() if self._owned.get(s.name) != s.epoch]:
            refused[place] = not_home(states.pop(place).name)  # it moved while the disk worked
        outcomes = [self._mirror.put(state, counts[place].count) for place, state in states.items()]
        await asyncio.gather(*outcomes)
        alone: list[int] = []
        for (place, state), outcome in zip(states.items(), outcomes, strict=True):
            self._end(place, state, outcome.result(), refused, alone)
        if alone and not noted:
            await self._tables.commit(_alone((states[place], counts[place].count) for place in alone))
        return refused

    def _end(
        self,
        place: int,
        state: StateWrite,
        outcome: Outcome,
        refused: dict[int, TreecastError],
        alone: list[int],
    ) -> None:
        if isinstance(outcome, TreecastError):
            refused[place] = outcome
        elif outcome is Kept.ALONE:
            alone.append(place)
        elif state.forget:
            self._forgotten(state.name, state.epoch)


def _alone(states: Iterable[tuple[StateWrite, int]]) -> list[Change]:
    """Returns the rows for items accepted without the coordinator's store, in writes of the given counts."""
    return [row for s, count in states for row in rows.alone_rows(s.name, s.epoch, s.items, count)]
