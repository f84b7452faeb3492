"""What is done about a partition whose leader's disk is gone: from what is known to the next step. Pure.

    looking --copy found--> copying --copied--> claiming --agreed--> led
       ^ |                     |                   |
       | +--no need------> claiming                |        (nobody has more than this host)
       | +--not yet------> waiting                 |
       +----look again--------+ source gone        + refused

Copies are compared by (last leader epoch, end offset), as Kafka's leaders are chosen. See
docs/decisions/2026-11-23-a-lost-disk.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from msgspec import Struct

from treecast.middleware.model.transitions import transitions

NO_EPOCH = -1


class Step(enum.Enum):
    """Where the rebuilding of one partition is. The value says it for an operator."""

    LOOKING = "asks other hosts what they have"
    WAITING = "waits"
    COPYING = "is copied from another host"
    CLAIMING = "asks the coordinator to lead it again"
    LED = "is led again"


class Event(enum.Enum):
    COPY_FOUND = "another host has the furthest copy"
    NOTHING_TO_COPY = "nobody has more than this host"
    NOT_YET = "a host is waited for, or the operator"
    LOOK_AGAIN = "time has passed, a host has come, or the operator has spoken"
    COPIED = "this host has what the copy had"
    SOURCE_GONE = "the copy cannot be read any more"
    AGREED = "the coordinator agrees"
    REFUSED = "it does not, or is away"


LOOKING, WAITING, COPYING, CLAIMING, LED = Step

# event: (in LOOKING, WAITING, COPYING, CLAIMING, LED); None cannot be
_ROWS: dict[Event, tuple[Step | None, Step | None, Step | None, Step | None, Step | None]] = {
    Event.COPY_FOUND: (COPYING, None, None, None, None),
    Event.NOTHING_TO_COPY: (CLAIMING, None, None, None, None),
    Event.NOT_YET: (WAITING, None, None, None, None),
    Event.LOOK_AGAIN: (None, LOOKING, None, None, None),
    Event.COPIED: (None, None, CLAIMING, None, None),
    Event.SOURCE_GONE: (None, None, WAITING, None, None),
    Event.AGREED: (None, None, None, LED, None),
    Event.REFUSED: (None, None, None, WAITING, None),
}

TABLE: Mapping[Step, Mapping[Event, Step | None]] = transitions(Step, _ROWS)


def follow(step: Step, event: Event) -> Step:
    """What comes after `event`. ValueError where it cannot happen."""
    following = TABLE[step][event]
    if following is None:
        raise ValueError(f"{event.name} cannot be while {step.name}")
    return following


def last_epoch(epochs: Sequence[tuple[int, int]], end: int) -> int:
    """The leader epoch of a log's last record: a leader may have begun one and written nothing."""
    return next((epoch for epoch, start in reversed(epochs) if start < end), NO_EPOCH)


class Copy(Struct, frozen=True):
    """A log of the partition at a host. `heard`: up to where that host has heard of the leader's log."""

    host: int
    epochs: tuple[tuple[int, int], ...]  # (leader epoch, its first offset), oldest first
    start: int
    end: int
    heard: int = 0

    @property
    def epoch(self) -> int:
        """That of its last record."""
        return last_epoch(self.epochs, self.end)

    @property
    def reach(self) -> tuple[int, int]:
        """How far it is: the higher, the more of the leader's log it has."""
        return (self.epoch, self.end) if self.end else (NO_EPOCH, 0)


class Recorded(Struct, frozen=True):
    """What the coordinator has heard of the leader's log."""

    epoch: int
    end: int


