"""All streams that a host receives: their epochs, and what comes after what.

A higher epoch of a stream means that its origin has restarted. Messages of the new epoch are delivered
when the old one is over: closed and complete (the origin serves it from its log), or brought by other
holders, or given up. An `after` list holds a message until the streams it names are that far.
"""

from __future__ import annotations

from collections.abc import Iterator

from treecast.middleware.wire.segment import After, Segment
from treecast.middleware.wire.segment_assembly import AssemblyBudget, StreamKey

from .counters import Outgoing, Refused
from .outcomes import Delivery, Judge, Progress, take_all
from .receiver import Receiver
from .settings import NEVER, StreamSettings
from .states import ReceiverState
from .timing import Random

MOST_EPOCHS = 4  # of one stream that are followed at once


class _Membership:
    """One stream that the host receives: its receivers by epoch, oldest first."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.epochs: dict[int, Receiver] = {}

    @property
    def newest(self) -> int:
        return max(self.epochs)


class Receivers:
    """`receive`, `take`, `to_send`, `next_deadline` for all streams of one host."""

    def __init__(
        self, host: int, settings: StreamSettings, random: Random, *, assembly_bytes: int = 64 << 20
    ) -> None:
        self.host = host
        self.refused: dict[str, int] = {}
        self.over: list[tuple[StreamKey, Progress]] = []  # epochs that ended; the caller takes them away
        self._settings = settings
        self._random = random
        self._budget = AssemblyBudget(assembly_bytes)
        self._members: dict[tuple[int, int], _Membership] = {}

    def __iter__(self) -> Iterator[Receiver]:
        for member in self._members.values():
            yield from member.epochs.values()

    def join(
        self,
        origin: int,
        stream: int,
        epoch: int,
        now: float,
        *,
        progress: Progress | None = None,
        judge: Judge = take_all,
    ) -> Receiver:
        """Begins to receive a stream, at its current sequence or at `progress`."""
        self.leave(origin, stream)
        member = self._members[origin, stream] = _Membership(judge)
        return self._add(member, (origin, stream, epoch), now, progress)

    def leave(self, origin: int, stream: int) -> None:
        """Forgets the stream, and what is here of it beyond its next record."""
        member = self._members.pop((origin, stream), None)
        for receiver in member.epochs.values() if member is not None else ():
            receiver.discard()

    def _add(self, member: _Membership, key: StreamKey, now: float, progress: Progress | None) -> Receiver:
        receiver = Receiver(
            self.host,
            key,
            self._settings,
            self._random,
            now,
            progress=progress,
            judge=member.judge,
            settled=lambda after: self.settled(key[0], after, now),
            budget=self._budget,
        )
        member.epochs[key[2]] = receiver
        return receiver

    def receive(self, segment: Segment, now: float) -> None:
        """Hands a segment to its stream's epoch; a higher epoch than any begins there."""
        member = self._members.get((segment.origin, segment.stream))
        if member is None:
            self._refuse(Refused.OTHER_STREAM)
            return
        receiver = member.epochs.get(segment.epoch)
        if receiver is None and segment.epoch < member.newest:
            self._refuse(Refused.OLD_EPOCH)
            return
        if receiver is None and len(member.epochs) >= MOST_EPOCHS:
            self._refuse(Refused.MANY_EPOCHS)
            return
        if receiver is None:
            receiver = self._new_epoch(member, segment, now)
        receiver.receive(segment, now)

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

    def take(self, now: float) -> list[tuple[StreamKey, Delivery]]:
        """Messages whose turn it is; again after every progress, because one stream may wait for another."""
        taken: list[tuple[StreamKey, Delivery]] = []
        while True:
            before = len(taken)
            for member in self._members.values():
                self._take(member, taken, now)
            if len(taken) == before:
                return taken

    def _take(self, member: _Membership, taken: list[tuple[StreamKey, Delivery]], now: float) -> None:
        for epoch in sorted(member.epochs):
            receiver = member.epochs[epoch]
            taken.extend((receiver.key, delivery) for delivery in receiver.take(now))
            if epoch == member.newest or not receiver.over(now):
                return
            if receiver.told(now):  # until then it stays, to tell the origin how it ended
                self.over.append((receiver.key, receiver.progress))
                del member.epochs[epoch]

    def settled(self, origin: int, after: tuple[After, ...], now: float) -> bool:
        """Whether this host has all of `after` that it is to have."""
        return all(self._settled(origin, one, now) for one in after)

    def _settled(self, origin: int, after: After, now: float) -> bool:
        member = self._members.get((origin, after.stream))
        if member is None:
            return True  # no member of that stream
        receiver = member.epochs.get(after.epoch)
        if receiver is None:
            return after.epoch < member.newest  # over; or not begun
        return receiver.next >= after.sequence or receiver.over(now)

    def to_send(self, now: float) -> list[Outgoing]:
        return [one for receiver in self for one in receiver.to_send(now)]

    def next_deadline(self, now: float) -> float:
        return min((receiver.next_deadline(now) for receiver in self), default=NEVER)
