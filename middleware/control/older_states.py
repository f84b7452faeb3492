"""A coordinator hears hosts when its store may be an older state, and adopts what the store lacks.

A host tells with each call how far its view is. If the store lacks an update of that view, it is an older
state of itself (`lineage.py`): its history gets another name, the host hands in its view, and the store
adopts what it lacks (`adopting.py`). Meanwhile, and until all hosts were heard that were attached, nothing is
given out (`hearing.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from treecast.middleware.api.entries import Change, Position, Presence
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .commands import AdoptView, Command, Returned, SkipNumbers
from .hearing import Hearing
from .stored_state import StoredState

_HIGHEST: Final = 2**62  # above all epochs
_MISSING: Final = 200  # sentences about what could not come back that are kept
_MOST_BOUNDS: Final = (
    4  # of `hearing`, for which the store's own host waits while hosts hand in views one by one
)

_log = Log(__name__)


class Turns(Protocol):
    """The execution of commands, one group after the other."""

    def check_open(self) -> None:
        """Raises COORDINATOR_UNAVAILABLE if no more commands are executed."""

    async def do(self, command: Command) -> Any:
        """Executes a command with others. Raises TreecastError."""

    async def do_now(self, command: Command) -> Any:
        """Executes a command alone. Only work `between` groups may call it."""

    async def between(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does work between two groups of commands."""


