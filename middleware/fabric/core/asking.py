"""A receiver's repair requests: when to ask, how far ahead, and which host.

For data sent to all, the receiver asks the origin for everything missing. If members are nearer than the
origin (`near`), it first asks each of them `_NEAR_TRIES` times, in turn. During a replay it asks only for
losses before the replay's position, since the replay brings the rest. If the origin names a holder for the
replay, the receiver requests it from the holder piece by piece. It requests the next piece once the last one
is complete. A piece may take up to twice as long after its first repair as until then, and `replay_delay`
more: a larger one waits in queues, together with other traffic, and a smaller one leaves the path unused.
"""

from __future__ import annotations

from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import part_size
from treecast.middleware.wire.segment_bodies import MAX_GAPS, Gap

from .gaps import Missing
from .reorder import Reorder
from .settings import StreamSettings
from .timing import Random, RoundTrip, Weight

_MOST_NAKS: Final = 8  # per call
_NEAR_TRIES: Final = 2  # requests for a gap to each nearer host before the origin is asked
_VARIES: Final = 2.0  # a packet later than this many times the variation is not merely reordered


class Nearest(Protocol):
    """Knows distances between hosts: see `carriers.carrier`."""

    def apart(self, host: int, other: int) -> int:
        """How many zones a copy from `other` to `host` enters; 0 if unknown."""
        ...

    def nearest(self, origin: int, stream: int, members: tuple[int, ...]) -> tuple[int, ...]:
        """The members to ask for repairs before the origin, in this order."""
        ...


