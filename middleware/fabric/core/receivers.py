"""All streams that a host receives: their epochs, and what comes after what.

A higher epoch of a stream means that its origin has restarted. Messages of the new epoch are delivered
when the old one is over: closed and complete (the origin serves it from its log), or brought by other
holders, or given up. An `after` list holds a message until the streams it names are that far.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator

from treecast.middleware.wire.segment import After, Segment
from treecast.middleware.wire.segment_assembly import AssemblyBudget, StreamKey

from .counters import Refused
from .log import StreamLog
from .outcomes import Delivery, Judge, Progress, take_all
from .outgoing import Outgoing
from .receiver import Receiver
from .room import Room
from .schedule import Schedule
from .settings import NEVER, StreamSettings
from .states import ReceiverState
from .timing import Random

MOST_EPOCHS = 4  # of one stream that are followed at once


class _Membership:
    """One stream that the host receives: its receivers by epoch, oldest first."""

    __slots__ = ("epochs", "judge", "keeps", "later_epochs", "number")

    def __init__(self, number: int, judge: Judge, later_epochs: bool, keeps: bool) -> None:
        self.number = number
        self.judge = judge
        self.keeps = keeps
        self.later_epochs = later_epochs
        self.epochs: dict[int, Receiver] = {}

    @property
    def newest(self) -> int:
        return max(self.epochs)


class Receivers:
    """`receive`, `take`, `to_send`, `next_deadline` for all streams of one host.

    Each costs what has arrived or has become due, however many streams there are. `complain` is told of
    each segment that no stream takes.
    """

    def __init__(
        self,
        host: int,
        settings: StreamSettings,
        random: Random,
        *,
        assembly_bytes: int = 64 << 20,
        room_bytes: int = 8 << 20,
        complain: Callable[[enum.Enum], None] | None = None,
    ) -> None:
        """`room_bytes`: what the host's sockets hold."""
        self.host = host
        self.refused: dict[str, int] = {}
        self.over: list[tuple[StreamKey, Progress]] = []  # epochs that ended; the caller takes them away
        self._settings = settings
        self._random = random
        self._complain = complain
        self._budget = AssemblyBudget(assembly_bytes)
        self._room = Room(room_bytes)
        self._members: dict[tuple[int, int], _Membership] = {}
        self._by_number: dict[int, _Membership] = {}
        self._count = 0
        self._touched: dict[int, None] = {}  # memberships to take from; then to send for
        self._unsent: dict[int, None] = {}
        self._waiting: dict[int, None] = {}  # those whose next message waits for other streams
        self._schedule = Schedule()
        self._now = 0.0

    def __iter__(self) -> Iterator[Receiver]:
        for member in self._members.values():
            yield from member.epochs.values()

    def __contains__(self, stream: tuple[int, int]) -> bool:
        """Whether (origin, stream) is received."""
        return stream in self._members

    def join(
        self,
        origin: int,
        stream: int,
        epoch: int,
        now: float,
        *,
        progress: Progress | None = None,
        judge: Judge = take_all,
        later_epochs: bool = True,
        settings: StreamSettings | None = None,
        held: StreamLog | None = None,
        keeps: bool = False,
    ) -> Receiver:
        """Begins to receive a stream, at its current sequence or at `progress`.

        Without `later_epochs`, segments of a higher epoch are refused: another `join` begins it.
        """
        self.leave(origin, stream)
        self._count += 1
        member = _Membership(self._count, judge, later_epochs, keeps)
        self._members[origin, stream] = self._by_number[member.number] = member
        return self._add(member, (origin, stream, epoch), now, progress, settings, held)

    def leave(self, origin: int, stream: int) -> None:
        """Forgets the stream, and what is here of it beyond its next record."""
        member = self._members.pop((origin, stream), None)
        if member is None:
            return
        del self._by_number[member.number]
        for pending in (self._touched, self._unsent, self._waiting):
            pending.pop(member.number, None)
        self._schedule.discard(member.number)
        for receiver in member.epochs.values():
            receiver.discard()

    def _add(
        self,
        member: _Membership,
        key: StreamKey,
        now: float,
        progress: Progress | None,
        settings: StreamSettings | None = None,
        held: StreamLog | None = None,
    ) -> Receiver:
        receiver = Receiver(
            self.host,
            key,
            settings or self._settings,
            self._random,
            now,
            progress=progress,
            judge=member.judge,
            settled=functools.partial(self._settled_for, key[0]),
            budget=self._budget,
            held=held,
            room=self._room,
            keeps=member.keeps,
        )
        member.epochs[key[2]] = receiver
        self._touched[member.number] = None
        return receiver

    def touch(self, origin: int, stream: int) -> None:
        """A receiver was changed from outside: it is looked at in the next `take` and `to_send`."""
        member = self._members.get((origin, stream))
        if member is not None:
            self._touched[member.number] = None

    def keep(self, origin: int, stream: int, epoch: int, progress: Progress, now: float) -> float:
        """See `Receiver.keep`; when the stream has something to send."""
        member = self._members.get((origin, stream))
        receiver = member.epochs.get(epoch) if member is not None else None
        if member is None or receiver is None:
            return NEVER
        receiver.keep(progress, now)
        at = receiver.next_deadline(now)
        for other in member.epochs.values():
            at = min(at, other.next_deadline(now))
        self._schedule.set(member.number, at)
        return at

    def ignores(self, origin: int, stream: int, epoch: int, sequence: int) -> bool:
        """Whether live data there is of no use to who is replayed to: told before its tag is looked at."""
        member = self._members.get((origin, stream))
        receiver = member.epochs.get(epoch) if member is not None else None
        return receiver is not None and receiver.is_far_from(sequence)

    def receive(self, segment: Segment, now: float) -> None:
        """Hands a segment to its stream's epoch; a higher epoch than any begins there."""
        member = self._members.get((segment.origin, segment.stream))
        if member is None:
            self._refuse(Refused.OTHER_STREAM)
            return
        receiver = member.epochs.get(segment.epoch)
        if receiver is None:
            receiver = self._other_epoch(member, segment, now)
            if receiver is None:
                return
        self._touched[member.number] = None
        receiver.receive(segment, now)

    def _other_epoch(self, member: _Membership, segment: Segment, now: float) -> Receiver | None:
        if segment.epoch < member.newest:
            self._refuse(Refused.OLD_EPOCH)
        elif not member.later_epochs:
            self._refuse(Refused.LATER_EPOCH)
        elif len(member.epochs) >= MOST_EPOCHS:
            self._refuse(Refused.MANY_EPOCHS)
        else:
            return self._new_epoch(member, segment, now)
        return None

    def _new_epoch(self, member: _Membership, segment: Segment, now: float) -> Receiver:
        """All of a new epoch is for those who were members before it: it begins with its first record."""
        for epoch, old in list(member.epochs.items()):
            if old.state is ReceiverState.JOINING:
                del member.epochs[epoch]
            else:
                old.orphan(now)
        return self._add(member, (segment.origin, segment.stream, segment.epoch), now, Progress(0, 0))

    def _refuse(self, reason: Refused) -> None:
        self.refused[reason.name] = self.refused.get(reason.name, 0) + 1
        if self._complain is not None:
            self._complain(reason)

    def take(self, now: float) -> list[tuple[StreamKey, Delivery]]:
        """Messages whose turn it is; again after every progress, because one stream may wait for another."""
        self._now = now
        self._wake(now)
        taken: list[tuple[StreamKey, Delivery]] = []
        touched = list(self._touched)
        self._unsent.update(self._touched)
        self._touched.clear()
        # a stream that waits looks again, whoever it waits for may have moved or gone
        while touched or self._waiting:
            for number in self._waiting:
                if number not in touched:
                    touched.append(number)
            before = len(taken)
            for number in touched:
                self._take(self._by_number[number], taken, now)
            touched = []
            if len(taken) == before:
                break
        return taken

    def _take(self, member: _Membership, taken: list[tuple[StreamKey, Delivery]], now: float) -> None:
        waits = False
        for epoch in sorted(member.epochs):
            receiver = member.epochs[epoch]
            for delivery in receiver.take(now):
                taken.append((receiver.key, delivery))
            waits = waits or receiver.waiting
            if epoch == member.newest or not receiver.over(now):
                break
            if receiver.told(now):  # until then it stays, to tell the origin how it ended
                self.over.append((receiver.key, receiver.progress))
                del member.epochs[epoch]
        if waits:
            self._waiting[member.number] = None
        else:
            self._waiting.pop(member.number, None)
        self._unsent[member.number] = None

    def settled(self, origin: int, after: tuple[After, ...], now: float) -> bool:
        """Whether this host has all of `after` that it is to have."""
        self._now = now
        return self._settled_for(origin, after)

    def _settled_for(self, origin: int, after: tuple[After, ...]) -> bool:
        return all(self._settled(origin, one) for one in after)

    def _settled(self, origin: int, after: After) -> bool:
        member = self._members.get((origin, after.stream))
        if member is None:
            return True  # no member of that stream
        receiver = member.epochs.get(after.epoch)
        if receiver is None:
            return after.epoch < member.newest  # over; or not begun
        return receiver.next >= after.sequence or receiver.over(self._now)

    def _wake(self, now: float) -> None:
        for number in self._schedule.due(now):
            self._touched[number] = None

    def to_send(self, now: float) -> list[Outgoing]:
        """What those send that were touched or are due. `take` has its turn again after it."""
        self._wake(now)
        self._unsent.update(self._touched)
        pending, self._unsent = self._unsent, {}
        out: list[Outgoing] = []
        for number in pending:
            member = self._by_number[number]
            at = NEVER
            for receiver in member.epochs.values():
                out.extend(receiver.to_send(now))
                at = min(at, receiver.next_deadline(now))
                if receiver.ready:
                    self._touched[number] = None
            self._schedule.set(number, at)
        return out

    def due(self, now: float) -> bool:
        """Whether time has come for something that nothing that arrived has asked for."""
        return self._schedule.next() <= now

    def next_deadline(self, now: float) -> float:
        """When `take` and `to_send` have something again, if nothing arrives before."""
        if self._touched or self._unsent:
            return now
        return self._schedule.next()
