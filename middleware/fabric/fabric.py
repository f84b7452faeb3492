"""The fabric: sockets, clock and event loop around the streams of one host.

    fabric = Fabric(host, FabricSettings(), keys, counters.fabric, random.Random())
    await fabric.start(("10.0.0.1", 7672))           # UDP; fabric.address has the actual port
    fabric.set_host(7, ("10.0.0.2", 7672))

    origin = fabric.originate(stream, epoch, log=None or a StreamLog, name="...")
    origin.add_receiver(7, first)                    # replays to host 7 from `first`, then sends live
    origin.publish(batch, records)                   # or, with a log of one's own: origin.grown()
    origin.rows()                                    # the accounting by host

    joined = fabric.join(7, stream, epoch, sink, progress=Progress(first, first))
    joined.next, joined.lag, joined.progress; joined.leave()

    carrier = fabric.carriers.pick(hosts, mtu, 2)               # a carrier to several hosts at once
    fabric.carriers.named("ip-multicast").join(state); fabric.on_probe = answer    # at the receivers
    fabric.send_probe("ip-multicast", state, nonce, hosts)
    origin.use_carrier("ip-multicast", confirmed hosts, state)
    fabric.on_unreached = probe_again                           # a host is back on unicast
    fabric.state()                                   # interface, MTU, carriers, reasons for refusals

Everything runs in the event loop's thread, and nothing here blocks. Work is done per received burst: its
segments go to their streams, then each touched stream delivers what is in order (one `Sink.deliver` per run
of a stream's messages), then outgoing data is sent. One timer is set to the earliest deadline.

A record that comes alone is not delayed. It is sent from within `publish` or `grown`, before its producer is
answered; the receiving host delivers it before it asks the socket for more.

Times are those of `clock`, which must not go back. A jump ahead makes receivers count as silent or orphaned,
and resolves by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from math import ceil
from typing import Final

from msgspec.structs import replace

from treecast.middleware.model.complaints import Complaints
from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.model.isolation import Isolation
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import KeyRing, Kind, control, encode, more_for
from treecast.middleware.wire.segment_bodies import Probe

from .carriers.registry import Carriers
from .carriers.unicast import Unicast
from .core.log import StreamLog
from .core.reorder import Delivery, Judge, Progress
from .core.sender import Sender
from .core.settings import StreamSettings
from .core.streams import UNICAST, Shipment, Streams
from .core.timing import Random
from .edge import Edge
from .origin import JoinedStream, Origin, Sink
from .paths import Paths, padded
from .settings import FabricSettings
from .sockets.interfaces import NO_INTERFACE
from .sockets.udp import End, Inlets
from .state import FabricState

_log = Log(__name__)

# Faults that are normal: streams that were left or belong to another fabric host of this machine, and bare
# STARE states, which arrive at the same port but have a socket of their own.
_USUAL: Final = frozenset(
    {"OWN", "UNKNOWN_STREAM", "UNKNOWN_ORIGIN", "OLD_EPOCH", "BARE_STATE", "FAR_AHEAD", "OLD_BEAT"}
)
# A packet takes more of a socket's buffer than its bytes (skb->truesize): 2.7 times as much in the worst
# usual case.
_PAYLOAD: Final = 3
_TRUESIZE: Final = 8
_PUT_OFF: Final = 64  # maximum turns
_APART: Final = 50e-6  # seconds: anything published sooner after the last waits for the end of its turn
_PAUSE: Final = 0.001
_WORK_EVERY: Final = 0.002  # minimum seconds between runs of non-urgent work while single messages arrive
_WORK_AFTER: Final = 0.01  # seconds, if no other message arrives

OnProbe = Callable[[int, int, int], None]
OnUnreached = Callable[[Origin, int], None]


class Fabric:
    """All streams of a host, and the carriers that they use."""

    def __init__(
        self,
        host: int,
        settings: FabricSettings,
        keys: KeyRing,
        counters: FabricCounters,
        random: Random,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.host = host
        self.counters = counters
        self.on_probe: OnProbe | None = None  # (sending host, state id, nonce)
        self.on_unreached: OnUnreached | None = None  # (origin, a host that its carrier does not reach)
        self.on_path: Callable[[int], None] | None = None  # other segments than before arrive at this host
        self.on_reach: Callable[[], None] | None = None  # carriers reach other hosts than before
        self.carriers = Carriers(settings)
        self.interface = NO_INTERFACE
        self.stream_settings = settings.stream
        self._settings = settings
        self._keys = keys
        self._random = random
        self._clock = clock
        self._complaints = Complaints(counters.refused, _log, "packet refused", _USUAL)
        self._isolation = Isolation(
            counters.isolated, _log, "part of the fabric has failed; the others go on"
        )
        self._origins: dict[int, Origin] = {}  # by the number of the served stream
        self._joined: dict[tuple[int, int], JoinedStream] = {}  # by origin and stream
        self._soon = False
        self._working = False
        self._closed = False
        self._put_off = 0  # turns without answers from receivers, because more data had arrived
        self._sent_at = (
            -NEVER
        )  # when something was last sent from within `publish` or `grown` (time.monotonic)
        self._worked_at = -NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    # --- start and close

    async def start(self, address: tuple[str, int]) -> None:
        """Binds the sockets; port 0 picks a free one. Raises OSError if the address is not available.

        If groups cannot be used, that is not an error: `state()` gives the reason.
        """
        self.open(address, asyncio.get_running_loop())

    def open(self, address: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        """As `start`. The sockets belong to the calling thread's network namespace."""
        self._loop = loop
        self.now = self._clock or loop.time
        self._edge = edge = Edge(
            self.host,
            self._settings,
            self.counters,
            self._random,
            loop,
            self.now,
            self._complaints.add,
            self._on_readable,
            self._work,
            self._reach_changed,
        )
        edge.keys = self._keys
        edge.bind(address)
        self._udp = edge.udp
        self.interface = edge.interface
        overhead, unicast = self.carriers.overhead + more_for(self._keys), self.carriers.unicast
        self.stream_settings = replace(self._settings.stream, mtu=edge.segment_bytes(overhead))
        self.paths = Paths(edge, unicast, self._keys, overhead, self._path_changed)
        self._streams = Streams(
            self.host,
            self.stream_settings,
            self._keys,
            self._random,
            self._complaints.add,
            assembly_bytes=self._settings.assembly_bytes,
            room_bytes=edge.receive_buffer * _PAYLOAD // _TRUESIZE,
            nearest=self.carriers,
            sizes=self.paths,
            isolate=self._isolation.note,
        )
        self._inlets = edge.inlets = Inlets(self._streams, self._settings.receive_at_once)
        self.carriers.open(edge)
        self._unicast: Unicast = unicast
        self._carriers = self.carriers.all

    @property
    def tags(self) -> bool:
        """Whether the segments that it sends carry a tag."""
        return self._keys.current is not None

    @property
    def address(self) -> tuple[str, int]:
        """The address where unicast segments are received."""
        return self._edge.address

    @property
    def named(self) -> str:
        """The numeric address by which the interface of groups was found."""
        return self._edge.named

    def rebind(self, host: str, advertised: str = "") -> None:
        """See `Edge.rebind`."""
        self._edge.rebind(host, advertised)
        self.interface = self._edge.interface
        self._work_soon()

    def close(self) -> None:
        """Closes the fabric at once; receivers elsewhere notice by its silence."""
        if self._timer is not None:
            self._timer.cancel()
        self._closed = True
        self.paths.close()
        self.carriers.close()
        self._origins.clear()
        self._joined.clear()

    # --- hosts and streams

    def set_host(self, host: int, address: tuple[str, int] | None) -> None:
        """Sets where a host's unicast segments go; None: nowhere. The address is numeric and of the fabric's
        family.

        Raises ValueError if it is not.
        """
        self.carriers.set_address(host, None if address is None else self._edge.checked(address))
        self.paths.moved(host)

    def originate(
        self,
        stream: int,
        epoch: int,
        *,
        log: StreamLog | None = None,
        live_from: int | None = None,
        name: str = "",
        settings: StreamSettings | None = None,
    ) -> Origin:
        """Begins to serve a stream of this host. See `Sender` for `log` and `live_from`.

        `settings` are the stream's own, derived from `stream_settings`. Raises ValueError if it is already
        served.
        """
        sender = Sender(
            self.host,
            stream,
            epoch,
            settings or self.stream_settings,
            self.now(),
            name=name,
            log=log,
            live_from=live_from,
            turn=self._streams.turn,
            nearest=self.carriers,
        )
        served = self._streams.add(sender)
        origin = self._origins[served.number] = Origin(self, served)
        self._work_soon()
        return origin

    def forget(self, origin: Origin) -> None:
        """See `Origin.forget`."""
        self._streams.remove(origin.served)
        self._origins.pop(origin.served.number, None)

    @property
    def waiting_settings(self) -> StreamSettings:
        """`stream_settings` for a stream whose origin still has to send what is missing: its receivers wait
        for that without a limit."""
        return replace(self.stream_settings, give_up_after=NEVER)

    def join(
        self,
        origin: int,
        stream: int,
        epoch: int,
        sink: Sink,
        *,
        progress: Progress,
        judge: Judge | None = None,
        settings: StreamSettings | None = None,
        held: StreamLog | None = None,
        keeps: bool = False,
    ) -> JoinedStream:
        """Begins to receive a stream, replacing an earlier membership.

        `held` is a log from which everything that the sink has taken can be read again; it serves to repair
        others if the origin is gone.

        `progress` is where to begin. A higher epoch is another stream, to be joined separately. With `keeps`,
        the origin is told of delivered messages only after `JoinedStream.keep`.
        """
        receiver = self._streams.receivers.join(
            origin,
            stream,
            epoch,
            self.now(),
            progress=progress,
            judge=judge,
            settings=settings,
            held=held,
            keeps=keeps,
        )
        joined = self._joined[origin, stream] = JoinedStream(self, receiver, sink)
        self._work_soon()
        return joined

    def leave(self, origin: int, stream: int) -> None:
        """Stops receiving the stream. The origin is not told: it removes the host when the relay says so."""
        self._joined.pop((origin, stream), None)
        self._streams.receivers.leave(origin, stream)

    def keep(self, joined: JoinedStream, progress: Progress) -> None:
        """See `JoinedStream.keep`."""
        if self._joined.get(joined.key[:2]) is not joined or self._closed:
            return
        now = self.now()
        origin, stream, epoch = joined.key
        at = self._streams.receivers.keep(origin, stream, epoch, progress, now)
        if at <= now:
            self._work_soon()
        elif not self._soon and at < self._timer_at:
            self._start_timer(now, at)

    def leave_joined(self, joined: JoinedStream) -> None:
        """See `JoinedStream.leave`."""
        if self._joined.get(joined.key[:2]) is joined:
            self.leave(*joined.key[:2])

    # --- probes

    def send_probe(self, carrier: str, group: int, nonce: int, hosts: Iterable[int], size: int = 0) -> None:
        """Sends a probe by this carrier to hosts that it may reach, in a datagram as long as one with a
        segment of `size` bytes. A host that receives it calls `on_probe` and answers by another path.

        Raises ValueError if the carrier is not in use here or has no such group, and OSError if it cannot
        send.
        """
        found = self.carriers.named(carrier)
        found.check(group)
        probe = control(Kind.PROBE, self.host, 0, 0, self.host, Probe(group, nonce).encode())
        found.send(group, [padded(encode(probe, self._keys), size)], sorted(hosts))
        self.counters.probes_sent += 1

    def _answer_probes(self) -> None:
        found, self._streams.probes = self._streams.probes, []
        for sender, probe in found:
            self.counters.probes_received += 1
            try:
                if self.on_probe is not None and (not probe.state or self.carriers.is_member(probe.state)):
                    self.on_probe(sender, probe.state, probe.nonce)
            except Exception as error:
                self._isolation.note("probe", error, sender)

    def _path_changed(self, host: int) -> None:
        for origin in self._origins.values():
            if origin.sender.peers.get(host) is not None:
                origin.fit()
        if self.on_path is not None:
            self.on_path(host)

    def _reach_changed(self) -> None:
        if self.on_reach is not None:
            self.on_reach()

    # --- inspection

    def state(self) -> FabricState:
        """The current state."""
        return FabricState(
            self.host,
            self.address,
            self.interface,
            self.stream_settings.mtu,
            tuple(self.paths.narrow()),
            self._edge.receive_buffer,
            self.carriers.states(),
            len(self._origins),
            len(self._joined),
        )

    def origins(self) -> list[Origin]:
        """All streams served, for inspection."""
        return list(self._origins.values())

    def joined(self) -> list[JoinedStream]:
        """All streams received, for inspection."""
        return list(self._joined.values())

    # --- from the network

    def _on_readable(self, end: End) -> None:
        """Reads from a socket. A message that arrived alone is delivered before more is read."""
        try:
            if self._read(end, self.now()):
                return
        except Exception as error:
            self._isolation.note("socket", error)
        self._work_soon()

    def _read(self, end: End, now: float) -> bool:
        """As `_on_readable`. Returns whether the remaining work may wait for the next messages."""
        inlet = self._inlets.of(end)
        if inlet.several:
            inlet.take_turn(now)
            return False
        single = inlet.take_first(now)
        if self._take(now) == 1 and single:
            return self._work_later(now)
        inlet.take_rest(now)
        return False

    def _work_later(self, now: float) -> bool:
        """Whether the remaining work after a single message, which is some reports, may wait for the next
        messages."""
        if now - self._worked_at >= _WORK_EVERY:
            return False
        if not self._soon and self._timer_at > now + _WORK_AFTER:
            self._start_timer(now, now + _WORK_AFTER)
        return True

    # --- work

    def wake(self, origin: Origin) -> None:
        """Makes the origin's stream be looked at in this turn of the event loop."""
        self._streams.touch(origin.served)
        self._work_soon()

    def send_new(self, origin: Origin) -> None:
        """Sends the origin's new message: at once if it comes alone, otherwise together with those after it.

        It does not wait for a turn that is already scheduled, which may have much to resend.
        """
        self._streams.touch(origin.served)
        if self._working or self._closed or self._udp.queued:
            self._work_soon()
            return
        instant = time.monotonic()  # the loop's time stands still within a turn and advances in milliseconds
        if instant - self._sent_at < _APART:
            self._work_soon()
            return
        self._sent_at = instant
        now = self.now()
        try:
            if self._soon:
                self._ship(self._streams.serve_ahead(origin.served, now))
                return
            self._serve(now)
            at = self._streams.schedule.first  # all else has the standing timer
            if at <= now or self._udp.queued:
                self._set_timer(now)
            elif at < self._timer_at:
                self._start_timer(now, at)
        except Exception as error:  # not the publisher's fault; the stream is looked at again
            self._isolation.note("origin", error, origin.sender.key)
            self._work_soon()

    def _work_soon(self) -> None:
        """Schedules `_work` for the end of this turn of the loop or for the next, once however often it is
        requested."""
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._work)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._work_soon()

    def _work(self) -> None:
        """Delivers what is in order, sends what is to be sent, and sets the timer."""
        self._soon = False
        if self._closed:
            return
        now = self._worked_at = self.now()
        try:
            self._work_at(now)
        except (
            Exception
        ) as error:  # of no single stream; what was taken off a list is lost, as on the network
            self._isolation.note("turn", error)
        self._set_timer(now)

    def _work_at(self, now: float) -> None:
        streams = self._streams
        # After a stall, data about to be requested may already be in a socket.
        answer = not streams.receivers.due(now) or self._inlets.take_some(now) or self._put_off >= _PUT_OFF
        self._put_off = 0 if answer else self._put_off + 1
        if streams.probes:
            self._answer_probes()
        self._take(now)
        self._ship(streams.beats(now))
        self._note_beats()
        if answer:
            self._ship(streams.answers(now))
        # While much waits for the kernel, streams wait as well: data sent now would be dropped.
        if self._udp.queued <= self._settings.queue_bytes // 2:
            self._serve(now)
        if streams.receivers.broken:
            self._part_with_broken()

    def _note_beats(self) -> None:
        counters, pairs = self.counters, self._streams.pairs
        counters.beats_sent, counters.beats_received = pairs.sent, pairs.received
        counters.rests_broken = pairs.lost

    def _take(self, now: float) -> int:
        """Delivers the messages whose turn it is, and returns their number. What sinks publish is sent by
        `_work`."""
        taken = self._streams.receivers.take(now)
        if taken:
            self._working = True
            try:
                self._deliver(taken)
            finally:
                self._working = False
        if self._streams.receivers.broken:
            self._part_with_broken()
        return len(taken)

    def _part_with_broken(self) -> None:
        """Tells the sinks of streams whose receiver has raised: they join again, at what they have taken."""
        found, self._streams.receivers.broken = self._streams.receivers.broken, []
        for key, error in found:
            self._isolation.note("receiver", error, key)
            joined = self._joined.get(key[:2])
            if joined is not None and joined.key == key:
                del self._joined[key[:2]]
                self._tell_failed(joined, error)

    def _tell_failed(self, joined: JoinedStream, error: Exception) -> None:
        try:
            joined.sink.failed(error)
        except Exception as another:
            self._isolation.note("sink", another, joined.key)

    def _serve(self, now: float) -> None:
        self._ship(self._streams.serve(now))
        if self._streams.unreached:
            self._fall_back()
        if self._streams.in_vain:
            self.paths.suspect_all(self._streams)
        if self._streams.roomy:
            self._tell_of_room()

    def _tell_of_room(self) -> None:
        found, self._streams.roomy = self._streams.roomy, []
        for served in found:
            origin = self._origins.get(served.number)
            if origin is not None and origin.on_room is not None:
                self._loop.call_soon(origin.on_room)

    def _ship(self, shipments: list[Shipment]) -> None:
        for one in shipments:
            try:
                self._ship_one(one)
            except Exception as error:
                self._isolation.note("carrier", error, one.hosts)

    def _ship_one(self, one: Shipment) -> None:
        if one.carrier == UNICAST:
            for host in one.hosts:
                address = self._unicast.addresses.get(host)
                if address is not None:
                    self._udp.send(one.datagrams, address)
        else:
            whole = [bytes(datagram) for datagram in one.datagrams]
            self._carriers[one.carrier].send(one.group, whole, one.hosts)

    def _fall_back(self) -> None:
        """Reports hosts that a carrier does not reach; they are already back on unicast."""
        found, self._streams.unreached = self._streams.unreached, []
        for served, host in found:
            self.counters.fell_back += 1
            origin = self._origins.get(served.number)
            try:
                if origin is not None and self.on_unreached is not None:
                    self.on_unreached(origin, host)
            except Exception as error:
                self._isolation.note("unreached", error, host)

    def _deliver(self, taken: list[tuple[tuple[int, int, int], Delivery]]) -> None:
        """Calls a sink once per run of messages of one stream, so that the order between streams is kept."""
        at = 0
        while at < len(taken):
            stream, first = taken[at][0][:2], at
            while at < len(taken) and taken[at][0][:2] == stream:
                at += 1
            joined = self._joined.get(stream)
            if joined is not None:
                self._hand_out(joined, [delivery for _, delivery in taken[first:at]])

    def _hand_out(self, joined: JoinedStream, deliveries: list[Delivery]) -> None:
        try:
            joined.sink.deliver(deliveries)
        except Exception as error:
            _log.exception("received part of a stream cannot be taken", stream=joined.key)
            self.counters.sink_errors += 1
            joined.leave()
            self._tell_failed(joined, error)

    def _set_timer(self, now: float) -> None:
        at = self._streams.next_deadline(now)
        if self._udp.queued:
            at = max(at, now + _PAUSE)  # `_writable` comes earlier
        if at <= now:
            self._work_soon()
        elif at < self._timer_at:
            self._start_timer(now, at)

    def _start_timer(self, now: float, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = ceil((at - now) * 1000) / 1000  # as `model.timers.no_sooner`
        self._timer = self._loop.call_later(delay, self._on_timer)
        self._timer_at = at
