"""A stream's receivers as seen by its sender."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment_bodies import NOWHERE

from .outgoing import Slices
from .pacing import Paths, Quickest, Window
from .pairs import Pair, Pairs
from .settings import StreamSettings
from .states import PaceState, PeerEvent, PeerState, peer_step
from .timing import RoundTrip, Track
from .vain import Vain

# In Python 3.11, enum member access goes through EnumType.__getattr__; bind the members once for the hot
# paths.
_SILENT: Final = PeerState.SILENT
_CATCHING_UP: Final = PeerState.CATCHING_UP
_LIVE: Final = PeerState.LIVE

# Replay rate as a multiple of window per turnaround: while the window opens, and afterwards.
_OPENS: Final = 2.0
_KEEPS: Final = 1.25
_AT_ONCE: Final = 0.002  # seconds' worth of it that may be sent at once


class Peer:
    """One receiver. `next`: everything before it is settled there, according to its last report."""

    __slots__ = (
        "_settings",
        "addressed",
        "again",
        "ahead",
        "announce_at",
        "announced",
        "arrived",
        "asked",
        "asked_to",
        "back_at",
        "begun_anew",
        "behind",
        "called",
        "caught_up",
        "done",
        "doubted",
        "edge",
        "first",
        "flight",
        "heard",
        "held",
        "held_off",
        "holder",
        "host",
        "idle_since",
        "left",
        "left_lately",
        "limit",
        "near",
        "near_bytes",
        "newest",
        "next",
        "out_since",
        "pace",
        "paced_at",
        "pair",
        "probed",
        "progressed",
        "questioned",
        "reported",
        "rests",
        "rewinds",
        "room",
        "sent",
        "slices",
        "spared",
        "stamp",
        "state",
        "turnaround",
        "unhelped",
        "vain",
        "waited",
        "way",
        "window",
    )

    def __init__(
        self,
        host: int,
        first: int,
        now: float,
        state: PeerState,
        settings: StreamSettings,
        way: Quickest,
        pair: Pair | None = None,
    ) -> None:
        self.host = host
        self.first = first
        self.next = first
        self.state = state
        self.heard = now
        self._settings = settings
        self.way = way
        self.stamp = 0  # time stamp of its last report
        self.reported = False
        self.asked = 0  # whole messages that it has requested
        self.near = 0  # of its last report: whole messages requested from nearer hosts, and bytes
        self.near_bytes = 0
        self.done = False
        self.announce_at = now
        self.announced = False  # since the last change of the members
        self.pair = pair
        self.rests = False  # it reports no more, and has settled all (`pairs`)
        self.called = False  # it has rested, and is to report
        self.room = settings.buffer_bytes
        self.held = NOWHERE  # the first record that it can send to others
        self.turnaround = RoundTrip(settings.replay_stall / 3)  # from sending to the report of the arrival
        # Live data.
        self.pace = Window(
            settings.live_first, settings.live_least, settings.live_window, settings.live_delay, way
        )
        self.arrived = 0  # place of the farthest arrival (`live`)
        self.addressed = 0  # place after the last live message that was for it, if not all are for all
        self.spared = 0  # messages sent to others that were not for it
        self.limit = 0  # live data may be sent up to this place
        self.waited = 0.0  # share of the time that others, which can take more, waited for it alone
        self.doubted = False  # what its carrier sends may not arrive at it
        self.questioned = -NEVER  # when it was last asked for a report
        self.left = 0  # how often it has left the group for being slow
        self.left_lately = 0  # of these, in close succession
        self.behind = False  # according to its own report
        self.held_off = False  # it has left, and is not replayed to before `back_at`
        self.back_at = -NEVER  # not live before, so that the others get ahead of a slow one
        self.out_since = NEVER
        self.caught_up = True  # it has reported being live since its last replay
        # Its replay.
        self.progressed = now  # last progress in a report, or start of the replay
        self.sent = first  # replayed up to here
        self.begun_anew = False  # its replay was restarted, and it has to be told
        self.ahead = False  # its replay began ahead of what it had settled
        self.asked_to = (-1, 0)  # a message and the end of its parts: all its requests so far lie before it
        self.slices = Slices()  # replay data left for later turns
        self.again = Slices()  # requested parts of the replay, sent before new data
        self.edge = first  # anything it lacks before it belongs to its last replay
        self.flight = Track(first, now)
        self.window = Window(
            settings.replay_first, settings.replay_least, settings.replay_window, settings.replay_delay, way
        )
        self.paced_at = -NEVER  # when more of the replay may be sent
        self.rewinds = 0  # restarts since the last progress
        self.holder = 0  # the host that replays to it; 0: this one
        self.idle_since = NEVER  # reports show no progress by the holder since then
        self.newest = (0, 0)  # the farthest that the holder has delivered: a message, and its parts so far
        self.unhelped = 0  # how often a holder delivered nothing; after two, this host replays
        self.probed = -1  # end of the message resent because nothing arrived; -1: none
        self.vain = Vain(settings.replay_stall, settings.replay_stall_longest)

    @property
    def live(self) -> bool:
        """Whether it gets live data."""
        return self.state is _LIVE

    @property
    def last_heard(self) -> float:
        """When it last showed that it receives the stream."""
        return (
            max(self.heard, self.pair.receiver_heard) if self.rests and self.pair is not None else self.heard
        )

    def settle(self, next_: int, now: float) -> None:
        """Takes a report that everything before `next_` is settled."""
        if next_ > self.next:
            self.next, self.progressed = next_, now
            self.rewinds = 0
            self.vain.settled(next_)
            if next_ > self.probed:
                self.probed = -1
        self.ahead = self.ahead and self.next < self.edge
        # Repairs, or what was still in flight, may have settled more than was replayed.
        self.sent = max(self.sent, next_)
        self.slices.drop_before(next_)
        self.again.drop_before(next_)

    def brought(self, newest: tuple[int, int], now: float) -> None:
        """Takes a report of the farthest arrival of a holder's replay."""
        if newest > self.newest:
            self.newest, self.progressed = newest, now
        if self.progressed >= now:
            self.idle_since = NEVER
        elif self.idle_since == NEVER:
            self.idle_since = now

    def arrives(self, sequence: int, size: int, age: float, stood: float, now: float) -> None:
        """Takes a report of the farthest arrival of its replay: `size` bytes of the message at `sequence`,
        `age` seconds ago. `stood`: see `took`."""
        if not self.next <= sequence <= self.sent:  # an arrival from before the restart says nothing
            sequence, size = self.next, 0
        used = 2 * self.flight.on_way >= self.window.size
        arrived, sent_at = self.flight.arrived(sequence, size)
        if arrived > 0:
            took = max(now - sent_at - age, 0.0)
            self.progressed = now
            if size and sequence == self.vain.sequence:
                self.vain.over()  # the message that was tried arrives
            self.window.progress(arrived, self.took(took, sent_at, stood), now, used=used)

    def took(self, seconds: float, sent_at: float, stood: float) -> float:
        """Measures the turnaround of what was sent at `sent_at`, and returns it. `stood`: until when this
        host was stopped; reports of what was sent before have waited in its sockets. They are no sample, and
        count as no slower than others."""
        if sent_at <= stood and self.turnaround.measured:
            return min(seconds, self.turnaround.smoothed)
        self.turnaround.sample(seconds)
        return seconds

    def lost_near(self, messages: int, size: int) -> None:
        """Takes a report of what it has requested from nearer hosts so far: a sign of loss, as requests to
        this host are. Smaller numbers than before mean that the receiver has joined again."""
        if self.live and messages >= self.near and size > self.near_bytes:
            self.asked += messages - self.near
            self.pace.asked(size - self.near_bytes)
        self.near, self.near_bytes = messages, size

    def asks_first(self, sequence: int, parts: int) -> bool:
        """Whether it requests data before part `parts` of the message at `sequence` for the first time.

        A repeated request means that a resent part was lost or is late. It says nothing about the loss rate
        of data sent in order.
        """
        asked = (sequence, parts)
        if asked <= self.asked_to:
            return False
        self.asked_to = asked
        return True

    def may_ask(self, round_trip: float, now: float) -> bool:
        """Whether more may be resent to it while it is live: at most half a window per turnaround.

        If a queue on the path is full, resent data is lost there too and would be requested again.
        """
        takes = max(self.turnaround.smoothed, round_trip) if self.turnaround.measured else round_trip
        self.flight.again_over(now - takes)
        return self.flight.again_bytes < max(self.pace.size / 2, self._settings.live_least)

    @property
    def stall(self) -> float:
        """Seconds without progress after which data in flight counts as lost."""
        settings = self._settings
        wait = max(settings.replay_stall, self.turnaround.timeout) * 2.0 ** min(self.rewinds, 8)
        return min(wait, max(settings.replay_stall, settings.replay_stall_longest))

    @property
    def lost_after(self) -> float:
        """Seconds after which replayed data that was not reported counts as no longer in flight. Includes the
        time that reports may take."""
        return 2 * self.turnaround.timeout + self._settings.report_every

    def look_for_lost(self, now: float) -> None:
        """Counts replay data sent too long ago as lost, for the window."""
        self.flight.again_over(now - self.turnaround.smoothed)
        lost = self.flight.over(now - self.lost_after)
        if lost and not self.flight.on_way:  # only if all is lost: otherwise arrivals tell more
            self.window.lost(lost, now)

    @property
    def look_at(self) -> float:
        """When `look_for_lost` will find something."""
        return min(self.flight.oldest_at + self.lost_after, self.flight.again_at + self.turnaround.smoothed)

    @property
    def unsettled(self) -> bool:
        """Whether replayed data is unsettled, and the data sent so far must make it progress."""
        return self.sent > self.next and (self.flight.on_way > 0 or self.slices.empty)

    def stalled(self, now: float) -> None:
        """Restarts the replay with a smaller window and a longer time-out because nothing arrives."""
        self.window.stalled()
        self.rewind(now, self.next)
        self.rewinds += 1

    def rewind(self, now: float, sequence: int) -> None:
        """Restarts the replay at `sequence`, at or after all that is settled."""
        self.sent, self.progressed = sequence, now
        self.begun_anew = True
        self.asked_to = (-1, 0)
        self.ahead = False
        self.probed = -1
        self.holder = 0
        self.newest = (0, 0)
        self.idle_since = NEVER
        self.slices.clear()
        self.again.clear()
        self.flight = Track(sequence, now)

    @property
    def may_replay(self) -> int:
        """Bytes that may be put in flight in addition to those already there.

        A receiver whose buffer is full of data ahead of a gap reports no room, and gets room only when the
        gap is filled. It therefore takes some replay in any case.
        """
        room = max(self.room, self._settings.replay_least)
        return min(int(self.window.size), room) - self.flight.on_way

    def paces(self, size: int, now: float) -> None:
        """Accounts for `size` bytes of its replay. A window is spread over a turnaround instead of sent at
        once, because queues on a long path hold far less than a window."""
        if self.turnaround.measured:
            gain = _OPENS if self.window.state is PaceState.OPENING else _KEEPS
            rate = gain * self.window.size / max(self.turnaround.smoothed, _AT_ONCE)
            self.paced_at = max(self.paced_at, now - _AT_ONCE) + size / rate


