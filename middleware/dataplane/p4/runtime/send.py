"""The last step of a packet: out of its port."""

from __future__ import annotations

from .counts import DROP_NO_PORT
from .machine import Machine
from .values import Out


def send(machine: Machine, port: int, packet: bytes, out: list[Out]) -> None:
    """Counts and appends; a port that isn't there is a drop."""
    count = machine.ports.get(port)
    if count is None:
        machine.counts.drop(DROP_NO_PORT)
        return
    count.packets_out += 1
    count.bytes_out += len(packet)
    out.append(Out(port, packet))
