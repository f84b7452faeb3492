"""Retransmission by an origin: requested repairs, and replays to receivers that are too far behind.

Each sends a limited amount per turn, so that live data does not wait for them, however large a message is.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import MAX_SEGMENTS, Kind, Message, size_for
from treecast.middleware.wire.segment_bodies import Expiry, Heartbeat, Nak, Skipped

from .asking import Nearest
from .counters import Refused, StreamCounters
from .live import Live
from .outgoing import Outgoing, OutgoingMessage, Slices
from .outlet import Outlet
from .peers import Peer, Peers
from .repairs import Parts, Repairs, Request, in_order
from .settings import StreamSettings
from .states import PeerState
from .timing import TokenBucket, Weight
from .turn import Turn
from .vain import PARTS

_TRIES: Final = 2  # holders that deliver nothing
# A nak is one small segment, and its gaps may be of any length: this bounds what one can cost.
_REPAIRS_PER_NAK: Final = 256  # messages
# Messages that are not for a host are only looked at; so many in one answer, or one turn of a replay.
_MOST_LOOKS: Final = 4096
_OF_LOG: Final = 1 / 4  # for a bounded log: share that a receiver out of the group may lack

# In Python 3.11, enum member access goes through EnumType.__getattr__; bind the members once for the hot
# paths.
_LIVE: Final = PeerState.LIVE
_CATCHING_UP: Final = PeerState.CATCHING_UP
_FILTERED: Final = Expiry.FILTERED


class Resending:
    """Repairs and replays of one stream, built by `outlet` and limited by a token bucket."""

    __slots__ = (
        "_answers",
        "_bucket",
        "_counters",
        "_first",
        "_live",
        "_outlet",
        "_peers",
        "_repairs",
        "_settings",
        "_turn",
        "_weight",
        "in_vain",
        "nearest",
    )

    def __init__(
        self,
        outlet: Outlet,
        peers: Peers,
        settings: StreamSettings,
        weight: Weight,
        live: Live,
        counters: StreamCounters,
        turn: Turn,
        now: float,
    ) -> None:
        self._outlet = outlet
        self._peers = peers
        self._settings = settings
        self._weight = weight
        self._live = live
        self._counters = counters
        self._turn = turn
        self._bucket = TokenBucket(settings.repair_rate, settings.repair_burst, now)
        self._repairs = Repairs(settings.aggregation)
        self._answers = Slices()
        self.nearest: Nearest | None = None
        self.in_vain: list[int] = []  # hosts at which nothing resent seems to arrive; the caller removes them
        self._first = 0  # index of the receiver that comes first in the next turn

    def drop(self, host: int) -> None:
        """Drops what is waiting for `host` alone, because it is no longer a receiver."""
        self._answers.drop(host)

    def recut(self, now: float) -> None:
        """Cuts what is sent from now on to the outlet's new size: what waits is asked for again, and replays
        begin again at what is settled."""
        self._repairs = Repairs(self._settings.aggregation)
        self._answers.clear()
        for peer in self._peers:
            peer.vain.over()
            if peer.state is _CATCHING_UP and not peer.held_off:
                peer.rewind(now, peer.next)

    # --- what is sent again in vain

    def _tried(self, peer: Peer, sequence: int, part: int, now: float) -> None:
        """Notes that the receiver's first missing message is sent again (see `Vain.tried`)."""
        hopeless = peer.vain.hopeless
        if peer.vain.tried(sequence, part, now) and peer.host not in self.in_vain:
            self.in_vain.append(peer.host)
        if peer.vain.hopeless and not hopeless and peer.state is _CATCHING_UP:
            peer.rewind(now, peer.next)

    def _try_one(self, peer: Peer, out: list[Outgoing], now: float) -> None:
        """Sends the first missing parts again to a receiver at which nothing else arrives."""
        if not peer.vain.may_try(now):
            return
        part = peer.vain.part
        for found in self._outlet.entries(peer.next, peer.next + 1, peer.host):
            self._tried(peer, peer.next, -1, now)
            if isinstance(found, Message):
                out.append(self._outlet.message(found, peer.host, Kind.REPLAY, (part, part + PARTS)))
            else:
                self._outlet.skip([found], peer.host)

    # --- repairs

    def asked(self, host: int, nak: Nak, now: float) -> None:
        """Takes a nak."""
        peer = self._peers.get(host)
        if peer is None:
            self._counters.refuse(Refused.UNKNOWN_HOST)
            return
        if not peer.vain.may_try(now):
            self._counters.refuse(Refused.IN_VAIN)
            return
        alone = peer.state is _CATCHING_UP or len(self._peers) < self._settings.multicast_at
        if peer.state is _CATCHING_UP and peer.again.size > peer.window.size:
            self._counters.refuse(Refused.TOO_MANY)  # it will ask again for what it still lacks by then
            return
        if self._answer_gaps(peer, nak, alone, now):
            first = [gap.part for gap in nak.gaps if gap.first <= peer.next < gap.end]
            self._tried(peer, peer.next, min(first, default=0), now)

    def _answer_gaps(self, peer: Peer, nak: Nak, alone: bool, now: float) -> bool:
        """Takes the requests of a nak that may be answered now. Returns whether the receiver's first
        missing message is among them."""
        left = _REPAIRS_PER_NAK
        looks = _MOST_LOOKS
        skipped: list[Skipped] = []
        first = False
        round_trip = nak.round_trip / 1e6
        if peer.state is _LIVE and not peer.may_ask(round_trip, now):
            self._counters.refuse(Refused.TOO_MANY)  # more repairs would fill the queue that loses them
            return False
        edge = peer.sent if peer.state is _CATCHING_UP else self._live.known
        for gap in nak.gaps:
            asked = (gap.part, gap.part + gap.parts) if gap.parts else None
            for found in self._outlet.entries(gap.first, min(gap.end, edge), peer.host):
                if looks > 0 and isinstance(found, Skipped) and found.reason is _FILTERED:
                    looks -= 1
                    skipped.append(found)
                    continue
                if left <= 0 or (peer.state is _LIVE and not peer.may_ask(round_trip, now)):
                    self._counters.refuse(Refused.TOO_MANY)
                    break
                left -= 1
                if isinstance(found, Skipped):
                    skipped.append(found)
                    continue
                is_first = found.sequence <= peer.next < found.end
                if peer.vain.hopeless and not is_first:
                    self._counters.refuse(Refused.IN_VAIN)
                    break
                parts = _within(asked, self._sent_of(peer, found, round_trip, now))
                if parts is not None and parts[0] >= parts[1]:
                    self._counters.refuse(Refused.EARLY)
                    continue
                if not self._repairs.ask(
                    peer.host, found.sequence, found.end, parts, round_trip, now, alone=alone
                ):
                    self._counters.refuse(Refused.SUPPRESSED)
                else:
                    self._tell(peer, found, parts, now)
                    first = first or is_first
        self._outlet.skip(skipped, peer.host)
        return first

    def _sent_of(self, peer: Peer, message: Message, round_trip: float, now: float) -> int:
        """The number of its parts that the host has or has lost: parts sent in a replay, or sent to all long
        enough ago."""
        if peer.state is _CATCHING_UP:
            return peer.slices.sent_of(message)
        due = self._live.parts_due(peer, message, round_trip, now)
        return due if message.sequence < self._live.edge else min(due, self._live.sent_parts)

    def _tell(self, peer: Peer, message: Message, parts: Parts, now: float) -> None:
        """Feeds the request into the windows of that host as a sign of loss."""
        size = len(message.payload)
        if parts is None:
            peer.asked += 1
        else:
            size = min(size, (parts[1] - parts[0]) * size_for(message, self._outlet.mtu))
        if peer.state is _LIVE:
            peer.pace.asked(size)
            peer.flight.again(size, now)
        elif peer.state is _CATCHING_UP:
            peer.progressed = now  # a request for a missing part shows that the rest arrived
            if peer.asks_first(message.sequence, parts[1] if parts is not None else MAX_SEGMENTS):
                peer.window.asked(size)

    def repair(self, out: list[Outgoing], now: float) -> None:
        """Answers requests as far as this turn allows; leftovers of earlier answers come first."""
        self._turn.repairs = self._answers.give(out, self._turn.repairs)
        while self._turn.repairs > 0 and self._bucket.ready(now):
            request = self._repairs.pop(now)
            if request is None:
                return
            for found in self._outlet.entries(request.sequence, request.end):
                if isinstance(found, Message):
                    self._answer(request, found)
                else:
                    for host in request.hosts:
                        self._outlet.skip([found], host)
            self._turn.repairs = self._answers.give(out, self._turn.repairs)

    def _answer(self, request: Request, message: Message) -> None:
        """Answers by multicast to live hosts if enough of them ask, and by unicast to the others. Those that
        the carrier may not reach, or whom the message is not for, get unicast."""
        live = {
            host
            for host in request.hosts
            if self._is_live(host) and not self._is_doubted(host) and message.is_for(host)
        }
        together = len(live) >= self._settings.multicast_at
        if together:
            for parts in request.parts():
                one = self._outlet.message(message, None, Kind.REPAIR, parts)
                self._counters.multicast_repairs += one.count
                self._later(self._answers, one)
        for host, asked in request.hosts.items():
            if together and host in live:
                continue
            kind = self._kind_for(host, message.sequence)
            peer = self._peers.get(host)
            slices = peer.again if peer is not None and peer.state is _CATCHING_UP else self._answers
            for parts in in_order(asked):
                self._later(slices, self._outlet.message(message, host, kind, parts))

    def _later(self, slices: Slices, one: OutgoingMessage) -> int:
        """Queues a message for later turns and charges it to the bucket at once. Returns its bytes."""
        size = one.size or 1
        self._bucket.spend(size)
        slices.add(one)
        return size

    def _kind_for(self, host: int, sequence: int) -> Kind:
        """The kind of a repair: what was lost of a replay still counts as replay."""
        peer = self._peers.get(host)
        live = peer is None or (peer.state is _LIVE and sequence >= peer.edge)
        return Kind.REPAIR if live else Kind.REPLAY

    def _is_live(self, host: int) -> bool:
        peer = self._peers.get(host)
        return peer is not None and peer.state is _LIVE

    def _is_doubted(self, host: int) -> bool:
        peer = self._peers.get(host)
        return peer is not None and peer.doubted

    def repairs_at(self, now: float) -> float:
        """When `repair` next has something to send if no request arrives before."""
        if not self._answers.empty:
            return now
        return max(self._repairs.next_deadline(), self._bucket.ready_at(now))

    # --- replay

    def replays(self, out: list[Outgoing], now: float) -> None:
        """Replays to all receivers that are behind. Those that got nothing in the last turn come first."""
        behind = [peer for peer in self._peers.in_state(_CATCHING_UP) if peer.reported]  # it listens
        if not behind:
            return
        first = self._first % len(behind)
        for number, peer in enumerate([*behind[first:], *behind[:first]], first + 1):
            before = self._turn.replays
            self._replay(peer, out, now)
            if before > 0 >= self._turn.replays:
                self._first = number  # the next one

    def _replay(self, peer: Peer, out: list[Outgoing], now: float) -> None:
        """Replays to `peer` what it lacks before the live edge, as far as its window, the rate and this turn
        allow."""
        if peer.held_off and not self._had_its_time(peer, now):
            return
        if peer.holder:
            self._check_holder(peer, now)
        if not peer.holder:
            self._look_for_holder(peer, now)
        if not peer.holder and peer.unsettled and now - peer.progressed >= peer.stall:
            self._stalled(peer, now)
        if peer.begun_anew:
            self._begin_anew(peer, out)
        if peer.holder:
            return
        if peer.vain.hopeless:
            self._try_one(peer, out, now)
            return
        peer.look_for_lost(now)
        self._give_again(peer, out, now)
        self._give(peer, out, now)
        if self._may_replay(peer, now) and self._in_front(peer, now) is None:
            self._replay_more(peer, out, now)

    def _had_its_time(self, peer: Peer, now: float) -> bool:
        """Whether a receiver that left the group is replayed to from now on. It is not if it has kept up
        anyway.

        It gets less time if the log could drop what it lacks.
        """
        lacks = self._weight.size_of(self._live.edge - peer.next)
        if now < peer.back_at and lacks <= _OF_LOG * self._outlet.most_bytes:
            return False
        peer.held_off = False
        if peer.behind or lacks > peer.pace.size:
            peer.rewind(now, peer.next)
            return True
        peer.sent = max(peer.sent, self._live.edge)
        peer.ahead = False
        return False

    def _begin_anew(self, peer: Peer, out: list[Outgoing]) -> None:
        """Tells the receiver first that the replay restarts: arrivals of the earlier one say nothing about
        this one."""
        peer.begun_anew = False
        known = self._live.known
        body = Heartbeat(known, min(self._outlet.oldest, known), again=peer.sent, holder=peer.holder)
        self._outlet.queue(Kind.HEARTBEAT, body.encode(), peer.host)
        self._outlet.give(out)

    # --- replay by holders

    def _look_for_holder(self, peer: Peer, now: float) -> None:
        """Picks another receiver to replay what was not sent yet, if that is much. Of those that hold it,
        picks the nearest one with the fewest replays. None is farther than this host, and only a nearer one
        is picked if such a one is in front."""
        most, lacks = self._settings.replay_by_holders, self._weight.size_of(self._live.edge - peer.sent)
        if self._outlet.partial:
            return  # another receiver may hold other messages
        apart = self._apart(peer, self._outlet.origin)
        if peer.unhelped >= _TRIES or not most or lacks < (self._least_near if apart else most):
            return
        farthest = apart if self._in_front(peer, now) is None else apart - 1
        busy = [one.holder for one in self._peers if one.holder]
        able = []
        for one in self._peers:
            least = self._least(peer, one.host)
            if lacks >= least and self._serves(one, peer, now) and self._holds(one, peer.next, least):
                away = self._apart(peer, one.host)
                if away <= farthest:
                    able.append((away, busy.count(one.host), one.host))
        if able:
            peer.rewind(now, peer.next)  # the receiver does not request what it already has
            peer.holder = min(able)[2]

    def _serves(self, one: Peer, peer: Peer, now: float) -> bool:
        """Whether `one` may replay to `peer`: it is live, or nearer than this host and replayed to itself,
        with progress. It sends what it lacks as soon as it has it."""
        if one.live:
            return True
        # Never in a circle: not the one that gets its own replay from there.
        return self._catches_up(one, now) and one.holder != peer.host and self._nearer(peer, one.host)

    def _catches_up(self, one: Peer, now: float) -> bool:
        """Whether `one` progresses in a replay."""
        listens = one.state is _CATCHING_UP and one.reported and not one.held_off
        return listens and now - one.progressed < one.stall

    def _in_front(self, peer: Peer, now: float) -> Peer | None:
        """A nearer receiver than this host that is replayed to, and is at least as far as `peer`. It will
        replay to `peer`, so that a zone that is behind as a whole gets a single copy."""
        apart = self._apart(peer, self._outlet.origin)
        if not apart or peer.unhelped >= _TRIES:
            return None
        for one in self._peers:
            if one is peer or not self._catches_up(one, now):
                continue
            # Ids break ties. Of two that are equally far, each would otherwise wait for the other.
            if (one.next, -one.host) > (peer.next, -peer.host) and self._apart(peer, one.host) < apart:
                return one
        return None

    @property
    def _least_near(self) -> int:
        """Bytes lacking at which a holder that is nearer than this host replays them."""
        return min(self._settings.replay_by_holders, 2 * self._settings.replay_least)

    def _least(self, peer: Peer, holder: int) -> int:
        """Bytes lacking at which this holder replays them."""
        return self._least_near if self._nearer(peer, holder) else self._settings.replay_by_holders

    def _nearer(self, peer: Peer, other: int) -> bool:
        """Whether `other` is nearer to `peer` than this host is."""
        return self._apart(peer, other) < self._apart(peer, self._outlet.origin)

    def _apart(self, peer: Peer, other: int) -> int:
        return self.nearest.apart(peer.host, other) if self.nearest is not None else 0

    def _holds(self, one: Peer, sequence: int, least: int) -> bool:
        """Whether `one` keeps data from `sequence` on, at least `least` bytes of it."""
        return one.held <= sequence and self._weight.size_of(one.next - sequence) >= least

    def _check_holder(self, peer: Peer, now: float) -> None:
        """Takes the replay back from the holder if the receiver is near the edge, if the holder is gone, if
        it delivers nothing although the receiver reports, or if a nearer one is in front."""
        holder = self._peers.get(peer.holder)
        # Half of what picks a holder, so that the replay does not change hands to and fro.
        near = 2 * self._weight.size_of(self._live.edge - peer.next) < self._least(peer, peer.holder)
        idle = peer.heard - peer.idle_since >= peer.stall
        gone = holder is None or not self._serves(holder, peer, now)
        if not gone and not self._nearer(peer, peer.holder):
            gone = self._in_front(peer, now) is not None
        if near or idle or gone:
            peer.unhelped = _TRIES if near else peer.unhelped + idle
            peer.rewind(now, peer.next)

    def meet(self, out: list[Outgoing]) -> None:
        """Makes receivers live whose replay has reached the live edge.

        To be called before more is sent to all. If they missed part of the message in progress, it is sent
        now.
        """
        for peer in self._peers.in_state(_CATCHING_UP):
            if not self._is_there(peer):
                continue
            missed = self._live.missed(peer.host)
            if missed is not None:
                out.append(missed)
                self._bucket.spend(missed.size)
                peer.sent = max(peer.sent, self._live.known)
            self._peers.edge_reached(peer)
            self._live.begins(peer)

    def somebody_is_there(self) -> bool:
        """Whether `meet` would find a receiver."""
        return any(self._is_there(peer) for peer in self._peers.in_state(_CATCHING_UP))

    def _is_there(self, peer: Peer) -> bool:
        if not peer.reported or peer.ahead or peer.holder or peer.held_off:
            return False
        return peer.sent >= self._live.edge and peer.slices.empty and peer.again.empty

    def _may_replay(self, peer: Peer, now: float) -> bool:
        return (
            self._turn.replays > 0
            and peer.slices.empty
            and peer.again.empty
            and peer.may_replay > 0
            and peer.paced_at <= now
            and peer.sent < self._live.edge
            and self._bucket.ready(now)
        )

    def _give(self, peer: Peer, out: list[Outgoing], now: float) -> None:
        """Sends what waits for `peer`, as far as its window and this turn allow."""
        given: list[Outgoing] = []
        self._given(peer, peer.slices, given, now)
        for one in given:
            assert isinstance(one, OutgoingMessage)
            under_way = peer.slices.first
            whole = under_way is None or under_way is not one.message
            peer.flight.sent(one.message.end if whole else one.message.sequence, one.size, now)
        out += given

    def _give_again(self, peer: Peer, out: list[Outgoing], now: float) -> None:
        """Sends requested parts of the replay, some of them even if the window is full: the missing data may
        be what the window counts as in flight."""
        given: list[Outgoing] = []
        self._given(peer, peer.again, given, now, self._settings.replay_least - peer.flight.again_bytes)
        for one in given:
            peer.flight.again(one.size, now)
        out += given

    def _given(self, peer: Peer, slices: Slices, given: list[Outgoing], now: float, least: int = 0) -> None:
        may = min(self._turn.replays, max(peer.may_replay, least))
        if may <= 0 or slices.empty or peer.paced_at > now:
            return
        if not peer.flight.on_way:
            peer.progressed = now  # nothing could arrive until now
        self._turn.replays -= may - slices.give(given, may)
        for one in given:
            self._turn.replayed(one.size)
            peer.paces(one.size, now)

    def _replay_more(self, peer: Peer, out: list[Outgoing], now: float) -> None:
        skipped: list[Skipped] = []
        looks = _MOST_LOOKS  # what is skipped takes no window, and would be passed in one turn
        # It has reported since the last try, so that one has failed.
        if peer.sent == peer.next and peer.heard > peer.vain.at:
            self._tried(peer, peer.next, -1, now)
            if peer.vain.hopeless:
                return
        for found in self._outlet.entries(peer.sent, self._live.edge, peer.host):
            peer.sent = found.end
            if isinstance(found, Skipped):
                skipped.append(found)
                peer.flight.sent(found.end, 0, now)
            else:
                size = self._later(peer.slices, self._outlet.message(found, peer.host, Kind.REPLAY))
                self._weight.add(found.records, size)
                self._give(peer, out, now)
            looks -= 1
            if looks <= 0 or not self._may_replay(peer, now):
                break
        self._outlet.skip(skipped, peer.host)

    def _stalled(self, peer: Peer, now: float) -> None:
        """On a stall, first resends only the next message, because most often everything else waits for it.
        If that brings no progress, the rest was lost too and the replay restarts."""
        if peer.probed >= 0:
            peer.stalled(now)
            return
        peer.progressed = now
        peer.flight.over(now)
        peer.flight.again_over(now)
        # A try counts as failed only if the receiver has reported since: it may be away.
        if peer.heard > peer.vain.at:
            self._tried(peer, peer.next, -1, now)
        for found in self._outlet.entries(peer.next, peer.next + 1, peer.host):
            peer.probed = found.end
            if isinstance(found, Message):
                self._later(peer.again, self._outlet.message(found, peer.host, Kind.REPLAY))

    def replay_at(self, peer: Peer, now: float) -> float:
        """When `replays` next has something to send to `peer` if no report arrives before."""
        if not peer.reported:
            return NEVER
        if peer.held_off:
            return max(now, peer.back_at)
        if self._is_there(peer):
            return now
        if peer.holder:
            return NEVER  # a report will tell its position
        if peer.vain.hopeless:
            return max(now, peer.vain.again_at)
        stalled = peer.progressed + peer.stall if peer.unsettled else NEVER
        if peer.may_replay <= 0 and (
            peer.again.empty or peer.flight.again_bytes >= self._settings.replay_least
        ):
            return min(stalled, peer.look_at)
        if not peer.slices.empty or not peer.again.empty:
            return max(self._turn.replays_at(now), peer.paced_at)
        if peer.sent >= self._live.edge:
            return stalled
        front = self._in_front(peer, now)
        if front is not None:
            return min(stalled, front.progressed + front.stall)
        return min(stalled, max(self._bucket.ready_at(now), self._turn.replays_at(now), peer.paced_at))


def _within(asked: Parts, sent: int) -> Parts:
    """The requested parts, without those that were not sent yet."""
    if sent >= MAX_SEGMENTS:
        return asked
    first, end = asked if asked is not None else (0, sent)
    return first, min(end, sent)
