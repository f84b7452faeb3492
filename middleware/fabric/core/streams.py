"""All streams of a host, both ends, from received packet bytes to sent packet bytes.

Received bursts are split into segments for their streams. Outgoing data is encoded once and laid out by
target. The work done is in proportion to what arrived or became due.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Final, Protocol

from treecast.middleware.wire.segment import (
    HEADER_SIZE,
    Datagram,
    KeyRing,
    Kind,
    Message,
    Segment,
    SegmentError,
    control,
    cut_encoded,
    decode,
    encode,
)
from treecast.middleware.wire.segment_bodies import Beat, Probe

from .asking import Nearest
from .counters import Shipped
from .evidence import Evidence, Sightings
from .holding import Sizes
from .outgoing import PURPOSES, Outgoing
from .pairs import Pair, Pairs
from .receivers import Receivers
from .sender import Sender
from .settings import StreamSettings
from .timing import Random, Schedule
from .turn import STOOD, Turn


class EdgeFault(enum.Enum):
    """Why a segment is discarded before a stream sees it, in addition to the faults of codec, streams and
    carriers."""

    TOO_SHORT = "the packet is shorter than a segment's header"
    UNKNOWN_STREAM = "this host does not receive the stream"
    UNKNOWN_ORIGIN = "this host has no such stream"
    OWN = "the packet was sent by this host"
    FAR_AHEAD = "live data arrived during the replay of its stream"
    OLD_BEAT = "the beat is an old one or a copy, or of a host that shares no stream with this one"


# The fields of a segment's header that tell whom it is for.
DATA: Final = PURPOSES[int(Kind.DATA)]
_DATA: Final = Kind.DATA
_PLACE: Final = struct.Struct(">IIIQ")  # origin, stream, epoch, sequence
_PLACE_AT: Final = 4
_STREAM_BYTES: Final = 16  # of a header: kind, key, origin, stream and epoch
_DATA_KIND: Final = int(Kind.DATA)
_SHARED: Final = frozenset({Kind.DATA, Kind.HEARTBEAT})  # whose arrivals receivers count if sent to all
_SENDER: Final = struct.Struct(">I")
_SENDER_AT: Final = 36
_JUDGED_BY: Final = 64  # messages sent to a group before a host's requests count against it
_LEAST_ASKED: Final = 8  # requests of a host for which few of these messages are
_AGAIN_AFTER: Final = 1.0  # seconds after which an origin that raised is looked at again
_JUDGED_AFTER: Final = 1.0  # minimum seconds; and twice in a row, because a host that was stopped also asks


UNICAST: Final = 0  # carrier number of unicast, one packet per host


class Unwraps(Protocol):
    """Finds where segments begin in the packets of a socket: see `carriers.carrier.Carrier`."""

    @property
    def alike(self) -> bool:
        """Whether packets with the same beginning, up to the segment's stream, are unwrapped alike."""
        ...

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        """Returns where the segment begins; -1 if there is none for this host."""
        ...


class Witnesses:
    """The evidence about each group in use, shared by the streams that a carrier sends to it. Streams of a
    carrier that names receivers take ways of their own, so each has its own."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], Evidence] = {}  # by carrier and group

    def begin(self, carrier: int, group: int) -> Sightings | None:
        """Returns the part of a stream that uses the carrier from now on; None: unicast."""
        if carrier == UNICAST:
            return None
        if not group:
            return Sightings(Evidence(), named=True)
        return Sightings(self._groups.setdefault((carrier, group), Evidence()), named=False)

    def end(self, carrier: int, group: int, part: Sightings | None) -> None:
        """Ends the part of a stream, and the group's evidence with the last one."""
        if part is not None and not part.over().users:
            self._groups.pop((carrier, group), None)


