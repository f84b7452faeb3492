"""Emulated hosts with STARE's middleware; one of them also has the replica controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...control.replicas.controller import ReplicaController
from ...dataplane.emulator import Emulator
from ...dataplane.p4 import Out
from ...fabric.stare.node import Node
from ...wire.stare import StareKind, group
from ...wire.stare_frames import datagram_of, frame_around
from ...wire.stare_signals import Signal, SignalKind, Update, encode_signal

Deliver = Callable[[Update], None]
_PORT = 1


class StareHost:
    """A device: the node, its frames, and the receiver of its updates. `number` is the host's id for
    signals.
    """

    def __init__(self, number: int, node: Node, mac: bytes, address: bytes) -> None:
        self.number = number
        self.node = node
        self.mac = mac
        self.address = address
        self.opened: dict[int, int] = {}  # token: VNF id, 0 if none is left
        self.vnfs: dict[int, Deliver] = {}
        self.strangers = 0  # frames that are not STARE's
        self.publishes = 0  # packets of states that the network brought
        self.controller: ReplicaController | None = None
        self.signals: Callable[[int, list[bytes]], None] = lambda host, data: None  # to the controller
        self.answers: Callable[[int, bytes], None] = lambda host, data: None  # from it
        self._touched = False

    # --- from outside of a turn; the emulator is woken by who calls

    def touch(self) -> None:
        """Notes that the node has a request and needs a turn."""
        self._touched = True

    def heard(self, data: bytes, now: float) -> None:
        """Handles a signal of the replica controller."""
        self.node.signal(data, now)
        self._touched = True

    def told(self, host: int, data: Sequence[bytes], now: float) -> None:
        """Signals of a host's to the replica controller, which is here."""
        assert self.controller is not None
        for one in data:
            self.controller.signal(host, one, now)
        self._touched = True

    # --- turns

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        self._touched = False
        node, controller = self.node, self.controller
        for _, frame in packets:
            data = datagram_of(frame)
            if data is None:
                self.strangers += 1
                continue
            self.publishes += not data[0] >> 6
            if node.datagram(data, now) and controller is not None:
                controller.datagram(data, now)
        found = self._work(now)
        if controller is not None:
            self._control(controller, now)
            found += self._work(now)  # the node's packets for the network
        return found

    def _work(self, now: float) -> list[Out]:
        self.node.work(now)
        output = self.node.take()
        for opened in output.opened:
            self.opened[opened.token] = opened.vnf
        for vnf, update in output.deliveries:
            deliver = self.vnfs.get(vnf)
            if deliver is not None:
                deliver(update)
        if output.signals:
            self.signals(self.number, output.signals)
        found = []
        for packet in output.packets:
            to = group(packet.state, kind=packet.kind)
            found.append(Out(_PORT, frame_around(packet.data, to, self.mac, self.address)))
            if self.controller is not None and packet.kind is StareKind.PUBLISH:
                self.controller.datagram(packet.data, now, carried=False)
        return found

    def _control(self, controller: ReplicaController, now: float) -> None:
        controller.work(now)
        output = controller.take()
        for state in output.wanted:
            self.node.want(state, now)
        for state in output.unwanted:
            self.node.unwant(state, now)
        controller.ids.changes.clear()  # nothing is stored here
        for host, opened in output.opened:
            self.answers(host, encode_signal(Signal(SignalKind.OPENED, opened=(opened,))))
        for host, data in output.signals:
            self.answers(host, data)

    def next_deadline(self) -> float:
        if self._touched:
            return 0.0
        at = self.node.next_deadline()
        return at if self.controller is None else min(at, self.controller.next_deadline())


class SignalWay:
    """The channel between hosts and the replica controller: a delay, and a share that is lost."""

    def __init__(self, emulator: Emulator, random: Callable[[], float], delay: float, loss: float) -> None:
        self.sent = 0
        self.lost = 0
        self.delay = delay
        self.loss = loss
        self._emulator = emulator
        self._random = random

    def carry(self, signals: Sequence[bytes], arrive: Callable[[list[bytes], float], None]) -> None:
        """Delivers the signals that are not lost, together."""
        there = [one for one in signals if not self.loss or self._random() >= self.loss]
        self.sent += len(signals)
        self.lost += len(signals) - len(there)
        if there:
            emulator = self._emulator
            when = round(emulator.now + self.delay, 9)
            emulator.at(when, lambda: arrive(there, when))
