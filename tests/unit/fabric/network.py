"""One stream over links in memory: its sender, its receivers, partitions and restarts."""

from __future__ import annotations

import random

from tests.unit.fabric.links import Links, Weather

from treecast.middleware.fabric.core.outgoing import Outgoing
from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.wire.segment import KeyRing, decode, encode

ORIGIN = 1
KEYS = KeyRing({3: b"a cluster's key, 16 to 32 bytes"}, 3)


class Network(Links):
    """One stream's sender (host 1) and its receivers. Segments travel as authenticated bytes."""

    def __init__(
        self, seed: int, weather: Weather, settings: StreamSettings, *, multicast: bool = False
    ) -> None:
        super().__init__(seed, weather)
        self.multicast = multicast  # packets to all also reach receivers that are not live
        self.settings = settings
        self.sender = Sender(ORIGIN, 7, 1, settings, self.now)
        self.receivers: dict[int, Receiver] = {}
        self.begins: dict[int, int] = {}  # by host: its first sequence, until the sender is told
        self.got: dict[int, list[int]] = {}  # by host: sequences in the order of delivery
        self.payloads: dict[int, bytes] = {}  # published messages by sequence
        self.most_memory = 0
        self.most_log = 0
        self.sent_by: dict[tuple[int, str], int] = {}  # bytes by host and purpose; those to all count once

    # --- called by tests

    def join(self, host: int, progress: Progress | None = None) -> Receiver:
        """Adds a receiver, by default from now on. The sender learns of it from its first packet."""
        progress = progress or Progress(self.sender.end, self.sender.end)
        self.begins[host] = progress.first
        return self._receive(host, progress)

    def _receive(self, host: int, progress: Progress) -> Receiver:
        self.receivers[host] = Receiver(
            host, self.sender.key, self.settings, random.Random(host * 7 + 1), self.now, progress=progress
        )
        self.got.setdefault(host, [])
        self._flush(host)
        return self.receivers[host]

    def join_all(self, *hosts: int) -> None:
        """Adds receivers from the beginning of the stream, and waits until the sender knows them."""
        for host in hosts:
            self.join(host, Progress(0, 0))
        assert self.run_until(lambda: len(self.sender.peers) == len(hosts), 5)

    def restart(self, host: int) -> None:
        """Restarts the process of `host` with its stored progress."""
        self._receive(host, self.receivers[host].progress)

    def publish(self, payload: bytes, records: int = 1, **more: float) -> int | None:
        sequence = self.sender.publish(payload, records, self.now, **more)  # type: ignore[arg-type]
        if sequence is not None:
            self.payloads[sequence] = payload
        return sequence

    # --- how it works

    def begin(self) -> None:
        for host, _ in self.ends():
            self._flush(host)

    def deadline(self) -> float:
        times = [end.next_deadline(self.now) for host, end in self.ends() if host not in self.dead]
        return min(times)

    def step(self) -> None:
        self._arrive()
        self._timers()

    def has_uplink(self, source: int) -> bool:
        return source == ORIGIN

    def ends(self) -> list[tuple[int, Sender | Receiver]]:
        return [(ORIGIN, self.sender), *self.receivers.items()]

    def _timers(self) -> None:
        for host, end in self.ends():
            if host not in self.dead and end.next_deadline(self.now) <= self.now:
                self._flush(host)
                if host != ORIGIN:
                    self._take(host)  # a timer may have expired messages

    def _flush(self, host: int) -> None:
        if host in self.dead:
            return
        end = self.sender if host == ORIGIN else self.receivers[host]
        for out in end.to_send(self.now):
            self._send(host, out)
        self.most_log = max(self.most_log, self.sender.log.bytes)

    def _send(self, source: int, out: Outgoing) -> None:
        encoded = [bytes(datagram) for datagram in out.encode(KEYS)]
        sent = source, out.purpose
        self.sent_by[sent] = self.sent_by.get(sent, 0) + sum(map(len, encoded))
        assert encoded == [encode(segment, KEYS) for segment in out.segments()]
        assert len(encoded) == out.count
        assert max(map(len, encoded), default=0) <= max(self.settings.mtu, 1280 - 48)
        all_of_them = list(self.receivers) if self.multicast else self.sender.peers.live
        for host in all_of_them if out.to is None else [out.to]:
            if host not in self.cut:
                for data in encoded:
                    self.send(source, (host,), data)

    def _arrive(self) -> None:
        touched = set()
        for to, data in self.arrivals():
            end = self.sender if to == ORIGIN else self.receivers.get(to)
            if end is not None:
                segment = decode(data, KEYS)[0]
                if to == ORIGIN and segment.sender in self.begins:
                    self.sender.add_receiver(segment.sender, self.now, self.begins.pop(segment.sender))
                end.receive(segment, self.now)
                touched.add(to)
        for host in touched:
            if host != ORIGIN:
                self._take(host)
            self._flush(host)

    def _take(self, host: int) -> None:
        receiver = self.receivers[host]
        self.most_memory = max(self.most_memory, receiver.memory)
        for delivery in receiver.take(self.now):
            sequence = delivery.message.sequence
            assert delivery.message.payload == self.payloads[sequence]
            self.got[host].append(sequence)

    # --- checks

    def closed(self) -> bool:
        return self.sender.finished

    def settled(self) -> bool:
        """Returns whether the stream is closed, also by the last report of every receiver."""
        return self.closed() and all(one.told(self.now) for one in self.receivers.values())

    def assert_exactly_once(self, host: int, first: int = 0) -> None:
        """The host got every message published from `first` on, once and in order."""
        assert self.got[host] == sorted(one for one in self.payloads if one >= first)

    def assert_accounts_close(self) -> None:
        for host in self.sender.ledger.hosts():
            row = self.sender.row(host)
            assert row.balanced
            assert row.closed, (host, row)
