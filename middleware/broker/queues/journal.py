"""The durable entries about the queues of one host. Recorders report changes; the entries are kept until they
are written with the turn's runs as one block (`block_store`). A turn is therefore stored whole or not at all.

Entries about consecutive messages are merged: thousands of messages settled or handed out in order are one
entry for each queue and turn.

A segment of the log whose runs are no longer held is removed. Its entries about messages in other segments
are rewritten before. The journal tracks which segments have such entries, and rarely has to read one. Each
segment begins with all definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Final

from librt.strings import BytesWriter

from treecast.middleware.model.timers import NEVER

from . import entries
from .entries import Bound, Declared
from .marks import Marks
from .message import Part
from .recorder import Recorder

_OFFSET_BITS: Final = 40  # bits of the offset in a place, see `block_store`
_MOST: Final = 0xFFFF


class _Row:
    """Consecutive messages with the same kind of entry, not yet written."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.queue = self.segment = self.first = self.count = 0

    def add(self, queue: int, segment: int, first: int, count: int) -> bytes:
        """Adds messages. Returns the entry of the previous row if they do not continue it."""
        if (
            self.count
            and queue == self.queue
            and segment == self.segment
            and first == self.first + self.count
        ):
            self.count += count
            return b""
        before = self.take()
        self.queue, self.segment, self.first, self.count = queue, segment, first, count
        return before

    def take(self) -> bytes:
        count, self.count = self.count, 0
        return entries.ranged(self.kind, self.queue, self.segment, self.first, count) if count else b""


