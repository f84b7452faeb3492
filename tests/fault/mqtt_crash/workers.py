"""Publishers and subscribers that keep their part of the session across disconnections, as specified."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec_packets import Ack, FilterRequest, Packet, Publish, Suback, Subscribe

from .link import Broken, Link

WINDOW = 100
Address = Callable[[], tuple[str, int]]


class Worker(threading.Thread):
    """A thread that reconnects after each disconnection. All workers share `problems`."""

    def __init__(self, name: str, address: Address, problems: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.problems = problems
        self.up = threading.Event()  # set while the daemon runs or is about to
        self.ended = False
        self._address = address
        self._known = False
        self.link: Link | None = None

    def run(self) -> None:
        while not self.ended:
            if not self.up.wait(0.1):
                continue
            try:
                if self.link is None:
                    self._connect()
                self.step()
            except (OSError, Broken):
                self.drop()
                time.sleep(0.02)
            except Exception as error:
                self.problems.append(f"{self.name}: {type(error).__name__}: {error}")
                return

    def drop(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.close()

    def _connect(self) -> None:
        self.link = Link(self._address(), self.name)
        if self._known and not self.link.present:
            self.problems.append(f"{self.name}: its session was lost")
        self.resume(self._known)
        self._known = True

    def resume(self, again: bool) -> None:
        """Continues the session over a new connection."""

    def step(self) -> None:
        raise NotImplementedError

    def expect(self) -> Link:
        if self.link is None:
            raise Broken("not connected")
        return self.link


class Publisher(Worker):
    """Publishes numbers with one QoS. `acked`: acknowledged numbers; `sent`: how many were published."""

    def __init__(self, qos: int, number: int, address: Address, problems: list[str]) -> None:
        super().__init__(f"pub{qos}-{number}", address, problems)
        self.qos = qos
        self.topic = f"t/{qos}/{number}".encode()
        self.gate = threading.Event()  # set while new messages may be sent
        self.sent = 0
        self.acked: set[int] = set()
        self.pending: dict[int, tuple[int, bool]] = {}  # packet id: (number, released)
        self._last_id = 0

    def _publish(self, packet_id: int, number: int, again: bool) -> Publish:
        payload = b"%d " % number + b"." * (number * 7 % 200)
        return Publish(self.topic, payload, self.qos, False, again, packet_id)

    def resume(self, again: bool) -> None:
        """Sends all unfinished packets again, in order [MQTT-4.4.0-1]."""
        packets: list[Packet] = [
            Ack(codec.PUBREL, packet_id) if released else self._publish(packet_id, number, True)
            for packet_id, (number, released) in self.pending.items()
        ]
        self.expect().send(*packets)

    def step(self) -> None:
        link = self.expect()
        fresh = []
        while self.gate.is_set() and len(self.pending) < WINDOW:
            self._last_id = self._last_id % 65535 + 1
            self.pending[self._last_id] = (self.sent, False)
            fresh.append(self._publish(self._last_id, self.sent, False))
            self.sent += 1
        if fresh:
            link.send(*fresh)
        answers: list[Packet] = []
        for packet in link.receive(0.02):
            answers += self._answered(packet)
        if answers:
            link.send(*answers)

    def _answered(self, packet: Packet) -> list[Packet]:
        if not isinstance(packet, Ack):
            raise Broken(f"unexpected {packet}")
        number, _ = self.pending.get(packet.packet_id, (-1, False))
        if number >= 0 and packet.kind in (codec.PUBACK, codec.PUBREC):
            self.acked.add(number)
        if packet.kind == codec.PUBREC:
            if number >= 0:
                self.pending[packet.packet_id] = (number, True)
            return [Ack(codec.PUBREL, packet.packet_id)]
        self.pending.pop(packet.packet_id, None)
        return []


class Subscriber(Worker):
    """Takes everything. `seen` counts each (topic, number) handed to the application."""

    def __init__(self, name: str, address: Address, problems: list[str]) -> None:
        super().__init__(name, address, problems)
        self.seen: Counter[tuple[bytes, int]] = Counter()
        self.subscribed = threading.Event()
        self._held: set[int] = set()  # ids of QoS 2 that are not released

    def resume(self, again: bool) -> None:
        if not self.subscribed.is_set():
            self.expect().send(Subscribe(1, (FilterRequest(b"t/#", 2),)))

    def step(self) -> None:
        link = self.expect()
        answers: list[Packet] = []
        for packet in link.receive(0.02):
            if isinstance(packet, Publish):
                answers.append(self._take(packet))
            elif isinstance(packet, Suback):
                self.subscribed.set()
            elif isinstance(packet, Ack) and packet.kind == codec.PUBREL:
                self._held.discard(packet.packet_id)
                answers.append(Ack(codec.PUBCOMP, packet.packet_id))
        if answers:
            link.send(*answers)

    def _take(self, packet: Publish) -> Ack:
        """Uses method A of figure 4.3: a QoS 2 message with a held id is the same message again."""
        if packet.qos == 1 or packet.packet_id not in self._held:
            number = int(packet.payload.split(b" ")[0])
            self.seen[packet.topic, number] += 1
        if packet.qos == 1:
            return Ack(codec.PUBACK, packet.packet_id)
        self._held.add(packet.packet_id)
        return Ack(codec.PUBREC, packet.packet_id)