class Served:
    """A stream that this host is the origin of. `confirmed`: the hosts that its carrier is known to reach, by
    `group`."""

    __slots__ = (
        "_asked",
        "_looked",
        "_sent",
        "_spared",
        "_suspected",
        "_witnesses",
        "carrier",
        "confirmed",
        "data",
        "group",
        "number",
        "sender",
    )

    def __init__(self, sender: Sender, number: int, witnesses: Witnesses) -> None:
        self.sender = sender
        self._witnesses = witnesses
        self.number = number
        self.carrier = UNICAST
        self.group = 0  # if the carrier has groups
        self.confirmed: frozenset[int] = frozenset()
        self.data: Shipped | None = None  # the count of its live data by the carrier
        self._sent = 0  # sent to all, and requested per host, at the last check
        self._asked: dict[int, int] = {}
        self._spared: dict[int, int] = {}  # not for the host
        self._looked = 0.0
        self._suspected: frozenset[int] = frozenset()

    def use(self, carrier: int, group: int, confirmed: frozenset[int], now: float) -> None:
        """Sends live data by this carrier to the hosts it reaches, and by unicast to the others."""
        if (carrier, group, confirmed) != (self.carrier, self.group, self.confirmed):
            if (carrier, group) != (self.carrier, self.group):
                self._witnesses.end(self.carrier, self.group, self.sender.sightings)
                self.sender.sightings = self._witnesses.begin(carrier, group)
                self.sender.stir(None, now)
            self.carrier, self.group = carrier, group
            self._reaches(confirmed)
            self.data = None
            self._suspected = frozenset()
            self._look(now)

    def _reaches(self, hosts: frozenset[int]) -> None:
        self.confirmed = hosts
        if self.sender.sightings is not None:
            self.sender.sightings.reaches(hosts)

    def over(self) -> None:
        """Ends its use of a carrier."""
        self._witnesses.end(self.carrier, self.group, self.sender.sightings)
        self.sender.sightings = None

    def _look(self, now: float) -> dict[int, int]:
        """Starts a new check. Returns the total of whole messages requested by each host of the carrier."""
        self._looked = now
        self._sent = self.sender.sent_to_all
        peers = [peer for peer in self.sender.peers if peer.host in self.confirmed]
        self._asked = {peer.host: peer.asked for peer in peers}
        self._spared = {peer.host: peer.spared for peer in peers}
        return self._asked

    def unreached(self, now: float) -> list[int]:
        """Returns the hosts that the carrier no longer reaches: those that are cut off (`evidence`), and
        those that twice requested more than half of what the carrier was given for them.

        They are removed from `confirmed`. Hosts that lose parts of messages request parts, and are not
        counted.
        """
        sightings = self.sender.sightings
        if sightings is not None and sightings.cut_off:
            cut_off, sightings.cut_off = sightings.cut_off, []
            self._reaches(self.confirmed.difference(cut_off))
            return cut_off
        sent = self.sender.sent_to_all - self._sent
        if self.carrier == UNICAST or sent < _JUDGED_BY or now < self._looked + _JUDGED_AFTER:
            return []
        before, spared = self._asked, self._spared
        asking = frozenset(
            [
                host
                for host, asked in self._look(now).items()
                if _judged(asked - before.get(host, asked), sent - self._spared[host] + spared.get(host, 0))
            ]
        )
        lost = asking & self._suspected
        self._suspected = asking - lost
        if lost:
            self._reaches(self.confirmed - lost)
        return sorted(lost)


def _judged(asked: int, sent: int) -> bool:
    """Whether a host that has requested so many of the messages sent to it is suspected."""
    return asked >= _LEAST_ASKED and 2 * asked > sent


class Shipment:
    """Encoded segments for `hosts` by the carrier of this number, to its `group` if it has groups."""

    __slots__ = ("carrier", "datagrams", "group", "hosts")

    def __init__(self, hosts: list[int], carrier: int = UNICAST, group: int = 0) -> None:
        self.hosts = hosts
        self.carrier = carrier
        self.group = group
        self.datagrams: list[Datagram] = []


