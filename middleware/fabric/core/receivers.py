"""All streams that a host receives, each in one epoch, and the order between them.

A higher epoch of a stream means that its origin has restarted: receivers join again. An `after` list holds a
message back until the streams it names have reached the given sequences.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import After, Segment, StreamKey
from treecast.middleware.wire.segment_assembly import AssemblyBudget

from .asking import Nearest
from .counters import Refused
from .holding import Share, Sizes
from .log import StreamLog
from .outgoing import Outgoing
from .pairs import Pairs
from .receiver import Receiver
from .reorder import Delivery, Judge, Progress, Room
from .settings import StreamSettings
from .timing import Random, Schedule


class _Membership:
    """One stream that the host receives."""

    __slots__ = ("epoch", "number", "receiver")

    def __init__(self, number: int, receiver: Receiver) -> None:
        self.number = number
        self.receiver = receiver
        self.epoch = receiver.key[2]


class Receivers:
    """The receiving ends of all streams of one host: `receive`, `take`, `to_send`, `next_deadline`.

    Each call costs time in proportion to what arrived or became due, not to the number of streams. `complain`
    is called for each segment that no stream accepts. A receiver that raises is left and joins `broken`; the
    others go on.
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
        nearest: Nearest | None = None,
        sizes: Sizes | None = None,
        pairs: Pairs | None = None,
    ) -> None:
        """`room_bytes`: the capacity of the host's sockets. `pairs`: None: no stream rests."""
        self._pairs = pairs
        self.host = host
        self.refused: dict[str, int] = {}
        self._settings = settings
        self._random = random
        self._complain = complain
        self._nearest = nearest
        self._sizes = sizes
        self._budget = AssemblyBudget(assembly_bytes)
        self._room = Room(room_bytes)
        self._share = Share(settings.replay_at_once)
        self._first = 0  # number of the membership that repairs first in the next turn
        self.broken: list[tuple[StreamKey, Exception]] = []  # streams left; the caller removes them
        self.members: dict[tuple[int, int], _Membership] = {}  # by (origin, stream)
        self._by_number: dict[int, _Membership] = {}
        self._count = 0
        self._touched: dict[int, None] = {}  # memberships to take from; then to send for
        self._unsent: dict[int, None] = {}
        self._waiting: dict[int, None] = {}  # members whose next message waits for other streams
        self._schedule = Schedule()
        self._now = 0.0

    def __iter__(self) -> Iterator[Receiver]:
        for member in self.members.values():
            yield member.receiver

    def __contains__(self, stream: tuple[int, int]) -> bool:
        """Whether the stream, given as (origin, stream), is received."""
        return stream in self.members

    def join(
        self,
        origin: int,
        stream: int,
        epoch: int,
        now: float,
        *,
        progress: Progress,
        judge: Judge | None = None,
        settings: StreamSettings | None = None,
        held: StreamLog | None = None,
        keeps: bool = False,
    ) -> Receiver:
        """Begins to receive a stream at `progress`.

        Segments of a higher epoch are refused until another `join` for that epoch.
        """
        # A stream is received once: whoever joins again says where it continues.
        self.leave(origin, stream)
        self._count += 1
        receiver = Receiver(
            self.host,
            (origin, stream, epoch),
            settings or self._settings,
            self._random,
            now,
            progress=progress,
            judge=judge,
            settled=functools.partial(self._settled_for, origin),
            budget=self._budget,
            held=held,
            room=self._room,
            keeps=keeps,
            nearest=self._nearest,
            share=self._share,
            sizes=self._sizes,
            pairs=self._pairs,
        )
        member = _Membership(self._count, receiver)
        self.members[origin, stream] = self._by_number[member.number] = member
        self._touched[member.number] = None
        if self._pairs is not None:
            self._pairs.changed = True
        return receiver

    def leave(self, origin: int, stream: int) -> None:
        """Forgets the stream and discards its undelivered data."""
        member = self.members.pop((origin, stream), None)
        if member is None:
            return
        del self._by_number[member.number]
        for pending in (self._touched, self._unsent, self._waiting):
            pending.pop(member.number, None)
        self._schedule.discard(member.number)
        member.receiver.stir(self._now)  # so that nothing waits for it
        member.receiver.discard()
        if self._pairs is not None:
            self._pairs.changed = True

    def stir(self, stream: tuple[int, int], now: float) -> None:
        """Ends the rest of a stream, given as (origin, stream)."""
        member = self.members.get(stream)
        if member is not None:
            member.receiver.stir(now)
            self._touched[member.number] = None

    def touch(self, origin: int, stream: int) -> None:
        """Marks a receiver changed from outside, so that the next `take` and `to_send` look at it."""
        member = self.members.get((origin, stream))
        if member is not None:
            self._touched[member.number] = None

    def keep(self, origin: int, stream: int, epoch: int, progress: Progress, now: float) -> float:
        """Calls `Receiver.keep`. Returns when the stream has something to send."""
        member = self.members.get((origin, stream))
        if member is None or member.epoch != epoch:
            return NEVER
        member.receiver.keep(progress, now)
        at = member.receiver.next_deadline(now)
        self._schedule.set(member.number, at)
        return at

    def ignores(self, origin: int, stream: int, epoch: int, sequence: int) -> bool:
        """Whether live data at `sequence` is of no use to a receiver being replayed to. Checked before the
        tag."""
        member = self.members.get((origin, stream))
        return member is not None and member.epoch == epoch and member.receiver.is_far_from(sequence)

    def receive(self, segment: Segment, now: float) -> None:
        """Hands a segment to its stream if it is of the joined epoch."""
        member = self.members.get((segment.origin, segment.stream))
        if member is None:
            self._refuse(Refused.OTHER_STREAM)
        elif segment.epoch != member.epoch:
            self._refuse(Refused.OLD_EPOCH if segment.epoch < member.epoch else Refused.LATER_EPOCH)
        else:
            self._touched[member.number] = None
            try:
                member.receiver.receive(segment, now)
            except Exception as error:
                self._break(member, error)

    def _break(self, member: _Membership, error: Exception) -> None:
        """Leaves a stream whose receiver has raised: nothing that it holds can be relied on."""
        origin, stream, _ = key = member.receiver.key
        self.broken.append((key, error))
        self.leave(origin, stream)

    def _refuse(self, reason: Refused) -> None:
        self.refused[reason.name] = self.refused.get(reason.name, 0) + 1
        if self._complain is not None:
            self._complain(reason)

    def take(self, now: float) -> list[tuple[StreamKey, Delivery]]:
        """Returns the messages whose turn it is. Repeats after every progress, because streams may wait for
        one another."""
        self._now = now
        if self._schedule.first <= now:
            self._wake(now)
        taken: list[tuple[StreamKey, Delivery]] = []
        touched = list(self._touched)
        self._unsent.update(self._touched)
        self._touched.clear()
        # Recheck waiting streams: the streams they wait for may have advanced or left.
        while touched or self._waiting:
            for number in self._waiting:
                if number not in touched:
                    touched.append(number)
            before = len(taken)
            for number in touched:
                member = self._by_number.get(number)
                if member is None:
                    continue
                try:
                    self._take(member, taken, now)
                except Exception as error:
                    self._break(member, error)
            touched = []
            if len(taken) == before:
                break
        return taken

    def _take(self, member: _Membership, taken: list[tuple[StreamKey, Delivery]], now: float) -> None:
        receiver = member.receiver
        for delivery in receiver.take(now):
            taken.append((receiver.key, delivery))
        if receiver.waiting:
            self._waiting[member.number] = None
        else:
            self._waiting.pop(member.number, None)
        self._unsent[member.number] = None

    def settled(self, origin: int, after: tuple[After, ...], now: float) -> bool:
        """Whether this host has everything of `after` that it should have."""
        self._now = now
        return self._settled_for(origin, after)

    def _settled_for(self, origin: int, after: tuple[After, ...]) -> bool:
        return all(self._settled(origin, one) for one in after)

    def _settled(self, origin: int, after: After) -> bool:
        member = self.members.get((origin, after.stream))
        if member is None:
            return True  # not a member of that stream
        if after.epoch != member.epoch:
            return after.epoch < member.epoch  # over; or not begun
        return member.receiver.next >= after.sequence or member.receiver.over(self._now)

    def _wake(self, now: float) -> None:
        for number in self._schedule.due(now):
            self._touched[number] = None

    def to_send(self, now: float) -> list[Outgoing]:
        """Returns what touched or due receivers send. `take` is to be called again afterwards."""
        self._wake(now)
        self._unsent.update(self._touched)
        pending, self._unsent = list(self._unsent), {}
        first, self._first = self._first, 0
        if first:  # those that had to wait in the last turn come first
            pending.sort(key=lambda number: (number < first, number))
        self._share.begin()
        out: list[Outgoing] = []
        for number in pending:
            member = self._by_number.get(number)
            if member is None:
                continue
            try:
                self._send(member, out, now)
            except Exception as error:
                self._break(member, error)
            if self._share.left <= 0 and not self._first:
                self._first = number + 1
        return out

    def _send(self, member: _Membership, out: list[Outgoing], now: float) -> None:
        receiver = member.receiver
        out.extend(receiver.to_send(now))
        # A time-out in `to_send` may have given up what the next messages waited for.
        if receiver.ready:
            self._touched[member.number] = None
        self._schedule.set(member.number, receiver.next_deadline(now))

    def due(self, now: float) -> bool:
        """Whether a deadline may have passed."""
        return self._schedule.first <= now

    def next_deadline(self, now: float) -> float:
        """When `take` and `to_send` next have something if nothing arrives before."""
        if self._touched or self._unsent:
            return now
        return self._schedule.first