class QueueJournal:
    """The entries of one host. `offset` plus `now` is the time of day."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset
        self.declared: dict[tuple[str, str, bytes], Declared] = {}
        self.bound: dict[tuple[str, bytes, str, bytes, bytes, str], Bound] = {}
        self.next_queue = 1
        self._out = BytesWriter()
        self._settled = _Row(entries.SETTLED)
        self._handed = _Row(entries.HANDED)
        self._noted: dict[tuple[str, str, bytes], Declared] = {}  # not yet in `_out`
        self._targets: set[int] = set()  # segments that the gathered entries refer to
        self._about: dict[int, set[int]] = {}  # by segment: the other segments its entries refer to
        # Changes leave a trace in one of these, as each row has a target. They are emptied, never replaced.
        self.pending: tuple[Sized, ...] = (self._out, self._noted, self._targets)

    def recorder(self, vhost: str) -> VhostRecorder:
        return VhostRecorder(self, vhost)

    def definition(self, vhost: str, kind: str, name: bytes) -> Mapping[str, object] | None:
        """Returns the latest definition, or None."""
        found = self.declared.get((vhost, kind, name))
        return found.definition if found is not None else None

    # --- gathering

    def enqueued(self, queue: int, part: Part) -> None:
        expires = part.expires_at + self.offset if part.expires_at != NEVER else NEVER
        self._out.write(
            entries.enqueued(
                queue,
                part.place,
                part.begin,
                part.end,
                part.count,
                part.size,
                part.position,
                expires,
                part.priority,
                min(part.deliveries, _MOST),
            )
        )

    def handed(self, queue: int, part: Part) -> None:
        segment = part.place >> _OFFSET_BITS
        self._targets.add(segment)
        before = self._handed.add(queue, segment, part.position, part.count)
        if before:
            self._out.write(before)

    def settled(self, queue: int, part: Part, offset: int, count: int) -> None:
        segment = part.place >> _OFFSET_BITS
        self._targets.add(segment)
        before = self._settled.add(queue, segment, part.position + offset, count)
        if before:
            self._out.write(before)

    def returned(self, queue: int, part: Part) -> None:
        segment = part.place >> _OFFSET_BITS
        self._targets.add(segment)
        deliveries = min(part.deliveries, _MOST)
        self._out.write(entries.returned(queue, segment, part.position, part.count, deliveries))

    def declare(self, one: Declared) -> None:
        self.declared[one.vhost, one.kind, one.name] = one
        self._out.write(entries.defined(entries.DECLARED, one))

    def note(self, one: Declared) -> None:
        """Declares what changes often, in texts and numbers: only the last one before a write is stored."""
        self._noted[one.vhost, one.kind, one.name] = one

    def delete(self, vhost: str, kind: str, name: bytes) -> None:
        if self.declared.pop((vhost, kind, name), None) is not None:
            self._out.write(entries.defined(entries.DELETED, Declared(vhost, kind, name)))

    def bind(self, one: Bound) -> None:
        self.bound[_binding(one)] = one
        self._out.write(entries.defined(entries.BOUND, one))

    def unbind(self, one: Bound) -> None:
        if self.bound.pop(_binding(one), None) is not None:
            self._out.write(entries.defined(entries.UNBOUND, one))

    # --- writing

    @property
    def only_notes(self) -> bool:
        """Whether nothing but notes was gathered."""
        return not (len(self._out) or self._settled.count or self._handed.count)

    def gathered(self) -> bytes:
        """Returns the entries added since `written` was called."""
        if self._noted:
            for key, one in self._noted.items():
                self.declared[key] = one
                data = entries.plain(one)
                self._out.write(entries.SIZED.pack(entries.DECLARED, len(data)))
                self._out.write(data)
            self._noted.clear()
        self._out.write(self._settled.take())
        self._out.write(self._handed.take())
        return self._out.getvalue()

    def written(self, segment: int) -> None:
        """Notes that the gathered entries are now in `segment`."""
        self._out.truncate(0)
        targets = self._targets - {segment}
        self._targets.clear()
        if targets:
            self._about.setdefault(segment, set()).update(targets)

    def snapshot(self) -> bytes:
        """Returns the entries that a segment begins with: all definitions."""
        return b"".join(
            [
                entries.reset(self.next_queue),
                *[entries.defined(entries.DECLARED, one) for one in self.declared.values()],
                *[entries.defined(entries.BOUND, one) for one in self.bound.values()],
            ]
        )

    # --- removal of segments

    def needs(self, segment: int, live: Iterable[int]) -> set[int]:
        """Returns the live segments that entries of `segment` refer to."""
        return self._about.get(segment, set()).intersection(live)

    def carry(self, needed: set[int], blocks: Iterable[bytes]) -> None:
        """Rewrites the entries of a segment to be removed that refer to the `needed` ones."""
        marks = Marks()
        for data in blocks:
            for kind, begin, _ in entries.walk(data):
                if (
                    entries.SETTLED <= kind <= entries.RETURNED
                    and entries.read_range(data, begin)[1] in needed
                ):
                    self._targets.add(marks.read(kind, data, begin))
        for entry in marks.encode():
            self._out.write(entry)

    def gone(self, segment: int) -> None:
        self._about.pop(segment, None)

    # --- restoring

    def restored(self, segment: int, target: int) -> None:
        """Notes that an entry in `segment` refers to `target`."""
        if segment != target:
            self._about.setdefault(segment, set()).add(target)

    def forget(self) -> None:
        """Clears the definitions, as all of them follow in the log."""
        self.declared.clear()
        self.bound.clear()

    def put(self, one: Declared | Bound, *, there: bool) -> None:
        """Adds a definition that was read, or removes it unless `there`."""
        if isinstance(one, Declared):
            key = one.vhost, one.kind, one.name
            self.next_queue = max(self.next_queue, one.number + 1)
            if there:
                self.declared[key] = one
            else:
                self.declared.pop(key, None)
        elif there:
            self.bound[_binding(one)] = one
        else:
            self.bound.pop(_binding(one), None)


def _binding(one: Bound) -> tuple[str, bytes, str, bytes, bytes, str]:
    return one.vhost, one.source, one.kind, one.name, one.key, repr(sorted(one.arguments.items()))


class VhostRecorder(Recorder):
    """The recorder of one virtual host. `numbers`: those of its durable queues. `muted`: ignores definitions,
    which are already stored."""

    def __init__(self, journal: QueueJournal, vhost: str) -> None:
        self.numbers: dict[bytes, int] = {}
        self.muted = False
        self._journal = journal
        self._vhost = vhost

    def of(self, vhost: str) -> Recorder:
        return self._journal.recorder(vhost)

    def enqueued(self, queue: bytes, part: Part) -> None:
        self._journal.enqueued(self.numbers[queue], part)

    def handed(self, queue: bytes, part: Part) -> None:
        self._journal.handed(self.numbers[queue], part)

    def returned(self, queue: bytes, part: Part) -> None:
        self._journal.returned(self.numbers[queue], part)

    def settled(self, queue: bytes, part: Part, offset: int, count: int) -> None:
        number = self.numbers.get(queue)
        if number is not None:  # None: the queue is deleted, and its messages with it
            self._journal.settled(number, part, offset, count)

    def declared(self, kind: str, name: bytes, definition: Mapping[str, object]) -> None:
        if self.muted:
            return
        number = 0
        if kind == "queue":
            number = self.numbers[name] = self._journal.next_queue
            self._journal.next_queue += 1
        self._journal.declare(Declared(self._vhost, kind, name, number, dict(definition)))

    def noted(self, kind: str, name: bytes, definition: Mapping[str, object]) -> None:
        self._journal.note(Declared(self._vhost, kind, name, 0, dict(definition)))

    def deleted(self, kind: str, name: bytes) -> None:
        if kind == "queue":
            self.numbers.pop(name, None)
        self._journal.delete(self._vhost, kind, name)

    def bound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        if not self.muted:
            self._journal.bind(Bound(self._vhost, source, kind, name, key, dict(arguments)))

    def unbound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        self._journal.unbind(Bound(self._vhost, source, kind, name, key, dict(arguments)))
