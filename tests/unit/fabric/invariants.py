"""The invariants of pacing: `Stations` that check them at every turn of every host.

For the live data and for each replay: while bytes are sent, the bytes in flight are at most the window and
the room that the receiver has reported, plus one part; they are never negative. A replay may always have 32
KiB in flight, and as much of repeated data. The cursor never goes back. Windows, and the memory of receivers,
stay within their bounds. Each host gets each message once and in order (`stations`). While a host lacks
something, something is delivered within `patience`.
"""

from __future__ import annotations

from tests.unit.fabric.links import Weather
from tests.unit.fabric.stations import Station, Stations

from treecast.middleware.fabric.core.peers import Peer
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import PeerState
from treecast.middleware.fabric.core.streams import Shipment
from treecast.middleware.fabric.core.timing import Track
from treecast.middleware.wire.segment import part_size

_ACCOUNTS_EVERY = 64  # turns


class BrokenError(AssertionError):
    """An invariant does not hold."""


class _Sent:
    """The bytes that a sender had sent before a turn: live, and in each replay new and repeated."""

    def __init__(self, sender: Sender) -> None:
        self.total = sender.live._flight.total
        self.replays = {
            peer.host: (peer.flight, peer.flight._flight.total, peer.flight.again_bytes)
            for peer in sender.peers
        }


class CheckedStations(Stations):
    """`patience`: seconds without a delivery, while a host lacks something, that count as a deadlock."""

    def __init__(
        self,
        seed: int,
        weather: Weather,
        settings: StreamSettings,
        hosts: int,
        *,
        socket_bytes: int = 1 << 20,
        patience: float = 3.0,
    ) -> None:
        super().__init__(seed, weather, settings, hosts, socket_bytes)
        self.patience = patience
        self.turns = 0
        self._part_bytes = part_size(settings.mtu)
        self._cursors: dict[tuple[int, int, int], tuple[int, int]] = {}

    def serve(self, station: Station) -> list[Shipment]:
        senders = [served.sender for served in station.streams.served()]
        for sender in senders:
            self._look_at_cursor(sender)
        before = [_Sent(sender) for sender in senders]
        shipments = super().serve(station)
        for sender, then in zip(senders, before, strict=True):
            self._look(sender, then)
        self._look_at_receivers(station)
        self._look_for_progress()
        return shipments

    def _look_at_cursor(self, sender: Sender) -> None:
        cursor = (sender.live.edge, sender.live.sent_parts)
        self._holds(cursor >= self._cursors.get(sender.key, (0, 0)), "the cursor goes back", sender)
        self._cursors[sender.key] = cursor

    def _look(self, sender: Sender, before: _Sent) -> None:
        self._look_at_cursor(sender)
        total = sender.live._flight.total
        for peer in sender.peers:
            if peer.state is PeerState.LIVE:
                self._look_at_live(sender, peer, total, total > before.total)
            elif peer.state is PeerState.CATCHING_UP:
                self._look_at_replay(sender, peer, before.replays.get(peer.host))
        self.turns += 1
        if self.turns % _ACCOUNTS_EVERY == 0:
            for peer in sender.peers:
                self._holds(sender.row(peer.host).balanced, "an account is not balanced", sender, peer)

    def _look_at_live(self, sender: Sender, peer: Peer, total: int, sent: bool) -> None:
        settings, on_way = self.settings, total - peer.arrived
        self._holds(on_way >= 0, f"{on_way} live bytes are on their way", sender, peer)
        size = peer.pace.size
        self._holds(settings.live_least <= size <= settings.live_window, f"a window of {size}", sender, peer)
        if sent:
            may = min(int(size), peer.room) + self._part_bytes
            self._holds(on_way <= may, f"{on_way} live bytes on their way of {may}", sender, peer)
            settled = sender.live._flight.place(min(peer.next, sender.live.edge))
            ahead = total - settled
            most = sender.live._most_ahead + self._part_bytes
            self._holds(ahead <= most, f"{ahead} live bytes unsettled of {most}", sender, peer)

    def _look_at_replay(self, sender: Sender, peer: Peer, before: tuple[Track, int, int] | None) -> None:
        settings, on_way, again = self.settings, peer.flight.on_way, peer.flight.again_bytes
        self._holds(on_way >= again >= 0, f"{on_way} replayed bytes are on their way", sender, peer)
        size = peer.window.size
        within = settings.replay_least <= size <= settings.replay_window
        self._holds(within, f"a window of {size}", sender, peer)
        self._holds(peer.next <= max(peer.sent, peer.edge), "settled before it was sent", sender, peer)
        if before is None or before[0] is not peer.flight:
            return
        may = min(int(size), max(peer.room, settings.replay_least)) + self._part_bytes
        if peer.flight._flight.total > before[1]:
            self._holds(on_way <= may, f"{on_way} replayed bytes on their way of {may}", sender, peer)
        if again > before[2]:
            most = max(may, settings.replay_least + self._part_bytes)
            self._holds(again <= most, f"{again} bytes sent again on their way of {most}", sender, peer)

    def _look_at_receivers(self, station: Station) -> None:
        settings = self.settings
        most = 2 * settings.buffer_bytes + settings.assembly_bytes + settings.message_bytes
        for receiver in station.streams.receivers:
            if receiver.memory > most:
                raise BrokenError(f"{receiver.memory} bytes held at {station.host}")

    def _look_for_progress(self) -> None:
        if self.now - self.progressed_at > self.patience:
            if self.lacks():
                raise BrokenError(f"nothing was delivered for {self.patience} s at {self.now:.3f}")
            self.progressed_at = self.now

    def _holds(self, truth: bool, what: str, sender: Sender, peer: Peer | None = None) -> None:
        if not truth:
            host = f", host {peer.host} {peer.state.name}" if peer is not None else ""
            raise BrokenError(f"{what}: stream {sender.key[1]} of {sender.key[0]}{host} at {self.now:.4f}")
