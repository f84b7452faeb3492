"""The world over a tree of switches that run our P4 programs, with the controllers beside them.

   s0 -- controller of replicas (port 4)
  /  \
s1    s2          hosts 1, 2 at s1; 3, 4 at s2 (ports 2, 3); port 1 leads up
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.unit.stare.world import CONTROLLER, Links, World

from treecast.middleware.control.stare_switch.embedded import (
    BETWEEN_SWITCHES,
    EXPIRE,
    EmbeddedController,
    Place,
    port_set,
)
from treecast.middleware.control.stare_switch.programming import (
    REGISTER,
    TABLE,
    ControlDriver,
    bring_up,
    embedded_state,
    matches_of,
    register_state,
)
from treecast.middleware.dataplane.p4 import ActionCall, ControlError, Program, Switch
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.subscriptions import Subscriptions
from treecast.middleware.wire.stare import HEADER_SIZE, StareKind, decode_header, encode_header
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame

PROGRAMS = Path(__file__).resolve().parents[3] / "p4"
CPU = 510
PORTS = (1, 2, 3, 4)
# (switch, port) at both ends of the tree's links, and the places of the hosts
CABLES = {(0, 1): (1, 1), (0, 2): (2, 1), (1, 1): (0, 1), (2, 1): (0, 2)}
HOSTS = {(1, 2): 1, (1, 3): 2, (2, 2): 3, (2, 3): 4, (0, 4): CONTROLLER}
_AT = {host: where for where, host in HOSTS.items()}


@cache
def program(name: str) -> Program:
    return load_file(PROGRAMS / f"{name}.p4", defines={"STARE_STATES": "1024"})


def place(number: int) -> Place:
    tree = frozenset(port for switch, port in CABLES if switch == number)
    return Place(tree, bytes([2, 0, 0, 0, 1, number]), bytes([10, 0, 1, number]))


class StareSwitch:
    """One switch, and in the embedded design its controller."""

    def __init__(self, number: int, design: str, seed: int, expire: float) -> None:
        self.switch = Switch(program(f"stare_{design}"), ports=PORTS, cpu_port=CPU)
        self.controller: EmbeddedController | None = None
        where = place(number)
        if design == "embedded":
            bring_up(self.switch.control, embedded_state(where, PORTS))
            self.driver = ControlDriver(self.switch.control)
            rng = random.Random(seed * 1000 + number)
            self.controller = EmbeddedController(BETWEEN_SWITCHES, rng, where, self.driver, expire=expire)
        else:
            bring_up(self.switch.control, register_state(where, PORTS))

    def receive(self, port: int, frame: bytes, now: float) -> list[tuple[int, bytes]]:
        """Returns the frames that leave, by port."""
        found = []
        for out in self.switch.receive(port, frame, now):
            if out.port == CPU:
                assert self.controller is not None
                self.controller.packet_in(out.packet, now)
                found += self._sent(now)
            else:
                found.append((out.port, out.packet))
        return found

    def work(self, now: float) -> list[tuple[int, bytes]]:
        if self.controller is None:
            return []
        self.controller.work(now)
        self.controller.check_invariants()
        return self._sent(now)

    def _sent(self, now: float) -> list[tuple[int, bytes]]:
        sent, self.driver.sent = self.driver.sent, []
        return [(out.port, out.packet) for one in sent for out in self.switch.receive(CPU, one, now)]

    def ports(self, state: int) -> int:
        """Returns the ports that the data plane holds for a state."""
        if self.controller is None:
            return self.switch.control.register(REGISTER).read(state)
        try:
            action = self.switch.control.table(TABLE).entry(matches_of(state)).action
        except ControlError:
            return 0
        assert isinstance(action, ActionCall)
        return action.arguments["ports"]


class TreeWorld(World):
    """Hosts 1 to 4 and the replica controller, on three switches of `design`."""

    def __init__(
        self,
        design: str,
        links: Links,
        seed: int = 1,
        settings: StareSettings | None = None,
        *,
        ipv6: bool = False,
        expire: float = EXPIRE,
    ) -> None:
        self.ipv6 = ipv6
        self.silent: set[int] = set()  # hosts that have died: they neither send nor receive
        self.switches = [StareSwitch(number, design, seed, expire) for number in range(3)]
        given = settings or StareSettings(segment_bytes=40, refresh=5.0)
        self.own = Subscriptions(given, random.Random(seed))  # the controller's
        super().__init__(4, links, seed, given)

    def _next_deadline(self) -> float:
        embedded = [one.controller.next_deadline() for one in self.switches if one.controller is not None]
        return min([super()._next_deadline(), self.own.next_deadline(), *embedded])

    def _settle(self) -> None:
        super()._settle()
        self.own.work(self.now)
        self._requests()
        for number, switch in enumerate(self.switches):
            self._leave(number, switch.work(self.now))

    def _wanted(self, state: int, wanted: bool) -> None:
        (self.own.want if wanted else self.own.unwant)(state, self.now)

    def _requests(self) -> None:
        for header in self.own.requests:
            data = encode_header(header)
            self._later(lambda data=data: self._switch(CONTROLLER, data))
        self.own.requests.clear()
        self.own.changes.clear()

    def _switch(self, port: int, data: bytes) -> None:
        """Takes a host's packet from its link."""
        if port in self.silent:
            return
        number, at = _AT[port]
        mac, address = bytes([2, 0, 0, 0, 0, port]), bytes([10, 0, 0, 1 + port])
        if self.ipv6:
            address = ipaddress.IPv6Address(f"2001:db8::{1 + port}").packed
        frame = encode_frame(StareFrame(decode_header(data), mac, address, data[HEADER_SIZE:]))
        self._leave(number, self.switches[number].receive(at, frame, self.now))

    def _leave(self, number: int, frames: list[tuple[int, bytes]]) -> None:
        for port, frame in frames:
            self._later(self._over(number, port, frame))

    def _over(self, number: int, port: int, frame: bytes) -> Callable[[], None]:
        host, far = HOSTS.get((number, port)), CABLES.get((number, port))
        if host is not None:
            return lambda: self._to_host(host, frame)
        if far is None:
            return lambda: None
        return lambda: self._leave(far[0], self.switches[far[0]].receive(far[1], frame, self.now))

    def _to_host(self, host: int, frame: bytes) -> None:
        if host in self.silent:
            return
        found = decode_frame(frame)
        assert found.ipv6 == self.ipv6
        if found.header.kind is StareKind.SUB_ACK:
            where = place(_AT[host][0])
            assert (found.mac, found.address) == (where.mac, where.ipv6 if self.ipv6 else where.address)
        if host == CONTROLLER and found.header.kind is StareKind.SUB_ACK:
            self.own.acknowledged(found.header, self.now)
        else:
            self._arrive(host, encode_header(found.header) + found.payload)

    # --- what the subscriptions imply

    def implied(self, number: int, state: int) -> int:
        """Returns the ports of a switch that lead to a subscriber."""
        wanted = {host for host, node in self.nodes.items() if node.subscription(state) is not None}
        wanted -= self.silent
        if self.own.state(state) is not None:
            wanted.add(CONTROLLER)
        behind = [port for port in PORTS if wanted & _behind(number, port)]
        return port_set(behind)

    def held(self, states: tuple[int, ...]) -> dict[tuple[int, int], tuple[int, int]]:
        """Returns where a switch's entry differs from the implied one: (switch, state) to (held, implied)."""
        return {
            (number, state): (switch.ports(state), self.implied(number, state))
            for number, switch in enumerate(self.switches)
            for state in states
            if switch.ports(state) != self.implied(number, state)
        }


@cache
def _behind(number: int, port: int) -> frozenset[int]:
    """Returns the hosts behind a port."""
    host = HOSTS.get((number, port))
    if host is not None:
        return frozenset({host})
    far = CABLES.get((number, port))
    if far is None:
        return frozenset()
    ports = [p for s, p in (*CABLES, *HOSTS) if s == far[0] and p != far[1]]
    return frozenset().union(*(_behind(far[0], p) for p in ports))