class Streams:
    """Both ends of a host's streams: `burst` for arrivals, then `receivers.take`, `answers` and `serve`;
    `next_deadline`.

    `complain` is called for each packet that is discarded before a stream sees it. `isolate` is called with
    the kind of a part that raised, its error, and which one it is: the turn goes on without it.
    """

    def __init__(
        self,
        host: int,
        settings: StreamSettings,
        keys: KeyRing,
        random: Random,
        complain: Callable[[enum.Enum], None],
        *,
        assembly_bytes: int,
        room_bytes: int = 8 << 20,
        nearest: Nearest | None = None,
        sizes: Sizes | None = None,
        isolate: Callable[[str, Exception, object], None] | None = None,
    ) -> None:
        """`room_bytes`: the capacity of the host's sockets. `nearest`: names members to ask for repairs.
        `sizes`: knows how long segments may be to each host."""
        self.host = host
        self.pairs = Pairs(settings, int(random.random() * 2**53))
        self.receivers = Receivers(
            host,
            settings,
            random,
            assembly_bytes=assembly_bytes,
            room_bytes=room_bytes,
            complain=complain,
            nearest=nearest,
            sizes=sizes,
            pairs=self.pairs,
        )
        self.probes: list[tuple[int, Probe]] = []  # (sender, probe) that arrived; the caller removes them
        self.unreached: list[tuple[Served, int]] = []  # hosts that their carrier does not reach; as `probes`
        self.in_vain: list[
            tuple[Served, int]
        ] = []  # hosts at which nothing resent seems to arrive; as `probes`
        self.roomy: list[Served] = []  # streams that refused messages and have room again; as `probes`
        self._keys = keys
        self._complain = complain
        self._isolate = isolate
        self._witnesses = Witnesses()
        self._served: dict[tuple[int, int], Served] = {}  # by stream and epoch
        self._by_number: dict[int, Served] = {}
        self._count = 0
        self._touched: dict[int, None] = {}
        self.schedule = Schedule()
        # Shared by all senders made for it.
        self.turn = Turn(settings.replay_at_once, settings.send_at_once, self.pairs)
        self._next = 0  # number of the stream that comes first in the next turn

    # --- streams served

    def add(self, sender: Sender) -> Served:
        """Serves a stream. Raises ValueError if it is already served."""
        place = (sender.key[1], sender.key[2])
        if place in self._served:
            raise ValueError(f"stream {place[0]} is served in epoch {place[1]} already")
        self._count += 1
        served = Served(sender, self._count, self._witnesses)
        self._served[place] = self._by_number[served.number] = served
        self.touch(served)
        return served

    def remove(self, served: Served) -> None:
        """Stops serving a stream, if it was served."""
        if self._by_number.pop(served.number, None) is not None:
            del self._served[served.sender.key[1], served.sender.key[2]]
            served.over()
            self._touched.pop(served.number, None)
            self.schedule.discard(served.number)

    def touch(self, served: Served) -> None:
        """Marks a stream as changed, so that `serve` looks at it."""
        if served.number in self._by_number:
            self._touched[served.number] = None

    def served(self) -> list[Served]:
        return list(self._served.values())

    # --- from the network

    def burst(self, buffer: memoryview, length: int, size: int, now: float) -> None:
        """Takes `length` bytes of segments of `size` bytes each; the last may be shorter."""
        if now - self.schedule.first >= STOOD:
            self.turn.stood = now  # this packet may have waited for as long in the socket
        start = 0
        while start < length:
            end = min(start + size, length) if size > 0 else length
            self._datagram(buffer, start, end, now)
            start = end

    def wrapped(self, buffer: memoryview, length: int, size: int, unwraps: Unwraps, now: float) -> None:
        """As `burst`, for packets with a carrier's header before the segment."""
        start = skip = 0
        alike = unwraps.alike
        seen = b""  # beginning of the last accepted packet; packets of one stream begin alike
        while start < length:
            end = min(start + size, length) if size > 0 else length
            at = start + skip
            if not seen or end - at < HEADER_SIZE or bytes(buffer[start : at + _STREAM_BYTES]) != seen:
                at = self._unwrapped(buffer, start, end, unwraps)
                if at < 0 or not self._concerns(buffer, at, end):
                    start = end
                    continue
                skip = at - start
                if alike:
                    seen = bytes(buffer[start : at + _STREAM_BYTES])
            self._datagram(buffer, at, end, now)
            start = end

    def _unwrapped(self, buffer: memoryview, start: int, end: int, unwraps: Unwraps) -> int:
        try:
            return unwraps.unwrap(buffer, start, end)
        except Exception as error:
            self._apart("carrier", error, None)
            return -1

    def _apart(self, part: str, error: Exception, where: object) -> None:
        """Keeps an error of one part from the others. Without anybody who counts it, it is raised."""
        if self._isolate is None:
            raise error
        self._isolate(part, error, where)

    def _concerns(self, buffer: memoryview, start: int, end: int) -> bool:
        """Whether a packet of a group may be for this host; checked before computing a tag.

        All fabric hosts of a machine receive the groups that any of them has joined, and their own packets.
        """
        if end - start < HEADER_SIZE:
            return True  # reported later
        origin, stream, epoch, sequence = _PLACE.unpack_from(buffer, start + _PLACE_AT)
        (sender,) = _SENDER.unpack_from(buffer, start + _SENDER_AT)
        if sender == self.host:
            self._complain(EdgeFault.OWN)
        elif stream and origin != self.host and (origin, stream) not in self.receivers:
            self._complain(EdgeFault.UNKNOWN_STREAM)
        elif buffer[start] & 0x0F == _DATA_KIND and self.receivers.ignores(origin, stream, epoch, sequence):
            self._complain(EdgeFault.FAR_AHEAD)
        else:
            return True
        return False

    def _datagram(self, buffer: memoryview, start: int, end: int, now: float) -> None:
        if end - start < HEADER_SIZE:
            self._complain(EdgeFault.TOO_SHORT)
            return
        try:
            segment, _ = decode(buffer, self._keys, start, end)
        except SegmentError as error:
            self._complain(error.fault)
            return
        if segment.sender == self.host:
            self._complain(EdgeFault.OWN)
        elif segment.kind is Kind.PROBE:
            self._probe(segment)
        elif segment.kind is Kind.BEAT:
            self._beat(segment, now)
        elif segment.origin == self.host:
            self._for_origin(segment, now)
        elif (segment.origin, segment.stream) in self.receivers.members:
            self.receivers.receive(segment, now)
        else:
            self._complain(EdgeFault.UNKNOWN_STREAM)

    def _for_origin(self, segment: Segment, now: float) -> None:
        served = self._served.get((segment.stream, segment.epoch))
        if served is None:
            self._complain(EdgeFault.UNKNOWN_ORIGIN)
            return
        self._touched[served.number] = None
        try:
            served.sender.receive(segment, now)
        except Exception as error:
            self._apart("origin", error, served.sender.key)

    def _probe(self, segment: Segment) -> None:
        try:
            self.probes.append((segment.sender, Probe.decode(segment.payload)))
        except SegmentError as error:
            self._complain(error.fault)

    def _beat(self, segment: Segment, now: float) -> None:
        try:
            beat = Beat.decode(segment.payload)
        except SegmentError as error:
            self._complain(error.fault)
            return
        self._digest()
        if not self.pairs.take(segment.sender, beat, now):
            self._complain(EdgeFault.OLD_BEAT)

    def _digest(self) -> None:
        self.pairs.count([served.sender for served in self._served.values()], self.receivers)

    # --- to the network

    def beats(self, now: float) -> list[Shipment]:
        """Returns the beats to other hosts that are due, and wakes what rests with hosts that seem gone. To
        be called before `answers` and `serve`."""
        if now < self.pairs.next_at:
            return []
        for pair in self.pairs.lost_ones(now):
            self._wake(pair, now)
        self._digest()
        shipments: list[Shipment] = []
        for host, beat in self.pairs.beats(now):
            shipment = Shipment([host])
            body = control(Kind.BEAT, self.host, 0, 0, self.host, beat.encode())
            shipment.datagrams.append(encode(body, self._keys))
            shipments.append(shipment)
        return shipments

    def _wake(self, pair: Pair, now: float) -> None:
        self.pairs.lost += 1
        if not pair.serves(now):
            for key in list(pair.received):
                self.receivers.stir(key, now)
            pair.received.clear()
        if not pair.receives(now):
            for place in list(pair.served):
                served = self._served.get(place)
                if served is not None:
                    served.sender.stir(pair.host, now)
                    self.touch(served)
            pair.served.clear()

    def answers(self, now: float) -> list[Shipment]:
        """Returns what receivers send: to the stream's origin, or to other members."""
        found: dict[int, Shipment] = {}
        for out in self.receivers.to_send(now):
            if out.to is not None:
                shipment = found.get(out.to)
                if shipment is None:
                    shipment = found[out.to] = Shipment([out.to])
                shipment.datagrams.extend(out.encode(self._keys))
        return list(found.values())

    def serve(self, now: float) -> list[Shipment]:
        """Returns what origins send in one turn."""
        turn = self.turn
        if now - self.schedule.first >= STOOD:
            turn.stood = now
        shipments: list[Shipment] = []
        numbers = self._in_turn(now)
        limited = len(numbers) > 1  # a single message of a single stream needs no budget
        if limited:
            turn.begin(now, len(numbers))
        for number in numbers:
            served = self._by_number[number]
            try:
                limited = self._serve_one(served, shipments, limited, now)
            except Exception as error:
                self.schedule.set(number, now + _AGAIN_AFTER)
                self._apart("origin", error, served.sender.key)
            if limited and turn.over and not self._next:
                self._next = number + 1
        return shipments

    def _serve_one(self, served: Served, shipments: list[Shipment], limited: bool, now: float) -> bool:
        """Serves one stream. `limited`: the turn's budget has begun; returns whether it has now."""
        sender = served.sender
        alone = sender.take_alone(now)
        if alone is not None:
            self._lay_out_alone(served, alone, shipments)
        else:
            if not limited:
                self.turn.begin(now)
                limited = True
            out = sender.to_send(now)
            if out:
                self._lay_out(served, out, shipments)
        if served.carrier != UNICAST:
            self.unreached.extend([(served, host) for host in served.unreached(now)])
        if sender.in_vain:
            self.in_vain.extend([(served, host) for host in sender.in_vain])
            sender.in_vain.clear()
        if sender.wanting and sender.has_room:
            sender.wanting = False
            self.roomy.append(served)
        self.schedule.set(served.number, sender.next_deadline(now))
        return limited

    def serve_ahead(self, served: Served, now: float) -> list[Shipment]:
        """Sends a stream's only new message before everything else of the next turn; returns nothing if there
        are more."""
        shipments: list[Shipment] = []
        message = served.sender.take_ahead(now)
        if message is not None:
            self._lay_out_alone(served, message, shipments)
        return shipments

    def _in_turn(self, now: float) -> list[int]:
        """The streams to look at; those that had to wait in the last turn come first."""
        if self.schedule.first <= now:
            for number in self.schedule.due(now):
                self._touched[number] = None
        touched = list(self._touched)
        self._touched = {}
        first, self._next = self._next, 0
        if first:
            touched.sort(key=lambda number: (number < first, number))
        return touched

    def _lay_out(self, served: Served, out: list[Outgoing], shipments: list[Shipment]) -> None:
        """Lays out segments by target; each target gets all of its segments in order."""
        by_host: dict[int, Shipment] = {}
        shared = self._targets_of_all(served, by_host)
        some: list[Shipment] = []  # by the carrier, for some of its hosts
        count = served.sender.counters.ship
        for one in out:
            encoded = one.encode(self._keys)
            size = sum([len(datagram) for datagram in encoded])
            if one.to is None:
                targets = shared
                if one.hosts is not None:
                    targets = self._targets_of_all(served, by_host, one.hosts)
                    some.extend([shipment for shipment in targets if shipment.carrier != UNICAST])
                else:
                    self._count_shared(served, one, shared)
                for shipment in targets:
                    shipment.datagrams.extend(encoded)
                    count(shipment.carrier, one.purpose, len(encoded), size)
                continue
            own = by_host.get(one.to)
            if own is None:
                own = by_host[one.to] = Shipment([one.to])
            own.datagrams.extend(encoded)
            count(UNICAST, one.purpose, len(encoded), size)
        shipments.extend(some)  # before heartbeats, which tell of it
        shipments.extend([one for one in shared if one.carrier != UNICAST and one.datagrams])
        shipments.extend(by_host.values())

    def _lay_out_alone(self, served: Served, message: Message, shipments: list[Shipment]) -> None:
        """As `_lay_out`, for one message to all live receivers."""
        sender = served.sender
        encoded = cut_encoded(message, sender.mtu, sender.key, self.host, _DATA, None, self._keys)
        size = 0
        for datagram in encoded:
            size += len(datagram)
        if served.carrier == UNICAST:
            hosts = sender.peers.live
            if message.hosts is not None:
                hosts = [host for host in hosts if host in message.hosts]
                if not hosts:
                    return
            shipment = Shipment(hosts)
            shipment.datagrams = encoded
            shipments.append(shipment)
            if served.data is None:
                served.data = sender.counters.by(UNICAST, DATA)
            served.data.packets += len(encoded) * len(hosts)
            served.data.size += size * len(hosts)
            return
        for shipment in self._targets_of_all(served, {}, message.hosts):
            shipment.datagrams = encoded
            sender.counters.ship(shipment.carrier, DATA, len(encoded), size)
            shipments.append(shipment)
            # One that is not for all proves nothing at the others.
            if shipment.carrier != UNICAST and message.hosts is None and sender.sightings is not None:
                sender.sightings.sent += len(encoded)

    def _count_shared(self, served: Served, one: Outgoing, shared: list[Shipment]) -> None:
        """Counts what receivers count as sent to all, if the carrier sends it to any."""
        sightings = served.sender.sightings
        if sightings is not None and one.kind in _SHARED and shared and shared[-1].carrier != UNICAST:
            sightings.sent += one.count

    def _targets_of_all(
        self, served: Served, by_host: dict[int, Shipment], hosts: frozenset[int] | None = None
    ) -> list[Shipment]:
        """The targets of live data: the carrier once for the hosts it reaches, and each other host by
        unicast. `hosts`: those that it is for; None: all."""
        shared: list[Shipment] = []
        together: Shipment | None = None
        for host in served.sender.peers.live:
            if hosts is not None and host not in hosts:
                continue
            if served.carrier == UNICAST or host not in served.confirmed:
                shipment = by_host.get(host)
                if shipment is None:
                    shipment = by_host[host] = Shipment([host])
                shared.append(shipment)
            elif together is None:
                together = Shipment([host], served.carrier, served.group)
            else:
                together.hosts.append(host)
        if together is not None:
            shared.append(together)
        return shared

    def next_deadline(self, now: float) -> float:
        """When there is something to do if nothing arrives before."""
        if self._touched:
            return now
        return min(self.receivers.next_deadline(now), self.schedule.first, self.pairs.next_at)
