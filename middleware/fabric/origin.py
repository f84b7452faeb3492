"""The handles of a `Fabric`: a stream that this host is the origin of, and one that it receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from treecast.middleware.wire.segment import After
from treecast.middleware.wire.segment_assembly import StreamKey

from .core.accounting import Row
from .core.counters import StreamCounters
from .core.outcomes import Delivery, Progress
from .core.receiver import Receiver
from .core.sender import Sender
from .core.settings import NEVER
from .core.states import PeerState, ReceiverState
from .core.streams import UNICAST, Served

if TYPE_CHECKING:
    from .fabric import Fabric


class PeerView(Struct, frozen=True):
    """A receiver of a stream, as its origin sees it. `next`: all before it is settled there."""

    host: int
    state: PeerState
    next: int
    heard: float  # by the fabric's clock
    carrier: str  # the name of what live data goes to it by
    window: int  # bytes that may be on their way to it: of live data, or of its replay
    turnaround: float  # seconds from sending to the report of it
    out_for: float  # seconds that it has not been live
    left: int  # how often it has left the group for being slow


class PaceView(Struct, frozen=True):
    """How fast what goes to all is sent. Sizes in bytes of payload, `rate` in bytes per second."""

    rate: float
    window: int  # that may be on their way to who has got least
    on_way: int
    unsent: int  # records that wait in the log
    set_by: int  # the host whose window is the smallest; 0 where nobody is live
    why: str  # what last changed its window
    payload: int  # sent to all since the stream began, each once


class SentView(Struct, frozen=True):
    """What a stream has sent by one carrier for one purpose; each copy counts."""

    carrier: str
    purpose: str
    packets: int
    size: int  # bytes of segments


class Origin:
    """A stream of this host. Made by `Fabric.originate`; every call is answered at once."""

    def __init__(self, fabric: Fabric, served: Served) -> None:
        self.key: StreamKey = served.sender.key
        self.on_room: Callable[[], None] | None = None  # `publish` had refused a message, and takes one now
        self.served = served  # for the fabric, and for tests
        self._fabric = fabric
        self._sender = served.sender

    @property
    def sender(self) -> Sender:
        """The stream's state machine, to look at."""
        return self._sender

    @property
    def name(self) -> str:
        return self._sender.name

    @property
    def carrier(self) -> str:
        """The name of what live data goes by to those confirmed."""
        return self._name_of(self.served.carrier)

    @property
    def group(self) -> int:
        """Of the carrier; 0 where it has none."""
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
        """Closed, and every receiver has settled all of it or was given up by the log's bounds."""
        return self._sender.finished

    def publish(
        self,
        payload: bytes,
        records: int,
        *,
        after: tuple[After, ...] = (),
        expires: float = NEVER,
    ) -> int | None:
        """The message's sequence; None while too much waits to be sent. Only where the log is the fabric's.

        `expires` is a time of the fabric's clock. What is published in one turn of the event loop is sent
        together, but for the first of it. ValueError as `Sender.publish`.
        """
        sequence = self._sender.publish(payload, records, self._fabric.now(), after=after, expires=expires)
        self._fabric.send_new(self)
        return sequence

    def grown(self) -> None:
        """The stream's own log has more records than before."""
        self._fabric.send_new(self)

    def add_receiver(self, host: int, first: int | None = None) -> None:
        """`host` gets all from `first` on (default: from now on). Its account begins anew if it had one."""
        self._sender.add_receiver(host, self._fabric.now(), first)
        self._fabric.wake(self)

    def remove_receiver(self, host: int) -> None:
        """What it has not settled has expired for it."""
        self._sender.remove_receiver(host)
        self._use(self.served.carrier, self.group, self.confirmed - {host})
        self._fabric.wake(self)

    def rows(self) -> dict[int, Row]:
        """The accounting, by host; of hosts that were removed too."""
        return {host: self._sender.row(host) for host in self._sender.ledger.hosts()}

    def peers(self) -> list[PeerView]:
        """The receivers now."""
        now = self._fabric.now()
        return [
            PeerView(
                peer.host,
                peer.state,
                peer.next,
                peer.heard,
                self._carrier_of(peer.host),
                int(peer.pace.size if peer.live else peer.window.size),
                peer.turnaround.smoothed if peer.turnaround.measured else 0.0,
                max(0.0, now - peer.out_since) if peer.out_since < NEVER else 0.0,
                peer.left,
            )
            for peer in self._sender.peers
        ]

    def pace(self) -> PaceView:
        """How fast what goes to all is sent now, and who sets it."""
        live = self._sender.live
        setter = live.setter if live.setter is not None and live.setter.live else None
        return PaceView(
            live.speed(self._fabric.now()),
            live.window,
            live.on_way,
            self._sender.end - live.edge,
            setter.host if setter is not None else 0,
            live.why,
            live.bytes,
        )

    def _name_of(self, carrier: int) -> str:
        return self._fabric.carriers.all[carrier].name

    def _carrier_of(self, host: int) -> str:
        return self._name_of(self.served.carrier if host in self.confirmed else UNICAST)

    def sent(self) -> list[SentView]:
        """What all of it has cost, repairs and heartbeats too."""
        shipped = sorted(self.counters.shipped.items())
        return [
            SentView(self._name_of(carrier), purpose, one.packets, one.size)
            for (carrier, purpose), one in shipped
        ]

    def use_carrier(self, name: str, hosts: Iterable[int], group: int = 0) -> None:
        """What goes to all that are live goes by this carrier to the hosts that it reaches, at once.

        All others get it by unicast, and so does a host that is later found to miss most of it: then the
        fabric's `on_unreached` is called, and the host may be probed again. ValueError where the carrier is
        not in use here or has no such group, OSError where it cannot send now.
        """
        carriers = self._fabric.carriers
        carriers.named(name).check(group)
        self._use(carriers.number(name), group, frozenset(hosts))

    def _use(self, carrier: int, group: int, hosts: frozenset[int]) -> None:
        self.served.use(carrier, group, hosts, self._fabric.now())

    def group_stands(self) -> None:
        """What has waited for a group goes on."""
        if self._sender.live.group_stands():
            self._fabric.wake(self)

    def await_group(self, seconds: float) -> None:
        """A group is being formed: a burst waits for it so long, at most, before it goes by unicast."""
        self._sender.live.await_group(self._fabric.now() + seconds)

    def drop_carrier(self) -> None:
        """Back to unicast; no group is waited for."""
        self.group_stands()
        self._use(UNICAST, 0, frozenset())

    def close(self) -> None:
        """No message follows. Receivers are told until they have settled all; then `finished` is true."""
        self._sender.close(self._fabric.now())
        self._fabric.wake(self)

    def forget(self) -> None:
        """The stream is served no more, finished or not."""
        self._fabric.forget(self)


