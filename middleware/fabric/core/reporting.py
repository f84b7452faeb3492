"""When a receiver reports, and whether the origin has received what it reported.

A report is due at once when enough data has arrived, soon after progress, and otherwise once in a while. The
origin echoes the stamp of a report that asks for it. Until an echo confirms that the origin knows of the
receiver, has what its replay waits for, or has the final report, reports are repeated. A receiver that rests
(`pairs`) reports only when something has changed.
"""

from __future__ import annotations

from treecast.middleware.model.timers import NEVER

from .settings import StreamSettings
from .timing import Random, RoundTrip

_LAST_REPORTS = 8  # after this many without an echo, stop waiting for one


class Reporting:
    """The reports of one receiver. Times are those of the fabric's clock, stamps are in us.

    `at`: when the next one is due. `unreported`: bytes that arrived since the last one. `settled`: what the
    last one called settled; -1 before the first. `awaited`: a replay waits for the report, which is repeated
    until echoed. `rests`: no report is due until something changes. `willing`: the next one may say so.
    """

    def __init__(self, settings: StreamSettings, random: Random, round_trip: RoundTrip, now: float) -> None:
        self.at = now
        self.settled = -1
        self.unreported = 0
        self.every = 0  # bytes after which it reports at once; 0: as in the settings
        self.awaited = False
        self.rests = False
        self.willing = False
        self._said = False  # the last report said that it rests
        self._settings = settings
        self._random = random
        self._round_trip = round_trip
        self._reported_at = -1e9
        self._sure = False  # the last report was echoed
        self._unanswered = 0  # reports before the first echo, or without progress
        self._stamp = 0  # of the last report that asked for an echo
        self._echo = 0  # the last echoed stamp
        self._finals = 0  # reports since the end was reached
        self._final_at = NEVER  # when the end was reached: an echo of a later stamp is of a final report
        self._final_echoed = False

    # --- what makes a report due

    def by(self, time: float) -> None:
        """Makes a report due at `time` at the latest."""
        self.at = min(self.at, time)

    def look(self, settled: int, replayed: bool, now: float) -> None:
        """Makes a report due if enough has arrived or more is settled. `replayed`: the receiver is being
        replayed to, or was until now; the sender then waits for a report of arrivals even if something before
        them is missing."""
        settings = self._settings
        enough = self.every or (settings.report_replayed if replayed else settings.report_bytes)
        if self.unreported >= enough:
            self.by(now)
        elif settled != self.settled or (self.unreported and replayed):
            self.by(now + settings.report_every * (0.5 + self._random.random() / 2))

    def ends(self, now: float) -> None:
        """Makes the first final report due."""
        self._final_at = now
        self.by(now)

    @property
    def concluded(self) -> bool:
        """Whether the final report was echoed, or repeated often enough."""
        return self._final_echoed or self._finals > _LAST_REPORTS

    def may_be_lost(self, now: float) -> bool:
        """Whether the last report was not echoed in time. The origin may be waiting for it."""
        return not self._sure and now - self._reported_at >= self._round_trip.timeout

    # --- reports and echoes

    def asks_for_echo(self, live: bool, now: float) -> bool:
        """Whether to ask for an echo. If one echo suffices to know the round trip, not while an earlier one
        is under way."""
        if not live or not self._round_trip.measured or self.awaited:
            return True
        return self._stamp <= self._echo or now - self._stamp / 1e6 >= self._round_trip.timeout

    def reports(self, settled: int, echo: bool, final: bool, rests: bool, now: float) -> int:
        """Takes note of a report and sets the time of the next one. Returns its stamp."""
        self._said, self.willing = rests, False
        stamp = max(1, int(now * 1e6))
        if settled != self.settled and self._round_trip.measured:
            self._unanswered = 0
        self.settled = settled
        self.unreported = 0
        if echo:
            self._stamp = stamp
        self._reported_at, self._sure = now, False
        self.at = now + self._interval(final) * (0.75 + self._random.random() / 4)
        return stamp

    def offered(self, fits: bool, accepted: bool) -> bool:
        """Takes the offer of an echo. `fits`: it can be taken up; `accepted`: the origin counts this host as
        resting. Returns whether it rests now."""
        fits = fits and self._sure
        self.willing = fits
        if fits and accepted and self._said:
            self.rests, self.at = True, NEVER
        return self.rests

    def wake(self, now: float, wait: float) -> None:
        """Ends the rest. Without news, it reports within `wait` seconds: all streams of a host may do so."""
        self.rests = False
        self.by(now + wait * self._random.random())

    def _interval(self, final: bool) -> float:
        """The time until the next report. The final report is repeated with growing intervals until it is
        echoed."""
        if final:
            self._finals += 1
            return self._settings.report_idle * 2.0 ** min(self._finals - 4, 5)
        if self._round_trip.measured and not self.awaited:
            return self._settings.report_idle
        self._unanswered += 1
        return min(self._settings.report_idle, self._round_trip.timeout * 2.0 ** min(self._unanswered, 20))

    def echoed(self, stamp: int, settled: int, final: bool, now: float) -> None:
        """Takes the origin's echo. `settled`, `final`: what a report would say now."""
        self._echo = max(self._echo, stamp)
        self._sure = self._sure or int(self._reported_at * 1e6) <= stamp
        if final and stamp >= int(self._final_at * 1e6):
            self.at = NEVER
            self._final_echoed = True
        elif self.awaited and stamp >= self._stamp:
            self.awaited = False
            if settled == self.settled:
                self.at = now + self._settings.report_idle
