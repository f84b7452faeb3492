"""One life of a data directory under MQTT load: load, kill, restart and checks, repeated."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from treecast.middleware.daemon.process import DaemonProcess

from .workers import Publisher, Subscriber, Worker

FSYNC = ("interval", "never", "batch")
JOIN_S = 90.0
START_S = 300.0  # time for a daemon to start, however busy the machine is
FACES = (
    "--kafka",
    "off",
    "--admin",
    "off",
    "--control",
    "off",
    "--stare",
    "off",
    "--amqp",
    "off",
    "--mqtt",
    "127.0.0.1:0",
)


class Episode:
    """`problems`: violations found. `counts`: messages published, acknowledged and read.

    `patience`: seconds that clients may take to read everything that is stored.
    """

    def __init__(self, folder: Path, seed: int, number: int, python: str, patience: float) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.fsync = FSYNC[number % len(FSYNC)]
        self.problems: list[str] = []
        self.counts = {"sent": 0, "acked": 0, "seen": 0, "again": 0}
        self.kills = 0
        flags = [*FACES, "--fsync", self.fsync]
        self.daemon = DaemonProcess(folder / "data", flags, python=python)
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self._seed = seed
        self._patience = patience

    @property
    def _workers(self) -> list[Worker]:
        return [*self.publishers, *self.subscribers]

    def begin(self) -> None:
        self._start()
        self.daemon.pin_ports()
        address = self.daemon.address("mqtt")
        self.subscribers = [Subscriber(name, lambda: address, self.problems) for name in ("live", "sleepy")]
        self.publishers = [
            Publisher(qos, number, lambda: address, self.problems) for qos in (1, 2) for number in (1, 2)
        ]
        for worker in self._workers:
            worker.start()
            worker.up.set()
        for subscriber in self.subscribers:
            assert subscriber.subscribed.wait(self._patience)

    def cycle(self, number: int, *, damage: bool = False) -> None:
        """Kills the daemon once and checks the sessions. `damage` removes data, to prove that the check
        notices it."""
        rng = random.Random(f"{self._seed}-{number}")
        sleepy = self.subscribers[1]
        sleepy.up.clear()
        sleepy.drop()
        for publisher in self.publishers:
            publisher.gate.set()
        time.sleep(rng.choice((rng.uniform(0.02, 0.2), rng.uniform(0.2, 0.8))))
        self._kill()
        if damage:
            self._damage()
        if rng.random() < 0.2:  # a second kill, during the restart
            self.daemon.start(wait=False)
            time.sleep(rng.uniform(0.0, 0.8))
            self._kill()
        self._start()
        self._settle()
        self._look()

    def _start(self) -> None:
        self.daemon.start(wait=False).wait_ready(START_S)

    def _kill(self) -> None:
        self.daemon.kill()
        self.kills += 1

    def _damage(self) -> None:
        """Cuts off the second half of the journal."""
        journal = max((self.daemon.data / "pubsub").glob("*.journal"))
        with journal.open("r+b") as file:
            file.truncate(journal.stat().st_size // 2)

    def _settle(self) -> None:
        """Waits until publishers have finished and both subscribers have received everything."""
        for publisher in self.publishers:
            publisher.gate.clear()
        self.subscribers[1].up.set()
        self._wait(lambda: not any(publisher.pending for publisher in self.publishers), "publishers")
        for subscriber in self.subscribers:
            self._wait(lambda found=subscriber: not self._missing(found), subscriber.name)
        time.sleep(0.1)  # time for messages that must not come

    def _wait(self, done: Callable[[], bool], who: str) -> None:
        deadline = time.monotonic() + self._patience
        while not done() and not self.problems:
            if time.monotonic() > deadline:
                return self.problems.append(f"{who} did not get all within {self._patience:.0f} s")
            time.sleep(0.02)
        return None

    def _missing(self, subscriber: Subscriber) -> list[str]:
        return [
            f"{publisher.topic.decode()} {number}"
            for publisher in self.publishers
            for number in sorted(publisher.acked)
            if (publisher.topic, number) not in subscriber.seen
        ]

    def _look(self) -> None:
        for subscriber in self.subscribers:
            missing = self._missing(subscriber)
            if missing:
                self.problems.append(f"{subscriber.name} lost {len(missing)}: {missing[:5]}")
            self._look_for_doubles(subscriber)

    def _look_for_doubles(self, subscriber: Subscriber) -> None:
        published = {publisher.topic: publisher for publisher in self.publishers}
        for (topic, number), times in subscriber.seen.items():
            publisher = published[topic]
            if number >= publisher.sent:
                self.problems.append(f"{subscriber.name} got {topic!r} {number}, which nobody published")
            if times > 1 and publisher.qos == 2:
                self.problems.append(f"{subscriber.name} got {topic!r} {number} {times} times")

    def end(self) -> None:
        self.counts["sent"] = sum(publisher.sent for publisher in self.publishers)
        self.counts["acked"] = sum(len(publisher.acked) for publisher in self.publishers)
        self.counts["seen"] = sum(len(subscriber.seen) for subscriber in self.subscribers)
        self.counts["again"] = sum(
            times - 1 for subscriber in self.subscribers for times in subscriber.seen.values()
        )
        for worker in self._workers:
            worker.ended = True
            worker.up.set()
        for worker in self._workers:
            worker.join(JOIN_S)
            worker.drop()
        if self.daemon.running:
            self.daemon.stop()
        self.log = self.daemon.clean_up()
