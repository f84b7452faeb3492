"""`Turn`: the group commit of the host, for its faces and for what other hosts have sent.

Whoever is handed something that has to be stored, or has something to say that depends on it, asks for the
end of the turn. That comes once in a pass of the event loop, for all who have asked, in this order:

    place    what leaves for other hosts gets its place in their streams; what it promises goes to the stores
    store    each store writes what the turn has brought, with one call
    force    with fsync per batch: the disk is waited for, beside the loop; what is asked for meanwhile is the
             next turn's, which shares the next sync
    send     what was placed leaves
    say      clients are answered, and other hosts are told what was taken from them

Where a store refuses, or the disk does, nothing is sent and nothing that depends on it is said: speakers are
told to `refuse`. What was placed leaves with the next turn that is stored. What a kill and a power loss leave
at each point, also of partitions, which have a group commit each, is in `docs/ordering.md`.

Pure: the edge (`pubsub_host.LoopEdge`) calls back in the loop's next pass and runs syncs on threads.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from treecast.middleware.storage.block_log import SyncTicket
from treecast.middleware.storage.settings import FsyncPolicy


class Store(Protocol):
    """What is written when a turn ends: a journal. `error`: why it refused last."""

    error: str
    unsynced: bool  # something was written that the disk was not forced to take

    def flush(self) -> bool:
        """Writes what has come since the last call, with one call; whether all is written."""

    def begin_sync(self) -> tuple[SyncTicket, int]:
        """What is to be run beside the loop, and a number for `end_sync`. OSError."""

    def end_sync(self, segment: int, error: str) -> None:
        """It was run; `error` is "" where the disk has taken all."""


class Departures(Protocol):
    """What leaves this host with the turn.

    `waiting`: something is to be placed. `placed`: something is to be sent. `congested`: so much waits to
    leave that publishers have to be held back.
    """

    waiting: bool
    placed: bool
    congested: bool

    def place(self) -> None:
        """Before the stores are written: says there what has been promised."""

    def send(self) -> None:
        """It is stored, and forced to the disk where the policy says so."""


class Speaker(Protocol):
    """Who says something once it is stored: a face, or what other hosts are answered by. Part of every turn,
    or of those that it has asked for."""

    def gather(self) -> None:
        """What was to be said by now is this turn's. Followed by `say` or `refuse`, before the next."""

    def say(self) -> None:
        """What was gathered may be said."""

    def refuse(self) -> None:
        """What was gathered and promises something must not be said."""


class Edge(Protocol):
    """What the turn has of the event loop."""

    @property
    def soon(self) -> Callable[[Callable[[], None]], object]:
        """Calls something in the loop's next pass."""

    def force(self, tickets: Sequence[SyncTicket], then: Callable[[list[str]], None]) -> None:
        """Runs all beside the loop; then tells, on the loop, of each what the disk said ("": nothing)."""

    def refused(self, error: str) -> None:
        """A turn was refused."""


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
# event: (in RESTING, ASKED, FORCING, FORCING_ASKED); an end that comes while the disk is waited for waits too
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
    """An event that the table refuses: an error of our own."""


class Turn:
    """One host's. All calls come from its event loop."""

    def __init__(self, policy: FsyncPolicy, edge: Edge) -> None:
        self.state = _R
        self._edge = edge
        self._forces = policy is FsyncPolicy.BATCH
        self._stores: list[Store] = []
        self._departures: list[Departures] = []
        self._speakers: list[Speaker] = []
        self._asked: dict[Speaker, None] = {}  # of this turn alone
        self._gathered: list[Speaker] = []
        self._in_background: list[Store] = []

    # --- who takes part

    def add_store(self, store: Store, *, first: bool = False) -> None:
        """Stores are written in the order in which they were added, and none after one that refuses: one that
        refers to another comes after it. `first`: the others say that it has something."""
        self._stores.insert(0 if first else len(self._stores), store)

    def remove_store(self, store: Store) -> None:
        """It is closed by who has it."""
        self._stores.remove(store)

    def add_departures(self, departures: Departures) -> None:
        self._departures.append(departures)

    def remove_departures(self, departures: Departures) -> None:
        self._departures.remove(departures)

    def add_speaker(self, speaker: Speaker) -> None:
        self._speakers.append(speaker)

    def remove_speaker(self, speaker: Speaker) -> None:
        """Of what it has gathered it says nothing any more."""
        if speaker in self._speakers:
            self._speakers.remove(speaker)
        if speaker in self._gathered:
            self._gathered.remove(speaker)
        self._asked.pop(speaker, None)

    @property
    def congested(self) -> bool:
        """Whether publishers of what is promised have to be held back: other hosts do not keep up."""
        return any(departures.congested for departures in self._departures)

    @property
    def forcing(self) -> bool:
        """Whether the disk is waited for, and the end of a turn with it."""
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
        """For the end of this turn, of which `speaker` is to be part. To be called as often as one likes."""
        if speaker is not None:
            self._asked[speaker] = None
        if self.state is _R:
            self._edge.soon(self.end)
        self._step(TurnEvent.ASK)

    def end(self) -> None:
        """Stores what the turn has brought, then lets it be sent and said."""
        self._step(TurnEvent.END)
        if self.forcing:
            return
        for departures in self._departures:
            if departures.waiting:
                departures.place()
        refused = next((store for store in self._stores if not store.flush()), None)
        self._gathered = [*self._asked, *self._speakers]
        self._asked = {}
        for speaker in self._gathered:
            speaker.gather()
        if refused is not None:
            self._refuse(refused.error)
            return
        unsynced = [store for store in self._stores if store.unsynced] if self._forces else []
        if unsynced:
            self._step(TurnEvent.FORCE)
            self._force(unsynced, self._forced)
        else:
            self._say()

    def _forced(self, error: str) -> None:
        asked = self._step(TurnEvent.FORCED) is _FA
        if error:
            self._refuse(error)
        else:
            self._say()
        if asked:
            self.end()

    def _say(self) -> None:
        for departures in self._departures:
            if departures.placed:
                departures.send()
        gathered, self._gathered = self._gathered, []
        for speaker in gathered:
            speaker.say()

    def _refuse(self, error: str) -> None:
        self._edge.refused(error)
        gathered, self._gathered = self._gathered, []
        for speaker in gathered:
            speaker.refuse()

    # --- the disk

    def _force(self, stores: Sequence[Store], then: Callable[[str], None]) -> None:
        """Forces what is in `stores` to the disk, and then calls `then` with what it refused, or ""."""
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

        def done(errors: list[str]) -> None:
            for (store, segment), error in zip(begun, errors, strict=True):
                store.end_sync(segment, error)
            then(next(filter(None, [failed, *errors]), ""))

        if tickets:
            self._edge.force(tickets, done)
        else:
            then(failed)

    def force(self) -> None:
        """Forces what was written, while nobody waits for it: with fsync per interval."""
        unsynced = [store for store in self._stores if store.unsynced]
        if unsynced and not self._forces and not self._in_background:
            self._in_background = unsynced
            self._force(unsynced, self._forced_in_background)

    def _forced_in_background(self, error: str) -> None:
        self._in_background = []
        if error:
            self._edge.refused(error)

    def look(self) -> None:
        """From time to time: what nobody has asked an end for is stored as well, and what was refused is
        tried again."""
        if self.state is _R:
            self.end()
