"""One life of a data directory and a checkpoint: kills under load, and looks at what was written."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from treecast.middleware.daemon.process import DaemonProcess

from .driver import Driver

PARTITIONS = {"in": 3, "out": 2}  # `out-1` and so on are as `out`
RATE = 100  # records a second
CATCH_UP_SECONDS = 600
GREEN = 0.4  # of the driver's kills are followed by a copied checkpoint that writes elsewhere
AGAIN = 0.15  # of the kills are followed by another while the query recovers
READ_SECONDS = 2.0  # that one look at a topic takes at most


class Feeder(threading.Thread):
    """Numbers into `in`, idempotently, until it is ended; what is there is read back from there."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._ended = threading.Event()
        self._number = 0

    def run(self) -> None:
        while not self._ended.wait(0.05):
            for _ in range(RATE // 20):
                self._producer.produce("in", b"%d" % self._number, b"k%d" % (self._number % 50))
                self._number += 1
            self._producer.poll(0)

    def end(self) -> None:
        self._ended.set()
        self.join()
        if self._producer.flush(CATCH_UP_SECONDS):
            raise RuntimeError("the input could not be written")


class Reader:
    """All committed records of a topic, from where the last look ended."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self.next = dict.fromkeys(range(PARTITIONS[topic.split("-")[0]]), 0)
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in self.next])

    def read(self, take: Callable[[int, int, bytes], None]) -> int:
        """Hands (partition, offset, value) of what is new over, for a while; how many there were."""
        count, deadline = 0, time.monotonic() + READ_SECONDS
        while time.monotonic() < deadline and (message := self._consumer.poll(0.3)):
            if message.error() is None:
                take(message.partition(), message.offset(), message.value())
                count += 1
        return count

    def close(self) -> None:
        self._consumer.close()


class Episode:
    """`problems` is what was amiss. `python` runs the daemon."""

    def __init__(self, folder: Path, seed: int, life: int, python: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.seed = f"{seed}-{life}"
        self.problems: list[str] = []
        self.kills: Counter[str] = Counter()
        self.records = 0
        self._batch = -1  # the newest that was done at the last kill
        flags = ["--admin", "off", "--control", "off"]
        self.daemon = DaemonProcess(folder / "data", flags, python=python)
        self.daemon.log_path = folder / "daemon.log"
        self._begun = ExitStack()
        self._wanted: Counter[bytes] = Counter()
        self._found: Counter[bytes] = Counter()  # in the topic that is written to now
        self._before: list[Counter[bytes]] = []  # in those that were written to before
        self._outputs = 1

    def begin(self) -> None:
        self._begun.callback(self.daemon.clean_up)
        self.daemon.start()
        self.daemon.pin_ports()
        self.address = address = self.daemon.kafka
        admin = AdminClient({"bootstrap.servers": address})
        topics = [NewTopic(name, count, 1) for name, count in PARTITIONS.items()]
        for made in admin.create_topics(topics).values():
            made.result(60)
        self._in, self._out = Reader(address, "in"), Reader(address, "out")
        self._begun.callback(self._in.close)
        self._begun.callback(self._close_out)
        self.driver = Driver(self.folder, address, "out")
        self._begun.callback(self._end_driver)
        self.feeder = Feeder(address)
        self.feeder.start()
        self.driver.start()

    def _close_out(self) -> None:
        self._out.close()

    def _end_driver(self) -> None:
        self.driver.end()
        failed, slow = self.driver.failures()
        self.kills["query begun again after a failure"] = failed - slow
        self.kills["query begun again as a worker did not start within Spark's 10 s"] = slow

    def cycle(self, number: int, *, drivers: bool) -> None:
        """One kill of a query that runs, at a moment that the seed says. `drivers`: of the driver."""
        rng = random.Random(f"{self.seed}-{number}")
        self._await_batch()
        time.sleep(rng.choice((rng.uniform(0, 0.3), rng.uniform(0.2, 1.5))))
        self._batch = self.driver.batch()
        self._kill(rng, drivers=drivers)
        if rng.random() < AGAIN:
            time.sleep(rng.uniform(0, 3))
            self._kill(rng, drivers=False)
            self.kills["of these, one more while the query recovered"] += 1

    def _turn_green(self) -> None:
        """From now on a copy of the checkpoint writes to a topic of its own. The batch that was under way may
        be in both; each topic has none of its records twice, and together they have all."""
        topic = f"out-{self._outputs}"
        self._outputs += 1
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(topic, PARTITIONS["out"], 1)])[topic].result(60)
        self.driver.hand_over(topic)
        while self._out.read(lambda part, offset, value: self._found.update([value])):
            pass
        self._out.close()
        self._before.append(self._found)
        self._out, self._found = Reader(self.address, topic), Counter()
        self.kills["of these, after which a copied checkpoint went on elsewhere"] += 1

    def _seen(self) -> set[bytes]:
        """In any topic."""
        return set(self._found).union(*self._before)

    def _await_batch(self) -> None:
        """Until the query has done a batch since the last kill: only what runs can be killed."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self.driver.batch() <= self._batch:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the query does no batch any more: {self.driver.tail()}")
            time.sleep(0.05)

    def _kill(self, rng: random.Random, *, drivers: bool) -> None:
        if drivers:
            alone = rng.random() < 0.5
            self.driver.kill_driver_alone() if alone else self.driver.kill()
            self.kills["driver, its workers left" if alone else "driver with its workers"] += 1
            if alone:
                time.sleep(rng.uniform(0, 0.5))
                self.driver.kill()
            if rng.random() < GREEN:
                self._turn_green()
            self.driver.start()
        elif rng.random() < 0.5 and self.driver.kill_worker(rng):
            self.kills["worker"] += 1
        else:
            self.daemon.kill()
            self.kills["daemon"] += 1
            time.sleep(rng.choice((0, rng.uniform(0, 1))))
            self.daemon.restart()

    def damage(self) -> None:
        """Writes what is there once more, to show that it is found out."""
        producer = Producer({"bootstrap.servers": self.address})
        producer.produce(self.driver.topic, min(self._found), partition=0)
        if producer.flush(60):
            raise RuntimeError("the damage could not be done")

    def look(self) -> None:
        """Waits until all that is in `in` is in `out`, once."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        target = 0
        while time.monotonic() < deadline:
            while self._read_input() and not target:
                pass
            target = target or self._wanted.total()
            if self._out.read(lambda part, offset, value: self._found.update([value])):
                deadline = time.monotonic() + CATCH_UP_SECONDS
            if len(self._seen()) >= target:
                break
        else:
            self.problems.append(f"{target - len(self._seen())} records are missing; {self.driver.tail()}")
        self._compare(whole=False)

    def _read_input(self) -> bool:
        """Whether there may be more."""
        count = self._in.read(
            lambda part, offset, value: self._wanted.update([b"%d:%d:%s" % (part, offset, value)])
        )
        return count > RATE * READ_SECONDS

    def _compare(self, *, whole: bool) -> None:
        counters = (self._found, *self._before)
        twice = [value for found in counters for value, count in found.items() if count > 1]
        for _ in range(
            CATCH_UP_SECONDS
        ):  # the input goes on, and what is written may be ahead of what was read
            strange = self._seen() - self._wanted.keys()
            if not strange or whole:
                break
            self._read_input()
        missing = self._wanted.keys() - self._seen() if whole else set()
        for what, found in (("more than once", twice), ("invented", strange), ("missing", missing)):
            if found:
                self.problems.append(f"{what}: {len(found)}, such as {sorted(found)[:3]}")

    def end(self, *, damage: bool = False) -> None:
        """No more input; everything must be there, once, in the end."""
        self.feeder.end()
        if not self.problems:
            self.look()
        if not self.problems:
            if damage:
                self.damage()
            for _ in range(CATCH_UP_SECONDS if damage else 1):
                self._out.read(lambda part, offset, value: self._found.update([value]))
                if any(count > 1 for count in self._found.values()):
                    break
            self._compare(whole=True)
        self.records = len(self._seen())

    def close(self) -> None:
        """Ends whatever was begun."""
        self._begun.close()
