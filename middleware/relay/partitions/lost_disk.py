"""Rebuilding of a partition whose leader has lost its disk: chooses the next step from what is known. Pure.

    looking --copy found--> copying --copied--> claiming --agreed--> led
       ^ |                     |                   |
       | +--no need------> claiming                |        (nobody has more than this host)
       | +--not yet------> waiting                 |
       +----look again--------+ source gone        + refused

Copies are compared by (last leader epoch, end offset), as in Kafka's leader election. See
docs/decisions/2026-11-23-a-lost-disk.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from msgspec import Struct

from treecast.middleware.model.transitions import transitions

NO_EPOCH = -1


class Step(enum.Enum):
    """The state of rebuilding one partition. The value is its text for operators."""

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

# event: (next step in LOOKING, WAITING, COPYING, CLAIMING, LED); None: the event cannot occur
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
    """Returns the step after `event`. Raises ValueError if `event` cannot occur in `step`."""
    following = TABLE[step][event]
    if following is None:
        raise ValueError(f"{event.name} cannot be while {step.name}")
    return following


def last_epoch(epochs: Sequence[tuple[int, int]], end: int) -> int:
    """Returns the leader epoch of a log's last record. Later epochs may have begun without a record."""
    return next((epoch for epoch, start in reversed(epochs) if start < end), NO_EPOCH)


class Copy(Struct, frozen=True):
    """A log of the partition at a host. `heard`: the end of the leader's log as far as the host knows."""

    host: int
    epochs: tuple[tuple[int, int], ...]  # (leader epoch, its first offset), oldest first
    start: int
    end: int
    heard: int = 0

    @property
    def epoch(self) -> int:
        """The leader epoch of the last record."""
        return last_epoch(self.epochs, self.end)

    @property
    def reach(self) -> tuple[int, int]:
        """How far the copy reaches: a higher value holds more of the leader's log."""
        return (self.epoch, self.end) if self.end else (NO_EPOCH, 0)


class Recorded(Struct, frozen=True):
    """The coordinator's record of the leader's log."""

    epoch: int
    end: int


class Known(Struct, frozen=True):
    """All that could be learned about a partition.

    `own`: this host's log. `record`: None if the coordinator has no record. `expected`: names of attached
    hosts that have not answered. `absent`: names of the other hosts that have not answered.
    """

    own: Copy
    copies: tuple[Copy, ...]
    record: Recorded | None
    expected: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def best(self) -> Copy:
        """The furthest copy; this host's own if others are equal."""
        return max((self.own, *self.copies), key=lambda copy: (copy.reach, copy is self.own))

    @property
    def heard(self) -> int:
        """The highest known end of the leader's log.

        Copies of earlier epochs may be longer than the furthest copy: their additional records were given up
        when a later epoch began.
        """
        best, record = self.best, self.record
        told = record.end if record is not None and record.epoch >= best.epoch else 0
        return max(best.end, told, *(copy.heard for copy in (self.own, *self.copies)))

    @property
    def lacking(self) -> bool:
        """Whether records are known of that no copy holds."""
        best, record = self.best, self.record
        return self.heard > best.end or (record is not None and (record.epoch, record.end) > best.reach)

    @property
    def highest_epoch(self) -> int:
        epochs = [epoch for copy in (self.own, *self.copies) for epoch, _ in copy.epochs]
        return max(NO_EPOCH, *epochs, self.record.epoch if self.record is not None else NO_EPOCH, NO_EPOCH)


class Choice(Struct, frozen=True):
    """The outcome of `choose`. `source`: the copy to read, if any. `reason`: for operators, why it waits."""

    event: Event
    source: Copy | None = None
    reason: str = ""


def choose(known: Known, waited: float, grace: float, *, accept_loss: bool = False) -> Choice:
    """Chooses the next event from what a survey found.

    `waited`: seconds since the first survey. `grace`: seconds to wait for hosts that may have a copy.
    `accept_loss`: whether the operator gives up records that no reachable copy holds.
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
    """The records lost if a log continues at `first`: those up to `heard`, the highest known end."""

    first: int
    heard: int


def gone(known: Known, end: int, *, whole: bool) -> Gone | None:
    """Returns what only the lost disk held, if the log continues at `end`; None if it held nothing more.

    `whole`: whether this host's log is the original one and complete.
    """
    heard = max(known.heard, end)
    if heard == end and (whole or not heard):
        return None
    return Gone(end, heard)


def next_epoch(known: Known, coordinators: int, runs: Sequence[int]) -> int:
    """Returns a leader epoch above all used ones.

    `coordinators`: the coordinator's epoch. `runs`: run numbers, which leaders use as epochs after a kill; a
    lost directory may have used lower numbers as epochs.
    """
    return max(known.highest_epoch + 1, coordinators + 1, *runs)


def refuses(log_start: int, log_end: int, begin: int, *, restart: bool, leader: str, agreed: str) -> bool:
    """Whether a follower refuses the leader's order to discard its records from `begin` on, or with `restart`
    all of them.

    `leader`: the leader's data directory. `agreed`: the data directory with which the follower's log last
    agreed; empty if unknown. The follower obeys a leader that has lost its last records on the same disk.
    """
    if restart:
        # the follower may discard what the leader's retention has deleted
        return log_start < log_end and begin < log_end
    return begin < log_end and bool(leader and agreed) and leader != agreed
