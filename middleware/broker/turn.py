"""`Turn`: the group commit of the host, for its faces and for what other hosts have sent.

A component that has received data to store, or has a reply that depends on it, asks for the end of the turn.
A turn ends once per event loop iteration, for all components that asked, in this order:

    place    outgoing messages get their positions in the streams to other hosts; stores get the promised ones
    store    each store writes the turn's data with one call
    force    with fsync per batch: wait for the disk on another thread; requests that arrive meanwhile belong
             to the next turn, which shares the next sync
    send     placed messages leave
    say      clients are answered, and other hosts get their acknowledgements

If a store or the disk refuses, nothing is sent and no dependent reply is given: speakers are told to
`refuse`. Placed messages leave with the next turn that is stored. `docs/ordering.md` describes what a kill
and a power loss leave at each point, also for partitions, each of which has its own group commit.

Pure: the edge (`pubsub_host.LoopEdge`) calls back in the next loop iteration and runs syncs on threads.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence, Sized
from functools import partial
from typing import Final, Protocol

from treecast.middleware.storage.block_log import SyncTicket
from treecast.middleware.storage.settings import FsyncPolicy


class Store(Protocol):
    """A store that is written when a turn ends: a journal.

    `error`: the reason of its last refusal. `failing`: it persists. `pending`: what holds changes that are
    not written; if all are empty, there are none.
    """

    error: str
    failing: bool
    pending: tuple[Sized, ...]
    unsynced: bool  # something was written and not yet forced to disk

    @property
    def rolled(self) -> bool:
        """Whether something waits for a sync that no policy may leave to the kernel: full segments, whose
        order decides what a power loss takes, and segments that may go once their successors are on disk."""

    def flush(self) -> bool:
        """Writes everything new since the last call, with one call. Returns whether all is written."""

    def begin_sync(self) -> tuple[SyncTicket, int]:
        """Returns the sync to run beside the loop, and a number for `end_sync`. Raises OSError."""

    def end_sync(self, segment: int, error: str) -> None:
        """The sync has ended; `error` is "" if it succeeded."""


class Departures(Protocol):
    """The messages that leave this host with the turn.

    `waiting`: something is to be placed. `placed`: something is to be sent. `congested`: so much is queued
    that publishers have to be held back.
    """

    waiting: bool
    placed: bool
    congested: bool

    def place(self) -> None:
        """Places outgoing messages, and records promised ones in the stores, before these are written."""

    def send(self) -> None:
        """Sends what was placed. It is stored, and forced to disk if the policy says so."""


class Speaker(Protocol):
    """A component that replies once data is stored: a face, or the replies to other hosts. It takes part in
    every turn, or only in those that it has asked for."""

    def gather(self) -> None:
        """Assigns the replies pending so far to this turn. `say` or `refuse` follows before the next call."""

    def say(self) -> None:
        """Sends the gathered replies."""

    def refuse(self) -> None:
        """Withholds the gathered replies that promise something."""


class Edge(Protocol):
    """The turn's interface to the event loop."""

    @property
    def soon(self) -> Callable[[Callable[[], None]], object]:
        """The function that calls its argument in the next loop iteration."""

    def force(self, tickets: Sequence[SyncTicket], then: Callable[[list[str]], None]) -> None:
        """Runs all syncs beside the loop, then calls `then` on the loop with the error of each ("": none)."""

    def refused(self, error: str) -> None:
        """A turn was refused."""

    def failed(self, error: Exception) -> None:
        """A speaker has raised. The others of the turn are not affected."""


class TurnState(enum.Enum):
    RESTING = "nobody has asked"
    ASKED = "the end comes in the loop's next pass"
    FORCING = "the disk is waited for"
    FORCING_ASKED = "so it is, and another turn ends after that"


class TurnEvent(enum.Enum):
    ASK = "somebody wants the end"
    END = "it has come"
    FORCE = "what it has stored is forced to the disk"
    FORCED = "that is over"


_R, _A, _F, _FA = TurnState
# event: (in RESTING, ASKED, FORCING, FORCING_ASKED). An END during a sync waits until the sync is done.
_ROWS: Final[dict[TurnEvent, tuple[TurnState | None, ...]]] = {
    TurnEvent.ASK: (_A, _A, _FA, _FA),
    TurnEvent.END: (_R, _R, _FA, _FA),
    TurnEvent.FORCE: (_F, _FA, None, None),
    TurnEvent.FORCED: (None, None, _R, _R),
}
TURN_TABLE: Final = {
    (state, event): after for event, row in _ROWS.items() for state, after in zip(TurnState, row, strict=True)
}


class ImpossibleTurn(Exception):
    """An event that the table does not allow: a programming error."""


