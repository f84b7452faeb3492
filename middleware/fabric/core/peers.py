"""A stream's receivers as its sender sees them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from .outgoing import Slices
from .pacing import Window
from .settings import NEVER, StreamSettings
from .states import PeerEvent, PeerState, peer_step
from .timing import RoundTrip

# Python 3.11 looks a member up in its enum by way of EnumType.__getattr__; the hot paths name them once.
_SILENT: Final = PeerState.SILENT
_CATCHING_UP: Final = PeerState.CATCHING_UP
_LIVE: Final = PeerState.LIVE


class Peer:
    """One receiver. `next`: all before it is settled there, by its last report."""

    __slots__ = (
        "_settings",
        "announce_at",
        "asked",
        "done",
        "edge",
        "first",
        "flight",
        "flight_bytes",
        "heard",
        "host",
        "next",
        "probed",
        "progressed",
        "reported",
        "rewinds",
        "room",
        "sent",
        "slices",
        "stamp",
        "state",
        "turnaround",
        "window",
    )

    def __init__(self, host: int, first: int, now: float, state: PeerState, settings: StreamSettings) -> None:
        self.host = host
        self.first = first
        self.next = first
        self.state = state
        self.heard = now
        self.progressed = now  # when a report last said more than before, or replay began
        self.sent = first  # replayed up to here
        self.slices = Slices()  # of it, what other turns send
        self.edge = first  # before it, all that it lacks is of its last replay
        self.flight: deque[tuple[int, int, float]] = deque()  # (end, bytes, when) replayed and not reported
        self.flight_bytes = 0
        self.window = Window(
            settings.replay_first, settings.replay_least, settings.replay_window, settings.replay_delay
        )
        self.turnaround = RoundTrip(settings.replay_stall / 3)  # from a replay to its report
        self.rewinds = 0  # since progress was made
        self.probed = -1  # the end of the message that was sent again because nothing arrived; -1: none
        self.room = settings.buffer_bytes
        self._settings = settings
        self.stamp = 0  # of its last report
        self.reported = False
        self.asked = 0  # whole messages that it has asked for
        self.done = False
        self.announce_at = now

    def settle(self, next_: int, now: float) -> None:
        """A report says that all before `next_` is settled."""
        if next_ > self.next:
            self.next, self.progressed = next_, now
            self.rewinds = 0
            if next_ > self.probed:
                self.probed = -1
        settled, sent_at = 0, NEVER
        while self.flight and self.flight[0][0] <= next_:
            _, size, sent_at = self.flight.popleft()
            settled += size
        if sent_at != NEVER:
            self.flight_bytes -= settled
            self.turnaround.sample(now - sent_at)
            self.window.progress(settled, now - sent_at, now)
        self.sent = max(self.sent, next_)

    @property
    def stall(self) -> float:
        """Without progress for so long, what is on its way counts as lost."""
        settings = self._settings
        wait = max(settings.replay_stall, self.turnaround.timeout) * 2.0 ** min(self.rewinds, 8)
        return min(wait, max(settings.replay_stall, settings.replay_stall_longest))

    def stalled(self, now: float) -> None:
        """Nothing arrives: replay begins again, slower and with more patience."""
        self.window.stalled()
        self.rewind(now)
        self.rewinds += 1

    def rewind(self, now: float) -> None:
        """Replay begins again at what is settled."""
        self.sent, self.progressed = self.next, now
        self.probed = -1
        self.slices.clear()
        self.flight.clear()
        self.flight_bytes = 0

    def replayed(self, end: int, size: int, now: float) -> None:
        self.sent = end
        self.flight.append((end, size, now))
        self.flight_bytes += size

    @property
    def full(self) -> bool:
        """As much is on its way as may be; something always is."""
        return bool(self.flight) and self.flight_bytes >= min(self.window.size, self.room)


class Peers:
    """All of them, and when one of them changes its state."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._peers: dict[int, Peer] = {}
        self._live: list[int] | None = None  # made when it is asked for

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def get(self, host: int) -> Peer | None:
        return self._peers.get(host)

    def add(self, host: int, first: int, edge: int, now: float) -> Peer:
        """A receiver from `first` on, replayed to where that is before the `edge` of what was sent."""
        state = _LIVE if first >= edge else _CATCHING_UP
        peer = Peer(host, first, now, state, self._settings)
        self._peers[host] = peer
        self._live = None
        return peer

    def remove(self, host: int) -> bool:
        self._live = None
        return self._peers.pop(host, None) is not None

    def live(self) -> list[int]:
        """Not to be changed, and to be asked for anew when anything has happened."""
        if self._live is None:
            self._live = [peer.host for peer in self if peer.state is _LIVE]
        return self._live

    def any_live(self) -> bool:
        return bool(self.live())

    def _enter(self, peer: Peer, state: PeerState) -> None:
        peer.state = state
        self._live = None

    def in_state(self, state: PeerState) -> list[Peer]:
        return [peer for peer in self if peer.state is state]

    def lowest(self, end: int) -> int:
        """All have settled what is before it. Silent ones count: only the log's bounds give them up."""
        return min((peer.next for peer in self), default=end)

    def heard(self, peer: Peer, behind: bool, edge: int, now: float, most: int) -> None:
        """A report came. `behind`: the receiver says of itself that it catches up. `most`: records that one
        may be behind."""
        peer.heard = now
        event = PeerEvent.FAR if self._far(peer, behind, edge, now, most) else PeerEvent.NEAR
        following = peer_step(peer.state, event)
        if following is not peer.state:
            self._enter(peer, following)
            peer.rewind(now)

    def _far(self, peer: Peer, behind: bool, edge: int, now: float, most: int) -> bool:
        """A receiver leaves catch-up at half of the lag at which it enters it: so does this."""
        in_flight = now - peer.progressed < peer.stall
        lag = edge - (peer.sent if in_flight else peer.next)
        return lag > (most // 2 if behind else most)

    def edge_reached(self, peer: Peer) -> None:
        peer.edge = peer.sent
        self._enter(peer, peer_step(peer.state, PeerEvent.REPLAYED))

    def silence(self, now: float) -> None:
        for peer in self:
            if peer.state is not _SILENT and peer.heard + self._settings.silent_after <= now:
                self._enter(peer, peer_step(peer.state, PeerEvent.SILENCE))

    def next_silence(self) -> float:
        heard = (peer.heard for peer in self if peer.state is not _SILENT)
        return min(heard, default=NEVER) + self._settings.silent_after
