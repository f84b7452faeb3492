"""All replicas of a host: received updates of subscribed states, last values, requests for lost updates."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from treecast.middleware.wire.stare import StareHeader
from treecast.middleware.wire.stare_signals import MOST_ENTRIES, Span, Update

from .published import Pair
from .replica import Budget, Refusal, Replica
from .settings import StareSettings
from .timers import Random, Timers, Wait

_COST: Final = 128  # memory overhead of a last value in bytes


class _Entry:
    __slots__ = ("last", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.last: Update | None = None


class Received:
    """Replicas by state id and VNF id. Returned updates are for the state's subscribers, in order."""

    def __init__(self, settings: StareSettings, random: Random) -> None:
        self._settings = settings
        self._budget = Budget(settings.pending_bytes)
        self._wait = Wait(settings.recover_first, settings.recover_longest, settings.spread, random)
        self._states: dict[int, dict[int, _Entry]] = {}
        self._timers: Timers[Pair] = Timers()
        self._values_left = settings.values_bytes
        self.values_dropped = 0

    # --- looking

    def end(self, pair: Pair) -> int | None:
        """Returns the next number of a pair; None for an unknown pair."""
        entry = self._entry(pair)
        return None if entry is None else entry.replica.next

    def lasts(self, state: int) -> list[Update]:
        """Returns the last update of each VNF that publishes the state, as far as kept here."""
        return [e.last for e in self._states.get(state, {}).values() if e.last is not None]

    def sure(self, state: int) -> list[Pair]:
        """Returns a state's pairs with a kept last value and exact numbers (not off by whole cycles)."""
        found = self._states.get(state, {}).items()
        return [(state, vnf) for vnf, one in found if one.replica.based and one.last is not None]

    def last(self, pair: Pair) -> Update | None:
        entry = self._entry(pair)
        return None if entry is None else entry.last

    def _entry(self, pair: Pair) -> _Entry | None:
        vnfs = self._states.get(pair[0])
        return None if vnfs is None else vnfs.get(pair[1])

    # --- input

    def receive(
        self, header: StareHeader, part: bytes, now: float, *, whole: bool = False
    ) -> list[Update] | Refusal:
        """Takes a segment of a subscribed state. Returns the updates to deliver or the refusal.

        `whole`: all publishers so far are known, so an unknown VNF has just begun to publish. All of its
        updates are wanted, and those before the first received one were lost. Numbers mostly begin at 0;
        otherwise the replica controller says which updates exist.
        """
        pair = header.state, header.vnf
        entry = self._entry(pair)
        if entry is None:
            first = 0 if whole and header.update < self._settings.window else header.update
            entry = self._begin(pair, first)
        found = entry.replica.receive(header, part)
        return found if isinstance(found, Refusal) else self._settle(pair, entry, found, now)

    def take(self, update: Update, now: float) -> list[Update] | Refusal:
        """Takes a whole update received by unicast. Returns the updates to deliver or the refusal."""
        pair = update.state, update.vnf
        entry = self._entry(pair) or self._begin(pair, update.number, based=True)
        self._hear(entry, update.number + 1)
        found = entry.replica.take(update.number, update.value)
        return found if isinstance(found, Refusal) else self._settle(pair, entry, found, now)

    def hear(self, span: Span, now: float, *, whole: bool = False) -> None:
        """Notes that a pair's updates exist up to `span.end`.

        Requests only the last update of a new pair; with `whole`, as in `receive`, all from `span.first`.
        """
        pair = span.state, span.vnf
        entry = self._entry(pair)
        if entry is None:
            if span.end == span.first:
                return
            entry = self._begin(pair, span.first if whole else span.end - 1, based=True)
            self._timers.set(pair, now)
        self._hear(entry, span.end)
        self._settle(pair, entry, [], now)

    @staticmethod
    def _hear(entry: _Entry, end: int) -> None:
        by = entry.replica.hear(end)
        if by and entry.last is not None:
            entry.last = replace(entry.last, number=entry.last.number + by)

    def gone(self, span: Span, now: float) -> tuple[list[Update], int]:
        """Skips updates before `span.first`, which are no longer available.

        Returns the updates to deliver and the number of updates lost for good.
        """
        entry = self._entry((span.state, span.vnf))
        if entry is None:
            return [], 0
        before = entry.replica.next
        found = entry.replica.skip(span.first)
        lost = max(entry.replica.next - before - len(found), 0)
        return self._settle((span.state, span.vnf), entry, found, now), lost

    def _begin(self, pair: Pair, first: int, *, based: bool = False) -> _Entry:
        entry = _Entry(Replica(first, self._budget, self._settings.window))
        entry.replica.based = based
        self._states.setdefault(pair[0], {})[pair[1]] = entry
        return entry

    def _settle(self, pair: Pair, entry: _Entry, found: list[tuple[int, bytes]], now: float) -> list[Update]:
        replica = entry.replica
        if replica.complete:
            self._timers.clear(pair)
        elif found or pair not in self._timers:
            self._timers.set(pair, now + self._wait.after(replica.attempts))
        updates = [Update(pair[0], pair[1], number, value) for number, value in found]
        if updates:
            self._keep(entry, updates[-1])
        return updates

    def _keep(self, entry: _Entry, update: Update) -> None:
        self._drop_value(entry)
        size = len(update.value) + _COST
        if size > self._values_left:
            self.values_dropped += 1
            return
        self._values_left -= size
        entry.last = update

    def _drop_value(self, entry: _Entry) -> None:
        if entry.last is not None:
            self._values_left += len(entry.last.value) + _COST
            entry.last = None

    # --- missing updates

    def due(self, now: float) -> list[Span]:
        """Returns the missing updates to request now. Each is requested again until it arrives or is gone."""
        spans = []
        for pair in self._timers.due(now, MOST_ENTRIES):
            entry = self._entry(pair)
            missing = entry.replica.missing(self._settings.recover_at_once) if entry is not None else None
            if entry is None or missing is None:
                continue
            entry.replica.attempts += 1
            self._timers.set(pair, now + self._wait.after(entry.replica.attempts))
            spans.append(Span(*pair, *missing))
        return spans

    def next_deadline(self) -> float:
        return self._timers.next()

    # --- the end

    def forget(self, state: int) -> None:
        """Forgets a state without subscribers on this host."""
        for vnf, entry in self._states.pop(state, {}).items():
            self._timers.clear((state, vnf))
            self._drop_value(entry)
            entry.replica.close()

    def check_invariants(self) -> None:
        """For tests: pairs with missing updates have a timer, and no state holds no budget."""
        for state, vnfs in self._states.items():
            for vnf, entry in vnfs.items():
                entry.replica.check_invariants()
                assert entry.replica.complete or (state, vnf) in self._timers
        if not self._states:
            assert self._budget.left == self._settings.pending_bytes
            assert self._values_left == self._settings.values_bytes