class Asking:
    """The requests of one receiver. `behind`: it is being replayed to. `holder`: the host that replays to it;
    0: the origin. `near`: members nearer than the origin, in the order in which they are asked."""

    __slots__ = (
        "_grows",
        "_part",
        "_piece",
        "_piece_asked",
        "_piece_begun",
        "_piece_end",
        "_random",
        "_round_trip",
        "_settings",
        "_weight",
        "answered",
        "asked_near",
        "asked_near_bytes",
        "behind",
        "holder",
        "near",
        "replay_until",
        "replayed_to",
    )

    def __init__(
        self, settings: StreamSettings, random: Random, round_trip: RoundTrip, weight: Weight
    ) -> None:
        self.behind = False
        self.holder = 0
        self.near: tuple[int, ...] = ()
        self.asked_near = 0  # whole messages requested from nearer hosts, and the bytes of all such requests
        self.asked_near_bytes = 0
        self.answered = -NEVER  # time of the last repair
        self.replayed_to = 0  # highest end of a repair; during a replay only gaps before it are requested
        self.replay_until = -NEVER  # a replay is in progress until then; every repair extends it
        self._settings = settings
        self._random = random
        self._round_trip = round_trip
        self._weight = weight
        self._part = part_size(settings.mtu)
        self._piece = settings.replay_first  # bytes requested from the holder at a time
        self._grows = True  # nothing of the last piece was requested twice
        self._piece_end = 0
        self._piece_asked = 0.0  # when the piece was requested, and when its first repair arrived
        self._piece_begun = NEVER

    # --- delays

    def first_delay(self) -> float:
        """The delay before the first request: a quarter round trip for reordering, plus a random spread over
        the receivers."""
        return self._round_trip.smoothed * (0.25 + self._spread())

    def reordered(self) -> float:
        """How long packets overtaken in a replay may still be in flight if delays vary.

        The replay continues while something is missing, so nothing waits for it. A needless request costs the
        replay bytes and window.
        """
        if not self._round_trip.measured:
            return self._round_trip.timeout
        return self._round_trip.smoothed / 4 + _VARIES * self._round_trip.variation

    def patience(self) -> float:
        """How long data that nothing has overtaken may be delayed: in a socket, or not sent yet."""
        if self.behind:
            return self._round_trip.timeout
        return max(self._round_trip.timeout, self._settings.patience)

    def replay_pause(self) -> float:
        """A replay that had nearly reached the end counts as finished after this long without a repair."""
        return min(2 * self._round_trip.timeout, self._settings.replay_stall)

    def _spread(self) -> float:
        """A random delay that keeps receivers from asking at the same time; 0 during a replay, which only one
        host asks for."""
        return self._settings.nak_spread * self._random.random() if not self.behind else 0.0

    def _retry_delay(self, attempts: int, members: int) -> float:
        """The delay before the next request: the repair time-out, doubled per unanswered attempt, spread and
        bounded.

        If enough other members may ask for the same records, adds the time that the origin waits to aggregate
        requests.
        """
        settings, wait = self._settings, self._round_trip.timeout
        if not self.behind and members >= settings.multicast_at:
            wait += settings.aggregation * self._round_trip.smoothed
        base = wait * 2.0 ** min(attempts - 1, 20)
        return min(base, max(wait, settings.nak_longest)) * (1 + self._spread())

    # --- repairs and replays received

    def came(self, end: int, now: float, replayed: bool) -> None:
        """Notes a repair or replay segment that ends at `end`. `replayed`: it advances a replay."""
        self.answered = now
        if self._piece_begun == NEVER:
            self._piece_begun = now
        self.replayed_to = max(self.replayed_to, end)
        if replayed:
            self.replays(now)

    def replays(self, now: float) -> None:
        """Notes that a replay begins or continues."""
        self.replay_until = now + self.replay_pause()

    def held_by(self, holder: int, sequence: int) -> None:
        """Begins a replay at `sequence`, to be requested from `holder`; 0: the origin sends it."""
        self.holder = holder
        # Half: `_resize` doubles it before the first request.
        self._piece = self._settings.replay_first // 2
        self._piece_end = sequence
        self._piece_begun = NEVER

    def nobody_replays(self) -> None:
        """Ends any replay because the origin is gone: everything missing is requested."""
        self.holder = 0
        self.replay_until = -NEVER

    # --- requests

    def ask(self, buffer: Reorder, newest_at: float, members: int, now: float) -> dict[int, list[Gap]]:
        """Returns all gaps that are due by the host to ask, limited by the number of naks per call and by
        room. Host 0 stands for the origin, or for the holder of the replay.

        `newest_at`: arrival time of the farthest data. `members`: number of members of the stream.
        """
        before = self._ask_before(buffer, now)
        wanted: dict[int, list[Gap]] = {}
        count = 0
        again = False
        whole = now - newest_at >= self.patience()
        for missing in buffer.gaps.due(now):
            if count >= _MOST_NAKS * MAX_GAPS or (not buffer.room and missing.first != buffer.next):
                missing.due = now + self._round_trip.timeout
                continue
            if missing.first >= before:  # the replay will reach it
                missing.due = now + self.replay_pause()
                continue
            if not whole and self._is_ahead(missing, buffer):
                missing.due = newest_at + self.patience()
                continue
            near = self._asks_near(missing, buffer)
            lacking = list(buffer.wanted(missing, before, whole and not near))
            if near and whole and not lacking:  # only the origin knows what is in flight
                near, lacking = False, list(buffer.wanted(missing, before))
            if not lacking:  # the rest may be in flight
                missing.due = newest_at + self.patience()
                continue
            host = self._nearer(missing, lacking) if near else 0
            wanted.setdefault(host, []).extend(lacking)
            count += len(lacking)
            again = again or missing.attempts > 0
            # Time-outs double for requests that nobody answers, not for one of many while repairs arrive.
            missing.attempts = 1 if self.answered > missing.asked else missing.attempts + 1
            missing.asked = now
            missing.due = now + self._retry_delay(missing.attempts, members)
        if again and self._grows:
            self._piece = max(self._settings.replay_least, self._piece // 2)
            self._grows = False
        return wanted

    def _is_ahead(self, missing: Missing, buffer: Reorder) -> bool:
        """Whether a gap lies ahead of what has arrived of the piece, which the holder sends in order."""
        return self.holder != 0 and self._piece_begun != NEVER and (missing.first, 0) >= buffer.newest

    def _asks_near(self, missing: Missing, buffer: Reorder) -> bool:
        """Whether a nearer host is asked next for the part of a gap that later data has overtaken."""
        if not self.near or self.behind or missing.near >= _NEAR_TRIES * len(self.near):
            return False
        return (missing.first, 0) < buffer.newest

    def _nearer(self, missing: Missing, lacking: list[Gap]) -> int:
        """The nearer host that is asked next for parts of this gap."""
        host = self.near[missing.near % len(self.near)]
        missing.near += 1
        if missing.near == 1:  # a repeated request is no further loss
            for gap in lacking:
                self.asked_near += not gap.parts
                self.asked_near_bytes += gap.parts * self._part or self._weight.size_of(gap.end - gap.first)
        return host

    def _ask_before(self, buffer: Reorder, now: float) -> int:
        """The sequence from which on gaps are not requested, because a replay brings them. A replay also
        continues for a receiver that is nearly up to date."""
        if self.holder:
            return self._piece_before(buffer, now)
        if self.behind or (now < self.replay_until and len(buffer.gaps)):
            return self.replayed_to
        self.replay_until = -NEVER
        return buffer.known

    def _piece_before(self, buffer: Reorder, now: float) -> int:
        """The end of the piece requested from the holder. Starts the next piece once the last one is
        complete."""
        first = buffer.gaps.first
        if first is not None and first.first >= self._piece_end and buffer.room:
            self._resize(now)
            self._piece_asked, self._piece_begun = now, NEVER
            size = min(self._piece, buffer.room)
            self._piece_end = first.first + self._weight.records_of(size)
            first.attempts = 0
            first.due = now
            buffer.gaps.sooner(now)
        return self._piece_end

    def _resize(self, now: float) -> None:
        """Chooses the size of the next piece by how long the last one took after its first repair."""
        settings = self._settings
        begun = min(self._piece_begun, now)
        takes = now - begun
        may_take = 2 * (begun - self._piece_asked) + settings.replay_delay
        if self._grows and 2 * takes <= may_take:
            self._piece = min(2 * self._piece, settings.replay_window)
        elif self._grows and takes > 2 * may_take:
            self._piece = max(settings.replay_least, self._piece // 2)
        self._grows = True
