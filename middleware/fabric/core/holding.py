"""Messages of a stream that a receiver keeps to repair it for others, if the origin is gone or names it as a
holder."""

from __future__ import annotations

from collections.abc import Iterator

from treecast.middleware.wire.segment import Kind, Message, StreamKey
from treecast.middleware.wire.segment_bodies import NOWHERE, Gap, Nak

from .log import REPAIRS_PER_NAK, Log, StreamLog
from .outgoing import Outgoing, OutgoingMessage
from .reorder import Reorder
from .settings import StreamSettings
from .timing import TokenBucket


class Holding:
    """The kept messages of one receiver: a log that the host keeps anyway, or the last `hold_bytes` of
    delivered data."""

    __slots__ = ("_bucket", "_host", "_key", "_log", "_own", "_settings", "keeps")

    def __init__(
        self, host: int, key: StreamKey, settings: StreamSettings, log: StreamLog | None, now: float
    ) -> None:
        self._host = host
        self._key = key
        self._settings = settings
        self._log = log
        self.keeps = settings.hold_bytes > 0 and log is None  # whether `hold` is to be called
        self._own: Log | None = None
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
            only = range(gap.part, gap.part + gap.parts) if gap.parts else None
            for message in self._found(gap, buffer):
                left -= 1
                if left < 0 or not self._bucket.ready(now):
                    return False
                one = OutgoingMessage(
                    message, self._settings.mtu, self._key, self._host, Kind.REPAIR, only, host
                )
                self._bucket.spend(one.size or 1)
                queue.append(one)
        return True

    def _found(self, gap: Gap, buffer: Reorder) -> Iterator[Message]:
        """The requested messages held here: settled, or waiting in the reorder buffer."""
        if self._log is not None:
            for one in self._log.entries(max(gap.first, self._log.oldest), min(gap.end, buffer.next)):
                if isinstance(one, Message):
                    yield one
        yield from list(buffer.messages(gap.first, gap.end))