class OlderStates:
    """The hosts that have yet to be heard, and the views that were adopted.

    `may_follow`: whether the store can go on after an epoch. `adopted` counts views. `missing`: what could
    not come back with them, as sentences.
    """

    def __init__(
        self,
        stored: StoredState,
        turns: Turns,
        may_follow: Callable[[int], bool],
        bound: float,
        clock: Callable[[], float],
    ) -> None:
        """`bound`: seconds, see `Hearing`."""
        self.adopted = 0
        self.missing: tuple[str, ...] = ()
        self._stored = stored
        self._turns = turns
        self._may_follow = may_follow
        self._clock = clock
        self._all_heard = asyncio.Event()
        self._beside_host = ""  # in whose data directory the store is
        self._waits_for = ""  # a view that the store lacks
        attached = [host.host_id for host in stored.state.hosts() if host.presence is Presence.ATTACHED]
        self._hearing = Hearing(attached, clock(), bound)

    async def meet(self, name: str, host_id: int, told: Position, highest: int = 0) -> bool:
        """Takes a host's word about how far its view is, and the highest epoch that it has heard of.

        Returns whether its view is wanted, because the store is an older state. Raises
        COORDINATOR_UNAVAILABLE while another host hands in its view, and if another coordinator seems to
        lead.
        """
        if highest > self._stored.epoch:
            await self._turns.between(lambda: self._rise(name, highest))
        if not self._lacks(told):
            if self._hearing.heard(host_id):
                self._note_heard()
            return False
        if told.history == self._stored.history_id:
            await self._turns.between(lambda: self._turn_history(name, told))
        if not self._hearing.wanted(name, self._clock()):
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, "the coordinator takes in another host's view: try again"
            )
        self._waits_for = (
            f"the coordinator's store is an older state: host {name} has revision {told.revision} of history"
            f" {told.history}; its view is awaited"
        )
        return True

    def _lacks(self, told: Position) -> bool:
        return self._stored.lineage.lacks(self._stored.history_id, self._stored.revision, told)

    async def adopt(self, name: str, told: Position, changes: tuple[Change, ...]) -> None:
        """Adopts the whole view of a host, unless the store has it by now."""
        await self._turns.between(lambda: self._adopt(name, told, changes))
        self._hearing.handed_in()
        self._waits_for = ""
        self._note_heard()

    async def _adopt(self, name: str, told: Position, changes: tuple[Change, ...]) -> None:
        known = self._stored.lineage.known(self._stored.history_id, self._stored.revision, told)
        if known is None or not known.lacks(told):
            return
        own = self._stored.changed_since(known.shared(told.epoch), [one.at for one in known.adopted])
        answer: Returned = await self._turns.do_now(
            AdoptView(name, told.revision, changes, own, self._beside_host)
        )
        last = self._stored.revision
        lineage = self._stored.lineage.adopted(told, last if answer.entries else 0)
        await self._stored.turn(self._stored.epoch, self._stored.history_id, last, lineage)
        self._note_adopted(name, told, answer)

    def _note_adopted(self, name: str, told: Position, answer: Returned) -> None:
        self.adopted += 1
        self.missing = tuple(dict.fromkeys((*self.missing, *answer.missing)))[:_MISSING]
        _log.error(
            "coordinator's store was an older state; it has adopted a host's view",
            host=name,
            revision=told.revision,
            entries=answer.entries,
            missing=len(answer.missing),
        )
        for text in answer.missing:
            _log.error("entry could not come back to the coordinator's store", host=name, detail=text)

    async def _turn_history(self, name: str, told: Position) -> None:
        """Gives the history another name: its next revisions are not those that the host knows."""
        if told.history != self._stored.history_id or not self._lacks(told):
            return
        before, last = self._stored.history_id, self._stored.revision
        following = max(last, told.revision)
        lineage = self._stored.lineage.turned(before, last, self._stored.epoch, following)
        await self._stored.turn(self._stored.epoch, uuid.uuid4().hex, following, lineage)
        _log.error(
            "coordinator's store is an older state of itself",
            revision=last,
            host=name,
            knows=told.revision,
        )

    async def _rise(self, name: str, highest: int) -> None:
        """Goes on in a higher epoch than the one that a host has heard of."""
        before, last = self._stored.epoch, self._stored.revision
        if highest <= before:
            return
        if highest >= _HIGHEST or not self._may_follow(highest):
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"host {name} has heard of epoch {highest}, and this coordinator decides in epoch {before}:"
                " another server was promoted. If this database alone is to go on, execute UPDATE"
                f" treecast.standing SET epoch = {highest}",  # nosec B608  # a text for the operator
            )
        await self._stored.turn(
            highest + 1, self._stored.history_id, last, self._stored.lineage.led(highest + 1, last)
        )
        _log.error(
            "coordinator goes on in a higher epoch, because hosts have heard of later ones",
            host=name,
            before=before,
            epoch=self._stored.epoch,
        )

    async def hear(self) -> None:
        """Waits until the attached hosts were heard, or that takes too long, and no view is awaited.

        Raises COORDINATOR_UNAVAILABLE if a host goes on to know more than the store.
        """
        now = self._clock()
        until = now + self._hearing.bound
        while (left := self._hearing.left(now)) > 0 and not self._stored.closed:
            if now >= until:
                raise TreecastError(
                    Fault.COORDINATOR_UNAVAILABLE, f"nothing is given out now: {self._waits_for}"
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, until - now)):
                    await self._all_heard.wait()
            now = self._clock()
        self._turns.check_open()
        if self._hearing.unheard:
            await self._go_on_without()

    async def hear_others(self, name: str) -> None:
        """Waits until the hosts other than `name` were heard, or that takes too long.

        For the host whose data directory holds the store: an old copy of it is an old state of both, which
        only the other hosts can tell. Until then the host must not lead on its logs.
        """
        self._beside_host = name
        others = {host.host_id: host for host in self._stored.state.hosts() if host.name != name}
        self._hearing.unheard &= others.keys()
        now = self._clock()
        if not self._hearing.unheard:
            self._hearing.hear_any(others, now)
        self._note_heard()  # others may have waited for the store's own host
        until = now + _MOST_BOUNDS * self._hearing.bound
        while (left := min(self._hearing.left(now), until - now)) > 0 and not self._stored.closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._all_heard.wait()
            now = self._clock()

    async def _go_on_without(self) -> None:
        """Goes on without hosts that may know of numbers which this store would give again."""
        unheard, self._hearing.unheard = self._hearing.unheard, set()
        names = [
            host.name for one in sorted(unheard) if (host := self._stored.state.host_by_id(one)) is not None
        ]
        _log.info("coordinator goes on without having heard from hosts", hosts=", ".join(names[:20]))
        await self._turns.do(SkipNumbers())

    def _note_heard(self) -> None:
        """Lets those go on that wait for hosts."""
        if not self._hearing.left(self._clock()):
            self._all_heard.set()
            self._all_heard = asyncio.Event()

    def problems(self) -> list[str]:
        """Returns what the store lacks, as sentences."""
        return [text for text in (self._waits_for, *self.missing) if text]

    def end(self) -> None:
        """Nobody waits for hosts any more."""
        self._all_heard.set()
