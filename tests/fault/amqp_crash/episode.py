"""One life of a data directory under AMQP load: load, kill, restart and checks, repeated."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from resumable import Patience

from treecast.middleware.daemon.process import DaemonProcess

from .link import Link
from .workers import DEAD, KEEP, WORK, Consumer, Publisher, Worker, declare, drain, is_rejected, ready

FSYNC = ("interval", "never", "batch")
JOIN_S = 90.0
START_S = 300.0  # time for a daemon to start, however busy the machine is
OFF = ("--kafka", "--admin", "--control", "--stare", "--mqtt")


class Episode:
    """`problems`: violations found. `counts`: messages published, confirmed and read.

    `patience`: seconds that clients may be without progress until they have read everything that is stored.
    """

    def __init__(self, folder: Path, seed: int, number: int, python: str, patience: float) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.fsync = FSYNC[number % len(FSYNC)]
        self.problems: list[str] = []
        self.counts = {"sent": 0, "confirmed": 0, "seen": 0, "again": 0, "dead": 0, "read again": 0}
        self.kills = 0
        flags = [*(f for face in OFF for f in (face, "off")), "--amqp", "127.0.0.1:0", "--fsync", self.fsync]
        self.daemon = DaemonProcess(folder / "data", flags, python=python)
        self.killed = self.daemon
        self.publishers: list[Publisher] = []
        self.consumer: Consumer
        self._kept: Counter[bytes] = Counter()
        self._dead: Counter[bytes] = Counter()
        self._seed = seed
        self._patience = patience

    @property
    def _workers(self) -> list[Worker]:
        return [*self.publishers, self.consumer]

    def begin(self) -> None:
        self._start()
        self.daemon.pin_ports()
        address = self.daemon.address("amqp")
        self._declare(self.killed)  # the first kill may come before any worker is connected
        self.consumer = Consumer(lambda: address, self.problems)
        self.publishers = [Publisher(number, lambda: address, self.problems) for number in range(3)]
        for worker in self._workers:
            worker.start()
            worker.up.set()

    def _declare(self, home: DaemonProcess) -> None:
        link = Link(home.address("amqp"))
        declare(link)
        link.leave()

    def cycle(self, number: int, *, damage: bool = False) -> None:
        """Kills the daemon once and checks the queues. `damage` removes data, to prove that the check notices
        it."""
        rng = random.Random(f"{self._seed}-{number}")
        for publisher in self.publishers:
            publisher.gate.set()
        time.sleep(rng.choice((rng.uniform(0.02, 0.2), rng.uniform(0.2, 0.8))))
        self._kill()
        if damage:
            self._damage()
        if rng.random() < 0.2:  # a second kill, during the restart
            self.killed.start(wait=False)
            time.sleep(rng.uniform(0.0, 0.8))
            self._kill()
        self._start()
        self._settle()
        if not self.problems:
            self._look()

    def _start(self) -> None:
        self.killed.start(wait=False).wait_ready(START_S)

    def _kill(self) -> None:
        self.killed.kill()
        self.kills += 1

    def _damage(self) -> None:
        """Cuts off the second half of the log of queues."""
        log = max((self.killed.data / "queues").glob("*.journal"))
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)

    def _settle(self) -> None:
        """Waits until publishers have finished their pending messages and the consumer has received them."""
        for publisher in self.publishers:
            publisher.gate.clear()
        self._wait(lambda: sum(len(publisher.pending) for publisher in self.publishers), "publishers")
        self._wait(lambda: len(self._missing(self.consumer.seen)), "the consumer")

    def _wait(self, left: Callable[[], int], who: str) -> None:
        """Waits until nothing is left, as long as there is progress."""
        patience = Patience(self._patience)
        while (count := left()) and not self.problems:
            if patience.ended(count, time.monotonic()):
                missing = self._missing(self.consumer.seen)
                return self.problems.append(
                    f"{who} made no progress for {self._patience:.0f} s, {count} are left; of {len(missing)}"
                    f" confirmed messages that were not read, the first are {missing[:5]}"
                )
            time.sleep(0.02)
        return None

    def _missing(self, found: Counter[bytes]) -> list[bytes]:
        return [
            body[:20]
            for publisher in self.publishers
            for body in list(publisher.confirmed)
            if body not in found
        ]

    def _look(self) -> None:
        """Reads both queues while the consumer is away and owes no acknowledgement."""
        self._wait(self._unfinished, "the consumer")
        self._read(KEEP, self._kept)
        self._read(DEAD, self._dead)
        self._compare("keep", self._kept, [body for p in self.publishers for body in p.confirmed])
        self._compare("dead", self._dead, [body for body in self.consumer.seen if is_rejected(body)])
        self.consumer.go_on()

    def _read(self, queue: str, found: Counter[bytes]) -> None:
        """Reads a queue. The acknowledgements of the last time may have been lost with the queue's home: what
        comes again for this reason is flagged, and does not count."""
        for one in drain(self.daemon.address("amqp"), queue, self._patience):
            if one.redelivered and one.body in found:
                self.counts["read again"] += 1
            else:
                found[one.body] += 1

    def _unfinished(self) -> int:
        """Returns how many messages the consumer still has to settle; if none, it is away."""
        address = self.daemon.address("amqp")
        count = ready(address, WORK)
        if count:
            return count
        away = self.consumer.pause(self._patience)
        count = ready(address, WORK)
        if away and not count:
            return 0
        self.consumer.go_on()
        return count or 1

    def _compare(self, queue: str, found: Counter[bytes], expected: list[bytes]) -> None:
        lost = [body[:20] for body in expected if body not in found]
        doubled = [body[:20] for body, times in found.items() if times > 1]
        sent = set[bytes]().union(*(publisher.sent for publisher in self.publishers))
        invented = [body[:20] for body in found if body not in sent]
        for what, bodies in (("lost", lost), ("doubled", doubled), ("invented", invented)):
            if bodies:
                self.problems.append(f"{queue} {what} {len(bodies)}: {bodies[:5]}")

    def end(self) -> None:
        self.counts["sent"] = sum(len(publisher.sent) for publisher in self.publishers)
        self.counts["confirmed"] = sum(len(publisher.confirmed) for publisher in self.publishers)
        self.counts["seen"] = len(self.consumer.seen)
        self.counts["again"] = self.consumer.seen.total() - len(self.consumer.seen)
        self.counts["dead"] = len(self._dead)
        for worker in self._workers:
            worker.ended = True
            worker.up.set()
        for worker in self._workers:
            worker.join(JOIN_S)
            worker.drop()
        if self.daemon.running:
            self.daemon.stop()
        self.log = self.daemon.clean_up()
