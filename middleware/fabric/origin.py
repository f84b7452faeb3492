"""The handles that a `Fabric` returns: a stream that this host is the origin of, and one that it receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import After, StreamKey

from .carriers.carrier import Copy
from .core.accounting import Row
from .core.counters import StreamCounters
from .core.receiver import Receiver
from .core.reorder import Delivery, Progress
from .core.sender import Sender
from .core.states import PeerState, ReceiverState
from .core.streams import UNICAST, Served

if TYPE_CHECKING:
    from .fabric import Fabric


class PeerView(Struct, frozen=True):
    """A receiver of a stream as seen by its origin. `next`: everything before it is settled there."""

    host: int
    state: PeerState
    next: int
    heard: float  # by the fabric's clock
    carrier: str  # name of the carrier of its live data
    window: int  # bytes that may be in flight to it: of live data, or of its replay
    turnaround: float  # seconds from sending to the report of the arrival
    out_for: float  # seconds for which it has not been live
    left: int  # how often it has left the group for being slow
    doubted: bool  # what its carrier sends may not arrive at it


class PaceView(Struct, frozen=True):
    """The sending rate of live data. Sizes are in bytes of payload, `rate` in bytes per second."""

    rate: float
    window: int  # bytes that may be in flight to the receiver with the least arrived
    on_way: int
    unsent: int  # records waiting in the log
    set_by: int  # the host with the smallest window; 0 if none is live
    why: str  # what last changed its window
    payload: int  # sent to all since the stream began, each byte counted once


class SentView(Struct, frozen=True):
    """Bytes that a stream has sent by one carrier for one purpose; each copy counts."""

    carrier: str
    purpose: str
    packets: int
    size: int  # bytes of segments


class Origin:
    """A stream of this host, made by `Fabric.originate`. No call blocks."""

    def __init__(self, fabric: Fabric, served: Served) -> None:
        self.key: StreamKey = served.sender.key
        self.on_room: Callable[[], None] | None = None  # called when `publish` accepts messages again
        self.served = served  # for the fabric, and for tests
        self.fabric = fabric
        self.by_content = False  # its messages have content headers, and each is for some of its hosts
        self._sender = served.sender

    @property
    def sender(self) -> Sender:
        """The stream's state machine, for inspection."""
        return self._sender

    @property
    def name(self) -> str:
        return self._sender.name

    @property
    def carrier(self) -> str:
        """The name of the carrier of live data to the confirmed hosts."""
        return self._name_of(self.served.carrier)

    @property
    def group(self) -> int:
        """The carrier's group; 0 if it has none."""
        return self.served.group

    @property
    def confirmed(self) -> frozenset[int]:
        """The hosts that get live data by the carrier."""
        return self.served.confirmed

    @property
    def counters(self) -> StreamCounters:
        return self._sender.counters

    @property
    def end(self) -> int:
        """The next record's sequence."""
        return self._sender.end

    @property
    def finished(self) -> bool:
        """Whether it is closed, and every receiver has settled everything or was given up by the log's
        bounds."""
        return self._sender.finished

    def publish(
        self,
        payload: bytes,
        records: int,
        *,
        after: tuple[After, ...] = (),
        expires: float = NEVER,
        content: bytes = b"",
        hosts: frozenset[int] | None = None,
    ) -> int | None:
        """Returns the message's sequence; None if too much waits to be sent. Only for a log of the fabric's
        own.

        `expires` is a time of the fabric's clock. `content`: the message's content header. `hosts`: the
        receivers that it is for (None: all); to others it counts as filtered. Messages published in one turn
        of the event loop are sent together, except for the first. Raises ValueError as `Sender.publish` does.
        """
        sequence = self._sender.publish(
            payload, records, self.fabric.now(), after=after, expires=expires, content=content, hosts=hosts
        )
        self.fabric.send_new(self)
        return sequence

    def grown(self) -> None:
        """Notes that the stream's own log has grown."""
        self.fabric.send_new(self)

    def add_receiver(self, host: int, first: int | None = None) -> None:
        """Adds a receiver that gets everything from `first` on (default: from now on). If it had an account,
        a new one begins."""
        self._sender.add_receiver(host, self.fabric.now(), first)
        self.fit()
        self.fabric.wake(self)

    def remove_receiver(self, host: int) -> None:
        """Removes a receiver; what it has not settled expires for it."""
        self._sender.remove_receiver(host)
        self.fit()
        # It is confirmed no longer: if it is added again, a probe has to reach it first.
        self._use(self.served.carrier, self.group, self.confirmed - {host})
        self.fabric.wake(self)

    def fit(self) -> None:
        """Cuts messages to what arrives at all receivers."""
        paths, now = self.fabric.paths, self.fabric.now()
        if self._sender.cut_to(paths.least([peer.host for peer in self._sender.peers]), now):
            self.fabric.wake(self)

    @property
    def in_vain(self) -> list[int]:
        """The receivers that report, and at which nothing that is sent again arrives."""
        return [peer.host for peer in self._sender.peers if peer.vain.hopeless]

    def rows(self) -> dict[int, Row]:
        """The accounting by host, including removed hosts."""
        return {host: self._sender.row(host) for host in self._sender.ledger.hosts()}

    def peers(self) -> list[PeerView]:
        """The current receivers."""
        now = self.fabric.now()
        return [
            PeerView(
                peer.host,
                peer.state,
                peer.next,
                peer.last_heard,
                self._carrier_of(peer.host),
                int(peer.pace.size if peer.live else peer.window.size),
                peer.turnaround.smoothed if peer.turnaround.measured else 0.0,
                max(0.0, now - peer.out_since) if peer.out_since < NEVER else 0.0,
                peer.left,
                peer.doubted,
            )
            for peer in self._sender.peers
        ]

    def copies(self) -> list[tuple[str, Copy]]:
        """The packets in which a message published now would go to live receivers, with their carriers."""
        served, live = self.served, self._sender.peers.live
        together = [host for host in live if host in served.confirmed and served.carrier != UNICAST]
        alone = [host for host in live if host not in together]
        carriers = self.fabric.carriers
        return [
            (self._name_of(number), copy)
            for number, hosts in ((served.carrier, together), (UNICAST, alone))
            for copy in carriers.copies(number, self.key, served.group, hosts)
        ]

    def pace(self) -> PaceView:
        """The current rate of live data, and which host limits it."""
        live = self._sender.live
        setter = live.setter if live.setter is not None and live.setter.live else None
        return PaceView(
            live.speed(self.fabric.now()),
            live.window,
            live.on_way,
            self._sender.end - live.edge,
            setter.host if setter is not None else 0,
            live.why,
            live.bytes,
        )

    def _name_of(self, carrier: int) -> str:
        return self.fabric.carriers.all[carrier].name

    def _carrier_of(self, host: int) -> str:
        return self._name_of(self.served.carrier if host in self.confirmed else UNICAST)

    def sent(self) -> list[SentView]:
        """The totals that the stream has sent, including repairs and heartbeats."""
        shipped = sorted(self.counters.shipped.items())
        return [
            SentView(self._name_of(carrier), purpose, one.packets, one.size)
            for (carrier, purpose), one in shipped
        ]

    def use_carrier(self, name: str, hosts: Iterable[int], group: int = 0) -> None:
        """Sends live data by this carrier to the hosts that it reaches, from now on.

        All other hosts get unicast. So does a host later found to miss most of the data: the fabric then
        calls `on_unreached`, and the host may be probed again. Raises ValueError if the carrier is not in use
        here or has no such group, and OSError if it cannot send now.
        """
        carriers = self.fabric.carriers
        carriers.named(name).check(group)
        self._use(carriers.number(name), group, frozenset(hosts))

    def _use(self, carrier: int, group: int, hosts: frozenset[int]) -> None:
        self.served.use(carrier, group, hosts, self.fabric.now())

    def group_stands(self) -> None:
        """Releases the data that has waited for a group."""
        if self._sender.live.group_stands():
            self.fabric.wake(self)

    def await_group(self, seconds: float) -> None:
        """Announces that a group is being formed: a burst waits for it at most `seconds` before it goes by
        unicast."""
        self._sender.live.await_group(self.fabric.now() + seconds)

    def drop_carrier(self) -> None:
        """Returns to unicast and ends the wait for a group."""
        self.group_stands()
        self._use(UNICAST, 0, frozenset())

    def takes_filtered(self, host: int, *, takes: bool) -> None:
        """Says whether a host takes the word that a message was filtered, as it is taken to. Hosts of earlier
        versions do not: they get the messages that they ask for."""
        self._sender.takes_filtered(host, takes=takes)

    def close(self) -> None:
        """Ends the stream: no message follows. Receivers are told until they have settled everything; then
        `finished` is true."""
        self._sender.close(self.fabric.now())
        self.fabric.wake(self)

    def forget(self) -> None:
        """Stops serving the stream, finished or not."""
        self.fabric.forget(self)


