"""The origin's end of one stream in one epoch.

Numbers messages, cuts them into segments, says by heartbeats how far it has come, repairs what is asked
for, replays to who is too far behind, and keeps the accounting. Nothing here waits for any receiver.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.wire.segment import After, Kind, Segment, SegmentError
from treecast.middleware.wire.segment_assembly import Message, can_be_cut, parts_of
from treecast.middleware.wire.segment_bodies import (
    MAX_MEMBERS,
    Announce,
    Close,
    Heartbeat,
    Mode,
    Nak,
    Report,
    Skipped,
)

from .accounting import Ledger, Row, Verdict
from .counters import Refused, StreamCounters
from .log import Log, StreamLog
from .outbox import Outbox
from .outgoing import Outgoing
from .pacing import LiveRate
from .peers import Peer, Peers
from .resending import Resending
from .settings import NEVER, StreamSettings
from .states import PeerState
from .timing import TokenBucket, Weight
from .turn import Turn

_DATA: Final = Kind.DATA.name
# Python 3.11 looks a member up in its enum by way of EnumType.__getattr__; the hot paths name them once.
_SILENT: Final = PeerState.SILENT
_CATCHING_UP: Final = PeerState.CATCHING_UP


class Sender:
    """`receive`, `to_send`, `next_deadline`; `publish` and `close` for what is above.

    `log` is where messages are: one of its own in memory, to which `publish` appends; or another's that
    grows by itself, of which the sender learns in `to_send`. What is in it before `live_from` (default: its
    end) is not sent live, but replayed to who begins there: so an origin restarts with what an earlier
    process of it sent in this epoch. With `open_to_all`, a host that reports without having been added is
    added. `turn`: what it may send again, shared with other streams; default: one of its own each time.
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
        open_to_all: bool = True,
        turn: Turn | None = None,
    ) -> None:
        self.key = (origin, stream, epoch)
        self.counters = StreamCounters()
        self.ledger = Ledger()
        own = Log(0, settings.log_bytes, settings.log_age) if log is None else log
        self.log: StreamLog = own
        self._own: Log | None = own if isinstance(own, Log) else None
        self.peers = Peers(settings)
        self.closed = False
        self.sent_to_all = 0  # messages
        self.live_bytes = 0  # of these, each once
        self._settings = settings
        self.name = name
        self._open_to_all = open_to_all
        self._unsent = self.log.end if live_from is None else live_from  # first that was not sent live
        self._unsent_bytes = 0
        self._weight = Weight(settings)
        self._live_rate = LiveRate(settings.rate_lowest, settings.rate, now)
        self._data_bucket = TokenBucket(settings.rate, settings.burst, now)
        self._outbox = Outbox(self.key, own, settings.mtu)
        shared = turn or Turn(settings.replay_at_once)
        self._own_turn = shared if turn is None else None
        self._resending = Resending(
            self._outbox, self.peers, settings, self._weight, self._live_rate, self.counters, shared, now
        )
        self._heartbeat_at = NEVER
        self._heartbeat_interval = settings.heartbeat_first
        self._quiet_until = -NEVER  # before it, and as nothing was heard, there is at most live data to send

    # --- from above

    @property
    def end(self) -> int:
        """The next record's sequence."""
        return self.log.end

    @property
    def live_rate(self) -> float:
        """Bytes per second that what goes to all may take now."""
        return self._live_rate.rate

    @property
    def finished(self) -> bool:
        """Closed, and every receiver has settled all of it or was given up by the log's bounds."""
        return self.closed and all(self.row(peer.host).closed for peer in self.peers)

    def publish(
        self,
        payload: bytes,
        records: int,
        now: float,
        *,
        after: tuple[After, ...] = (),
        content: bytes = b"",
        expires: float = NEVER,
    ) -> int | None:
        """The sequence of the message, or None while too much waits to be sent.

        ValueError where it is too large to be cut, the stream is closed, or its log grows by itself.
        """
        if self._own is None:
            raise ValueError("messages of this stream come from its log")
        if self.closed or records <= 0:
            raise ValueError("the stream is closed" if self.closed else "a message holds at least one record")
        if self._unsent_bytes >= self._settings.unsent_bytes:
            return None
        message = Message(self.log.end, records, payload, after, content)
        parts_of(message, self._settings.mtu)
        self._own.append(message, now, expires)
        self._quiet_until = min(self._quiet_until, self._own.next_deadline())
        self._unsent_bytes += len(payload)
        return message.sequence

    def close(self, now: float) -> None:
        """No message follows. Receivers are told until they have settled all of it."""
        self.closed = True
        self._quiet_until = -NEVER
        self._heartbeat_at = now
        self._heartbeat_interval = self._settings.heartbeat_first

    def add_receiver(self, host: int, now: float, first: int | None = None) -> None:
        """`host` gets all from `first` on (default: all from now on)."""
        first = self.log.end if first is None else first
        self._quiet_until = -NEVER
        self.ledger.begin(host, first)
        self.peers.add(host, first, self._unsent, now)
        if self._heartbeat_at == NEVER:
            self._heartbeat_at = now + self._heartbeat_interval

    def remove_receiver(self, host: int) -> None:
        """What `host` has not settled expires for it."""
        self._quiet_until = -NEVER
        self._resending.drop(host)
        if self.peers.remove(host):
            self.ledger.leave(host, self.log.end)
            self._trim()

    def row(self, host: int) -> Row:
        """The host's accounting."""
        peer = self.peers.get(host)
        return self.ledger.row(host, self.log, silent=peer is None or peer.state is _SILENT)

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
                self._resending.asked(segment.sender, Nak.decode(segment.payload), self._unsent, now)
            elif segment.kind is Kind.REPORT:
                self._report(segment.sender, Report.decode(segment.payload), now)
            else:
                self.counters.refuse(Refused.UNEXPECTED)
        except SegmentError:
            self.counters.refuse(Refused.BODY)

    def _report(self, host: int, report: Report, now: float) -> None:
        peer = self.peers.get(host)
        if report.mode is Mode.JOINING:
            self._join(host, peer, report, now)
            return
        if peer is None and self._open_to_all and report.first <= self.log.end:
            self.add_receiver(host, now, report.first)
            peer = self.peers.get(host)
        if peer is None:
            self.counters.refuse(Refused.UNKNOWN_HOST)
            return
        verdict = self.ledger.report(host, report, self.log.end)
        if verdict is not Verdict.TAKEN:
            self.counters.refuse(Refused[verdict.name])
            return
        self._take_report(peer, report, now)

    def _take_report(self, peer: Peer, report: Report, now: float) -> None:
        if not peer.reported:
            peer.reported = True
            peer.announce_at = now  # what was sent before it listened, it has not heard
        peer.stamp = max(peer.stamp, report.stamp)
        peer.room = report.room
        peer.done = report.mode is Mode.DONE
        peer.settle(report.next, now)
        self.peers.heard(peer, report.mode is Mode.CATCHING_UP, self._unsent, now, self._weight.most_behind)
        self._trim()
        if report.stamp:
            self._outbox.queue(Kind.HEARTBEAT, self._heartbeat(report.stamp), peer.host)
        if self.closed and not peer.done:
            self._outbox.queue(Kind.CLOSE, Close(self.log.end).encode(), peer.host)

    def _join(self, host: int, peer: Peer | None, report: Report, now: float) -> None:
        """A host asks where to begin: anew, once more, or with a question that came late."""
        if peer is None and not self._open_to_all:
            self.counters.refuse(Refused.UNKNOWN_HOST)
            return
        if peer is not None and peer.reported:
            if report.stamp <= peer.stamp and peer.state is not _SILENT:
                self.counters.refuse(Refused.STALE)
                return
            peer = None
        if peer is None:
            self.add_receiver(host, now)
        else:
            peer.heard = now
            peer.announce_at = now

    def _trim(self) -> None:
        lowest = min(self.peers.lowest(self.log.end), self._unsent)
        self.log.trim(lowest, self._settings.retain_bytes)

    # --- to receivers

    def to_send(self, now: float) -> list[Outgoing]:
        """All that is to be sent now."""
        out: list[Outgoing] = []
        if self._own_turn is not None:
            self._own_turn.begin()
        if now < self._quiet_until:
            self._live(out, now)
            self._quiet_until = min(self._quiet_until, self._heartbeat_at)
        else:
            self._all(out, now)
        self._outbox.give(out)
        for one in out:
            self.counters.send(one)
        return out

    def take_alone(self, now: float) -> Message | None:
        """The short way of `to_send`: the one message for all that are live, if that is all there is to send.

        It counts as sent; None, and nothing has changed, where `to_send` is to be asked.
        """
        return None if now >= self._quiet_until or not self._outbox.empty else self._take_newest(now)

    def take_ahead(self, now: float) -> Message | None:
        """As `take_alone`, whatever else there is to send: `to_send` is to be asked for that.

        None also where a receiver is to be told first where it begins.
        """
        for peer in self.peers:
            if peer.announce_at <= now and peer.state is not _SILENT:
                return None
        return self._take_newest(now)

    def _take_newest(self, now: float) -> Message | None:
        if not self._data_bucket.ready(now):
            return None
        message = self.log.newest(self._unsent)
        if message is None or not can_be_cut(message, self._settings.mtu) or not self.peers.any_live():
            return None
        size = len(message.payload)
        self._unsent, self._unsent_bytes = message.end, 0
        self.sent_to_all += 1
        self.live_bytes += size
        self._data_bucket.spend(size or 1)
        self._live_rate.sent(size)
        self._weight.add(message.records, size)
        self.counters.send_some(_DATA, parts_of(message, self._settings.mtu), size)
        self._heartbeat_interval = self._settings.heartbeat_first
        self._heartbeat_at = now + self._heartbeat_interval
        self._quiet_until = min(self._quiet_until, self._heartbeat_at)
        return message

    @property
    def mtu(self) -> int:
        """What its messages are cut by."""
        return self._settings.mtu

    def _all(self, out: list[Outgoing], now: float) -> None:
        self.log.expire(now)
        self.peers.silence(now)
        self._announce(now)
        self._outbox.give(out)  # before a replay: who is told the end knows that it is behind
        self._resending.repair(out, now)
        self._live(out, now)
        self._resending.replays(self._unsent, out, now)
        self._beat(now)

    def _announce(self, now: float) -> None:
        members = tuple(peer.host for peer in self.peers)[:MAX_MEMBERS]
        for peer in self.peers:
            if peer.announce_at <= now and peer.state is not _SILENT:
                announce = Announce(peer.first, max(self._unsent, peer.first), members, self.name)
                self._outbox.queue(Kind.ANNOUNCE, announce.encode(), peer.host)
                peer.announce_at = now + self._settings.announce_every

    def _live(self, out: list[Outgoing], now: float) -> None:
        """What has not been sent to all yet, as far as the rate and one turn allow."""
        end = self.log.end
        if self._live_rate.look(self.peers.live(), self._unsent < end, now):
            self._set_rate(self._live_rate.rate, now)
        if self._unsent >= end or not self._data_bucket.ready(now):
            return
        if self.peers.any_live():
            self._send_live(out, end, now)
        else:
            self._unsent = end  # whoever needs it begins there, or is replayed to
        self._heartbeat_interval = self._settings.heartbeat_first
        self._heartbeat_at = now + self._heartbeat_interval
        if self._unsent >= end:
            self._unsent_bytes = 0  # what expired unsent is not counted one by one

    def _set_rate(self, rate: float, now: float) -> None:
        """Repairs go the same way, to each host by itself: they are slowed down with what they repair."""
        self._data_bucket.set_rate(rate, now)
        self._resending.slow(rate, now)

    def _send_live(self, out: list[Outgoing], end: int, now: float) -> None:
        left = self._settings.send_at_once
        for found in self._outbox.entries(self._unsent, end):
            if left <= 0 or not self._data_bucket.ready(now):
                return
            self._unsent = found.end
            if isinstance(found, Skipped):
                self._outbox.skip([found], None)
                continue
            one = self._outbox.message(found, None, Kind.DATA)
            size = one.size or 1
            out.append(one)
            self.sent_to_all += 1
            self.live_bytes += size
            self._unsent_bytes = max(0, self._unsent_bytes - len(found.payload))
            self._data_bucket.spend(size)
            self._live_rate.sent(size)
            self._weight.add(found.records, size)
            left -= size
        self._unsent = max(self._unsent, end)

    def _heartbeat(self, echo: int = 0) -> bytes:
        return Heartbeat(self._unsent, min(self.log.oldest, self._unsent), echo).encode()

    def _beat(self, now: float) -> None:
        if now < self._heartbeat_at:
            return
        if self.closed and self._unsent == self.log.end:
            self._outbox.queue(Kind.CLOSE, Close(self.log.end).encode(), None)
        else:
            self._outbox.queue(Kind.HEARTBEAT, self._heartbeat(), None)
        self._heartbeat_interval = min(2 * self._heartbeat_interval, self._settings.heartbeat_longest)
        self._heartbeat_at = NEVER if self._idle() else now + self._heartbeat_interval

    def _idle(self) -> bool:
        return not len(self.peers) or (self.closed and all(peer.done for peer in self.peers))

    def next_deadline(self, now: float) -> float:
        """When `to_send` has something again, if nothing arrives before; not after, maybe earlier."""
        if not self._outbox.empty:
            return now
        if now >= self._quiet_until:
            self._quiet_until = self._earliest(now)
        if self._unsent < self.log.end:
            return min(self._quiet_until, self._data_bucket.ready_at(now))
        return self._quiet_until

    def _earliest(self, now: float) -> float:
        """When there is something to send that is no live data."""
        times = [self._heartbeat_at, self.log.next_deadline(), self.peers.next_silence()]
        times += [peer.announce_at for peer in self.peers if peer.state is not _SILENT]
        times.append(self._resending.repairs_at(now))
        for peer in self.peers.in_state(_CATCHING_UP):
            times.append(self._resending.replay_at(peer, now))
        return min(times)
