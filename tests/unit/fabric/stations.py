"""Whole hosts over links in memory: all streams of each, its sockets, its event loop, its stalls.

A host works as `middleware/fabric/fabric.py` does: it reads its socket, delivers what is in order, answers,
and serves its own streams. A turn takes time, and packets that arrive meanwhile wait in the socket, whose
size is bounded. A packet to a group leaves its host once.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from tests.unit.fabric.links import Links, Weather

from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.streams import UNICAST, Served, Shipment, Streams
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import KeyRing

EPOCH = 1
NO_KEYS = KeyRing({}, None)
_OVERHEAD = 46  # bytes on a link beside those of a segment: Ethernet, IPv4 and UDP
_BACKLOG = 4 << 20  # bytes waiting for the link at which a host stops serving (the edge's send buffer)
_TURN = 60e-6  # seconds for a turn
_PACKET = 4e-6  # seconds for each packet in it
_TURNS = 500  # turns in succession without a packet in or out: a sign of an endless loop


class SpinningError(AssertionError):
    """A host has turn after turn, and neither sends nor receives."""


@dataclass
class Group:
    """A stream that its origin serves. `members`: the hosts that a packet to all reaches."""

    served: Served
    members: list[int]
    multicast: bool
    waiting: deque[bytes] = field(default_factory=deque)  # published when there is room
    payloads: dict[int, bytes] = field(default_factory=dict)  # by sequence
    published_at: dict[int, float] = field(default_factory=dict)

    @property
    def sender(self) -> Sender:
        return self.served.sender

    @property
    def key(self) -> tuple[int, int, int]:
        return self.sender.key


class Station:
    """One host."""

    def __init__(self, host: int, settings: StreamSettings, socket_bytes: int, now: float) -> None:
        self.host = host
        self.streams = Streams(
            host,
            settings,
            NO_KEYS,
            random.Random(host * 7 + 1),
            self._complain,
            assembly_bytes=64 << 20,
            room_bytes=socket_bytes,
        )
        self.complaints: dict[str, int] = {}
        self.socket: deque[bytes] = deque()
        self.socket_bytes = socket_bytes
        self.held = 0  # bytes in the socket
        self.overflowed = 0  # packets that did not fit into the socket
        self.wakes_at = now
        self.stalled_until = -NEVER
        self.free_at = now  # when its turn is over
        self.times = 1.0  # a factor for the length of its turns
        self.idle_turns = 0

    def _complain(self, fault: object) -> None:
        name = getattr(fault, "name", str(fault))
        self.complaints[name] = self.complaints.get(name, 0) + 1

    def arrives(self, data: bytes, now: float) -> None:
        if self.held + len(data) > self.socket_bytes:
            self.overflowed += 1
            return
        self.socket.append(data)
        self.held += len(data)
        self.wake(now)

    def wake(self, at: float) -> None:
        self.wakes_at = min(self.wakes_at, max(at, self.free_at, self.stalled_until))


class Stations(Links):
    """Hosts, the groups that they serve, and all deliveries."""

    def __init__(
        self, seed: int, weather: Weather, settings: StreamSettings, hosts: int, socket_bytes: int = 1 << 20
    ) -> None:
        super().__init__(seed, weather)
        self.settings = settings
        self.stations = {
            host: Station(host, settings, socket_bytes, self.now) for host in range(1, hosts + 1)
        }
        self.groups: dict[tuple[int, int, int], Group] = {}
        self.next: dict[
            tuple[int, tuple[int, int, int]], int
        ] = {}  # by host and stream: the next sequence to deliver
        self.delivered: dict[tuple[int, tuple[int, int, int]], int] = {}  # bytes
        self.took: dict[tuple[int, int, int], list[float]] = {}  # seconds from publishing to each delivery
        self.sent_packets = 0  # data packets that left an origin, each counted once
        self.sent_bytes: dict[int, int] = {}  # by host, on its link
        self.progressed_at = self.now  # when something was delivered last

    # --- called by scenarios

    def group(self, origin: int, stream: int, members: list[int], *, multicast: bool = True) -> Group:
        """Makes a stream of `origin` that these hosts receive from its beginning."""
        streams = self.stations[origin].streams
        sender = Sender(origin, stream, EPOCH, self.settings, self.now, turn=streams.turn)
        served = streams.add(sender)
        group = Group(served, [], multicast)
        self.groups[sender.key] = group
        self.took[sender.key] = []
        for host in members:
            self.join(group, host)
        return group

    def join(self, group: Group, host: int, first: int = 0) -> None:
        """Lets `host` receive the stream from `first` on."""
        origin, stream, epoch = group.key
        self.stations[host].streams.receivers.join(
            origin, stream, epoch, self.now, progress=Progress(first, first)
        )
        self.next[host, group.key] = first
        self.delivered[host, group.key] = 0
        group.sender.add_receiver(host, self.now, first)
        group.members.append(host)
        self._confirm(group)
        self.touch(group)
        self.stations[host].wake(self.now)

    def leave(self, group: Group, host: int) -> None:
        """Removes the receiver; messages that it lacks expire."""
        origin, stream, _ = group.key
        self.stations[host].streams.receivers.leave(origin, stream)
        group.sender.remove_receiver(host)
        group.members.remove(host)
        del self.next[host, group.key]
        self._confirm(group)
        self.touch(group)

    def _confirm(self, group: Group) -> None:
        if group.multicast:
            group.served.use(1, 1000 + group.key[0] * 100 + group.key[1], frozenset(group.members), self.now)

    def publish(self, group: Group, size: int, count: int = 1) -> None:
        """Publishes so many messages, as room allows."""
        for _ in range(count):
            group.waiting.append(bytes(size))
        self._publish(group)
        self.touch(group)

    def _publish(self, group: Group) -> None:
        while group.waiting:
            number = group.sender.end
            payload = number.to_bytes(8, "big") + group.waiting[0][8:]
            if group.sender.publish(payload, 1, self.now) is None:
                return
            group.waiting.popleft()
            group.payloads[number] = payload
            group.published_at[number] = self.now

    def touch(self, group: Group) -> None:
        station = self.stations[group.key[0]]
        station.streams.touch(group.served)
        station.wake(self.now)

    def stall(self, host: int, seconds: float) -> None:
        """Stops the host's process; its socket fills."""
        station = self.stations[host]
        station.stalled_until = self.now + seconds
        station.wakes_at = max(station.wakes_at, station.stalled_until)

    # --- checks

    def complete(self, group: Group, hosts: list[int] | None = None) -> bool:
        """Returns whether these members, or all, have every message."""
        if group.waiting:
            return False
        end = group.sender.end
        return all(self.next[host, group.key] == end for host in (hosts or group.members))

    def lacks(self) -> bool:
        """Returns whether a connected and running member lacks something."""
        for group in self.groups.values():
            for host in group.members:
                asleep = self.stations[host].stalled_until > self.now
                if self.next[host, group.key] < group.sender.end and host not in self.cut and not asleep:
                    return True
        return False

    # --- how it works

    def begin(self) -> None:
        for station in self.stations.values():
            station.wake(self.now)

    def deadline(self) -> float:
        return min(station.wakes_at for station in self.stations.values())

    def step(self) -> None:
        for host, data in self.arrivals():
            self.stations[host].arrives(data, self.now)
        for station in self.stations.values():
            if station.wakes_at <= self.now:
                self._turn(station)

    def _turn(self, station: Station) -> None:
        station.wakes_at = NEVER
        count, sent = len(station.socket), 0
        for data in station.socket:
            station.streams.burst(memoryview(data), len(data), len(data), self.now)
        station.socket.clear()
        station.held = 0
        self._deliver(station)
        sent += self._ship(station, station.streams.beats(self.now))
        sent += self._ship(station, station.streams.answers(self.now))
        at = NEVER
        if self.backlog(station.host) <= _BACKLOG:
            sent += self._ship(station, self.serve(station))
            station.streams.unreached.clear()
            at = self._roomy(station)
        else:
            at = self.now + (self.backlog(station.host) - _BACKLOG / 2) / self.weather.uplink
        station.idle_turns = 0 if count or sent else station.idle_turns + 1
        if station.idle_turns > _TURNS:
            raise SpinningError(f"host {station.host} at {self.now:.4f}")
        station.free_at = self.now + (_TURN + _PACKET * (count + sent)) * station.times
        station.wake(min(at, station.streams.next_deadline(self.now)))

    def serve(self, station: Station) -> list[Shipment]:
        """Returns the shipments of its streams in this turn."""
        return station.streams.serve(self.now)

    def _roomy(self, station: Station) -> float:
        """Publishes on streams that have room again. Returns when to send that: now or never."""
        roomy, station.streams.roomy = station.streams.roomy, []
        for served in roomy:
            group = self.groups[served.sender.key]
            self._publish(group)
            station.streams.touch(served)
        return self.now if roomy else NEVER

    def _deliver(self, station: Station) -> None:
        for key, delivery in station.streams.receivers.take(self.now):
            place = (station.host, key)
            message = delivery.message
            group = self.groups[key]
            assert message.sequence == self.next[place], (place, message.sequence, self.next[place])
            assert message.payload == group.payloads[message.sequence]
            self.next[place] = message.end
            self.delivered[place] += len(message.payload)
            self.took[key].append(self.now - group.published_at[message.sequence])
            self.progressed_at = self.now

    def _ship(self, station: Station, shipments: list[Shipment]) -> int:
        count = 0
        for shipment in shipments:
            to = shipment.hosts
            if shipment.carrier != UNICAST:
                to = self._members_of(station.host, shipment.group)
            for data in shipment.datagrams:
                size = len(data) + _OVERHEAD
                self.sent_bytes[station.host] = self.sent_bytes.get(station.host, 0) + size
                self.send(station.host, to, bytes(data))
            count += len(shipment.datagrams)
        return count

    def _members_of(self, origin: int, state_id: int) -> list[int]:
        """Returns all that have joined, live or not."""
        for group in self.groups.values():
            if group.key[0] == origin and group.served.group == state_id:
                return list(group.members)
        return []
