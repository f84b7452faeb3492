"""The embedded controller of one switch that runs p4/stare_embedded.p4. Uses no socket and no clock.

  controller = EmbeddedController(settings, random, place, driver)
  controller.packet_in(data, now)           # from the CPU port, preceded by the ingress port
  controller.work(now); controller.next_deadline()

Let B be the ports with subscribers of a state. The neighbour at tree port j is registered with exactly if B
without j is not empty. So a SUB-register from port i is passed on to j only if B without j was empty before,
and a SUB-remove when it becomes empty. Requests between switches are repeated until the neighbour
acknowledges; a request is acknowledged when the table holds its result. Requests for a state are numbered
separately, so that overtaken ones are detected (`fabric.stare.subscriptions`).

Hosts refresh: a subscription that a host has not refreshed for `expire` seconds ends as after a SUB-remove.
Neighbours repeat all their requests in rounds of `settings.round` seconds, so that a switch with a restarted
controller learns them. A request that a neighbour has not repeated in `_ROUNDS` of these ends, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from treecast.middleware.fabric.stare.recent import LATE, Recent
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.subscriptions import Subscriptions, SubState
from treecast.middleware.fabric.stare.timers import Random, Timers
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.stare import StareError, StareHeader, StareKind
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame
from treecast.middleware.wire.stare_numbers import step

# repeats without limit, until acknowledged
BETWEEN_SWITCHES: Final = StareSettings(resend_tries=1 << 30, refresh=0.0, round=300.0)
# Two requests for a state are at most two rounds apart, and each is sent until it is acknowledged.
_ROUNDS: Final = 4
_PORT: Final = struct.Struct(">H")
# a request whose number is smaller by less than this than the last one's was overtaken by it
_STALE: Final = 256
EXPIRE: Final = 150.0  # three of a host's longest refresh intervals, and its retries


class SwitchDriver(Protocol):
    """The controller's interface to the switch. A set of ports has bit p for port p."""

    def write(self, state: int, ports: int) -> None:
        """Sends publishes of the state to these ports; 0 removes the state."""

    def send(self, ports: int, frame: bytes) -> None:
        """Sends a frame of the controller's own, after all earlier writes."""


class Place(Struct, frozen=True):
    """A switch's place in the network. `tree`: its ports to other switches. Addresses are packed.

    Hosts are answered from these addresses, in the family of their request.
    """

    tree: frozenset[int]
    mac: bytes
    address: bytes
    ipv6_address: bytes = b""  # if empty, the link-local one of its MAC (RFC 4291, appendix A)
    idle: frozenset[int] = frozenset()  # ports to other switches that are not in the tree

    @property
    def ipv6(self) -> bytes:
        return self.ipv6_address or _link_local(self.mac)


def _link_local(mac: bytes) -> bytes:
    return b"\xfe\x80" + bytes(6) + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]