class Sink(Protocol):
    """Where a stream's messages go."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """All messages whose turn has come, in order, each once. They count as delivered when it returns.

        Where it raises, the stream is left and `failed` is called: join again at what was taken.
        """

    def failed(self, error: Exception) -> None:
        """`deliver` has raised, and the stream was left."""


class JoinedStream:
    """A stream that this host receives. Made by `Fabric.join`."""

    def __init__(self, fabric: Fabric, receiver: Receiver, sink: Sink) -> None:
        self.key: StreamKey = receiver.key
        self.sink = sink
        self._fabric = fabric
        self._receiver = receiver

    @property
    def receiver(self) -> Receiver:
        """Of the epoch that was joined: for the fabric, and for tests."""
        return self._receiver

    @property
    def name(self) -> str:
        """As its origin announces it; empty until then."""
        return self._receiver.name

    @property
    def next(self) -> int:
        """All before it is settled."""
        return self._receiver.next

    @property
    def lag(self) -> int:
        """Records that are known to exist and not settled."""
        return self._receiver.known - self._receiver.next

    @property
    def state(self) -> ReceiverState:
        return self._receiver.state

    @property
    def progress(self) -> Progress:
        """What to join with, to go on."""
        return self._receiver.progress

    @property
    def counters(self) -> StreamCounters:
        return self._receiver.counters

    def keep(self, progress: Progress) -> None:
        """Joined with `keeps`: what was taken up to `progress` is safe, and the origin is told."""
        self._fabric.keep(self, progress)

    def leave(self) -> None:
        """Receives no more of it, unless it was joined anew meanwhile."""
        self._fabric.leave_joined(self)
