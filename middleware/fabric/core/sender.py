"""The origin's end of one stream in one epoch.

Numbers messages, announces its position in heartbeats, and keeps the accounting. The receivers pace live data
(`live`); lost data is repaired, and receivers that are behind are replayed to (`resending`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import (
    After,
    Kind,
    Message,
    Segment,
    SegmentError,
    part_size,
    parts_of,
)
from treecast.middleware.wire.segment_bodies import (
    Close,
    Heartbeat,
    Mode,
    Nak,
    Report,
)

from .accounting import Ledger, Row, Verdict
from .asking import Nearest
from .counters import Refused, StreamCounters
from .evidence import Sightings
from .live import Live
from .log import Log, StreamLog
from .outgoing import Outgoing
from .outlet import Outlet
from .pairs import Pair
from .peers import Peer, Peers
from .resending import Resending
from .rest import Rest
from .settings import StreamSettings
from .states import PeerState
from .timing import Weight
from .turn import Turn

_DATA: Final = Kind.DATA.name
_REPORT_LEAST: Final = 16 * 1024  # bytes: receivers are not asked to report more often
_REPORT_MOST: Final = 1 << 20
_HELD_UP: Final = 0.1  # maximum seconds between heartbeats while live data waits for receivers
# In Python 3.11, enum member access goes through EnumType.__getattr__; bind the members once for the hot
# paths.
_SILENT: Final = PeerState.SILENT
_CATCHING_UP: Final = PeerState.CATCHING_UP
_LIVE: Final = PeerState.LIVE


class Sender:
    """The sending end of a stream: `receive`, `to_send`, `next_deadline`; `publish` and `close` for the layer
    above.

    `log` holds the messages. By default it is the sender's own log in memory, to which `publish` appends. It
    may also be a log that grows by itself, whose growth the sender notices in `to_send`. Data before
    `live_from` (default: the log's end) is not sent live, but replayed to receivers that begin there. An
    origin thus restarts with data that an earlier process sent in the same epoch. `turn`: the budget of one
    turn, shared with other streams; default: its own, which restarts in each `to_send`. `nearest` knows which
    receivers are near to each other.
    """

    def __init__(
        self,
        origin: int,
        stream: int,
        epoch: int,
        settings: StreamSettings,
        now: float,
        *,
        name: str = "",
        log: StreamLog | None = None,
        live_from: int | None = None,
        turn: Turn | None = None,
        nearest: Nearest | None = None,
    ) -> None:
        self.key = (origin, stream, epoch)
        self.counters = StreamCounters()
        self.ledger = Ledger()
        own = Log(0, settings.log_bytes, settings.log_age) if log is None else log
        self.log: StreamLog = own
        self._own: Log | None = own if isinstance(own, Log) else None
        self.closed = False
        self._settings = settings
        self.mtu = settings.mtu  # the segment size that its messages are cut to
        self._part_size = part_size(settings.mtu)  # of a message without an `after` list
        self.name = name
        self._weight = Weight(settings)
        self._outlet = Outlet(self.key, own, settings.mtu)
        shared = turn or Turn(settings.replay_at_once, settings.send_at_once)
        self.peers = Peers(settings, shared.paths, shared.pairs)
        self.rest = Rest(stream, epoch, name, self.peers, shared.pairs, settings)
        self._turn = shared
        self._own_turn = shared if turn is None else None
        edge = self.log.end if live_from is None else live_from
        self.live = Live(self.log, self._outlet, self.peers, settings, self._weight, shared, now, edge)
        self._resending = Resending(
            self._outlet, self.peers, settings, self._weight, self.live, self.counters, shared, now
        )
        self._resending.nearest = nearest
        self.wanting = False  # `publish` has refused a message
        self.sightings: Sightings | None = None  # while a carrier sends the stream
        self._published = 0  # value of `live.bytes` once everything published is sent
        self._heartbeat_at = NEVER
        self._heartbeat_interval = settings.heartbeat_first
        self._quiet_until = -NEVER  # before it, if nothing was heard, only live data may have to be sent

    # --- calls from the layer above

    @property
    def end(self) -> int:
        """The next record's sequence."""
        return self.log.end

    @property
    def live_bytes(self) -> int:
        """Payload bytes of all messages sent to all, each counted once."""
        return self.live.bytes

    @property
    def sent_to_all(self) -> int:
        """The number of messages sent to all."""
        return self.live.messages

    @property
    def has_room(self) -> bool:
        """Whether `publish` accepts a message."""
        return self._published - self.live.bytes < self._settings.unsent_bytes or not self.live.waits()

    @property
    def finished(self) -> bool:
        """Whether it is closed, and every receiver has settled everything or was given up by the log's
        bounds."""
        return self.closed and all(self.row(peer.host).closed for peer in self.peers)

    def publish(
        self,
        payload: bytes,
        records: int,
        now: float,
        *,
        after: tuple[After, ...] = (),
        expires: float = NEVER,
        content: bytes = b"",
        hosts: frozenset[int] | None = None,
    ) -> int | None:
        """Returns the sequence of the message, or None if too much waits to be sent.

        `content`: its content header. `hosts`: the receivers that it is for; None: all.
        Raises ValueError if it is too large to be cut, the stream is closed, or its log grows by itself.
        """
        if self._own is None:
            raise ValueError("messages of this stream come from its log")
        if self.closed or records <= 0:
            raise ValueError("the stream is closed" if self.closed else "a message holds at least one record")
        unsent = self._published - self.live.bytes
        if unsent >= self._settings.unsent_bytes and not self.has_room:
            self.wanting = True
            return None
        message = Message(self.log.end, records, payload, after, content, hosts)
        if after or content or len(payload) > self._part_size:
            parts_of(message, self.mtu)  # raises
        if hosts is not None:
            self._outlet.partial = True
        self._own.append(message, now, expires)
        # Its time to live may end before anything else is due.
        self._quiet_until = min(self._quiet_until, self._own.next_deadline())
        if self.live.edge >= message.sequence:
            self._published = self.live.bytes  # everything before it was sent, or will not be
        self._published += len(payload)
        return message.sequence

    def cut_to(self, mtu: int, now: float) -> bool:
        """Cuts messages to segments of `mtu` bytes from now on, whether they are new or sent again, but not
        longer than the settings say. Returns whether that is another size than before.

        A message that cannot be cut so small expires as UNSENDABLE.
        """
        mtu = min(mtu, self._settings.mtu)
        if mtu == self.mtu:
            return False
        self.mtu = self._outlet.mtu = mtu
        self._part_size = part_size(mtu)
        self.live.recut(mtu, now)
        self._resending.recut(now)
        self._quiet_until = -NEVER
        return True

    @property
    def in_vain(self) -> list[int]:
        """The hosts at which nothing resent seems to arrive; the caller removes them."""
        return self._resending.in_vain

    def close(self, now: float) -> None:
        """Ends the stream: no message follows. Receivers are told until they have settled everything."""
        self.closed = True
        self._quiet_until = -NEVER
        self.rest.wake(now, call=False)
        # CLOSE takes the place of heartbeats, and may be lost: it is sent now and soon again.
        self._heartbeat_at = now
        self._heartbeat_interval = self._settings.heartbeat_first

    @property
    def _end_is_told(self) -> bool:
        """Whether receivers are told where the stream ends: not while live data waits for them, as they would
        take the end for something they have missed."""
        return self.closed and not self.live.waits()

    def takes_filtered(self, host: int, *, takes: bool) -> None:
        """See `Origin.takes_filtered`."""
        if takes:
            self._outlet.unaware.discard(host)
        else:
            self._outlet.unaware.add(host)

    def add_receiver(self, host: int, now: float, first: int | None = None) -> None:
        """Adds a receiver that gets everything from `first` on (default: from now on)."""
        first = self.log.end if first is None else first
        self._quiet_until = -NEVER
        self.ledger.begin(host, first)
        peer = self.peers.add(host, first, self.live.joins_before, now)
        if peer.live:
            self.live.begins(peer)
        self.rest.changed()
        self._begin_beats(now)

    def remove_receiver(self, host: int) -> None:
        """Removes a receiver; what `host` has not settled expires for it."""
        self._quiet_until = -NEVER
        self._resending.drop(host)
        peer = self.peers.get(host)
        if peer is not None:
            self.rest.forget(peer)
            self.peers.remove(host)
            self.rest.changed()
            self.ledger.leave(host, self.log.end)
            # It may have been the one that the log was kept for.
            self._trim()

    def row(self, host: int) -> Row:
        """The host's accounting."""
        peer = self.peers.get(host)
        return self.ledger.row(host, self.log, silent=peer is None or peer.state is _SILENT)

    # --- rest

    @property
    def mark(self) -> int:
        """See `pairs.mark`."""
        return self.rest.mark

    def counted(self) -> Iterable[Pair]:
        """The pairs with its receivers that are there."""
        return [peer.pair for peer in self.peers if peer.pair is not None and peer.state is not _SILENT]

    def stir(self, host: int | None, now: float) -> None:
        """Ends the rest of a receiver that may be gone; None: of all, as the way of data changes."""
        if not self.rest.some:
            return
        self._quiet_until = -NEVER
        if host is None:
            self.rest.wake(now, call=True)
        else:
            self.rest.stir(host, now)
        self._heartbeat_at = min(self._heartbeat_at, now)

    def _begin_beats(self, now: float) -> None:
        """Resumes heartbeats, if somebody is to be told something again."""
        if self._heartbeat_at == NEVER and not self._idle():
            self._heartbeat_at = now + self._heartbeat_interval

    # --- from receivers

    def receive(self, segment: Segment, now: float) -> None:
        """Takes a nak or a report."""
        self.counters.received += 1
        self._quiet_until = -NEVER
        if (segment.origin, segment.stream, segment.epoch) != self.key:
            self.counters.refuse(Refused.OTHER_STREAM)
            return
        try:
            if segment.kind is Kind.NAK:
                self._resending.asked(segment.sender, Nak.decode(segment.payload), now)
            elif segment.kind is Kind.REPORT:
                self._report(segment.sender, Report.decode(segment.payload), now)
            else:
                self.counters.refuse(Refused.UNEXPECTED)
        except SegmentError:
            self.counters.refuse(Refused.BODY)

    def _report(self, host: int, report: Report, now: float) -> None:
        peer = self.peers.get(host)
        if peer is None:
            self.counters.refuse(Refused.UNKNOWN_HOST)
            return
        # Judged first: numbers that contradict earlier ones must not set the pace either.
        verdict = self.ledger.report(host, report, self.log.end)
        if verdict is not Verdict.TAKEN:
            self.counters.refuse(Refused[verdict.name])
            return
        self._take_report(peer, report, now)

    def _take_report(self, peer: Peer, report: Report, now: float) -> None:
        if not peer.reported:
            peer.reported = True
            peer.announce_at = now  # it has not heard what was sent before it listened
        # Late: a later report has overtaken it. A silent receiver's clock may have restarted.
        late = report.stamp < peer.stamp and peer.state is not _SILENT
        peer.stamp = max(peer.stamp, report.stamp) if peer.state is not _SILENT else report.stamp
        peer.done = report.mode is Mode.DONE
        peer.settle(report.next, now)
        peer.heard = now
        if not late:
            self._witness(peer, report, now)
            peer.room = report.room
            peer.held = report.held
            peer.lost_near(report.near, report.near_bytes)
            if peer.live:
                self.live.heard(peer, report, now)
            elif peer.holder:
                peer.brought((report.newest, report.parts), now)
            else:
                size = report.parts * self._outlet.part_bytes(report.newest)
                peer.arrives(report.newest, size, report.age / 1e6, self._turn.stood, now)
            behind = report.mode is Mode.CATCHING_UP
            self.peers.heard(peer, behind, self.live.edge, now, self._weight.most_behind)
        self._trim()
        end = self.log.end
        # Heartbeats and reports are evidence on a carrier: nothing rests while one sends the stream.
        idle = self._settings.rests and not self.closed and self.live.edge == end
        may_rest = idle and self.sightings is None
        offer = 0 if late else self.rest.offer(peer, report, end, may_rest, now)
        self._begin_beats(now)
        if report.echo and not self._turn.stood_lately(now):  # else the round trip would include that time
            body = self._heartbeat(report.stamp, self._every(peer), offer)
            self._outlet.queue(Kind.HEARTBEAT, body, peer.host)
        if self._end_is_told and not peer.done:
            self._outlet.queue(Kind.CLOSE, Close(self.log.end).encode(), peer.host)

    def _witness(self, peer: Peer, report: Report, now: float) -> None:
        """Takes what a report says about the carrier. A receiver that catches up discards what it is sent."""
        peer.doubted = False
        if self.sightings is not None and report.mode is Mode.LIVE:
            peer.doubted = self.sightings.report(
                peer.host, report.shared, peer.way, now, live=peer.state is _LIVE
            )

    def _every(self, peer: Peer) -> int:
        """The number of arrived bytes after which it reports: several reports per window."""
        window = peer.pace.size if peer.live else peer.window.size
        return min(
            _REPORT_MOST, max(_REPORT_LEAST, int(min(window, peer.room)) // self._settings.live_reports)
        )

    def _trim(self) -> None:
        # Not beyond the edge, even if nobody lacks what follows: the cursor would take it for expired, and
        # skip it.
        lowest = min(self.peers.lowest(self.log.end), self.live.edge)
        self.log.trim(lowest, self._settings.retain_bytes)
        self.live.forget()

    # --- to receivers

    def to_send(self, now: float) -> list[Outgoing]:
        """Returns everything to be sent now."""
        out: list[Outgoing] = []
        if self._own_turn is not None:
            self._own_turn.begin(now)
        if now < self._quiet_until:
            self._live(out, now)
            self._quiet_until = min(self._quiet_until, self._heartbeat_at)
        else:
            self._all(out, now)
        self._outlet.give(out)
        for one in out:
            self.counters.send(one)
        return out

    def take_alone(self, now: float) -> Message | None:
        """Fast path of `to_send`: returns the one message for all live receivers, if nothing else is to be
        sent.

        The message counts as sent. Returns None and changes nothing if `to_send` has to be called.
        """
        return None if now >= self._quiet_until or self._outlet.control else self._take_newest(now)

    def take_ahead(self, now: float) -> Message | None:
        """As `take_alone`, whatever else is to be sent; `to_send` is to be called for the rest.

        Also returns None if a receiver must first be told where it begins, or becomes live now.
        """
        for peer in self.peers:
            if peer.announce_at <= now and peer.state is not _SILENT:
                return None
        return None if self._resending.somebody_is_there() else self._take_newest(now)

    def _take_newest(self, now: float) -> Message | None:
        message = self.live.take_newest(now)
        if message is not None:
            parts, size = 1, len(message.payload)
            if size > self._part_size or message.after or message.content:
                parts = parts_of(message, self.mtu)
            counters = self.counters
            counters.sent[_DATA] = counters.sent.get(_DATA, 0) + parts
            counters.sent_bytes += size
            self._beats_from(now)
            self._quiet_until = min(self._quiet_until, self._heartbeat_at)
        return message

    def _all(self, out: list[Outgoing], now: float) -> None:
        if self.rest.stale:
            self.rest.renew(now)
            self._begin_beats(now)
        # First, so that nothing below sends what has just expired.
        self.log.expire(now)
        self.peers.silence(now)
        # Before live data: the slow leave, and what follows no longer waits for them.
        for peer in self.live.look(now):
            self.peers.leaves(peer, self.live.edge, now)
        self._announce(now)
        self._question(now)
        self._outlet.give(out)  # before a replay: a host that is told the end knows that it is behind
        self._resending.repair(out, now)
        self._resending.meet(out)
        self._live(out, now)
        self._resending.replays(out, now)
        # Last: a heartbeat tells how far this turn has sent.
        self._beat(now)

    def _announce(self, now: float) -> None:
        for peer in self.peers:
            if peer.announce_at <= now and peer.state is not _SILENT and not peer.rests:
                announce = self.rest.announcement(peer.first, max(self.live.edge, peer.first))
                self._outlet.queue(Kind.ANNOUNCE, announce.encode(), peer.host)
                peer.announce_at = now + self._settings.announce_every
                peer.announced = True

    def _question(self, now: float) -> None:
        """Asks receivers of a carrier, by unicast, that say nothing about data in flight to them."""
        if self.sightings is None:
            return
        for peer in self.live.to_ask(self.sightings.hosts, now):
            peer.questioned = now
            self._ask(peer)

    def _ask(self, peer: Peer) -> None:
        self._outlet.queue(Kind.HEARTBEAT, self._heartbeat(every=self._every(peer)), peer.host)

    def _live(self, out: list[Outgoing], now: float) -> None:
        if self.live.give(out, now):
            self._beats_from(now)
        if self.live.held_up:
            self._quiet_until = min(self._quiet_until, self.live.next_look())

    def _beats_from(self, now: float) -> None:
        if self.rest.some:
            self.rest.wake(now, call=False)
        self._heartbeat_interval = self._settings.heartbeat_first
        self._heartbeat_at = now + self._heartbeat_interval

    def _heartbeat(self, echo: int = 0, every: int = 0, offer: int = 0) -> bytes:
        known = self.live.known
        # A log may have dropped what was never sent. A body whose oldest lies beyond its end is refused.
        return Heartbeat(known, min(self.log.oldest, known), echo, every, holder=offer).encode()

    def _beat(self, now: float) -> None:
        if now < self._heartbeat_at:
            return
        if self._end_is_told:
            self._outlet.queue(Kind.CLOSE, Close(self.log.end).encode(), None)
        else:
            self._outlet.queue(Kind.HEARTBEAT, self._heartbeat(), None)
            self.rest.call(self._ask)
        self._heartbeat_interval = min(2 * self._heartbeat_interval, self._longest())
        # With nobody who lacks anything, beats would cost each idle stream a timer; `add_receiver` starts
        # them.
        self._heartbeat_at = NEVER if self._idle() else now + self._heartbeat_interval

    def _longest(self) -> float:
        """The maximum time between heartbeats. It is shorter while receivers hold data up, because their
        reports may have been lost."""
        longest = self._settings.heartbeat_longest
        return min(longest, _HELD_UP) if self.live.held_up else longest

    def _idle(self) -> bool:
        if not len(self.peers):
            return True
        return all(peer.done for peer in self.peers) if self.closed else self.rest.all_rest()

    def next_deadline(self, now: float) -> float:
        """When `to_send` next has something if nothing arrives before. Never too late, possibly early."""
        if self._outlet.control:
            return now
        if now >= self._quiet_until:
            self._quiet_until = self._earliest(now)
        return min(self._quiet_until, self.live.next_at(now))

    def _earliest(self, now: float) -> float:
        """When something other than live data is to be sent."""
        if self.rest.stale:
            return -NEVER
        times = [self._heartbeat_at, self.log.next_deadline(), self.peers.next_silence()]
        times += [peer.announce_at for peer in self.peers if peer.state is not _SILENT and not peer.rests]
        times += [self._resending.repairs_at(now), self.live.next_look()]
        if self.sightings is not None:
            times.append(self.live.next_question(self.sightings.hosts))
        for peer in self.peers.in_state(_CATCHING_UP):
            times.append(self._resending.replay_at(peer, now))
        return min(times)
