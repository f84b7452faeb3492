"""One life of a data directory and a checkpoint: kills under load, and checks of the output."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from msgspec import Struct

from treecast.middleware.daemon.process import DaemonProcess

from .accounts import Accounts
from .clients import INPUT, OUTPUT, Feeder, Reader, make_topic, make_topic_anew
from .driver import ANEW, SLOW, Driver

CATCH_UP_SECONDS = 240  # without any progress
OUTPUT_ANEW = 0.15  # share of the driver's kills that are followed by a new output topic of the same name
AGAIN = 0.15  # share of the kills that are followed by another during recovery
MOST_AT_ONCE = 20_000  # records


class Shares(Struct, frozen=True):
    """`green`: share of the driver's kills after which a copied checkpoint writes elsewhere. `anew`: share of
    all kills after which the input topic is replaced by a new one."""

    green: float = 0.4
    anew: float = 0.07


class Episode:
    """`problems`: violations found. `python` runs the daemon. `spent`: seconds by activity."""

    def __init__(self, folder: Path, seed: int, life: int, python: str, shares: Shares) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.seed = f"{seed}-{life}"
        self.shares = shares
        self.problems: list[str] = []
        self.kills: Counter[str] = Counter()
        self.spent: Counter[str] = Counter()
        self.accounts = Accounts()
        self._batch = -1  # the newest one finished at the last kill
        self._at_kill = ""  # the event after which the next batch is awaited
        flags = ["--admin", "off", "--control", "off"]
        self.daemon = DaemonProcess(folder / "data", flags, python=python)
        self.daemon.log_path = folder / "daemon.log"
        self._begun = ExitStack()
        self._outputs = 1
        self._blue: dict[int, Reader] = {}  # of the previous output topics, by their number
        self._inputs = 0  # read back from the current topic

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] += round(time.monotonic() - begun)

    def begin(self) -> None:
        with self._timed("starting daemon and driver"):
            self._begun.callback(self.daemon.clean_up)
            self.daemon.start()
            self.daemon.pin_ports()
            self.address = self.daemon.kafka
            for topic in (INPUT, OUTPUT):
                make_topic(self.address, topic)
            self._in, self._out = Reader(self.address, INPUT), Reader(self.address, OUTPUT)
            self._begun.callback(self._close_readers)
            self.driver = Driver(self.folder, self.address, OUTPUT)
            self._begun.callback(self._end_driver)
            self.feeder = Feeder(self.address)
            self.feeder.start()
            self.driver.start()
        self._at_kill = "driver"

    def _close_readers(self) -> None:
        for reader in (self._in, self._out, *self._blue.values()):
            reader.close()

    def _end_driver(self) -> None:
        self.driver.end()
        slow, anew = self.driver.failures(SLOW), self.driver.failures(ANEW)
        self.kills["query begun again after a failure"] = self.driver.failures() - slow - anew
        self.kills["query begun again as a topic was made anew"] = anew
        self.kills["query begun again as a worker did not start within Spark's 10 s"] = slow

    # --- kills

    def cycle(self, number: int, *, drivers: bool) -> None:
        """Kills a running query once, at a moment chosen by the seed. `drivers`: kills its driver."""
        rng = random.Random(f"{self.seed}-{number}")
        anew = rng.random() < self.shares.anew
        complete = anew and rng.random() < 0.5
        with self._timed(f"until a batch was done, after a kill of the {self._at_kill}"):
            self._await_batch()
        if complete:
            self._let_it_read_all()
        time.sleep(rng.choice((rng.uniform(0, 0.3), rng.uniform(0.2, 1.5))))
        self._batch = self.driver.batch()
        self._kill(rng, drivers=drivers)
        if anew:
            self._make_input_anew(rng, complete=complete)
        if drivers:
            self._turn_output(rng)
            with self._timed("starting the driver again"):
                self.driver.start()
        if rng.random() < AGAIN:
            time.sleep(rng.uniform(0, 3))
            self._kill(rng, drivers=False)
            self.kills["of these, one more while the query recovered"] += 1
        if anew:
            with self._timed("until the query went on with an input topic made anew"):
                self._go_on_anew()

    def _await_batch(self) -> None:
        """Waits until the query has finished a batch since the last kill: only a running query can be
        killed."""
        self._until(lambda: self.driver.batch() > self._batch, "the query does no batch any more")

    def _until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {self.driver.tail()}")
            time.sleep(0.05)

    def _kill(self, rng: random.Random, *, drivers: bool) -> None:
        if drivers:
            alone = rng.random() < 0.5
            self.driver.kill_driver_alone() if alone else self.driver.kill()
            self.kills["driver, its workers left" if alone else "driver with its workers"] += 1
            if alone:
                time.sleep(rng.uniform(0, 0.5))
                self.driver.kill()
            self._at_kill = "driver"
        elif rng.random() < 0.5 and self.driver.kill_worker(rng):
            self.kills["worker"] += 1
            self._at_kill = "worker"
        else:
            self.daemon.kill()
            self.kills["daemon"] += 1
            self._at_kill = "daemon"
            time.sleep(rng.choice((0, rng.uniform(0, 1))))
            self.daemon.restart()

    # --- switches to other topics and checkpoints

    def _turn_output(self, rng: random.Random) -> None:
        """Switches the output while no driver runs. A batch in progress may end up in both topics; no topic
        has a record twice, and together they have all."""
        drawn = rng.random()
        if drawn < self.shares.green:
            topic = f"{OUTPUT}-{self._outputs}"
            self._outputs += 1
            make_topic(self.address, topic)
            self.driver.hand_over(topic)
            self._blue[self.accounts.turn()] = self._out
            self.kills["of these, after which a copied checkpoint went on elsewhere"] += 1
        elif drawn < self.shares.green + OUTPUT_ANEW and not self._out.held_up():
            self._out.read_all(self._take_written)
            make_topic_anew(self.address, self.driver.topic)
            self._out.close()
            self.accounts.turn()
            self.kills["of these, after which the output topic was made anew"] += 1
        else:
            return
        self._out = Reader(self.address, self.driver.topic)

    def _let_it_read_all(self) -> None:
        """Lets the query read everything while nothing is fed."""
        self.feeder.pause()
        self._read_input_to(self.feeder.fed)
        with self._timed("until the query had read an input topic before it was deleted"):
            self._await_all()

    def _make_input_anew(self, rng: random.Random, *, complete: bool) -> None:
        """Replaces the input by a topic with fewer records, or with more. The query must fail."""
        if not complete:
            self.feeder.pause()
            self._read_input_to(self.feeder.fed)
        self._id, self._loud = self.driver.noted_id(), self.driver.failures(ANEW)
        self._out.read_all(self._take_written)
        more = rng.random() < 0.5
        count = min(self.feeder.fed + 500, MOST_AT_ONCE) if more else min(100, self.feeder.fed // 2)
        make_topic_anew(self.address, INPUT)
        self._in.close()
        self.accounts.input_anew(complete=complete)
        self._in, self._inputs = Reader(self.address, INPUT), 0
        self.feeder.begin_anew(count)
        self.feeder.go_on()
        self.kills["of these, after which the input topic was made anew"] += 1
        had = "the query had read all" if complete else "some was not read yet"
        self.kills[f"input topics made anew: {had}, {'more' if more else 'fewer'} records than before"] += 1

    def _go_on_anew(self) -> None:
        """Checks that the query failed and wrote nothing of the new topic, then lets it accept the loss."""
        self._until(lambda: self.driver.failures(ANEW) > self._loud, "the query does not see the new topic")
        self.kills["input topics made anew: the query failed and said so"] += 1
        self._read_input()
        self._written()
        if self.accounts.new_seen:
            self.problems.append("the query read the new topic although it had to fail")
        self.driver.accept_loss(True)
        self._until(
            lambda: self.driver.noted_id() not in ("", self._id),
            "the query does not go on with the new topic",
        )
        begun = self.driver.begun()
        self.driver.accept_loss(False)
        self._until(lambda: self.driver.begun() > begun, "the query is not begun again")
        self._batch = -1

    # --- checks

    def damage(self) -> None:
        """Writes existing records once more, to prove that the check notices it."""
        producer = Producer({"bootstrap.servers": self.address})
        producer.produce(self.driver.topic, self.accounts.some(), partition=0)
        if producer.flush(60):
            raise RuntimeError("the damage could not be done")

    def _take_written(self, partition: int, offset: int, value: bytes) -> None:
        self.accounts.written(value)

    def _take_input(self, partition: int, offset: int, value: bytes) -> None:
        self.accounts.fed(b"%d:%d:%s" % (partition, offset, value))
        self._inputs += 1

    def _written(self) -> int:
        for number, reader in self._blue.items():  # records that an open transaction had kept from being read
            reader.read(lambda _, __, value, number=number: self.accounts.written_before(number, value))
        return self._out.read(self._take_written)

    def _read_input(self) -> int:
        return self._in.read(self._take_input)

    def _read_input_to(self, fed: int) -> None:
        """Reads back at least this many records of the current topic."""
        while self._inputs < fed:
            self._read_input()

    def _await_all(self) -> None:
        """Waits until all inputs read back are in the output; adds a problem if they do not arrive."""
        missing = self.accounts.missing()
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while missing and time.monotonic() < deadline:
            self._written()
            if left := missing & self.accounts.seen():
                missing -= left
                deadline = time.monotonic() + CATCH_UP_SECONDS
        if missing:
            self.problems.append(f"{len(missing)} records are missing; {self.driver.tail()}")

    def look(self) -> None:
        """Waits until all current inputs are in the output once."""
        with self._timed("looking for all that was fed"):
            self._read_input_to(self.feeder.fed_surely())
            self._await_all()
            self._compare()

    def _compare(self) -> None:
        for _ in range(
            CATCH_UP_SECONDS
        ):  # the input goes on, and the output may be ahead of the inputs read back
            if not self.accounts.strange():
                break
            self._read_input()
        for what, found in (("more than once", self.accounts.twice()), ("invented", self.accounts.strange())):
            if found:
                self.problems.append(f"{what}: {len(found)}, such as {sorted(found)[:3]}")

    def end(self, *, damage: bool = False) -> None:
        """Ends the input; checks that everything is in the output once."""
        self.feeder.end()
        if not self.problems:
            self.look()
        if not self.problems:
            if damage:
                self.damage()
            for _ in range(CATCH_UP_SECONDS if damage else 1):
                self._written()
                if self.accounts.twice():
                    break
            self._compare()
        self.accounts.close()

    def close(self) -> None:
        """Ends everything that was started."""
        self._begun.close()
