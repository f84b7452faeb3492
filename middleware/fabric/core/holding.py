"""What a receiver keeps of a stream, to send it to others: if the origin is gone, or asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from treecast.middleware.wire.segment import Kind
from treecast.middleware.wire.segment_assembly import Message, StreamKey
from treecast.middleware.wire.segment_bodies import NOWHERE, Gap, Nak

from .log import REPAIRS_PER_NAK, Log, StreamLog
from .outgoing import Outgoing, OutgoingMessage
from .reorder import Reorder
from .settings import StreamSettings
from .timing import TokenBucket


class Holding:
    """One receiver's: a log that its host keeps in any case, or the last `hold_bytes` of what was taken."""

    __slots__ = ("_bucket", "_host", "_key", "_log", "_own", "_settings")

    def __init__(
        self, host: int, key: StreamKey, settings: StreamSettings, log: StreamLog | None, now: float
    ) -> None:
        self._host = host
        self._key = key
        self._settings = settings
        self._log = log
        self._own: Log | None = None
        self._bucket = TokenBucket(settings.repair_rate, settings.repair_burst, now)

    @property
    def oldest(self) -> int:
        """The first record that can be sent to others; NOWHERE if nothing is kept."""
        return self._log.oldest if self._log is not None else NOWHERE

    def hold(self, message: Message, now: float) -> None:
        """It was taken."""
        if not self._settings.hold_bytes or (self._log is not None and self._own is None):
            return
        if self._own is None:
            self._own = Log(message.sequence, self._settings.hold_bytes, self._settings.log_age)
            self._log = self._own
        self._own.append(message, now)

    def answer(self, host: int, nak: Nak, buffer: Reorder, queue: list[Outgoing], now: float) -> bool:
        """Adds to `queue` what `host` asks for, as far as the rate allows. Whether that is all of it."""
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
        """What is here of it: settled, or waiting for its turn."""
        if self._log is not None:
            for one in self._log.entries(max(gap.first, self._log.oldest), min(gap.end, buffer.next)):
                if isinstance(one, Message):
                    yield one
        yield from list(buffer.messages(gap.first, gap.end))
