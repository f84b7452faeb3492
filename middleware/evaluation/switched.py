"""A network of P4 switches without time: packets go hop by hop through the programs that real switches run.

    switched = SwitchedNetwork(program)
    switched.become(network, {switch: state})
    carried = switched.send(source, frame)

What the graph-level model (`routing.forwarding`) says of a packet is held against this: every copy on every
link to its last byte, and the passes that it cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from msgspec import Struct, field

from ..control.switches import LocalSwitch, SwitchState
from ..dataplane.p4 import ir
from ..dataplane.p4.p4info import build_p4info
from ..dataplane.p4.p4runtime.entities import Entities
from ..dataplane.p4.p4runtime.schema import Schema
from ..dataplane.p4.runtime import Switch
from ..routing.network import Network

PORTS = range(1, 64)


class Carried(Struct):
    """What one packet did: frames by link (each copy), those that left a port without a link, and counts."""

    frames: dict[int, list[bytes]] = field(default_factory=dict)
    astray: list[tuple[int, int]] = field(default_factory=list)  # (switch, port)
    passes: dict[int, int] = field(default_factory=dict)  # of ingress, by switch
    recirculations: int = 0
    clones: int = 0  # replicas of multicast groups are counted apart
    replicas: int = 0
    looped: bool = False

    @property
    def bytes(self) -> int:
        """Over all links, Ethernet's header with them."""
        return sum(len(frame) for frames in self.frames.values() for frame in frames)

    @property
    def packets(self) -> int:
        return sum(len(frames) for frames in self.frames.values())


class _Node:
    """One switch and its control plane."""

    def __init__(self, program: ir.Program, schema: Schema) -> None:
        self.switch = Switch(program, ports=PORTS, cpu_port=None)
        self.control = LocalSwitch(schema, Entities(schema, self.switch.control))


class SwitchedNetwork:
    """Switches that all run one program; they are kept when it becomes another network."""

    def __init__(self, program: ir.Program) -> None:
        self.network: Network
        self._program = program
        self._schema = Schema(build_p4info(program))
        self._nodes: list[_Node] = []
        self._at: dict[int, _Node] = {}

    def become(self, network: Network, states: Mapping[int, SwitchState]) -> None:
        """Programs one switch for each state (by node), by P4Runtime's messages, and reads them back."""
        self.network = network
        while len(self._nodes) < len(states):
            self._nodes.append(_Node(self._program, self._schema))
        self._at = dict(zip(states, self._nodes, strict=False))
        for number, state in states.items():
            self._at[number].control.bring_to(state)

    def bring(self, switch: int, state: SwitchState) -> int:
        """Changes one switch; how many writes it took."""
        return self._at[switch].control.bring_to(state)

    def send(self, source: int, frame: bytes) -> Carried:
        """One packet from a host, or from inside a switch, where it comes in by a port without a link."""
        network, carried = self.network, Carried()
        waiting: deque[tuple[int, int, bytes]] = deque()
        if network.is_host[source]:
            self._put(carried, waiting, network.out[source][0], frame)
        else:
            waiting.append((source, len(network.out[source]) + 1, frame))
        left = 8 * len(network.tails) + 64
        while waiting:
            switch, port, data = waiting.popleft()
            for link, copy in self._pass(carried, switch, port, data):
                self._put(carried, waiting, link, copy)
            left -= 1
            if left < 0:
                carried.looped = True
                break
        return carried

    def _put(self, carried: Carried, waiting: deque[tuple[int, int, bytes]], link: int, frame: bytes) -> None:
        network = self.network
        carried.frames.setdefault(link, []).append(frame)
        head = network.heads[link]
        if not network.is_host[head]:
            waiting.append((head, network.ports[link ^ 1], frame))

    def _pass(self, carried: Carried, switch: int, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """What leaves one switch, by link."""
        node = self._at[switch].switch
        before = node.stats()
        found = []
        for out in node.receive(port, data, 0.0):
            link = self.network.link_at(switch, out.port)
            if link < 0:
                carried.astray.append((switch, out.port))
            else:
                found.append((link, out.packet))
        after = node.stats()
        passes = after.ingress_passes - before.ingress_passes
        carried.passes[switch] = carried.passes.get(switch, 0) + passes
        carried.recirculations += after.recirculations - before.recirculations
        carried.clones += after.clones - before.clones
        carried.replicas += after.replicas - before.replicas
        return found