class EmbeddedController:
    """The controller of one switch. `refused` counts packets by reason, `expired` subscriptions without
    refresh.
    """

    def __init__(
        self,
        settings: StareSettings,
        random: Random,
        place: Place,
        driver: SwitchDriver,
        *,
        width: int = 16,
        expire: float = EXPIRE,
    ) -> None:
        """`width`: size in bits of a set of ports in the switch's program. `expire`: seconds; 0: never."""
        self.refused: dict[str, int] = {}
        self.expired = 0
        self._width, self._expire = width, expire
        self._ages: Timers[tuple[int, int]] = Timers()  # of hosts' subscriptions: (state, port)
        self._place = place
        self._settings, self._random = settings, random
        self._driver = driver
        self._ports: dict[int, int] = {}  # B by state
        self._links = {port: Subscriptions(settings, random) for port in sorted(place.tree)}
        self._period = settings.round * _ROUNDS if expire else 0.0
        self._period_ends = NEVER
        self._heard: dict[int, int] = {}  # by state, tree ports that have requested it in this period
        self._recent = Recent(LATE)  # the last number, by state and port

    @property
    def states(self) -> int:
        return len(self._ports)

    def ports(self, state: int) -> int:
        """Returns the set of ports with subscribers."""
        return self._ports.get(state, 0)

    def asked(self, state: int) -> dict[int, SubState]:
        """Returns, by tree port, the state of the subscription at neighbours that know of subscribers
        here.
        """
        found = {port: link.state(state) for port, link in self._links.items()}
        return {port: how for port, how in found.items() if how is not None}

    @property
    def settled(self) -> bool:
        """Whether every neighbour has acknowledged all requests, apart from repeats."""
        return not any(link.waiting for link in self._links.values())

    def become(self, place: Place, now: float) -> None:
        """Takes another place in the tree: what neighbours at ports that left it have asked for ends, and
        those at new ones are told what they must know.
        """
        gone = self._links.keys() - place.tree
        self._place = place
        for port in gone:
            del self._links[port]
        for port in sorted(place.tree - self._links.keys()):
            self._links[port] = Subscriptions(self._settings, self._random)
        for state, ports in list(self._ports.items()):
            self._set(state, ports & ~port_set(gone), now)
        self._flush()

    def held(self) -> dict[int, int]:
        """Returns the set of ports with subscribers, by state."""
        return dict(self._ports)

    def packet_in(self, data: bytes, now: float) -> None:
        """Handles a frame that the switch sent up."""
        if len(data) < _PORT.size:
            self._refuse("SHORT")
            return
        (port,) = _PORT.unpack_from(data)
        try:
            frame = decode_frame(memoryview(data)[_PORT.size :])
        except StareError:
            self._refuse("NO_STARE")
            return
        if frame.header.kind is StareKind.SUB_ACK:
            link = self._links.get(port)
            if link is None or not link.acknowledged(frame.header, now):
                self._refuse("STRAY_ACK")
        elif frame.header.kind is StareKind.PUBLISH:
            self._refuse("PUBLISH")
        elif port >= self._width or port in self._place.idle:
            self._refuse("PORT")  # also of a neighbour that has not left the tree there yet
        elif self._is_stale(port, frame.header, now):
            self._refuse("STALE")
        else:
            self._request(port, frame, now)
        self._flush()

    def _refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _is_stale(self, port: int, header: StareHeader, now: float) -> bool:
        """Returns whether a later request for the same state has overtaken this one."""
        key = header.state * self._width + port
        known = self._recent.get(key, now)
        if known is not None and -_STALE < step(header.update, known) < 0:
            return True
        self._recent.put(key, header.update, now)
        return False

    def _request(self, port: int, frame: StareFrame, now: float) -> None:
        header = frame.header
        before = self._ports.get(header.state, 0)
        bit = 1 << port
        after = before | bit if header.kind is StareKind.SUB_REGISTER else before & ~bit
        if after != before:
            self._set(header.state, after, now)
        self._age(header.state, port, bool(after & bit), now)
        ack = StareHeader(StareKind.SUB_ACK, header.state, header.vnf, header.update)
        self._send(bit, ack, ipv6=frame.ipv6)

    def _age(self, state: int, port: int, wanted: bool, now: float) -> None:
        """Records a request from a host or a neighbour."""
        if port in self._links:
            if wanted and self._period:
                self._heard[state] = self._heard.get(state, 0) | 1 << port
                if self._period_ends == NEVER:
                    self._period_ends = now + self._period
        elif wanted and self._expire:
            self._ages.set((state, port), now + self._expire)
        else:
            self._ages.clear((state, port))

    def _forget_old(self, now: float) -> None:
        for state, port in self._ages.due(now):
            self.expired += 1
            self._set(state, self._ports[state] & ~(1 << port), now)
        if now >= self._period_ends:
            self._forget_unheard(now)

    def _forget_unheard(self, now: float) -> None:
        """Removes subscriptions that neighbours have not repeated in a whole period."""
        tree, heard = port_set(self._links), self._heard
        self._heard = {}
        self._period_ends = now + self._period
        for state, ports in list(self._ports.items()):
            over = ports & tree & ~heard.get(state, 0)
            if over:
                self.expired += over.bit_count()
                self._set(state, ports & ~over, now)

    def _set(self, state: int, ports: int, now: float) -> None:
        if ports:
            self._ports[state] = ports
        else:
            del self._ports[state]
        self._driver.write(state, ports)
        for port, link in self._links.items():
            if ports & ~(1 << port):
                link.want(state, now)
            else:
                link.unwant(state, now)

    def _send(self, ports: int, header: StareHeader, *, ipv6: bool = False) -> None:
        place = self._place
        address = place.ipv6 if ipv6 else place.address
        self._driver.send(ports, encode_frame(StareFrame(header, place.mac, address)))

    def _flush(self) -> None:
        for port, link in self._links.items():
            for header in link.requests:
                self._send(1 << port, header)
            link.requests.clear()
            link.changes.clear()

    def work(self, now: float) -> None:
        """Repeats unacknowledged requests, and removes subscriptions that were not repeated."""
        self._forget_old(now)
        for link in self._links.values():
            link.work(now)
        self._flush()

    def next_deadline(self) -> float:
        links = min((link.next_deadline() for link in self._links.values()), default=NEVER)
        return min(links, self._ages.next(), self._period_ends)

    def check_invariants(self) -> None:
        """Checks consistency, for tests."""
        assert all(self._ports.values())
        hosts = sum((ports & ~port_set(self._links)).bit_count() for ports in self._ports.values())
        assert len(self._ages) == (hosts if self._expire else 0)
        for link in self._links.values():
            link.check_invariants()


def port_set(ports: Iterable[int]) -> int:
    """Returns ports as a set of bits."""
    return sum(1 << port for port in set(ports))
