"""Messages of a stream that a receiver keeps to repair it for others: for those farther from the origin, if
the origin names it as a holder, or if the origin is gone.

What is missing here too is owed: it is sent once it has arrived. A loss on the path into a zone is thus
repaired into the zone once, and inside it from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from treecast.middleware.wire.segment import Kind, Message, StreamKey
from treecast.middleware.wire.segment_bodies import NOWHERE, Gap, Nak

from .log import REPAIRS_PER_NAK, Log, StreamLog
from .outgoing import Outgoing, OutgoingMessage
from .reorder import Reorder
from .settings import StreamSettings
from .timing import TokenBucket

_MOST_OWED: Final = 1024  # gaps
_OWED_FOR: Final = 1.0  # seconds; by then the requester has asked elsewhere


class Holding:
    """The kept messages of one receiver: a log that the host keeps anyway, or the last `hold_bytes` of
    delivered data."""

    __slots__ = ("_bucket", "_host", "_key", "_log", "_owed", "_own", "_settings", "keeps")

    def __init__(
        self, host: int, key: StreamKey, settings: StreamSettings, log: StreamLog | None, now: float
    ) -> None:
        self._host = host
        self._key = key
        self._settings = settings
        self._log = log
        self.keeps = settings.hold_bytes > 0 and log is None  # whether `hold` is to be called
        self._own: Log | None = None
        self._owed: dict[tuple[int, int, int], tuple[Gap, float]] = {}  # by requester, sequence and part
        self._bucket = TokenBucket(settings.repair_rate, settings.repair_burst, now)

    @property
    def oldest(self) -> int:
        """The first record that can be sent to others; NOWHERE if nothing is kept."""
        return self._log.oldest if self._log is not None else NOWHERE

    def hold(self, message: Message, now: float) -> None:
        """Keeps a message that was taken."""
        if self._own is None:
            self._own = Log(message.sequence, self._settings.hold_bytes, self._settings.log_age)
            self._log = self._own
        self._own.append(message, now)

    def answer(self, host: int, nak: Nak, buffer: Reorder, queue: list[Outgoing], now: float) -> bool:
        """Appends the repairs that `host` requests to `queue`, as far as the rate allows. Returns whether the
        request was answered in full."""
        left = REPAIRS_PER_NAK
        for gap in nak.gaps:
            here = self._here(host, gap, buffer, now)
            if here is None:
                continue
            left = self._send(host, here, left, buffer, queue, now)
            if left < 0:
                return False
        return True

    def _send(
        self, host: int, gap: Gap, left: int, buffer: Reorder, queue: list[Outgoing], now: float
    ) -> int:
        """Appends at most `left` repairs for a gap. Returns how many are left; -1: this or the rate was not
        enough."""
        only = range(gap.part, gap.part + gap.parts) if gap.parts else None
        for message in self._found(gap, buffer):
            left -= 1
            if left < 0 or not self._bucket.ready(now):
                return -1
            one = OutgoingMessage(message, self._settings.mtu, self._key, self._host, Kind.REPAIR, only, host)
            self._bucket.spend(one.size or 1)
            queue.append(one)
        return left

    # --- what is owed

    @property
    def owes(self) -> bool:
        """Whether `pay` may have something to send."""
        return bool(self._owed)

    def _here(self, host: int, gap: Gap, buffer: Reorder, now: float) -> Gap | None:
        """The part of a gap before the first record that is missing here, and which is owed from there on.

        What lies behind it is owed as well. Otherwise the requester would take the missing part for lost
        again, and ask elsewhere.
        """
        missing = next(buffer.gaps.within(gap.first, gap.end), None)
        first = missing[0] if missing is not None else max(gap.first, buffer.known)
        if first >= gap.end:
            return gap
        if len(self._owed) < _MOST_OWED:
            owed = Gap(max(first, gap.first), gap.end, gap.part, gap.parts)
            self._owed[host, owed.first, gap.part] = owed, now + _OWED_FOR
        return Gap(gap.first, first) if first > gap.first else None

    def pay(self, buffer: Reorder, queue: list[Outgoing], now: float) -> None:
        """Appends what has arrived of the owed gaps, and forgets what was owed for too long."""
        owed, self._owed = self._owed, {}
        for (host, first, part), (gap, until) in owed.items():
            if until <= now:
                continue
            missing = next(buffer.gaps.within(gap.first, gap.end), None)
            if gap.first >= buffer.known or (missing is not None and missing[0] <= gap.first):
                self._owed[host, first, part] = gap, until
                continue
            here = self._here(host, gap, buffer, until - _OWED_FOR)
            if here is not None:
                self._send(host, here, REPAIRS_PER_NAK, buffer, queue, now)

    def _found(self, gap: Gap, buffer: Reorder) -> Iterator[Message]:
        """The requested messages held here: settled, or waiting in the reorder buffer."""
        if self._log is not None:
            for one in self._log.entries(max(gap.first, self._log.oldest), min(gap.end, buffer.next)):
                if isinstance(one, Message):
                    yield one
        yield from list(buffer.messages(gap.first, gap.end))
