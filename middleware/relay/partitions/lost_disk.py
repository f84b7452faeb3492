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
    """A log of the partition at a host. `heard`: the end of the leader's log as far as the host knows.

    `current`: it followed the leader until that was gone, has all that the host heard of, and heard for a
    while before that nothing was written.
    """

    host: int
    epochs: tuple[tuple[int, int], ...]  # (leader epoch, its first offset), oldest first
    start: int
    end: int
    heard: int = 0
    current: bool = False

    @property
    def epoch(self) -> int:
        """The leader epoch of the last record."""
        return last_epoch(self.epochs, self.end)

    @property
    def reach(self) -> tuple[int, int]:
        """How far the copy reaches: a higher value holds more of the leader's log."""
        return (self.epoch, self.end) if self.end else (NO_EPOCH, 0)


class Recorded(Struct, frozen=True):
    """The coordinator's record of the leader's log. `end` below 0: it was lost with the coordinator's store.

    `quiet`: the leader said that it had written nothing for a while.
    """

    epoch: int
    end: int
    quiet: bool = True

    @property
    def lost(self) -> bool:
        return self.end < 0


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
    def unmeasured(self) -> bool:
        """Whether nobody knows where the leader's log ended: the record is lost, and no host that has the
        furthest copy followed it until it was gone.
        """
        return self.record is not None and self.record.lost and not self._followed

    @property
    def unsure(self) -> bool:
        """Whether the lost disk may have had more than was heard of: nobody knows where its log ended, or it
        was being written to at its last report, or since.
        """
        best, record = self.best, self.record
        if record is None:
            return best.end > 0 and not self._followed
        if record.lost:
            return self.unmeasured
        return not self._followed and (not record.quiet or best.reach > (record.epoch, record.end))

    @property
    def _followed(self) -> bool:
        reach = self.best.reach
        return any(copy.current and copy.reach == reach for copy in self.copies)

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
    # without a record, which may have been lost as well, any host may have more
    doubtful = known.lacking or known.unmeasured or known.record is None
    if known.absent and doubtful and patient:
        return _wait(f"for {_listed(known.absent)}, which may have a copy and cannot be reached")
    if known.lacking and not best.end and not accept_loss:
        away = (*known.expected, *known.absent)
        where = f" ({_listed(away)} cannot be reached)" if away else ""
        return _wait(f"for a copy: there were {known.heard} records, and no host that is here has any{where}")
    if known.unmeasured and known.absent and not best.end and not accept_loss:
        return _wait(
            f"for {_listed(known.absent)}, which may have a copy and cannot be reached: no other host has"
            " one, and what there was is not known, because the coordinator's store was lost as well"
        )
    if best is known.own:
        return Choice(Event.NOTHING_TO_COPY)
    return Choice(Event.COPY_FOUND, best)


def _wait(reason: str) -> Choice:
    return Choice(Event.NOT_YET, reason=reason)


def _listed(names: Sequence[str]) -> str:
    return f"host {', '.join(names)}" if len(names) == 1 else f"hosts {', '.join(names)}"


class Gone(Struct, frozen=True):
    """The records lost if a log continues at `first`: those up to `heard`, the highest known end.

    `unknown`: more may be lost, because nobody knows where the log ended. Without that, and with `heard`
    equal to `first`, nothing is known to be lost; see `LostRange.is_loss`.
    """

    first: int
    heard: int
    unknown: bool = False


def gone(known: Known, end: int, *, whole: bool) -> Gone | None:
    """Returns what only the lost disk held, if the log continues at `end`; None if it held nothing more.

    `whole`: whether this host's log is the original one and complete.
    """
    heard = max(known.heard, end)
    if heard == end and not known.unsure and (whole or not heard):
        return None
    return Gone(end, heard, known.unsure)


def next_epoch(known: Known, coordinators: int, runs: Sequence[int]) -> int:
    """Returns a leader epoch above all used ones.

    `coordinators`: the coordinator's epoch. `runs`: run numbers, which leaders use as epochs after a kill; a
    lost directory may have used lower numbers as epochs.
    """
    return max(known.highest_epoch + 1, coordinators + 1, *runs)


def refuses(log_start: int, log_end: int, begin: int, *, restart: bool, stranger: bool) -> bool:
    """Whether a follower refuses the leader's order to discard its records from `begin` on, or with `restart`
    all of them.

    `stranger`: the leader's data directory is another than the one with which the follower's log agreed last,
    or an older state of it. The follower obeys a leader that has lost its last records on the same disk.
    """
    if restart:
        # the follower may discard what the leader's retention has deleted
        return log_start < log_end and begin < log_end
    return begin < log_end and stranger
