"""A receiving host's end of one stream in one epoch.

Puts records in order, requests missing ones, catches up by replay if too many are missing, asks other holders
if the origin is gone, and reports the outcome of every record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import After, Kind, Segment, SegmentError, control
from treecast.middleware.wire.segment_assembly import AssemblyBudget
from treecast.middleware.wire.segment_bodies import (
    MAX_GAPS,
    NOWHERE,
    Announce,
    Close,
    Expiry,
    Heartbeat,
    Mode,
    Nak,
    Rejection,
    Report,
    Skip,
    Skipped,
)

from .asking import Asking, Nearest
from .counters import Refused, StreamCounters
from .holding import Holding, Share, Sizes
from .log import StreamLog
from .outgoing import Outgoing, OutgoingSegment
from .pairs import Pair, Pairs, mark
from .reorder import Delivery, How, Judge, Outcomes, Oversized, Progress, Reorder, Room
from .reporting import Reporting
from .settings import StreamSettings
from .states import ReceiverEvent, ReceiverState, receiver_step
from .timing import Random, RoundTrip, Weight
from .turn import STOOD

_MODES = {
    ReceiverState.LIVE: Mode.LIVE,
    ReceiverState.CATCHING_UP: Mode.CATCHING_UP,
    ReceiverState.ORPHANED: Mode.LIVE,
    ReceiverState.DONE: Mode.DONE,
}

# In Python 3.11, enum member access goes through EnumType.__getattr__; bind the members once for the hot
# paths.
_LIVE: Final = ReceiverState.LIVE
_CATCHING_UP: Final = ReceiverState.CATCHING_UP
_ORPHANED: Final = ReceiverState.ORPHANED
_DONE: Final = ReceiverState.DONE
_DATA: Final = Kind.DATA
_REPAIR: Final = Kind.REPAIR
_REPLAY: Final = Kind.REPLAY
_CAME_LIVE: Final = How.LIVE
_REPAIRED: Final = How.REPAIRED
_REPLAYED: Final = How.REPLAYED

_ROOM_EVERY: Final = 0.1  # seconds between notes to `Room` that the stream is in use


def always(_: tuple[After, ...]) -> bool:
    """Treats every `after` list as settled, for hosts that receive no other stream of the origin."""
    return True


class Receiver:
    """The receiving end of a stream: `receive`, `to_send`, `next_deadline`; `take` for the layer above.

    `progress` is where it continues after a restart, or begins (`Progress(first, first)`). `settled` says
    whether an `after` list is settled; streams that the host does not receive count as settled. `judge` sees
    each message in its turn and may filter or refuse it; None accepts all. `held` is the log that keeps
    delivered messages, to repair them for others if the origin is gone; without it, `hold_bytes` are kept.
    `room` is the capacity of the host's sockets. With `keeps`, delivered messages are reported to the origin
    only after `keep`, otherwise at once. `nearest` names members to ask for repairs before the origin.
    `share` is what all receivers of the host may repair in a turn; its owner begins the turns. `sizes` knows
    how long segments to other hosts may be. `pairs` lets the stream rest; without them it reports always.
    """

    def __init__(
        self,
        host: int,
        key: tuple[int, int, int],
        settings: StreamSettings,
        random: Random,
        now: float,
        *,
        progress: Progress,
        judge: Judge | None = None,
        settled: Callable[[tuple[After, ...]], bool] = always,
        budget: AssemblyBudget | None = None,
        held: StreamLog | None = None,
        room: Room | None = None,
        keeps: bool = False,
        nearest: Nearest | None = None,
        share: Share | None = None,
        sizes: Sizes | None = None,
        pairs: Pairs | None = None,
    ) -> None:
        self.host = host
        self.key = key
        self.state = _LIVE
        self.counters = StreamCounters()
        self.members: tuple[int, ...] = ()
        self.name = ""
        self.final: int | None = None  # end of a closed stream
        self.waiting = False  # the next message is here but waits for other streams
        self.round_trip = RoundTrip(settings.round_trip)
        self._settings = settings
        self._random = random
        self._judge = judge
        self._settled = settled
        self._budget = budget if budget is not None else AssemblyBudget(settings.assembly_bytes)
        self._keeps = keeps
        self._kept: Progress | None = None  # what is reported while delivered messages are not kept yet
        self._handed = 0  # end of the last delivered message
        self._first = progress.first
        self._outcomes = Outcomes(progress.totals)
        self._buffer = Reorder(settings, self._budget, progress.next)
        self._weight = Weight(settings)
        self._asking = Asking(settings, random, self.round_trip, self._weight)
        self._nearest = nearest
        self._holding = Holding(host, key, settings, held, now, sizes)
        self._share = share
        self._queue: list[Outgoing] = []
        self._heard = now
        self._orphaned_since = NEVER
        self._reporting = Reporting(settings, random, self.round_trip, now)
        self._newest_at = now  # arrival time of the farthest data
        self._room = room
        self._room_told = -NEVER
        self._word_at = NEVER  # when an orphan next tells the others its position
        self._looked = now
        self._stood = 0  # earlier stamps were echoed to a stopped host, and give no round trip
        self._quiet_until = -NEVER  # nothing to send before then if only in-order data arrives
        self._shared = 0  # segments sent to all that have arrived
        self.mark = mark(key[1], key[2])
        self._announced = -1  # checksum of the last announcement
        self._pairs = pairs
        self._pair: Pair | None = None if pairs is None else pairs.to(key[0])

    # --- calls from the layer above

    @property
    def next(self) -> int:
        """The sequence before which everything is settled."""
        return self._buffer.next

    @property
    def known(self) -> int:
        """The sequence before which records are known to exist."""
        return self._buffer.known

    @property
    def heard(self) -> float:
        """When the origin last showed that it serves the stream."""
        if self._reporting.rests and self._pair is not None:
            return max(self._heard, self._pair.origin_heard)
        return self._heard

    @property
    def ready(self) -> bool:
        """Whether `take` has something to return, judged without asking other streams."""
        return not self.waiting and self._buffer.head() is not None

    @property
    def memory(self) -> int:
        """Bytes in the reorder buffer and in incomplete messages."""
        return self._buffer.bytes

    @property
    def progress(self) -> Progress:
        return Progress(self._first, self.next, self._outcomes.totals())

    def take(self, now: float) -> list[Delivery]:
        """Returns the messages whose turn it is, in order, each exactly once.

        To be called after `receive`, and after `to_send`, where a time-out may give up missing records.
        """
        taken: list[Delivery] = []
        self.waiting = False
        # Until `keep` is called, reports say what held before these messages.
        before = self.progress if self._keeps and self._kept is None and self.ready else None
        while (head := self._buffer.head()) is not None:
            if isinstance(head, Skipped):
                self._outcomes.expire(head.end - head.first, head.reason)
            elif isinstance(head, Oversized):
                self._outcomes.reject(head.end - head.first, Rejection.OVERSIZED)
            else:
                message, kind = head
                if message.after and not self._settled(message.after):
                    self.waiting = True
                    break
                how = _CAME_LIVE if kind is _DATA else self._how(kind)
                if how is _CAME_LIVE and self._judge is None:
                    self._outcomes.live += message.records
                    taken.append(Delivery(message, how))
                else:
                    verdict = None if self._judge is None else self._judge(message)
                    if self._outcomes.settle(message.records, how, verdict):
                        taken.append(Delivery(message, how))
                if self._holding.keeps:
                    self._holding.hold(message, now)
                self._weight.add(message.records, len(message.payload))
            self._buffer.pop()
        if taken and self._keeps:
            self._handed = taken[-1].message.end
            if before is not None:
                self._kept = before
        self._after_progress(now)
        return taken

    def _how(self, kind: Kind) -> How:
        """How data counts as delivered that was sent again. The origin decides by the kind it sends, because
        the moment at which a receiver learns that it is behind is a matter of chance."""
        if kind is not _REPLAY and not self._asking.holder:  # a holder does not know what its repair is for
            return _REPAIRED
        self._reporting.awaited = True
        return _REPLAYED

    def keep(self, progress: Progress, now: float) -> None:
        """Takes note that delivered messages up to `progress` are stored durably: the origin may be told."""
        self._kept = progress if progress.next < self._handed else None
        self._after_progress(now)

    @property
    def _settled_next(self) -> int:
        """The sequence before which everything may be reported as settled."""
        return self._buffer.next if self._kept is None else self._kept.next

    def _after_progress(self, now: float) -> None:
        settled = self._settled_next
        self._reporting.look(settled, self.state is _CATCHING_UP or now < self._asking.replay_until, now)
        # Half of the lag that starts a replay, or it would begin again at once.
        if self.state is _CATCHING_UP and self._buffer.missing <= self._weight.most_behind // 2:
            self._step(ReceiverEvent.CATCH_UP)
            self._asking.replays(now)
        # `settled`, not `next`: the final report promises that all of it is kept.
        if self.final is not None and settled >= self.final and self.state is not _DONE:
            self._step(ReceiverEvent.COMPLETE)
            self._reporting.ends(now)
            self._buffer.clear()
        self._quiet_until = min(self._quiet_until, self._reporting.at)

    def discard(self) -> None:
        """Frees the memory. The receiver must not be used afterwards."""
        self._buffer.clear()

    def over(self, now: float) -> bool:
        """Whether nothing more is expected: the end is reached, or no member knows of more.

        An orphan first waits for two heartbeat intervals of the other holders.
        """
        if self.state is _ORPHANED:
            waited = now >= self._orphaned_since + 2 * self._settings.heartbeat_longest
            return waited and self.next == self.known
        return self.state is _DONE

    def give_up(self, reason: Expiry, now: float) -> None:
        """Expires everything missing; `take` then returns what follows it."""
        self._buffer.give_up(reason)
        self._report_by(now)

    def told(self, now: float) -> bool:
        """Whether the origin knows the final state here, or will not be told any more."""
        return self.over(now) and (self.state is _ORPHANED or self._reporting.concluded)

    # --- from the network

    def receive(self, segment: Segment, now: float) -> None:
        """Takes any segment of this stream and epoch."""
        self.counters.received += 1
        origin = self.key[0]
        if (segment.origin, segment.stream, segment.epoch) != self.key:
            self.counters.refuse(Refused.OTHER_STREAM)
            return
        if segment.sender == origin:
            self._heard = now
            if self.state is _ORPHANED:
                self._step(ReceiverEvent.ORIGIN_HEARD)
        try:
            self._dispatch(segment, now)
        except SegmentError:
            self.counters.refuse(Refused.BODY)

    def _dispatch(self, segment: Segment, now: float) -> None:
        kind = segment.kind
        if kind is _DATA or kind is _REPAIR or kind is _REPLAY:
            self._data(segment, now)
            return
        self._quiet_until = -NEVER
        if kind is Kind.NAK:
            self._nak(segment.sender, Nak.decode(segment.payload), now)
        elif kind is Kind.HEARTBEAT:
            heartbeat = Heartbeat.decode(segment.payload)
            self._shared += heartbeat.is_shared and segment.sender == self.key[0]
            self._heartbeat(heartbeat, now)
        # Members repair one another; only the origin may say what will not come, and where the stream ends.
        elif segment.sender != self.key[0] or kind is Kind.REPORT:
            self.counters.refuse(Refused.UNEXPECTED)
        elif kind is Kind.SKIP:
            self._skip(Skip.decode(segment.payload), now)
        elif kind is Kind.ANNOUNCE:
            self._announce(Announce.decode(segment.payload), now)
        else:
            self._close(Close.decode(segment.payload), now)

    def _data(self, segment: Segment, now: float) -> None:
        if segment.kind is _DATA:
            self._shared += 1
        plain = self.state is _LIVE and self.final is None
        refused = None if plain else self._data_refusal(segment)
        if refused is None and self._buffer.add_next(segment):
            self._arrived(len(segment.payload), now)
            return
        self._quiet_until = -NEVER
        # The origin's cut only: holders cut to their own paths.
        if segment.total > 1 and not segment.number and segment.sender == self.key[0]:
            self._holding.cut_like(segment)
        if refused is None:
            before = self._buffer.newest
            asking = self._asking
            due = now + (asking.reordered() if segment.kind is _REPLAY else asking.first_delay())
            refused = self._buffer.add(segment, due, now + asking.patience())
            farther = self._buffer.newest > before
            if refused is None:
                self._arrived(len(segment.payload), now, farther)
            if segment.kind is not _DATA:
                # a requested repair does not show that the replay continues
                self._asking.came(segment.end, now, segment.kind is _REPLAY and farther)
            self._check_lag()
        # The discarded segment still shows how far the stream has come.
        elif refused is Refused.FAR_AHEAD:
            self._know(segment.end, now + self._asking.first_delay())
        if refused is not None:
            self.counters.refuse(refused)

    def _arrived(self, size: int, now: float, farthest: bool = True) -> None:
        """Notes that data was taken. `farthest`: nothing ahead of it had arrived before."""
        self._reporting.unreported += size
        if farthest:
            self._newest_at = now
        if self._room is not None and now - self._room_told >= _ROOM_EVERY:
            self._room_told = now
            self._room.used(self.key, now)

    def _data_refusal(self, segment: Segment) -> Refused | None:
        if self.state is _DONE:
            return Refused.DUPLICATE
        if self.final is not None and segment.end > self.final:
            return Refused.BEYOND_END
        if segment.kind is _DATA and self.is_far_from(segment.sequence):
            return Refused.FAR_AHEAD
        return None

    def is_far_from(self, sequence: int) -> bool:
        """Whether it is being replayed to and so far behind `sequence` that live data there is discarded."""
        return self.state is _CATCHING_UP and sequence - self.next > self._weight.most_behind

    def _know(self, end: int, due: float) -> None:
        if self.state is not _DONE:
            self._buffer.know(end if self.final is None else min(end, self.final), due)
            self._check_lag()

    def _heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        if heartbeat.every:
            self._reporting.every = heartbeat.every
        if heartbeat.again != NOWHERE:
            # Arrivals ahead of the place where the replay begins are no sign of its progress.
            self._buffer.newest = (max(heartbeat.again, self.next), 0)
            self._asking.held_by(heartbeat.holder, max(heartbeat.again, self.next))
        if heartbeat.echo:
            self._notice_pause(now)
            if heartbeat.echo >= self._stood or not self.round_trip.measured:
                self.round_trip.sample(now - heartbeat.echo / 1e6)
            self._reporting.echoed(heartbeat.echo, self._settled_next, self.state is _DONE, now)
            # an echo may take another path than the data and overtake it
            self._know(heartbeat.end, now + self._asking.patience())
            if heartbeat.offer:
                self._offered(heartbeat, now)
            return
        if heartbeat.is_question:
            self._know(heartbeat.end, now + self._asking.patience())  # may have overtaken data, as an echo
            self._report_by(now)
            return
        self._buffer.passed(now + self._asking.first_delay(), heartbeat.end)
        self._know(heartbeat.end, now + self._asking.first_delay())
        if self._reporting.may_be_lost(now):
            self._report_by(now)

    def _offered(self, heartbeat: Heartbeat, now: float) -> None:
        """Takes an offer to rest."""
        if self._pair is None or self._pairs is None:
            return
        self._pair.offered(now)
        self._pairs.needed(now)
        whole = self._settled_next == self._buffer.known == heartbeat.end and self.final is None
        fits = whole and self.state is _LIVE and heartbeat.offer >> 1 == self._announced
        if self._reporting.offered(fits, bool(heartbeat.offer & 1)):
            self._pair.received[self.key[:2]] = None

    def stir(self, now: float) -> None:
        """Ends its rest: without news, it reports before the origin may count it as silent."""
        if self._reporting.rests and self._pair is not None:
            self._heard = self.heard
            self._pair.received.pop(self.key[:2], None)
            self._reporting.wake(now, self._settings.report_idle / 2)
            self._quiet_until = -NEVER

    def counted(self) -> Iterable[Pair]:
        """The pair with its origin, while that is there."""
        there = self._pair is not None and self.state in (_LIVE, _CATCHING_UP)
        return [self._pair] if there and self._pair is not None else []

    def _check_lag(self) -> None:
        """Starts catching up if too much is missing. Records that wait for their turn count as lag only if
        much is missing before them."""
        most = self._weight.most_behind
        if self.state is _LIVE and self._lag() > most and self._buffer.missing > most:
            self._step(ReceiverEvent.FALL_BEHIND)
            self._asking.replayed_to = 0
            self._buffer.forget_ahead(0.0)
            self._reporting.awaited = True
            self._report_by(0.0)  # an early report keeps the origin from sending in vain

    def _lag(self) -> int:
        """The number of records not taken yet, missing or not."""
        return self._buffer.known - self.next

    def _skip(self, skip: Skip, now: float) -> None:
        if self.state is _DONE:
            return
        for one in skip.ranges:
            if one.end > self.next:
                self._buffer.skip(one, now + self._asking.first_delay())

    def _announce(self, announce: Announce, now: float) -> None:
        if not self.members and announce.end > self.next:
            self._asking.replays(now)  # the origin starts a replay for a host that begins behind
        self.members = announce.members
        if self._nearest is not None:
            origin, stream, _ = self.key
            self._asking.near = self._nearest.nearest(origin, stream, self.members)
        self.name = announce.name
        self._announced = announce.checksum
        if self._reporting.rests:
            self._report_by(now)  # something has changed, or the origin does not know that it rests
        self._know(announce.end, now + self._asking.first_delay())

    def _close(self, close: Close, now: float) -> None:
        if self.state is _DONE:
            self._report_by(now)  # the origin has not received the final report yet
            return
        # Records beyond that end are known: to believe it would lose them.
        if close.end < self._buffer.known:
            self.counters.refuse(Refused.BEYOND_END)
            return
        self._know(close.end, now + self._asking.first_delay())
        self.final = close.end
        self._after_progress(now)

    def _step(self, event: ReceiverEvent) -> None:
        self.state = receiver_step(self.state, event)
        if self._pairs is not None:
            self._pairs.changed = True
        self._asking.behind = self.state is _CATCHING_UP
        self._quiet_until = -NEVER

    # --- repairing others

    def _nak(self, host: int, nak: Nak, now: float) -> None:
        """Repairs the gaps in the nak of another receiver; what is missing here too, once it has arrived."""
        if not self._holding.asked(host, nak, self._buffer, now):
            self.counters.refuse(Refused.TOO_MANY)

    def _origin_silent(self, now: float) -> None:
        self._step(ReceiverEvent.ORIGIN_SILENT)
        if self.state is _ORPHANED:
            self._asking.nobody_replays()
            # An orphan asks any member at random (`_repairer`), not the nearest alone.
            self._asking.near = ()
        if self.state is _ORPHANED and self._orphaned_since == NEVER:
            self._orphaned_since = self._word_at = now

    def _orphaned(self, now: float) -> None:
        """Tells the other members its position, so that they know what exists. Gives up after a time."""
        if now >= self._word_at:
            held = self._holding.oldest
            oldest = self.next if held == NOWHERE else held
            # As the origin's own: the oldest must not lie beyond the end.
            body = Heartbeat(self._buffer.known, min(self._buffer.known, oldest))
            for host in self.members:
                if host != self.host:
                    self._control(Kind.HEARTBEAT, body.encode(), host)
            self._word_at = now + self._settings.heartbeat_longest
        if now >= self._orphaned_since + self._settings.give_up_after and len(self._buffer.gaps):
            self.give_up(Expiry.ORIGIN_GONE, now)

    # --- to the network

    def to_send(self, now: float) -> list[Outgoing]:
        """Returns everything to be sent now."""
        # Before the check for quiet: data in order may have brought what is owed, and makes nothing else due.
        holding = self._holding
        if holding.owes:
            holding.pay(self._buffer, now)
        if now < self._quiet_until and not self._queue and not (holding.requests or holding.slices.waiting):
            return []
        self._notice_pause(now)
        if self._reporting.rests and (self._reporting.at < NEVER or self._buffer.known > self.next):
            self.stir(now)
        if now >= self.heard + self._settings.orphaned_after and not self._reporting.rests:
            self._origin_silent(now)
        elif self.state is not _ORPHANED:
            self._orphaned_since = self._word_at = NEVER
        if self.state is _ORPHANED:
            self._orphaned(now)
        self._ask(now)
        if now >= self._reporting.at:
            self._report(now)
        self.counters.evicted = self._buffer.assembly.evicted
        out, self._queue = self._queue, []
        if holding.requests or holding.slices.waiting:
            holding.give(out, self._share or Share(self._settings.replay_at_once), self._buffer, now)
        for one in out:
            self.counters.send(one)
        return out

    def _notice_pause(self, now: float) -> None:
        """Detects that the host was stopped or had no processor, by how overdue its own work is."""
        if now - max(self._earliest(), self._looked) >= STOOD:
            self._stood = int(now * 1e6)
        self._looked = now

    def _control(self, kind: Kind, body: bytes, to: int) -> None:
        origin, stream, epoch = self.key
        self._queue.append(OutgoingSegment(control(kind, origin, stream, epoch, self.host, body), to))

    def _ask(self, now: float) -> None:
        """Queues naks for everything missing and due."""
        if self.state is _DONE:
            return
        wanted = self._asking.ask(self._buffer, self._newest_at, len(self.members), now)
        if wanted and self._reporting.unreported and self.state is not _ORPHANED:
            self._report(now)  # first: arrivals tell lost data from data in flight
        round_trip = int(self.round_trip.smoothed * 1e6)
        for host, gaps in wanted.items():
            for at in range(0, len(gaps), MAX_GAPS):
                nak = Nak(tuple(gaps[at : at + MAX_GAPS]), round_trip)
                self._control(Kind.NAK, nak.encode(), host or self._repairer())

    def _repairer(self) -> int:
        """The host to ask for repairs: the origin, or the holder of its replay. If the origin is gone, a
        random other member each time."""
        others = [host for host in self.members if host != self.host]
        if self.state is not _ORPHANED or not others:
            return self._asking.holder or self.key[0]
        return others[int(self._random.random() * len(others))]

    def _report(self, now: float) -> None:
        settled = self._settled_next
        rests = self._reporting.willing and self._pair is not None and self._pair.serves(now)
        echo = rests or self._reporting.asks_for_echo(self.state is _LIVE, now)
        newest, parts = self._buffer.newest
        # Bytes that may be in flight to this host.
        room = self._buffer.room if self._room is None else min(self._buffer.room, self._room.share)
        report = Report(
            _MODES[self.state],
            self._first,
            settled,
            room,
            self._reporting.reports(settled, echo, self.state is _DONE, rests, now),
            self._outcomes.totals() if self._kept is None else self._kept.totals,
            newest,
            parts,
            int(max(0.0, now - self._newest_at) * 1e6),
            echo,
            self._holding.oldest,
            self._asking.asked_near,
            self._asking.asked_near_bytes,
            self._shared,
            rests,
        )
        self._control(Kind.REPORT, report.encode(), self.key[0])

    def _report_by(self, time: float) -> None:
        self._reporting.by(time)
        self._quiet_until = min(self._quiet_until, time)

    def next_deadline(self, now: float) -> float:
        """When `to_send` next has something if nothing arrives before. Never too late, possibly early."""
        if self._queue:
            return now
        if now >= self._quiet_until:
            self._quiet_until = self._earliest()
        holding = self._holding
        if holding.requests or holding.slices.waiting:
            return min(self._quiet_until, holding.next_deadline(now))
        return self._quiet_until

    def _earliest(self) -> float:
        times = [self._reporting.at]
        if self.state is not _DONE:
            times.append(self._buffer.gaps.next_deadline())
        if self.state is _ORPHANED:
            give_up = self._orphaned_since + self._settings.give_up_after
            times += [self._word_at, give_up if len(self._buffer.gaps) else NEVER]
        elif self.state in (_LIVE, _CATCHING_UP) and not self._reporting.rests:
            times.append(self._heard + self._settings.orphaned_after)
        return min(times)
