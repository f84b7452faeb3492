"""Live data: one cursor in the stream's log, paced by the live receivers.

The log is the buffer. Three limits bound the data in flight: the smallest window of the live receivers, the
room that each has reported, and how far each may be ahead of what it has settled. A burst therefore waits in
the log and not in sockets, and leaves as fast as the slowest receiver that keeps up can take it. A single
message is sent without waiting.

A receiver leaves the group if for `slow_share` of the time over `slow_over` the others wait for it alone
while most of them could take `slow_times` as much as is sent (`timing.Spare`). It also leaves if it reports
nothing for `quiet_after` about data in flight to it. It is then replayed to, and returns when its replay
meets the cursor. At least half of the live receivers have to be ready for more; otherwise the cause is not
one slow receiver. If most have been quiet for at least half of that time, those leave that are quiet for
`_MOST_QUIET` times as long while others report.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import MAX_SEGMENTS, Kind, Message, can_be_cut, part_size, size_for
from treecast.middleware.wire.segment_bodies import Report, Skipped

from .log import StreamLog
from .outgoing import Outgoing, OutgoingMessage
from .outlet import Outlet
from .peers import Peer, Peers
from .settings import StreamSettings
from .timing import Flight, Spare, TokenBucket, Weight
from .turn import Turn

_LOOK: Final = 0.05  # seconds between checks for receivers that hold the cursor up
_MOST_QUIET: Final = 2.0  # times `quiet_after`: receivers that take turns at a processor are quiet for less
_PROMPT: Final = 0.01  # seconds: data that all leaves within this time does not wait, whatever a turn allows
_NO_LIMIT: Final = 1 << 62


class Live:
    """The live data of one stream. `edge`: everything before it was sent whole or skipped."""

    __slots__ = (
        "_bucket",
        "_counters",
        "_flight",
        "_group_by",
        "_group_from",
        "_holders",
        "_limit",
        "_log",
        "_looked",
        "_marks",
        "_message",
        "_most",
        "_most_ahead",
        "_outlet",
        "_part_size",
        "_peers",
        "_rest",
        "_settings",
        "_spare",
        "_step",
        "_turn",
        "_unsent_since",
        "_weight",
        "bytes",
        "edge",
        "messages",
        "partial",
        "sent_parts",
        "setter",
    )

    def __init__(
        self,
        log: StreamLog,
        outlet: Outlet,
        peers: Peers,
        settings: StreamSettings,
        weight: Weight,
        turn: Turn,
        now: float,
        edge: int,
    ) -> None:
        self.edge = edge
        self.messages = 0  # sent to all
        self.bytes = 0  # of these messages, each counted once
        self.sent_parts = 0  # of the message at `edge`, which was not sent completely yet
        self._marks = [(now, 0), (now, 0)]  # (time, bytes) at two earlier times, for the rate
        self.partial = False  # some messages were not for all receivers
        self.setter: Peer | None = None  # the receiver with the smallest window
        self._log = log
        self._outlet = outlet
        self._peers = peers
        self._settings = settings
        self._weight = weight
        self._turn = turn
        self._bucket = TokenBucket(settings.rate, settings.burst, now)
        self._flight = Flight(edge, now)
        self._message: Message | None = None  # the message at `edge`, if a part of it was sent
        self._rest: OutgoingMessage | None = None  # the unsent rest of it
        self._limit = 0  # data may be sent up to this place
        self._most = 0  # the same for this turn
        self._step = 0  # bytes that must be allowed before more is sent
        self._unsent_since = NEVER  # when a turn first left data in the log
        self._group_by = -NEVER  # deadline for a group being formed
        self._group_from = 0  # the same before the group is formed
        self._looked = now
        self._spare = Spare(settings.slow_times, settings.slow_over / 4, now)
        self._holders: list[Peer] = []  # receivers that hold the cursor up since then
        self._part_size = part_size(settings.mtu)
        # A quarter below what makes a receiver discard data or call for a replay: its bytes are an estimate
        # here.
        self._most_ahead = 3 * min(settings.catch_up_bytes, settings.buffer_bytes) // 4

    # --- position

    @property
    def known(self) -> int:
        """The end announced to receivers. Includes the message in progress, so that its losses are found."""
        return self._message.end if self._message is not None else self.edge

    @property
    def joins_before(self) -> int:
        """A receiver that begins before this sequence has missed part of what was sent."""
        return self.edge if self._message is None else self.edge + 1

    @property
    def window(self) -> int:
        """Bytes that may be in flight to the receiver with the least arrived; 0 without a live receiver."""
        return max(0, self._limit - self._least_arrived()) if self._peers.live else 0

    @property
    def on_way(self) -> int:
        """Bytes in flight to the receiver with the least arrived."""
        return self._flight.total - self._least_arrived()

    def _least_arrived(self) -> int:
        places = [peer.arrived for peer in self._peers if peer.live]
        return min(places, default=self._flight.total)

    @property
    def why(self) -> str:
        """The bound of the window of the receiver that sets the pace."""
        setter = self.setter
        if setter is None or not setter.live:
            return ""
        if setter.room < setter.pace.size:
            return "room"
        return setter.pace.why.name.lower()

    def speed(self, now: float) -> float:
        """Bytes per second, over the last one or two seconds if called often enough."""
        before, then = self._marks[0]
        if now - self._marks[1][0] >= 1.0:
            self._marks = [self._marks[1], (now, self.bytes)]
        return (self.bytes - then) / max(now - before, 1e-3)

    def waits(self) -> bool:
        """Whether the log holds more than has been sent."""
        return self.edge < self._log.end

    @property
    def held_up(self) -> bool:
        """Whether data waits because receivers do not allow it."""
        return bool(self.edge < self._log.end and self._blocked() and self._peers.live)

    def _blocked(self) -> bool:
        """Whether receivers allow nothing, or too little to justify waking all of them.

        The limit is the minimum over all receivers, and each limit rises when its receiver reports. The
        minimum therefore rises often and by little each time. If everything that waits fits into the limit,
        it is sent anyway.
        """
        left = self._limit - self._flight.total
        if left <= 0 or left >= self._step:
            return left <= 0
        return self._weight.size_of(self._log.end - self.edge) > left

    def recut(self, mtu: int, now: float) -> None:
        """Cuts to segments of `mtu` bytes what is sent from now on.

        A message of which a part was sent is sent again from its start, and what was in flight counts as
        arrived: its parts have other numbers now.
        """
        self._part_size = part_size(mtu)
        message, rest = self._message, self._rest
        if message is not None and rest is not None:
            self.bytes -= len(message.payload) - rest.size
        self._message = self._rest = None
        self.sent_parts = 0
        self._flight = Flight(self.edge, now)
        for peer in self._peers:
            if peer.live:
                peer.arrived = peer.addressed = 0
                self._bound(peer)
        self._recount()

    # --- waiting for a group

    def await_group(self, until: float) -> None:
        """Holds a burst back in the log while a group is being formed, until `until` at the latest, instead
        of sending it to each receiver by unicast. The first `live_before` bytes do not wait."""
        self._group_by = until
        self._group_from = self._flight.total + self._settings.live_before

    def group_stands(self) -> bool:
        """Ends the wait because the group is formed or will not be. Returns whether there was a wait."""
        awaited, self._group_by = self._group_by != -NEVER, -NEVER
        return awaited

    def _awaits_group(self, now: float) -> bool:
        return now < self._group_by and self._flight.total >= self._group_from

    # --- receivers

    def begins(self, peer: Peer) -> None:
        """Makes the receiver live from here on. Data already in flight is not for it."""
        peer.arrived = peer.addressed = self._flight.total
        self._bound(peer)
        peer.waited = 0.0
        self._recount()

    def forget(self) -> None:
        """Drops flight entries that no live receiver needs, after one has left or settled more."""
        lowest = self.edge
        for peer in self._peers:
            if peer.live and peer.next < lowest:
                lowest = peer.next
        self._flight.forget(lowest)

    def heard(self, peer: Peer, report: Report, now: float) -> None:
        """Takes a live receiver's report of what has arrived."""
        flight = self._flight
        place = flight.place(min(peer.next, self.edge))
        if report.newest >= peer.next:
            place = max(
                place,
                flight.place_of_part(report.newest, report.parts * self._outlet.part_bytes(report.newest)),
            )
        arrived = place - peer.arrived
        if arrived > 0:
            used = 2 * (flight.total - peer.arrived) >= peer.pace.size
            sent_at = flight.sent_at(place)
            took = max(now - sent_at - report.age / 1e6, 0.0)
            # Else it arrived when it was sent again, and the time says nothing about the path.
            if sent_at > peer.vain.lost_until and not peer.doubted:
                took = peer.took(took, sent_at, self._turn.stood)
                peer.pace.progress(arrived, took, now, used=used)
            peer.arrived = place
        if self.partial and peer.arrived >= peer.addressed:
            peer.arrived = flight.total  # nothing that follows is for it
        self._bound(peer)
        if self.setter is peer or self.setter is None or peer.limit < self._limit:
            self._recount()

    def parts_due(self, peer: Peer, message: Message, round_trip: float, now: float) -> int:
        """The number of its parts that should have arrived at a live receiver by now unless lost.

        These parts lie before the farthest arrival, or were sent longer ago than an arrival takes to be
        reported. If a receiver asks earlier, the origin had to wait for its turn, its window or a processor.
        `round_trip` is the receiver's own measurement.
        """
        flight = self._flight
        measured = peer.turnaround.measured and not peer.doubted
        takes = peer.turnaround.timeout if measured else round_trip
        place = max(peer.arrived, flight.place_at(now - takes))
        if place >= flight.total:
            return MAX_SEGMENTS
        before = place - flight.place(message.sequence)
        if before >= len(message.payload):
            return MAX_SEGMENTS
        return max(0, -(-before // size_for(message, self._outlet.mtu)))

    def _bound(self, peer: Peer) -> None:
        """Sets the place up to which this receiver allows sending."""
        settled = self._flight.place(min(peer.next, self.edge))
        ahead = min(int(peer.pace.size), peer.room)
        peer.limit = min(peer.arrived + ahead, settled + self._most_ahead)

    def _recount(self) -> None:
        """Recomputes the minimum of the live receivers' limits."""
        limit, setter = _NO_LIMIT, None
        total = least = self._flight.total
        for peer in self._peers:
            if not peer.live:
                continue
            if peer.next >= self.edge and self._message is None and peer.arrived < total:
                peer.arrived = total  # it begins after what was sent
                self._bound(peer)
            least = min(least, peer.arrived)
            if peer.limit < limit:
                limit, setter = peer.limit, peer
        self._limit, self.setter = limit, setter
        settings = self._settings
        most = (limit - least) // settings.live_steps
        # With nothing in flight no report comes that would allow more, so that any little is sent.
        self._step = min(settings.live_step, most) if total > least else 0

    # --- slow receivers

    def look(self, now: float) -> list[Peer]:
        """The receivers that have to leave the group: those that hold the others up most of the time, or are
        quiet."""
        # Weighed by time: looks are irregular, and one after a pause must not count for more than the whole
        # span.
        passed = min(1.0, (now - self._looked) / self._settings.slow_over)
        self._looked = now
        holders, self._holders = self._holders, []
        live = [peer for peer in self._peers if peer.live]
        slow = self._quiet(live, now)
        for peer in live:
            holds_back = peer in holders and self._holds_back(peer, live)
            peer.waited += passed * ((1.0 if holds_back else 0.0) - peer.waited)
            if peer.waited > self._settings.slow_share and peer not in slow:
                slow.append(peer)
        return slow

    def _quiet(self, live: list[Peer], now: float) -> list[Peer]:
        """Those of the live receivers that have been quiet for too long."""
        after = self._settings.quiet_after
        suspects = [peer for peer in live if self._quiet_at(peer) - after / 2 <= now]
        if 2 * len(suspects) > len(live):
            if len(suspects) == len(live):
                return []  # this host, or its link, is the cause
            now -= (_MOST_QUIET - 1) * after
        return [peer for peer in suspects if self._quiet_at(peer) <= now]

    def _holds_back(self, peer: Peer, live: list[Peer]) -> bool:
        """Whether most others could take `slow_times` as much as is sent.

        If processors are scarce, receivers take turns in holding the cursor up; none of them is slow by
        itself. One that is hardly slower than the others holds it up all the time, but they would gain
        little without it.
        """
        others = sorted([one.pace.queued for one in live if one is not peer])
        return bool(others) and others[len(others) // 2] <= self._spare.wait

    def _quiet_at(self, peer: Peer) -> float:
        """When it will have been quiet for too long about data in flight to it."""
        if peer.arrived >= self._flight.total:
            return NEVER
        return max(peer.heard, self._flight.sent_at(peer.arrived + 1)) + self._settings.quiet_after

    def to_ask(self, hosts: frozenset[int], now: float) -> list[Peer]:
        """Those of the hosts, which a carrier reaches, that have been quiet for half of `quiet_after`. They
        are asked by unicast whether they are slow, or the carrier does not reach them."""
        return [peer for peer in self._peers if peer.host in hosts and self._ask_at(peer) <= now]

    def _ask_at(self, peer: Peer) -> float:
        """When a receiver is to be asked for a report about data in flight to it."""
        if not peer.live:
            return NEVER
        half = self._settings.quiet_after / 2
        return max(self._quiet_at(peer) - half, peer.questioned + half)

    def _held_up(self, now: float) -> None:
        """Notes which receivers do not allow data that could be sent."""
        self._turn.live_waits(now)
        total = self._flight.total
        holders = [peer for peer in self._peers if peer.live and peer.limit < total + max(1, self._step)]
        if 2 * len(holders) <= len(self._peers.live):
            self._holders = holders

    # --- sending

    def give(self, out: list[Outgoing], now: float) -> bool:
        """Appends unsent live data to `out`, as far as receivers, the rate and this turn allow.

        Returns whether anything was sent or skipped.
        """
        end = self._log.end
        if self.edge >= end or self._awaits_group(now) or not self._bucket.ready(now):
            return False
        if not self._peers.live:
            self._pass_by(end, now)
            return True
        # Counted again only where it may bind: reports of receivers that do not set the limit leave it as it
        # is.
        if self._blocked():
            self._recount()
            if self._blocked():
                self._held_up(now)
                return False
        before = self._flight.total, self.edge
        self._most = self._flight.total + self._turn.of_stream
        if now < self._group_by:
            self._most = min(self._most, self._group_from)
        self._send(out, end, now)
        if (
            self.edge < end
            and min(self._turn.live, self._most - self._flight.total) > 0
            and self._bucket.ready(now)
        ):
            self._recount()
            if self._may() > 0:
                self._send(out, end, now)
        if self.edge >= end:
            self._unsent_since = NEVER
        elif self._limit <= self._flight.total:
            self._held_up(now)
        else:
            self._left_over(now)
        return before != (self._flight.total, self.edge)

    def _left_over(self, now: float) -> None:
        """Notes that the budget of this turn left data in the log. A backlog waits for the link or for a
        processor; a batch that a few turns send does not, and replays need not give way to it.
        """
        self._unsent_since = min(self._unsent_since, now)
        if now - self._unsent_since > _PROMPT:
            self._turn.live_waits(now)

    def _pass_by(self, end: int, now: float) -> None:
        """Skips to `end` because no receiver is live: receivers that need the data begin there or are
        replayed to."""
        self._message = self._rest = None
        self.sent_parts = 0
        self.edge = end
        self._flight = Flight(end, now)
        self._limit = _NO_LIMIT

    def _may(self) -> int:
        """Bytes that this turn and the receivers allow."""
        return min(self._turn.live, min(self._most, self._limit) - self._flight.total)

    def _send(self, out: list[Outgoing], end: int, now: float) -> None:
        if self._message is not None and (self._may() <= 0 or not self._send_rest(out, now)):
            return
        for found in self._outlet.entries(self.edge, end):
            if self._may() <= 0 or not self._bucket.ready(now):
                return
            if isinstance(found, Skipped):
                self._passed(found.end, now)
                self._outlet.skip([found], None)
                continue
            self._message = found
            self._rest = self._outlet.message(found, None, Kind.DATA)
            self._weight.add(found.records, len(found.payload))
            if not self._send_rest(out, now):
                return
        if self.edge < end:
            # The log has a hole at its end, of which it yields nothing.
            self._passed(end, now)

    def _passed(self, end: int, now: float) -> None:
        """Moves the edge to `end`: nothing before it remains to be sent."""
        self.edge = end
        self._flight.sent(end, 0, now)

    def _send_rest(self, out: list[Outgoing], now: float) -> bool:
        """Sends as much as allowed of the message in progress, at least one part. Returns whether it is
        complete.

        The result is returned because mypyc would assume that `_rest` is unchanged after the call.
        """
        message, rest = self._message, self._rest
        assert message is not None
        assert rest is not None
        one, left = rest.parted(self._may())
        self._rest = left
        out.append(one)
        self.sent_parts += one.count
        if left is None:
            self._over(message)
        self._count(one.size or 1, now)
        self._address(message)
        return left is None

    def _address(self, message: Message) -> None:
        """Notes for whom what was just sent is in flight, once some messages are not for all."""
        if message.hosts is None and not self.partial:
            return
        total = self._flight.total
        if not self.partial:  # all before it was for all
            self.partial = True
            for peer in self._peers:
                peer.addressed = max(peer.addressed, self._flight.place(message.sequence))
        whole = 1 if self._message is None else 0
        for peer in self._peers:
            if message.is_for(peer.host):
                peer.addressed = total
                continue
            peer.spared += whole
            if peer.live and peer.arrived >= peer.addressed:
                peer.arrived = total
                self._bound(peer)
        self._recount()

    def _over(self, message: Message) -> None:
        """Moves the edge past a completely sent message."""
        self.edge = message.end
        self.messages += 1
        self._message = None
        self.sent_parts = 0

    def _count(self, size: int, now: float) -> None:
        self.bytes += size
        self._flight.sent(self.edge, size, now)
        self._spare.sent(size, now)
        self._bucket.spend(size)
        self._turn.live -= size

    def take_newest(self, now: float) -> Message | None:
        """Returns the single unsent message of the log if it may be sent whole, and counts it as sent."""
        if self._message is not None or not self._peers.live:
            return None
        if (now < self._group_by and self._awaits_group(now)) or not (
            not self._bucket.limits or self._bucket.ready(now)
        ):
            return None
        message = self._log.newest(self.edge)
        if message is None:
            return None
        # An empty message counts for a byte, or its arrival could not be told from what was sent before it.
        size = len(message.payload) or 1
        if size > self._limit - self._flight.total:
            return None
        if size > self._part_size and not can_be_cut(message, self._outlet.mtu):
            return None
        self._weight.add(message.records, size)
        self._unsent_since = NEVER
        self.edge = message.end
        self.messages += 1
        self.bytes += size
        self._flight.sent(message.end, size, now)
        self._spare.sent(size, now)
        self._turn.live -= size
        if self._bucket.limits:
            self._bucket.spend(size)
        self._address(message)
        return message

    def missed(self, host: int) -> OutgoingMessage | None:
        """The already sent parts of the message in progress, for a host that becomes live now."""
        if self._message is None:
            return None
        return self._outlet.message(self._message, host, Kind.REPLAY, (0, self.sent_parts))

    # --- deadlines

    def next_at(self, now: float) -> float:
        """When more may be sent if no report arrives before."""
        if self.edge >= self._log.end:
            return NEVER
        if self._awaits_group(now):
            return self._group_by
        if not self._blocked() or not self._peers.live:
            return self._bucket.ready_at(now)
        # Only a report allows more, or a look that sends a slow receiver away (`next_look`).
        return NEVER

    def next_question(self, hosts: frozenset[int]) -> float:
        """When `to_ask` finds somebody."""
        return min([self._ask_at(peer) for peer in self._peers if peer.host in hosts], default=NEVER)

    def next_look(self) -> float:
        """When the next check for slow receivers is due."""
        at = self._looked + _LOOK if self.held_up else NEVER
        if len(self._peers) > 1:
            quiet = [self._quiet_at(peer) for peer in self._peers if peer.live]
            at = min(at, max(min(quiet, default=NEVER), self._looked + _LOOK))
        return at