class Turn:
    """The turn of one host. All calls come from its event loop."""

    def __init__(self, policy: FsyncPolicy, edge: Edge) -> None:
        self.state = _R
        self._edge = edge
        self._policy = policy
        self._forces = policy is FsyncPolicy.BATCH
        self._stores: list[Store] = []
        self._departures: list[Departures] = []
        self._speakers: list[Speaker] = []
        self._asked: dict[Speaker, None] = {}  # for this turn only
        self._gathered: list[Speaker] = []
        self._in_background: list[Store] = []

    # --- participants

    def add_store(self, store: Store, *, first: bool = False) -> None:
        """Adds a store. Stores are written in the order in which they were added, and none after one that
        refuses; a store that refers to another therefore comes after it. `first`: adds it before the others,
        as their entries claim that it holds data."""
        self._stores.insert(0 if first else len(self._stores), store)

    def remove_store(self, store: Store) -> None:
        """Removes a store. Its owner closes it."""
        self._stores.remove(store)

    def add_departures(self, departures: Departures) -> None:
        self._departures.append(departures)

    def remove_departures(self, departures: Departures) -> None:
        self._departures.remove(departures)

    def add_speaker(self, speaker: Speaker) -> None:
        self._speakers.append(speaker)

    def remove_speaker(self, speaker: Speaker) -> None:
        """Removes a speaker. It no longer sends its gathered replies."""
        if speaker in self._speakers:
            self._speakers.remove(speaker)
        if speaker in self._gathered:
            self._gathered.remove(speaker)
        self._asked.pop(speaker, None)

    @property
    def congested(self) -> bool:
        """Whether publishers of promised messages have to be held back, as other hosts do not keep up."""
        return any(departures.congested for departures in self._departures)

    @property
    def forcing(self) -> bool:
        """Whether a sync is running, for which the end of a turn waits."""
        return self.state is _F or self.state is _FA

    # --- the turn

    def _step(self, event: TurnEvent) -> TurnState:
        before = self.state
        after = TURN_TABLE[before, event]
        if after is None:
            raise ImpossibleTurn(f"{event.name} in {before.name}")
        self.state = after
        return before

    def ask(self, speaker: Speaker | None = None) -> None:
        """Asks for the end of this turn, in which `speaker` takes part. May be called any number of times."""
        if speaker is not None:
            self._asked[speaker] = None
        if self.state is _R:
            self._edge.soon(self.end)
        self._step(TurnEvent.ASK)

    def end(self) -> None:
        """Ends the turn: stores its data, then sends and replies."""
        self._step(TurnEvent.END)
        if self.forcing:
            return
        for departures in self._departures:
            if departures.waiting:
                departures.place()
        refused = self._store()
        speakers: list[Speaker] = [*self._asked, *self._speakers]
        self._asked = {}
        self._gathered = [speaker for speaker in speakers if self._gathers(speaker)]
        if refused is not None:
            self._refuse(refused.error)
            return
        unsynced = [store for store in self._stores if store.unsynced] if self._forces else []
        if unsynced:
            self._step(TurnEvent.FORCE)
            self._force(unsynced, self._forced)
        else:
            self._say()

    def _store(self) -> Store | None:
        """Writes the stores in order, up to the first that refuses. Returns that one."""
        for store in self._stores:
            # Most turns change one store: the others are not even asked.
            if (store.failing or any(store.pending)) and not store.flush():
                return store
        return None

    def _forced(self, error: str) -> None:
        asked = self._step(TurnEvent.FORCED) is _FA
        if error:
            self._refuse(error)
        else:
            self._say()
        # The end that came during the sync was put off until now.
        if asked:
            self.end()

    def _say(self) -> None:
        for departures in self._departures:
            if departures.placed:
                departures.send()
        gathered, self._gathered = self._gathered, []
        for speaker in gathered:
            try:
                speaker.say()
            except Exception as error:
                self._edge.failed(error)

    def _gathers(self, speaker: Speaker) -> bool:
        try:
            speaker.gather()
        except Exception as error:
            self._edge.failed(error)
            return False
        return True

    def _refuse(self, error: str) -> None:
        self._edge.refused(error)
        gathered, self._gathered = self._gathered, []
        for speaker in gathered:
            try:
                speaker.refuse()
            except Exception as failure:
                self._edge.failed(failure)

    # --- the disk

    def _force(self, stores: Sequence[Store], then: Callable[[str], None]) -> None:
        """Forces `stores` to disk, then calls `then` with the first error, or ""."""
        begun: list[tuple[Store, int]] = []
        tickets: list[SyncTicket] = []
        failed = ""
        for store in stores:
            try:
                ticket, segment = store.begin_sync()
            except OSError as error:
                failed = str(error)
                store.end_sync(0, failed)
            else:
                begun.append((store, segment))
                tickets.append(ticket)
        if tickets:
            self._edge.force(tickets, partial(self._synced, begun, failed, then))
        else:
            then(failed)

    def _synced(
        self, begun: list[tuple[Store, int]], failed: str, then: Callable[[str], None], errors: list[str]
    ) -> None:
        for (store, segment), error in zip(begun, errors, strict=True):
            store.end_sync(segment, error)
        then(next((error for error in [failed, *errors] if error), ""))

    def force(self) -> None:
        """Forces in the background what was written: all of it with fsync per interval; what cannot wait for
        the kernel with `never`."""
        never = self._policy is FsyncPolicy.NEVER
        unsynced = [store for store in self._stores if (store.rolled if never else store.unsynced)]
        if unsynced and not self._forces and not self._in_background:
            self._in_background = unsynced
            self._force(unsynced, self._forced_in_background)

    def _forced_in_background(self, error: str) -> None:
        self._in_background = []
        if error:
            self._edge.refused(error)

    def look(self) -> None:
        """Ends a turn that was not asked for; called periodically. Stores such data, and retries what was
        refused."""
        if self.state is _R:
            self.end()


class StoredWaits:
    """Tells its callers whether the turn has stored their changes. Implements `Speaker`."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: list[Callable[[bool], None]] = []
        self._gathered: list[Callable[[bool], None]] = []

    def then(self, told: Callable[[bool], None]) -> None:
        """Calls `told` at the end of the turn with whether all of it is stored, or with False at `close`."""
        self._waiting.append(told)
        self._turn.ask(self)

    def gather(self) -> None:
        self._gathered, self._waiting = self._gathered + self._waiting, []

    def say(self) -> None:
        self._tell(True)

    def refuse(self) -> None:
        self._tell(False)

    def _tell(self, stored: bool) -> None:
        gathered, self._gathered = self._gathered, []
        for told in gathered:
            told(stored)

    def close(self) -> None:
        """Leaves the turn. All who wait are told that their changes are not stored."""
        self._turn.remove_speaker(self)
        self.gather()
        self._tell(False)
