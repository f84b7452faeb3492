"""Messages of a stream that a receiver keeps to repair it for others: for those farther from the origin, if
the origin names it as a holder, or if the origin is gone.

What is missing here too is owed: it is sent once it has arrived. A loss on the path into a zone is thus
repaired into the zone once, and inside it from there.

Messages are read when they are sent, some bytes per turn for all streams together (`Share`). This host's own
readers wait no longer for a large request than an origin's wait for a replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import MAX_PAYLOAD, Kind, Message, Segment, StreamKey, size_of
from treecast.middleware.wire.segment_bodies import NOWHERE, Gap, Nak

from .log import Log, StreamLog
from .outgoing import Outgoing, OutgoingMessage, Slices
from .path_size import LEAST
from .reorder import Reorder
from .settings import StreamSettings
from .timing import TokenBucket

_MOST_ASKED: Final = 512  # gaps being answered
_MOST_OWED: Final = 1024  # gaps
_OWED_FOR: Final = 1.0  # seconds; by then the requester has asked elsewhere


class Sizes(Protocol):
    """Knows the paths to other hosts: see `fabric.paths`."""

    def segment_bytes(self, host: int) -> int:
        """The longest segment that may be sent to the host."""
        ...


class Share:
    """The bytes of repairs for others that the receivers of a host may still send in this turn; exhausted at
    0 or less."""

    __slots__ = ("_most", "left")

    def __init__(self, most: int) -> None:
        self._most = most
        self.left = most

    def begin(self) -> None:
        """Begins a turn."""
        self.left = self._most


class _Asked:
    """A request being answered: what `host` still gets of [next, gap.end), at most `left` bytes."""

    __slots__ = ("gap", "host", "left", "next")

    def __init__(self, host: int, gap: Gap, left: int) -> None:
        self.host = host
        self.gap = gap
        self.next = gap.first
        self.left = left

    def covers(self, host: int, gap: Gap) -> bool:
        """Whether this answers another request of a host as well."""
        if host != self.host or gap.first < self.next or gap.end > self.gap.end:
            return False
        return not self.gap.parts or (self.gap.part, self.gap.parts) == (gap.part, gap.parts)


class Holding:
    """The kept messages of one receiver: a log that the host keeps anyway, or the last `hold_bytes` of
    delivered data."""

    __slots__ = (
        "_bucket",
        "_host",
        "_key",
        "_least",
        "_log",
        "_most",
        "_owed",
        "_own",
        "_settings",
        "_sizes",
        "keeps",
        "requests",
        "slices",
    )

    def __init__(
        self,
        host: int,
        key: StreamKey,
        settings: StreamSettings,
        log: StreamLog | None,
        now: float,
        sizes: Sizes | None = None,
    ) -> None:
        self._host = host
        self._key = key
        self._settings = settings
        self._log = log
        self.keeps = settings.hold_bytes > 0 and log is None  # whether `hold` is to be called
        self._own: Log | None = None
        self._sizes = sizes
        self._least = 0  # the origin seems to cut messages to a size of at least this ...
        self._most = MAX_PAYLOAD  # ... and less than this
        self.requests: deque[_Asked] = deque()
        self.slices = Slices()  # the rest of the last message that was read
        self._owed: dict[tuple[int, int, int], tuple[Gap, float]] = {}  # by requester, sequence and part
        self._bucket = TokenBucket(settings.repair_rate, settings.repair_burst, now)

    @property
    def oldest(self) -> int:
        """The first record that can be sent to others; NOWHERE if nothing is kept."""
        return self._log.oldest if self._log is not None else NOWHERE

    def cut_like(self, segment: Segment) -> None:
        """Takes the first of several segments of a message from the origin: others ask for parts by its
        numbers."""
        shortest = min(LEAST, self._settings.mtu)  # no path is narrower, and every message can be cut to it
        least = size_of(segment)
        most = least + -(-len(segment.payload) // (segment.total - 1))
        if most <= shortest:
            return
        if least >= self._most or most <= self._least:  # it cuts to another size now
            self._least, self._most = least, most
        self._least, self._most = max(self._least, least, shortest), min(self._most, most)

    def _mtu_to(self, host: int) -> int:
        """The size to which messages for a host are cut: the origin's, if the path to the host allows it."""
        own = self._settings.mtu if self._sizes is None else self._sizes.segment_bytes(host)
        return own if own < self._most else self._least

    def hold(self, message: Message, now: float) -> None:
        """Keeps a message that was taken."""
        if self._own is None:
            self._own = Log(message.sequence, self._settings.hold_bytes, self._settings.log_age)
            self._log = self._own
        self._own.append(message, now)

    # --- requests

    def asked(self, host: int, nak: Nak, buffer: Reorder, now: float) -> bool:
        """Takes the request of another receiver. Returns whether all of it will be answered."""
        # In order, up to the first that finds no room: the requester asks again for the rest.
        return all(self._take(host, gap, buffer, now) for gap in nak.gaps)

    def _take(self, host: int, gap: Gap, buffer: Reorder, now: float) -> bool:
        """Takes the part of a gap that is here; a repeated request for what is still to be sent is no other
        request."""
        here = self._here(host, gap, buffer, now)
        if here is None or any(one.covers(host, here) for one in self.requests):
            return True
        if len(self.requests) >= _MOST_ASKED:
            return False
        self.requests.append(_Asked(host, here, self._settings.replay_window))
        return True

    def next_deadline(self, now: float) -> float:
        """When `give` may have something."""
        if self.slices.waiting:
            return now
        return self._bucket.ready_at(now) if self.requests else NEVER

    def give(self, out: list[Outgoing], share: Share, buffer: Reorder, now: float) -> None:
        """Moves what comes next of the answers to `out`, as far as the rate and the turn's share allow."""
        share.left = self.slices.give(out, share.left)
        while self.requests and share.left > 0 and self._bucket.ready(now):
            if self._answered(self.requests[0], out, share, buffer, now):
                self.requests.popleft()

    def _answered(
        self, asked: _Asked, out: list[Outgoing], share: Share, buffer: Reorder, now: float
    ) -> bool:
        """Answers as much of a request as allowed. Returns whether that is all of it."""
        gap = asked.gap
        only = range(gap.part, gap.part + gap.parts) if gap.parts else None
        for message in self._found(asked.next, gap.end, buffer):
            if asked.left <= 0:
                return True
            if share.left <= 0 or not self._bucket.ready(now):
                return False
            one = OutgoingMessage(
                message, self._mtu_to(asked.host), self._key, self._host, Kind.REPAIR, only, asked.host
            )
            asked.next = message.end
            asked.left -= one.size
            self._bucket.spend(one.size or 1)
            self.slices.add(one)
            share.left = self.slices.give(out, share.left)
        return True

    def _found(self, first: int, end: int, buffer: Reorder) -> Iterator[Message]:
        """The messages of [first, end) that are held here: settled, or waiting in the reorder buffer."""
        if self._log is not None:
            for one in self._log.entries(max(first, self._log.oldest), min(end, buffer.next)):
                if isinstance(one, Message):
                    yield one
        if end > buffer.next:
            yield from sorted(buffer.messages(first, end), key=_sequence)

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

    def pay(self, buffer: Reorder, now: float) -> None:
        """Takes what has arrived of the owed gaps as requested, and forgets what was owed for too long."""
        owed, self._owed = self._owed, {}
        for (host, first, part), (gap, until) in owed.items():
            if until <= now:
                continue
            missing = next(buffer.gaps.within(gap.first, gap.end), None)
            if gap.first >= buffer.known or (missing is not None and missing[0] <= gap.first):
                self._owed[host, first, part] = gap, until
                continue
            self._take(host, gap, buffer, until - _OWED_FOR)


def _sequence(message: Message) -> int:
    return message.sequence