class Known(Struct, frozen=True):
    """All that could be learned about a partition. `own`: this host's log. `record` None: nothing was told.

    `expected`: hosts that are attached and have not answered; `absent`: the others that have not. By name.
    """

    own: Copy
    copies: tuple[Copy, ...]
    record: Recorded | None
    expected: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def best(self) -> Copy:
        """The furthest copy, this host's own where others are as far."""
        return max((self.own, *self.copies), key=lambda copy: (copy.reach, copy is self.own))

    @property
    def heard(self) -> int:
        """Up to here there were records, as far as anybody has heard. Copies of earlier epochs may be longer
        than the furthest: what they had more was given up when a later epoch began."""
        best, record = self.best, self.record
        told = record.end if record is not None and record.epoch >= best.epoch else 0
        return max(best.end, told, *(copy.heard for copy in (self.own, *self.copies)))

    @property
    def lacking(self) -> bool:
        """Whether somebody has heard of records that no copy has."""
        best, record = self.best, self.record
        return self.heard > best.end or (record is not None and (record.epoch, record.end) > best.reach)

    @property
    def highest_epoch(self) -> int:
        epochs = [epoch for copy in (self.own, *self.copies) for epoch, _ in copy.epochs]
        return max(NO_EPOCH, *epochs, self.record.epoch if self.record is not None else NO_EPOCH, NO_EPOCH)


class Choice(Struct, frozen=True):
    """`source`: which host's log is copied, None for none. `reason`: what is waited for, for a person."""

    event: Event
    source: Copy | None = None
    reason: str = ""


def choose(known: Known, waited: float, grace: float, *, accept_loss: bool = False) -> Choice:
    """What follows from a look. `waited`: seconds since the first; hosts are waited for so long as `grace`.

    `accept_loss`: the operator lets go of what no copy has that can be reached.
    """
    best, patient = known.best, waited < grace and not accept_loss
    if known.expected and patient:
        return _wait(f"for {_listed(known.expected)}, which may have a copy and is not connected yet")
    unsure = known.lacking or known.record is None  # the record may have been lost as well
    if known.absent and unsure and patient:
        return _wait(f"for {_listed(known.absent)}, which may have a copy and cannot be reached")
    if known.lacking and not best.end and not accept_loss:
        away = (*known.expected, *known.absent)
        where = f" ({_listed(away)} cannot be reached)" if away else ""
        return _wait(f"for a copy: there were {known.heard} records, and no host that is here has any{where}")
    if best is known.own:
        return Choice(Event.NOTHING_TO_COPY)
    return Choice(Event.COPY_FOUND, best)


def _wait(reason: str) -> Choice:
    return Choice(Event.NOT_YET, reason=reason)


def _listed(names: Sequence[str]) -> str:
    return f"host {', '.join(names)}" if len(names) == 1 else f"hosts {', '.join(names)}"


class Gone(Struct, frozen=True):
    """What is lost when a log goes on at `first`: records up to `heard` were heard of."""

    first: int
    heard: int


def gone(known: Known, end: int, *, whole: bool) -> Gone | None:
    """What was on the lost disk alone, where the log goes on at `end`; None where it can have been nothing.

    `whole`: this directory is where the log was, and nothing of it is gone.
    """
    heard = max(known.heard, end)
    if heard == end and (whole or not heard):
        return None
    return Gone(end, heard)


def next_epoch(known: Known, coordinators: int, runs: Sequence[int]) -> int:
    """A leader epoch above all that were used. `runs`: numbers of runs, which leaders take for epochs after a
    kill: no lower one may have been used in a directory that is gone."""
    return max(known.highest_epoch + 1, coordinators + 1, *runs)


def refuses(log_start: int, log_end: int, begin: int, *, restart: bool, leader: str, agreed: str) -> bool:
    """Whether a follower keeps what it has against the leader's word that all from `begin` on goes (with
    `restart` all of it).

    `leader`: the leader's data directory. `agreed`: that with which the follower's log agreed last; empty
    where it is not known. A leader that lost its last records on the same disk is obeyed.
    """
    if restart:
        # what the leader's retention has taken away, the replica may let go as well
        return log_start < log_end and begin < log_end
    return begin < log_end and bool(leader and agreed) and leader != agreed
