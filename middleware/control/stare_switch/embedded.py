"""The embedded controller of one switch that runs p4/stare_embedded.p4. Without a socket or a clock.

    controller = EmbeddedController(settings, random, place, driver)
    controller.packet_in(data, now)           # from the CPU port, with the port that it came from before it
    controller.work(now); controller.next_deadline()

With B the ports that have subscribers of a state, the neighbour at tree port j is registered with exactly if
B without j is not empty. So a SUB-register from port i goes on to j only if B without j was empty before, and
a SUB-remove when it becomes empty. Requests between switches are sent again until the neighbour acknowledges;
one is acknowledged when the table holds what it asked for. What was overtaken is found by its number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from treecast.middleware.fabric.stare.settings import NEVER, StareSettings
from treecast.middleware.fabric.stare.subscriptions import Subscriptions
from treecast.middleware.fabric.stare.timers import Random
from treecast.middleware.wire.stare import StareError, StareHeader, StareKind
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame
from treecast.middleware.wire.stare_numbers import step

BETWEEN_SWITCHES: Final = StareSettings(resend_tries=1 << 30, refresh=0.0)  # until acknowledged
_PORT: Final = struct.Struct(">H")
_STALE: Final = 64  # a request with a number so little before that of another is older than it
_STALE_SECONDS: Final = 1.0  # if it comes so soon after it


class SwitchDriver(Protocol):
    """The switch, as far as the controller needs it. A set of ports has bit p for port p."""

    def write(self, state: int, ports: int) -> None:
        """Publishes of the state go to these ports; 0: it is forgotten."""

    def send(self, ports: int, frame: bytes) -> None:
        """A frame of the controller's own; after all that was written before it."""


class Place(Struct, frozen=True):
    """Where a switch stands. `tree`: its ports that lead to other switches; addresses are packed."""

    tree: frozenset[int]
    mac: bytes
    address: bytes


class EmbeddedController:
    """One switch's. `refused` counts packets by reason."""

    def __init__(self, settings: StareSettings, random: Random, place: Place, driver: SwitchDriver) -> None:
        self.refused: dict[str, int] = {}
        self._place = place
        self._driver = driver
        self._ports: dict[int, int] = {}  # B by state
        self._links = {port: Subscriptions(settings, random) for port in sorted(place.tree)}
        self._recent: dict[tuple[int, int], tuple[float, int]] = {}  # (state, port): when, number

    @property
    def states(self) -> int:
        return len(self._ports)

    def ports(self, state: int) -> int:
        """The ports that have subscribers, as a set."""
        return self._ports.get(state, 0)

    @property
    def settled(self) -> bool:
        """Whether every neighbour has acknowledged all."""
        return not any(link.waiting for link in self._links.values())

    def packet_in(self, data: bytes, now: float) -> None:
        """A frame that the switch sent up."""
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
        elif port > 15 or self._is_stale(port, frame.header, now):
            self._refuse("STALE" if port <= 15 else "PORT")
        else:
            self._request(port, frame.header, now)
        self._flush()

    def _refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _is_stale(self, port: int, header: StareHeader, now: float) -> bool:
        recent = self._recent
        while recent and (oldest := next(iter(recent.items())))[1][0] < now - _STALE_SECONDS:
            del recent[oldest[0]]
        key = header.state, port
        known = recent.pop(key, None)
        if known is not None and -_STALE < step(header.update, known[1]) < 0:
            recent[key] = known
            return True
        recent[key] = (now, header.update)
        return False

    def _request(self, port: int, header: StareHeader, now: float) -> None:
        before = self._ports.get(header.state, 0)
        bit = 1 << port
        after = before | bit if header.kind is StareKind.SUB_REGISTER else before & ~bit
        if after != before:
            self._set(header.state, after, now)
        ack = StareHeader(StareKind.SUB_ACK, header.state, header.vnf, header.update)
        self._send(bit, ack)

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

    def _send(self, ports: int, header: StareHeader) -> None:
        place = self._place
        self._driver.send(ports, encode_frame(StareFrame(header, place.mac, place.address)))

    def _flush(self) -> None:
        for port, link in self._links.items():
            for header in link.requests:
                self._send(1 << port, header)
            link.requests.clear()
            link.changes.clear()

    def work(self, now: float) -> None:
        """Sends again what no neighbour has acknowledged."""
        for link in self._links.values():
            link.work(now)
        self._flush()

    def next_deadline(self) -> float:
        return min((link.next_deadline() for link in self._links.values()), default=NEVER)

    def check_invariants(self) -> None:
        """For tests."""
        assert all(self._ports.values())
        for link in self._links.values():
            link.check_invariants()


def port_set(ports: Iterable[int]) -> int:
    """Ports as a set of bits."""
    return sum(1 << port for port in set(ports))
