"""The origin's side of rest, for one stream: which receivers rest, and what wakes them (`pairs`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from treecast.middleware.wire.segment_bodies import MAX_MEMBERS, Announce, Mode, Report

from .pairs import Pairs, mark
from .peers import Peer, Peers
from .settings import StreamSettings
from .states import PeerState

_SILENT: Final = PeerState.SILENT


class Rest:
    """The resting receivers of one stream. `some`: there may be any. `stale`: `renew` is to be called."""

    __slots__ = (
        "_calling",
        "_checksum",
        "_key",
        "_name",
        "_pairs",
        "_peers",
        "_settings",
        "mark",
        "some",
        "stale",
    )

    def __init__(
        self, stream: int, epoch: int, name: str, peers: Peers, pairs: Pairs | None, settings: StreamSettings
    ) -> None:
        """`pairs`: None: nothing rests."""
        self.some = False
        self.stale = False
        self.mark = mark(stream, epoch)
        self._calling = False
        self._checksum = 0  # of what is announced; 0: not computed since the members changed
        self._key = (stream, epoch)
        self._name = name
        self._peers = peers
        self._pairs = pairs
        self._settings = settings

    def announcement(self, first: int, end: int) -> Announce:
        """Returns what is announced to a receiver."""
        members = tuple([peer.host for peer in self._peers][:MAX_MEMBERS])
        return Announce(first, end, members, self._name)

    def offer(self, peer: Peer, report: Report, end: int, may_rest: bool, now: float) -> int:
        """Takes a report, and returns the offer for its echo; 0: none. `may_rest`: nothing forbids it at this
        stream, which has been sent up to `end`."""
        pair = peer.pair
        peer.called = False
        if peer.rests and pair is not None:
            pair.served.pop(self._key, None)
        peer.rests = False
        settled = report.next == end and report.mode is Mode.LIVE
        if pair is None or not (may_rest and settled and peer.live and peer.announced):
            return 0
        if not self._checksum:
            self._checksum = self.announcement(0, 0).checksum
        # `rests` answers an offer of this checksum, or of an earlier one that was announced in vain: the
        # next change of the members puts that right.
        peer.rests = report.rests and pair.receives(now)
        if peer.rests:
            pair.served[self._key] = None
            self.some = True
        return self._checksum << 1 | peer.rests

    def all_rest(self) -> bool:
        """Whether nobody is to be told anything until something changes."""
        return self.some and all(peer.rests or peer.state is _SILENT for peer in self._peers)

    def wake(self, now: float, *, call: bool) -> None:
        """Ends the rest of all. `call`: they are asked for reports, because no data will make them report."""
        self.some = False
        for peer in self._peers:
            self._wake(peer, now, call)

    def changed(self) -> None:
        """Notes that the members have changed, which has to be announced."""
        self._checksum = 0
        self.stale = self.some
        for peer in self._peers:
            peer.announced = False

    def renew(self, now: float) -> None:
        """Ends the rest of all after a change of the members."""
        self.stale = False
        self.wake(now, call=True)

    def stir(self, host: int, now: float) -> None:
        """Ends the rest of one receiver, which may be gone."""
        peer = self._peers.get(host)
        if peer is not None:
            self._wake(peer, now, True)

    def forget(self, peer: Peer) -> None:
        """Notes that a receiver is removed."""
        if peer.pair is not None:
            peer.pair.served.pop(self._key, None)

    def _wake(self, peer: Peer, now: float, call: bool) -> None:
        pair = peer.pair
        if not peer.rests or pair is None:
            return
        peer.rests = False
        pair.served.pop(self._key, None)
        peer.heard = max(peer.heard, pair.receiver_heard)
        # It knows what was announced; what has changed since is announced within the usual time.
        peer.announce_at = max(peer.announce_at, now + self._settings.announce_every)
        peer.called = call
        self._calling = self._calling or call

    def call(self, ask: Callable[[Peer], None]) -> None:
        """Asks those that are to report, each time until they have."""
        if self._calling:
            self._calling = False
            for peer in self._peers:
                if peer.called and peer.state is not _SILENT:
                    self._calling = True
                    ask(peer)