class Sink(Protocol):
    """The consumer of a stream's messages."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Takes all messages whose turn has come, in order, each once. They count as delivered when it
        returns.

        If it raises, the stream is left and `failed` is called: join again at what was taken.
        """

    def failed(self, error: Exception) -> None:
        """Notes that `deliver` has raised and the stream was left."""


class JoinedStream:
    """A stream that this host receives, made by `Fabric.join`."""

    def __init__(self, fabric: Fabric, receiver: Receiver, sink: Sink) -> None:
        self.key: StreamKey = receiver.key
        self.sink = sink
        self._fabric = fabric
        self._receiver = receiver

    @property
    def receiver(self) -> Receiver:
        """The receiver of the joined epoch, for the fabric and for tests."""
        return self._receiver

    @property
    def name(self) -> str:
        """The name announced by the origin; empty until then."""
        return self._receiver.name

    @property
    def next(self) -> int:
        """The sequence before which everything is settled."""
        return self._receiver.next

    @property
    def lag(self) -> int:
        """The number of records known to exist and not settled."""
        return self._receiver.known - self._receiver.next

    @property
    def silence(self) -> float:
        """Seconds since the last segment of the origin arrived."""
        return self._fabric.now() - self._receiver.heard

    @property
    def state(self) -> ReceiverState:
        return self._receiver.state

    @property
    def progress(self) -> Progress:
        """The progress with which to join in order to continue."""
        return self._receiver.progress

    @property
    def counters(self) -> StreamCounters:
        return self._receiver.counters

    def keep(self, progress: Progress) -> None:
        """With `keeps`: notes that delivered messages up to `progress` are stored durably, so that the origin
        is told."""
        self._fabric.keep(self, progress)

    def leave(self) -> None:
        """Leaves the stream, unless it was joined again in the meantime."""
        self._fabric.leave_joined(self)
