"""The devices at nodes: a switch with the controller at its CPU port, a host, anything with ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treecast.middleware.model.timers import NEVER

from ..p4 import Out, Switch


class Device(Protocol):
    """Reads no clock and draws nothing that isn't its own."""

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        """Handles packets that arrived at this moment as (port, packet), none if a deadline passed. Returns
        the output.
        """

    def next_deadline(self) -> float:
        """Returns the time by which the device needs a turn; NEVER if none."""


class CpuPort(Protocol):
    """A controller beside its switch: it writes the switch's tables itself, and sends packets."""

    def packet_in(self, packet: bytes, now: float) -> None:
        """Handles a packet that left at the CPU port, with the program's header in front."""

    def work(self, now: float) -> None:
        """Does the work that is due."""

    def take(self) -> Sequence[bytes]:
        """Returns pending packet-outs, with the program's header in front, and clears them."""

    def next_deadline(self) -> float: ...


class SwitchDevice:
    """A P4 switch. The packets of one moment pass it as one batch, then those they sent to the CPU port."""

    def __init__(self, switch: Switch, controller: CpuPort | None = None, *, cpu_port: int = 510) -> None:
        self.switch = switch
        self.controller = controller
        self.packet_ins = 0
        self.packet_outs = 0
        self._cpu_port = cpu_port
        self._again = False

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        found = self.switch.receive_many(packets, now)
        controller = self.controller
        if controller is None:
            return found
        found = self._without_cpu(found, controller, now)
        controller.work(now)
        self._again = False
        outs = controller.take()
        if outs:
            self.packet_outs += len(outs)
            before = self.packet_ins
            sent = self.switch.receive_many([(self._cpu_port, one) for one in outs], now)
            found += self._without_cpu(sent, controller, now)
            self._again = self.packet_ins > before  # packets sent up are answered in the next turn
        return found

    def _without_cpu(self, found: list[Out], controller: CpuPort, now: float) -> list[Out]:
        others = []
        for out in found:
            if out.port == self._cpu_port:
                self.packet_ins += 1
                controller.packet_in(out.packet, now)
            else:
                others.append(out)
        return others

    def next_deadline(self) -> float:
        if self.controller is None:
            return NEVER
        return 0.0 if self._again else self.controller.next_deadline()


class Endpoint:
    """A host that keeps received packets and sends given ones once the emulator wakes it (`wake`)."""

    def __init__(self) -> None:
        self.arrived: list[tuple[float, int, bytes]] = []  # when, port, packet
        self._waiting: list[Out] = []

    def send(self, packet: bytes, port: int = 1) -> None:
        self._waiting.append(Out(port, packet))

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        self.arrived += [(now, port, packet) for port, packet in packets]
        waiting, self._waiting = self._waiting, []
        return waiting

    def next_deadline(self) -> float:
        return 0.0 if self._waiting else NEVER
