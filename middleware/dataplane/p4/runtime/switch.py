"""One v1model switch that runs one program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from .. import ir
from .control import Control
from .counts import PortCount, Stats
from .machine import Machine
from .values import Out


class Engine(Protocol):
    """Runs packets: the interpreter, or generated code."""

    def receive(self, port: int, data: bytes, now: float, out: list[Out]) -> None:
        """Processes one packet and everything that it causes."""


class Switch:
    """A program with its tables, externs and replication engine.

    Pure: packets and time are arguments, output packets are values. Another pipeline needs another Switch. A
    packet is processed with everything it causes (recirculation, clones) before the next.

    `ports`: the existing ports; a packet to another is dropped and counted ("no such port"). `cpu_port`: port
    of packets to the controller, with the program's packet-in header in front if it emits one; a packet-out
    is `receive(cpu_port, packet-out header + payload, now)`. None: no CPU port. `seed`: of the switch's own
    generator, for `random()`. `start`: the time at which the program's clock is 0. `interpret`: use the
    reference interpreter instead of generated code; the result is the same.
    """

    def __init__(
        self,
        program: ir.Program,
        *,
        ports: Iterable[int],
        seed: int = 0,
        start: float = 0.0,
        cpu_port: int | None = 510,
        drop_port: int = 511,
        interpret: bool = False,
    ) -> None:
        self.program = program
        self._machine = Machine(program, [*ports, *(() if cpu_port is None else (cpu_port,))], seed, start)
        self._machine.drop_port = drop_port
        self._errors = program.errors
        self.control = Control(self._machine)
        self._engine, self.engine = _engine(self._machine, interpret)

    def receive(self, port: int, packet: bytes, now: float) -> list[Out]:
        """Returns all packets that leave the switch because this packet arrived at `port`, in order.

        Raises ValueError for a missing port, and nothing else, whatever the bytes are.
        """
        out: list[Out] = []
        self._receive(port, packet, now, out)
        return out

    def receive_many(self, packets: Sequence[tuple[int, bytes]], now: float) -> list[Out]:
        """Returns the same for a batch of (port, packet), one after the other."""
        out: list[Out] = []
        for port, packet in packets:
            self._receive(port, packet, now, out)
        return out

    def _receive(self, port: int, packet: bytes, now: float, out: list[Out]) -> None:
        count = self._machine.ports.get(port)
        if count is None:
            raise ValueError(f"the switch has no port {port}")
        count.packets_in += 1
        count.bytes_in += len(packet)
        self._engine.receive(port, packet, now, out)

    def set_port(self, port: int, up: bool) -> None:
        """Adds or removes a port; a removed port loses its counts."""
        if up:
            self._machine.ports.setdefault(port, PortCount())
        else:
            self._machine.ports.pop(port, None)

    def stats(self) -> Stats:
        """Returns a reading of all counts."""
        machine = self._machine
        return machine.counts.read(machine.tables, machine.ports, self._errors)

    def log(self) -> list[str]:
        """Returns the output of log_msg since the last call, and failed asserts; the newest 1000 lines."""
        lines = list(self._machine.log)
        self._machine.log.clear()
        return lines


def _engine(machine: Machine, interpret: bool) -> tuple[Engine, str]:
    """Creates an engine. Both are in higher rooms and are therefore imported here."""
    from ..generate import Generated, Unsupported
    from ..interpreter import Interpreter

    if interpret:
        return Interpreter(machine), "interpreted"
    try:
        return Generated(machine), "generated"
    except Unsupported as reason:
        return Interpreter(machine), f"interpreted: {reason}"