class Peers:
    """All receivers of a stream, and their state changes."""

    def __init__(
        self, settings: StreamSettings, paths: Paths | None = None, pairs: Pairs | None = None
    ) -> None:
        """`paths`: shared with other streams of this host; default: its own. `pairs`: None: none rests."""
        self._pairs = pairs
        self._settings = settings
        self._paths = paths if paths is not None else Paths()
        self._peers: dict[int, Peer] = {}
        self.live: list[int] = []  # the live hosts; a new list after each change

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def get(self, host: int) -> Peer | None:
        return self._peers.get(host)

    def add(self, host: int, first: int, edge: int, now: float) -> Peer:
        """Adds a receiver from `first` on. It is replayed to if `first` is before `edge`, the end of what was
        sent."""
        state = _LIVE if first >= edge else _CATCHING_UP
        pair = None if self._pairs is None else self._pairs.to(host)
        peer = Peer(host, first, now, state, self._settings, self._paths.to(host), pair)
        if state is _CATCHING_UP:
            peer.out_since = now
        self._peers[host] = peer
        self._list_live()
        return peer

    def remove(self, host: int) -> bool:
        removed = self._peers.pop(host, None) is not None
        self._list_live()
        return removed

    def _enter(self, peer: Peer, state: PeerState) -> None:
        peer.state = state
        self._list_live()

    def _list_live(self) -> None:
        self.live = [peer.host for peer in self._peers.values() if peer.state is _LIVE]
        if self._pairs is not None:
            self._pairs.changed = True

    def in_state(self, state: PeerState) -> list[Peer]:
        return [peer for peer in self if peer.state is state]

    def lowest(self, end: int) -> int:
        """The sequence that all have settled. Silent receivers count; only the log's bounds give them up."""
        return min((peer.next for peer in self), default=end)

    def heard(self, peer: Peer, behind: bool, edge: int, now: float, most: int) -> None:
        """Takes note of a report. `behind`: the receiver reports that it is catching up. `most`: records that
        a receiver may be behind."""
        peer.heard = now
        peer.behind = behind
        peer.caught_up = peer.caught_up or not behind
        event = PeerEvent.FAR if self._far(peer, behind, edge, now, most) else PeerEvent.NEAR
        following = peer_step(peer.state, event)
        if following is not peer.state:
            self._enter(peer, following)
            peer.rewind(now, peer.next)
        elif peer.ahead and behind:  # it has discarded what was sent while it was live
            peer.rewind(now, peer.next)

    def _far(self, peer: Peer, behind: bool, edge: int, now: float, most: int) -> bool:
        """Whether the receiver is too far behind. Like a receiver, leaves catch-up at half the lag that
        enters it.

        The cursor waits for live receivers, so a live one is behind only by its own report. Until it has once
        reported being live, that report may still be about the replay that has just ended.
        """
        if peer.live:
            anew = peer.caught_up or now - peer.progressed >= peer.stall
            return behind and anew and edge - peer.next > most // 2
        in_flight = now - peer.progressed < peer.stall
        lag = edge - (peer.sent if in_flight else peer.next)
        return lag > (most // 2 if behind else most)

    def leaves(self, peer: Peer, edge: int, now: float) -> None:
        """Takes a live receiver out of the group because it is too slow for the others, which continue
        without it. Data already sent to it may still arrive, and so may data sent to the group. It is
        therefore replayed to only after a time for that."""
        self._enter(peer, peer_step(peer.state, PeerEvent.SLOW))
        peer.rewind(now, max(peer.next, edge))
        peer.ahead = peer.sent > peer.next
        peer.edge = peer.sent
        peer.waited = 0.0
        settings = self._settings
        soon = now - peer.back_at < settings.slow_again
        peer.left_lately = peer.left_lately + 1 if soon else 1
        out_for = settings.slow_out * 2.0 ** min(peer.left_lately - 1, 10)
        peer.back_at = now + min(out_for, settings.slow_out_longest)
        peer.held_off = True
        peer.left += 1
        peer.out_since = now

    def edge_reached(self, peer: Peer) -> None:
        peer.edge = peer.sent
        # The same path: its live window need not open from the beginning.
        peer.pace.found(peer.window.size)
        peer.caught_up = False
        peer.unhelped = 0
        peer.out_since = NEVER
        self._enter(peer, peer_step(peer.state, PeerEvent.REPLAYED))

    def silence(self, now: float) -> None:
        """Finds silent receivers. If a silence is found late, this host stood still: reports may still wait
        in its sockets, so that receiver gets the time of one more report."""
        settings = self._settings
        since = now - settings.silent_after
        silent = []
        for peer in self._peers.values():
            if peer.state is _SILENT or peer.heard > since or peer.rests:
                continue
            if peer.heard < since - settings.report_idle:
                peer.heard = since + settings.report_idle
            else:
                silent.append(peer)
        for peer in silent:
            peer.state = peer_step(peer.state, PeerEvent.SILENCE)
            peer.vain.over()
        if silent:  # listed once, because all of them may fall silent together
            self._list_live()

    def next_silence(self) -> float:
        heard = (peer.heard for peer in self if peer.state is not _SILENT and not peer.rests)
        return min(heard, default=NEVER) + self._settings.silent_after
