"""The origin's outgoing queue: waiting control segments, and the log's messages made into segments."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from treecast.middleware.wire.segment import (
    Kind,
    Message,
    StreamKey,
    can_be_cut,
    control,
    part_size,
    size_for,
)
from treecast.middleware.wire.segment_bodies import MAX_SKIPS, Expiry, Skip, Skipped

from .log import StreamLog
from .outgoing import Outgoing, OutgoingMessage, OutgoingSegment
from .repairs import Parts

# Messages, for bounded memory: a report about an older one is counted with full parts.
_REMEMBERED: Final = 4096  # messages


class Outlet:
    """Builds what an origin sends of its stream `key`; messages are cut into segments of `mtu` bytes."""

    __slots__ = ("_key", "_log", "_parts", "control", "mtu", "partial", "unaware")

    def __init__(self, key: StreamKey, log: StreamLog, mtu: int) -> None:
        self._key = key
        self._log = log
        self.mtu = mtu
        self._parts: dict[int, int] = {}  # bytes per segment of the last messages with several, by sequence
        self.control: deque[Outgoing] = deque()  # segments that wait
        self.partial = False  # some messages are not for all receivers
        self.unaware: set[int] = set()  # hosts that know no skip with the reason FILTERED

    @property
    def origin(self) -> int:
        """This host."""
        return self._key[0]

    @property
    def oldest(self) -> int:
        """The first sequence that can be repaired."""
        return self._log.oldest

    @property
    def most_bytes(self) -> float:
        return self._log.most_bytes

    def queue(self, kind: Kind, body: bytes, to: int | None) -> None:
        """Queues a control segment for one host, or for all live receivers (None)."""
        origin, stream, epoch = self._key
        self.control.append(OutgoingSegment(control(kind, origin, stream, epoch, origin, body), to))

    def skip(self, skipped: list[Skipped], to: int | None) -> None:
        """Queues skips that tell receivers these ranges will not come."""
        if len(skipped) > 1:
            skipped = _joined(skipped)
        for at in range(0, len(skipped), MAX_SKIPS):
            self.queue(Kind.SKIP, Skip(tuple(skipped[at : at + MAX_SKIPS])).encode(), to)

    def give(self, out: list[Outgoing]) -> None:
        """Moves the waiting control segments to `out`."""
        if self.control:
            out.extend(self.control)
            self.control.clear()

    def entries(self, first: int, end: int, to: int | None = None) -> Iterator[Message | Skipped]:
        """Yields the log's entries. A message that cannot be cut becomes a skip; otherwise it would block
        forever. So does one that is not for the host `to`, unless that host is one of `unaware`."""
        for found in self._log.entries(first, end):
            if (
                to is not None
                and isinstance(found, Message)
                and not found.is_for(to)
                and to not in self.unaware
            ):
                yield Skipped(found.sequence, found.end, Expiry.FILTERED)
            elif isinstance(found, Message) and not can_be_cut(found, self.mtu):
                yield Skipped(found.sequence, found.end, Expiry.UNSENDABLE)
            else:
                yield found

    def part_bytes(self, sequence: int) -> int:
        """The bytes per segment of the message at `sequence`, which was sent lately in several."""
        return self._parts.get(sequence) or part_size(self.mtu)

    def message(self, message: Message, to: int | None, kind: Kind, parts: Parts = None) -> OutgoingMessage:
        """Makes the message, or only the given parts of it, ready to send."""
        only = range(parts[0], parts[1]) if parts is not None else None
        size = size_for(message, self.mtu)
        if len(message.payload) > size and self._parts.get(message.sequence) != size:
            self._parts[message.sequence] = size
            if len(self._parts) > _REMEMBERED:
                del self._parts[next(iter(self._parts))]
        return OutgoingMessage(message, self.mtu, self._key, self._key[0], kind, only, to)


def _joined(skipped: list[Skipped]) -> list[Skipped]:
    """Makes adjacent ranges with the same reason one."""
    found: list[Skipped] = []
    for one in skipped:
        last = found[-1] if found else None
        if last is not None and last.end == one.first and last.reason is one.reason:
            found[-1] = Skipped(last.first, one.end, one.reason)
        else:
            found.append(one)
    return found
