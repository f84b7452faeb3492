"""What a receiver asks for again: when, how far ahead, and whom.

Of what goes to all it asks the origin, for all that is missing. While it is replayed to, the replay brings
what is ahead, and only losses before that are asked for. Where the origin names a holder for the replay, the
receiver asks that one piece by piece: the next piece when all of the last one is here, larger each time, and
smaller where a piece has to be asked for twice.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.wire.segment_bodies import MAX_GAPS, Gap

from .reorder import Reorder
from .settings import NEVER, StreamSettings
from .timing import Random, RoundTrip, Weight

_MOST_NAKS: Final = 8  # at once
_VARIES: Final = 2.0  # times its variation, and a packet is late and not only overtaken


class Asking:
    """One receiver's. `behind`: it is replayed to. `holder`: the host that replays to it; 0: the origin."""

    __slots__ = (
        "_grows",
        "_piece",
        "_piece_end",
        "_random",
        "_round_trip",
        "_settings",
        "_weight",
        "answered",
        "behind",
        "holder",
        "replay_until",
        "replayed_to",
    )

    def __init__(
        self, settings: StreamSettings, random: Random, round_trip: RoundTrip, weight: Weight
    ) -> None:
        self.behind = False
        self.holder = 0
        self.answered = -NEVER  # when the last repair came
        self.replayed_to = 0  # the highest end of a repair: gaps before it are asked for while replayed to
        self.replay_until = -NEVER  # a replay goes on, for as long as repairs come
        self._settings = settings
        self._random = random
        self._round_trip = round_trip
        self._weight = weight
        self._piece = settings.replay_first  # bytes that are asked of the holder at once
        self._grows = True  # nothing of the last piece was asked for twice
        self._piece_end = 0

    # --- times

    def first_delay(self) -> float:
        """A quarter of a round trip for what was only reordered, then spread over the receivers."""
        return self._round_trip.smoothed * (0.25 + self._spread())

    def reordered(self) -> float:
        """How long what was passed over in a replay may still be on its way, where delays vary.

        A replay goes on beside what is missing, so that nothing waits for it; what is asked for in vain costs
        it bytes, and its window.
        """
        if not self._round_trip.measured:
            return self._round_trip.timeout
        return self._round_trip.smoothed / 4 + _VARIES * self._round_trip.variation

    def patience(self) -> float:
        """How long what nothing has overtaken may be on its way: in a socket, or not sent yet."""
        if self.behind:
            return self._round_trip.timeout
        return max(self._round_trip.timeout, self._settings.patience)

    def replay_pause(self) -> float:
        """Without a repair for so long, a replay that had nearly reached the end is over."""
        return min(2 * self._round_trip.timeout, self._settings.replay_stall)

    def _spread(self) -> float:
        """So that not all ask at once. What is replayed, one alone asks for."""
        return self._settings.nak_spread * self._random.random() if not self.behind else 0.0

    def _retry_delay(self, attempts: int, members: int) -> float:
        """A repair's time-out, doubled with every attempt where no repair comes, spread, and bounded.

        Where enough others may ask for the same, the origin waits for them.
        """
        settings, wait = self._settings, self._round_trip.timeout
        if not self.behind and members >= settings.multicast_at:
            wait += settings.aggregation * self._round_trip.smoothed
        base = wait * 2.0 ** min(attempts - 1, 20)
        return min(base, max(wait, settings.nak_longest)) * (1 + self._spread())

    # --- what came again

    def came(self, end: int, now: float, replayed: bool) -> None:
        """A repair of what lies before `end`, or a part of a replay. `replayed`: of one that gets farther."""
        self.answered = now
        self.replayed_to = max(self.replayed_to, end)
        if replayed:
            self.replays(now)

    def replays(self, now: float) -> None:
        """A replay goes on, or begins."""
        self.replay_until = now + self.replay_pause()

    def held_by(self, holder: int, sequence: int) -> None:
        """The replay begins at `sequence`, and `holder` is to be asked for it; 0: the origin sends it."""
        self.holder = holder
        self._piece = self._settings.replay_first // 2
        self._piece_end = sequence

    def nobody_replays(self) -> None:
        """The origin is gone: all that is missing is asked for."""
        self.holder = 0
        self.replay_until = -NEVER

    # --- what is asked for

    def ask(self, buffer: Reorder, newest_at: float, members: int, now: float) -> list[Gap]:
        """All gaps whose time has come, as far as some naks hold them and there is room.

        `newest_at`: when what is farthest ahead has arrived. `members`: of the stream.
        """
        before = self._ask_before(buffer, now)
        wanted: list[Gap] = []
        again = False
        whole = now - newest_at >= self.patience()
        for missing in buffer.gaps.due(now):
            if len(wanted) >= _MOST_NAKS * MAX_GAPS or (not buffer.room and missing.first != buffer.next):
                missing.due = now + self._round_trip.timeout
                continue
            if missing.first >= before:  # replay will come there
                missing.due = now + self.replay_pause()
                continue
            lacking = list(buffer.wanted(missing, before, whole))
            if not lacking:  # what it lacks may be on its way
                missing.due = newest_at + self.patience()
                continue
            wanted += lacking
            again = again or missing.attempts > 0
            missing.attempts = 1 if self.answered > missing.asked else missing.attempts + 1
            missing.asked = now
            missing.due = now + self._retry_delay(missing.attempts, members)
        if again and self._grows:
            self._piece = max(self._settings.replay_least, self._piece // 2)
            self._grows = False
        return wanted

    def _ask_before(self, buffer: Reorder, now: float) -> int:
        """Gaps from here on are not asked for: a replay brings them, which goes on also for who is near."""
        if self.holder:
            return self._piece_before(buffer, now)
        if self.behind or (now < self.replay_until and len(buffer.gaps)):
            return self.replayed_to
        self.replay_until = -NEVER
        return buffer.known

    def _piece_before(self, buffer: Reorder, now: float) -> int:
        """The end of the piece that the holder is asked for; the next one, where all of the last is here."""
        first = buffer.gaps.first
        if first is not None and first.first >= self._piece_end and buffer.room:
            if self._grows:
                self._piece = min(2 * self._piece, self._settings.replay_window)
            self._grows = True
            size = min(self._piece, buffer.room)
            self._piece_end = first.first + self._weight.records_of(size)
            first.attempts = 0
            first.due = now
            buffer.gaps.sooner(now)
        return self._piece_end
