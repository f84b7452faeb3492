"""What is on its way out of a stream's origin: control segments that wait, and its log's messages to send."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from treecast.middleware.wire.segment import Kind, control
from treecast.middleware.wire.segment_assembly import Message, StreamKey, can_be_cut
from treecast.middleware.wire.segment_bodies import MAX_SKIPS, Expiry, Skip, Skipped

from .log import StreamLog
from .outgoing import Outgoing, OutgoingMessage, OutgoingSegment
from .repairs import Parts


class Outlet:
    """Makes what an origin sends of its stream, `key`; messages are cut by `mtu`, bytes of a segment."""

    __slots__ = ("_control", "_key", "_log", "_mtu")

    def __init__(self, key: StreamKey, log: StreamLog, mtu: int) -> None:
        self._key = key
        self._log = log
        self._mtu = mtu
        self._control: deque[Outgoing] = deque()

    @property
    def empty(self) -> bool:
        """Whether no control segment waits."""
        return not self._control

    @property
    def oldest(self) -> int:
        """The first sequence that can be repaired."""
        return self._log.oldest

    @property
    def most_bytes(self) -> float:
        return self._log.most_bytes

    def queue(self, kind: Kind, body: bytes, to: int | None) -> None:
        """A control segment waits, for one host or (None) for all that are live."""
        origin, stream, epoch = self._key
        self._control.append(OutgoingSegment(control(kind, origin, stream, epoch, origin, body), to))

    def skip(self, skipped: list[Skipped], to: int | None) -> None:
        """These are told to be no more."""
        for at in range(0, len(skipped), MAX_SKIPS):
            self.queue(Kind.SKIP, Skip(tuple(skipped[at : at + MAX_SKIPS])).encode(), to)

    def give(self, out: list[Outgoing]) -> None:
        """Moves the control segments that wait to `out`."""
        if self._control:
            out.extend(self._control)
            self._control.clear()

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        """Of the log; what cannot be cut is skipped, so that it does not stand in the way for ever."""
        for found in self._log.entries(first, end):
            if isinstance(found, Message) and not can_be_cut(found, self._mtu):
                yield Skipped(found.sequence, found.end, Expiry.UNSENDABLE)
            else:
                yield found

    def message(self, message: Message, to: int | None, kind: Kind, parts: Parts = None) -> OutgoingMessage:
        """To be sent whole, or only these parts of it."""
        only = range(parts[0], parts[1]) if parts is not None else None
        return OutgoingMessage(message, self._mtu, self._key, self._key[0], kind, only, to)
