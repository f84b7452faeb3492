"""A network of P4 switches in the emulator that reports the effects of each packet.

    switched = SwitchedNetwork(program)
    switched.become(network, {switch: state})
    carried = switched.send(source, frame)       # until none of it is in flight
    switched.put(source, frame)                  # or: several at once, while the clock advances
    switched.emulator.run(0.5)
    switched.carried                             # of all packets since `fresh`

It checks the graph-level model (`routing.forwarding`): every copy on every link to its last byte, and its
passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from msgspec import Struct, field

from treecast.middleware.model.timers import NEVER

from ..control.switches import LocalSwitch, SwitchState
from ..dataplane.emulator import Emulator, LinkSettings
from ..dataplane.p4 import Control, Entities, Out, Program, Schema, Switch, build_p4info
from ..routing.network import Network

PORTS = range(1, 64)


class Carried(Struct):
    """The effects of packets: frames by link (each copy), frames that left a port without a link, and
    counts.
    """

    frames: dict[int, list[bytes]] = field(default_factory=dict)
    astray: list[tuple[int, int]] = field(default_factory=list)  # (switch, port)
    passes: dict[int, int] = field(default_factory=dict)  # of ingress, by switch
    recirculations: int = 0
    clones: int = 0  # replicas of multicast groups are counted apart
    replicas: int = 0
    looped: bool = False

    @property
    def bytes(self) -> int:
        """The bytes on all links, including Ethernet headers."""
        return sum(len(frame) for frames in self.frames.values() for frame in frames)

    @property
    def packets(self) -> int:
        return sum(len(frames) for frames in self.frames.values())


class _Node:
    """One switch and its control plane."""

    def __init__(self, program: Program, schema: Schema) -> None:
        self.switch = Switch(program, ports=PORTS, cpu_port=None)
        self.control = LocalSwitch(schema, Entities(schema, self.switch.control))


class _Place:
    """A device at a node: sends queued frames, and records all outgoing ones. `switch` None: a host."""

    def __init__(self, owner: SwitchedNetwork, node: int, switch: Switch | None) -> None:
        self._owner = owner
        self._node = node
        self._switch = switch
        self._waiting: list[tuple[int, bytes]] = []

    def put(self, port: int, frame: bytes) -> None:
        """Queues a frame: from a host, by its port; into a switch, as if it had arrived at that port."""
        self._waiting.append((port, frame))

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        waiting, self._waiting = self._waiting, []
        if self._switch is None:
            found = [Out(port, frame) for port, frame in waiting]
        else:
            found = self._through(self._switch, [*waiting, *packets], now)
        self._owner.note(self._node, found)
        return found

    def _through(self, switch: Switch, packets: Sequence[tuple[int, bytes]], now: float) -> list[Out]:
        carried, before = self._owner.carried, switch.stats()
        found = switch.receive_many(packets, now)
        after = switch.stats()
        passes = after.ingress_passes - before.ingress_passes
        carried.passes[self._node] = carried.passes.get(self._node, 0) + passes
        carried.recirculations += after.recirculations - before.recirculations
        carried.clones += after.clones - before.clones
        carried.replicas += after.replicas - before.replicas
        return found

    def next_deadline(self) -> float:
        return 0.0 if self._waiting else NEVER


class SwitchedNetwork:
    """Switches that all run one program; they are kept when it becomes another network."""

    def __init__(self, program: Program) -> None:
        self.network: Network
        self.emulator: Emulator
        self.carried = Carried()
        self._program = program
        self._schema = Schema(build_p4info(program))
        self._nodes: list[_Node] = []
        self._at: dict[int, _Node] = {}
        self._places: list[_Place] = []

    def become(
        self,
        network: Network,
        states: Mapping[int, SwitchState],
        links: Mapping[int, LinkSettings] | None = None,
    ) -> None:
        """Programs one switch for each state (by node), by P4Runtime's messages, and reads them back.

        `links`: those that are not as the emulator has them, by directed link.
        """
        self.network = network
        while len(self._nodes) < len(states):
            self._nodes.append(_Node(self._program, self._schema))
        self._at = dict(zip(states, self._nodes, strict=False))
        for number, state in states.items():
            self._at[number].control.bring_to(state)
        self.emulator = Emulator(network, Random(0), links=links or {}, tick=0)
        self._places = [self._place(node) for node in range(network.node_count)]
        self.fresh()

    def _place(self, node: int) -> _Place:
        place = _Place(self, node, None if self.network.is_host[node] else self._at[node].switch)
        self.emulator.attach(node, place)
        return place

    def fresh(self) -> None:
        """Starts new counts; packets in flight are added to them."""
        self.carried = Carried()

    def read(self, switch: int) -> SwitchState:
        """Returns what a switch holds."""
        return self._at[switch].control.read()

    def control(self, switch: int) -> Control:
        """Returns a switch's control plane, for single writes."""
        return self._at[switch].switch.control

    def bring(self, switch: int, state: SwitchState) -> int:
        """Changes one switch; how many writes it took."""
        return self._at[switch].control.bring_to(state)

    def put(self, source: int, frame: bytes) -> None:
        """Puts one packet in, from a host, or into a switch by a port without a link."""
        inside = not self.network.is_host[source]
        self._places[source].put(len(self.network.out[source]) + 1 if inside else 1, frame)
        self.emulator.wake(source)

    def send(self, source: int, frame: bytes) -> Carried:
        """Sends one packet alone and runs until nothing is in flight, or until it must be looping."""
        self.fresh()
        self.put(source, frame)
        emulator, last = self.emulator, self.emulator.turns + 8 * len(self.network.tails) + 64
        emulator.run_until(lambda: emulator.idle or emulator.turns > last, NEVER)
        if not emulator.idle:
            self.carried.looped = True
            self._stop()
        return self.carried

    def _stop(self) -> None:
        """Discards looping packets; the switches keep their state."""
        emulator = self.emulator
        self.emulator = Emulator(self.network, Random(0), tick=0)
        self.emulator.ways = emulator.ways
        self._places = [self._place(node) for node in range(self.network.node_count)]

    def note(self, node: int, found: Sequence[Out]) -> None:
        """Records the frames that leave a node, by link."""
        frames, astray = self.carried.frames, self.carried.astray
        for out in found:
            link = self.network.link_at(node, out.port)
            if link < 0:
                astray.append((node, out.port))
            else:
                frames.setdefault(link, []).append(out.packet)
