"""Relaying by hosts: one copy into each zone, for networks that carry only unicast.

    UDP of the fabric's own port | header (wire.relay) | segment        to a host that serves others
    UDP of the fabric's own port | segment                              to one that serves nobody: bare
    multicast to the zone's group | segment                             to hosts of the zone that it reaches

`routing.zones` decides which host serves which, by the hosts' zones from the coordinator. An origin sends at
most `AT_ORIGIN` copies, and a host that forwards sends at most `ON_THE_WAY`. As with any carrier, receivers
report to the origin and are repaired from there: a loss on the path is a gap.

Where multicast reaches at least two hosts of this host's own zone, they get one copy together
(`fabric.zone_group`); `--carrier relay=unicast` switches that off.

A host that serves others is probed while it does (HELLO, answered by HERE). If it fails to answer `TRIES`
times in a row, each within a time-out from its round trips, it serves nobody until it answers again. It still
gets its own copy, from another host of its zone. A dead host thus costs only the data in flight through it,
which is repaired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from treecast.middleware.fabric.core.timing import RoundTrip
from treecast.middleware.fabric.paths import padded
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.udp import SocketAddress, UdpSocket, shown
from treecast.middleware.fabric.zone_group import ZoneGroup
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import no_sooner
from treecast.middleware.routing.zones import Branch, Plan, Zone, branches, levels_between, nearer, parse_zone
from treecast.middleware.wire.relay import (
    LIST_BYTES,
    MOST_HOPS,
    MOST_HOSTS,
    OVERHEAD,
    RelayError,
    RelayFault,
    RelayHeader,
    RelayKind,
    decode_header,
    encode_header,
    is_relayed,
    list_bytes,
)
from treecast.middleware.wire.segment import Kind, SegmentError, StreamKey, control, decode, encode
from treecast.middleware.wire.segment_bodies import Probe

from .carrier import Carrier, CarrierState, Copy, OwnGroup, Place, Reach
from .ip_multicast import membership_advice

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

_log = Log(__name__)

NAME: Final = "relay"
AT_ORIGIN: Final = 4  # maximum copies that an origin sends
ON_THE_WAY: Final = 2  # maximum copies that a host forwards: twice what it receives
TRIES: Final = 3  # unanswered hellos after which a host serves nobody
_WITHOUT_GROUPS: Final = "unicast"  # option: no multicast inside the zone
_MOST_WAYS: Final = 4096  # cache size: by sets of hosts and streams
_PLACE: Final = slice(4, 12)  # of a segment: origin and stream
_FIRST_TRIP: Final = 0.05  # seconds, until a round trip is measured
_LEAST: Final = 0.05  # minimum seconds between two hellos
_SOONEST: Final = 0.01  # minimum seconds until the next check
_IN_USE: Final = 1.0  # seconds after the last segment that it was given to forward
_APART_LONGEST: Final = 5.0  # maximum seconds between hellos to a host that does not answer

# (bytes before the segment, address)
_Way = tuple[bytes, SocketAddress]


def make(settings: FabricSettings) -> Carrier:
    """See `registry`."""
    option = settings.options.get(NAME, "")
    if option not in ("", _WITHOUT_GROUPS):
        raise ValueError(f"relay={option}: the only option is relay={_WITHOUT_GROUPS}")
    return Relay(groups=not option)


class _Server:
    """A host that serves others for this one, or has done so."""

    __slots__ = ("asked", "missed", "nonce", "shunned", "trip", "used")

    def __init__(self) -> None:
        self.trip = RoundTrip(_FIRST_TRIP)
        self.used = 0.0  # when it was last given data to forward
        self.asked = 0.0  # when the last hello was sent
        self.nonce = 0  # of the unanswered hello; 0: none
        self.missed = 0
        self.shunned = False

    @property
    def patience(self) -> float:
        """How long an answer may take; grows for a shunned host."""
        patience = max(_LEAST, self.trip.timeout)
        return min(patience * 2 ** min(self.missed, 16), _APART_LONGEST) if self.shunned else patience


class Relay:
    """The carrier of one host, including what it forwards for others."""

    def __init__(self, *, groups: bool = True) -> None:
        """`groups`: use multicast inside the zone where it reaches hosts."""
        self.name = NAME
        self.refusal = "it is not open"
        self.group_form = ""  # no joining: packets name their receivers
        self.overhead = OVERHEAD
        self.alike = False  # each packet is examined: it may have to be forwarded
        self.sent_on = 0  # packets forwarded, counting each copy
        self._groups = groups
        self._group: ZoneGroup | None = None
        self._edge: Edge | None = None
        self._udp: UdpSocket
        self._zones: dict[int, Zone] = {}
        self._addresses: dict[int, SocketAddress] = {}
        self._servers: dict[int, _Server] = {}
        self._ways: dict[tuple[tuple[int, ...], int, int], list[_Way]] = {}
        self._heads: dict[tuple[tuple[int, ...], int, int], list[_Server]] = {}
        self._shunned: frozenset[int] = frozenset()
        self._sharing: dict[tuple[tuple[int, ...], int, int], bool] = {}  # several hosts are in this zone
        self._waiting: dict[SocketAddress, list[bytes]] = {}  # to be forwarded at the end of this turn
        self._timer: asyncio.TimerHandle | None = None
        self._nonce = 0

    def open(self, edge: Edge) -> None:
        """Opens on the fabric's own socket, where its packets arrive among bare segments."""
        self._edge, self._udp, self.refusal = edge, edge.udp, ""
        # Not from 0: an answer to an earlier run of this host must not count for this one.
        self._nonce = int(edge.random.random() * 2**62)
        edge.watch(edge.udp, self)
        if self._groups:
            self._group = ZoneGroup(edge, self._ask_group, self._ways.clear)
            self._group.open(self._zones.get(edge.host, ()), self)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._group is not None:
            self._group.close()
        self._waiting.clear()
        self.refusal = "it is closed"

    # --- knowledge of the network

    def set_host(self, host: int, place: Place | None) -> None:
        zone = _zone_of(host, place.zone) if place is not None else ()
        address = place.address if place is not None else None
        moved = self._zones.get(host, ()) != zone
        if self._zones.get(host, ()) != zone or self._addresses.get(host) != address:
            self._ways.clear()
        if zone:
            self._zones[host] = zone
        else:
            self._zones.pop(host, None)
        if address is not None:
            self._addresses[host] = address
        else:
            self._addresses.pop(host, None)
            self._forget(host)
        if moved and self._group is not None and host == self._host:
            self._group.open(zone, self)

    def _forget(self, host: int) -> None:
        server = self._servers.pop(host, None)
        if server is not None and server.shunned:
            self._shun()

    def learn(self, rules: object) -> None:
        raise ValueError("hosts that send on need no rules")

    def reach(self, hosts: Collection[int]) -> Reach:
        """The hosts whose address is known."""
        assert self._edge is not None
        known = frozenset([host for host in hosts if host in self._addresses])
        return Reach(known, self._edge.segment_bytes(OVERHEAD))

    def apart(self, host: int, other: int) -> int:
        return levels_between(self._zones.get(host, ()), self._zones.get(other, ()))

    def nearest(self, origin: int, stream: int, members: Collection[int]) -> tuple[int, ...]:
        """Members in the zones of this host that do not hold the origin (`routing.zones.nearer`)."""
        alive = [host for host in members if host not in self._shunned]
        return nearer(self._host, origin, alive, self._zones, origin << 32 | stream)

    def check(self, group: int) -> None:
        if group:
            raise ValueError(f"hosts that send on have no group {group}")
        if self.refusal:
            raise OSError(self.refusal)

    # --- groups (none)

    def join(self, group: int) -> None:
        raise ValueError("hosts that send on have no groups")

    def leave(self, group: int) -> None:
        """Does nothing: there are no groups."""

    def is_member(self, group: int) -> bool:
        return False

    # --- as the origin

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        if self.refusal or not datagrams:
            return
        stream = int.from_bytes(datagrams[0][_PLACE])
        for prefix, address in self._ways_to(tuple(hosts), stream, MOST_HOPS):
            self._out([prefix + one for one in datagrams] if prefix else datagrams, address)

    def _out(self, datagrams: list[bytes], address: SocketAddress) -> None:
        if self._group is not None and address == self._group.address:
            self._group.send(datagrams)
        else:
            self._udp.send(datagrams, address)

    def _ways_to(self, hosts: tuple[int, ...], stream: int, hops: int) -> list[_Way]:
        """The hosts to which this host sends, with `hops` left for the stream, so that all of `hosts` are
        reached."""
        key = hosts, stream, hops
        ways = self._ways.get(key)
        if ways is None:
            ways = self._find(key)
        heads = self._heads[key]
        if heads:
            self._use(heads)
        if self._sharing[key] and self._group is not None:
            self._group.use()
        return ways

    def _find(self, key: tuple[tuple[int, ...], int, int]) -> list[_Way]:
        known = self._known(key[0])
        fitting, together = self._branches(known, *key[1:])
        if len(self._ways) >= _MOST_WAYS:
            self._ways.clear()
        # Emptied here with the ways that they belong to, wherever these were cleared.
        if not self._ways:
            self._heads.clear()
            self._sharing.clear()
        self._sharing[key] = sum([self._is_near(host) for host in known]) > 1
        self._heads[key] = [self._servers.setdefault(one.head, _Server()) for one in fitting if one.rest]
        ways = self._ways[key] = [(_prefix(one, key[2]), self._addresses[one.head]) for one in fitting]
        if together and self._group is not None and self._group.address is not None:
            ways.append((b"", self._group.address))
        return ways

    def _known(self, hosts: Collection[int]) -> list[int]:
        return [host for host in hosts if host in self._addresses and host != self._host]

    def _branches(self, hosts: list[int], stream: int, hops: int) -> tuple[list[Branch], list[int]]:
        """Returns (branches that each fit into a header, hosts that get one copy by the zone's group)."""
        together = self._together(hosts)
        alone = [host for host in hosts if host not in together]
        if hops < 1:  # hop limit reached: serve the rest directly
            return [Branch(host, ()) for host in alone], together
        most = AT_ORIGIN if hops == MOST_HOPS else ON_THE_WAY
        # The group's copy is one of those that this host may send.
        plan = Plan(most - bool(together), stream, self._shunned)
        found = branches(self._zones.get(self._host, ()), alone, self._zones, plan)
        return [part for one in found for part in _fitting(one)], together

    def _is_near(self, host: int) -> bool:
        """Whether a host is in the same zone."""
        zone = self._zones.get(host, ())
        return bool(zone) and zone == self._zones.get(self._host, ())

    def _together(self, hosts: list[int]) -> list[int]:
        """The hosts that get one copy by the zone's group: at least two, or none."""
        if self._group is None or self._group.address is None:
            return []
        found = [host for host in hosts if host in self._group.reached and self._is_near(host)]
        return found if len(found) > 1 else []

    @property
    def _host(self) -> int:
        assert self._edge is not None
        return self._edge.host

    # --- as a forwarding host

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        if start >= end or not is_relayed(buffer[start]):
            return start  # a bare segment
        assert self._edge is not None
        try:
            header, at = decode_header(buffer, start, end)
            if header.kind is not RelayKind.FORWARD:
                self._greeted(header.kind, buffer, at, end)
                return -1
            return self._forward(header, buffer, at, end)
        except (RelayError, SegmentError) as error:
            self._edge.complain(error.fault)
            return -1

    def _forward(self, header: RelayHeader, buffer: memoryview, at: int, end: int) -> int:
        """Forwards a packet to the other hosts of its list, and returns where the segment for this host
        begins."""
        assert self._edge is not None
        if self._host not in header.hosts:
            raise RelayError(RelayFault.NOT_NAMED)
        if len(header.hosts) > 1:
            # Forward only authentic packets; the stream counts it when it comes to it.
            segment, _ = decode(buffer, self._edge.keys, at, end, counted=False)
            inner = bytes(buffer[at:end])
            stream = segment.origin << 32 | segment.stream
            rest = tuple([host for host in header.hosts if host not in (self._host, segment.sender)])
            for prefix, address in self._ways_to(rest, stream, header.hops - 1):
                self._send_later(prefix + inner, address)
        return at

    def _send_later(self, datagram: bytes, address: SocketAddress) -> None:
        """Queues a datagram for the end of this turn, so that one call sends many to the same address."""
        assert self._edge is not None
        if not self._waiting:
            self._edge.loop.call_soon(self._send_waiting)
        self._waiting.setdefault(address, []).append(datagram)
        self.sent_on += 1

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if not self.refusal:
            for address, datagrams in waiting.items():
                self._out(datagrams, address)

    # --- hosts that serve others, and whether they are alive

    def _use(self, heads: list[_Server]) -> None:
        assert self._edge is not None
        now = self._edge.now()
        for server in heads:
            server.used = now
        if self._timer is None:
            self._start(0.0)

    def _start(self, seconds: float) -> None:
        assert self._edge is not None
        self._timer = self._edge.loop.call_later(no_sooner(seconds), self._look)

    def _look(self) -> None:
        """Probes the hosts that are due. The timer stops when no host serves others."""
        assert self._edge is not None
        self._timer, now = None, self._edge.now()
        due: list[float] = []
        for host, server in self._servers.items():
            # A shunned host is asked until it answers: nothing else would show that it is back.
            if not server.shunned and now - server.used > _IN_USE:
                server.nonce = server.missed = 0  # its answer is no longer awaited
                continue
            if now - server.asked >= server.patience:
                self._ask(host, server, now)
            due.append(server.asked + server.patience)
        if due:
            self._start(max(min(due) - now, _SOONEST))

    def _ask(self, host: int, server: _Server, now: float) -> None:
        if server.nonce:
            server.missed += 1
            if server.missed >= TRIES and not server.shunned:
                _log.info("relay does not answer; others serve in its place", host=host)
                server.shunned = True
                self._shun()
        self._nonce += 1
        server.nonce, server.asked = self._nonce, now
        self._tell(RelayKind.HELLO, host, server.nonce)

    def _shun(self) -> None:
        self._shunned = frozenset([host for host, one in self._servers.items() if one.shunned])
        self._ways.clear()

    def _tell(self, kind: RelayKind, host: int, nonce: int) -> None:
        assert self._edge is not None
        address = self._addresses.get(host)
        if address is not None:
            self._udp.send([self._word(kind, nonce)], address)

    def _word(self, kind: RelayKind, nonce: int) -> bytes:
        """A packet of HELLO or HERE."""
        assert self._edge is not None
        probe = control(Kind.PROBE, self._host, 0, 0, self._host, Probe(0, nonce).encode())
        return encode_header(RelayHeader(kind, 1)) + encode(probe, self._edge.keys)

    def _ask_group(self, nonce: int) -> None:
        if self._group is not None:
            self._group.send([padded(self._word(RelayKind.HELLO, nonce), self._group.longest)])

    def _greeted(self, kind: RelayKind, buffer: memoryview, at: int, end: int) -> None:
        """Handles HELLO and HERE. Raises SegmentError without a valid tag of the cluster."""
        assert self._edge is not None
        segment, _ = decode(buffer, self._edge.keys, at, end)
        nonce = Probe.decode(segment.payload).nonce
        if kind is RelayKind.HELLO:
            self._tell(RelayKind.HERE, segment.sender, nonce)
            return
        if self._group is not None and self._group.answered(segment.sender, nonce):
            return
        server = self._servers.get(segment.sender)
        if server is None or server.nonce != nonce or not nonce:
            return  # late, or unsolicited
        server.trip.sample(self._edge.now() - server.asked)
        server.nonce = server.missed = 0
        if server.shunned:
            server.shunned = False
            self._shun()

    # --- inspection

    def observed(self) -> dict[tuple[str, ...], int]:
        return {}

    def copies(self, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        """A copy's first host gets it, and sends it on to the others."""
        stream = key[0] << 32 | key[1]
        found, together = self._branches(self._known(hosts), stream, MOST_HOPS)
        copies = [Copy(shown(self._addresses[one.head]), (one.head, *one.rest)) for one in found]
        if together and self._group is not None and self._group.address is not None:
            copies.append(Copy(shown(self._group.address), tuple(together)))
        return copies

    def own_group(self) -> OwnGroup | None:
        group = self._group
        if group is None or group.address is None:
            return None
        zone = "/".join(self._zones.get(self._host, ()))
        advice = membership_advice(ipv6=len(group.address) > 2)
        return OwnGroup(shown(group.address), f"zone {zone}", tuple(group.lost), len(group.reached), advice)

    def state(self) -> CarrierState:
        address = shown(self._udp.sock.getsockname()) if self._edge is not None else ""
        return CarrierState(self.name, self.refusal, address=address, targets=len(self._addresses))


def _zone_of(host: int, label: str) -> Zone:
    """Parses a zone label. An invalid label was not checked by the coordinator: the host is outside all
    zones."""
    try:
        return parse_zone(label)
    except ValueError as error:
        _log.warning("relay cannot serve a host", host=host, error=error)
        return ()


def _fitting(branch: Branch) -> list[Branch]:
    """Splits a branch into parts whose host lists fit into a header."""
    whole = sorted((branch.head, *branch.rest))
    if len(whole) <= MOST_HOSTS and list_bytes(whole) <= LIST_BYTES:
        return [branch]
    half = len(branch.rest) // 2
    other = Branch(branch.rest[half], branch.rest[half + 1 :])
    return [*_fitting(Branch(branch.head, branch.rest[:half])), *_fitting(other)]


def _prefix(branch: Branch, hops: int) -> bytes:
    """Returns the header; empty if the receiver serves nobody."""
    if not branch.rest:
        return b""
    hosts = tuple(sorted((branch.head, *branch.rest)))
    return encode_header(RelayHeader(RelayKind.FORWARD, hops, hosts))
