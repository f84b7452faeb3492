"""One life of a data directory on LazyFS: load of all faces, a power loss, a restart, an audit, and again."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess

from .amqp_load import AmqpLoad
from .kafka_load import KafkaLoad
from .lazyfs import LazyFs, Tearing
from .loads import Load
from .mqtt_load import MqttLoad

POLICIES = ("batch", "interval", "never")
INTERVAL_S = 1.0
SLACK_S = 2.0  # for the sync itself, on a busy machine
LOAD_S = (2.0, 6.0)
START_S = 300.0
COORDINATED = ["--fabric", "127.0.0.1:0"]


class Episode:
    """Implements `resumable.Episode`. The policy changes with every life; every other three lives have a
    coordinator in the daemon, whose store then holds topics and offsets as well.

    `counts`: by policy, losses of power, facts that were kept, that were lost as the policy allows, and
    restarts after which files were torn.
    """

    def __init__(self, folder: Path, seed: int, number: int, python: str, patience: float) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.fsync = POLICIES[number % len(POLICIES)]
        self.problems: list[str] = []
        self.counts: dict[str, int] = {}
        self.kills = 0
        self._seed, self._patience = seed, patience
        self._disk = LazyFs(folder)
        flags = ["--fsync", self.fsync, "--stare", "off", "--admin", "off"]
        if number // len(POLICIES) % 2:
            flags += COORDINATED
        self.daemon = DaemonProcess(self._disk.path / "data", flags, python=python)
        self._loads: list[Load] = [KafkaLoad(), AmqpLoad(), MqttLoad()]
        self._written_back = 0.0

    def begin(self) -> None:
        self.daemon.start(wait=False).wait_ready(START_S)

    def cycle(self, number: int, *, damage: bool = False) -> None:
        """Loses the power once, and checks what is left. `damage` removes forced data as well, to prove that
        the check notices it."""
        rng = random.Random(f"{self._seed}-{number}")
        for load in self._loads:
            load.begin(self.daemon, number)
        failed = self._work(rng)
        if damage:
            self._damage()
        try:
            self.daemon.start(wait=False).wait_ready(START_S)
        except DaemonFailed as error:
            self.problems.append(f"the daemon does not start after a power loss: {str(error)[-2000:]}")
            return
        self._look(failed)

    def _work(self, rng: random.Random) -> float:
        """Lets the load work, and loses the power. Returns the time of the loss."""
        time.sleep(rng.uniform(*LOAD_S))
        if self.fsync == "never" or rng.random() < 0.3:  # the kernel writes back when it likes
            begun = time.monotonic()
            self._disk.write_back()
            self._written_back = begun
            time.sleep(rng.uniform(0.0, 2.0))
        if rng.random() < 0.2:  # nothing happens any more: what is idle has to be forced, too
            for load in self._loads:
                load.halt()
            time.sleep(INTERVAL_S + SLACK_S)
        failed = time.monotonic()
        self.daemon.kill()
        self.kills += 1
        for load in self._loads:
            load.halt()
        tearing = Tearing(self.daemon.data, rng)
        self._disk.lose()
        self._count("power losses", 1)
        self._count("torn files", tearing.tear())
        return failed

    def _damage(self) -> None:
        """Cuts off the second half of the journals."""
        for journal in self.daemon.data.glob("*/*.journal"):
            with journal.open("r+b") as file:
                file.truncate(journal.stat().st_size // 2)

    def _horizon(self, failed: float) -> float:
        """Returns the time before which everything that was answered has to be there."""
        if self.fsync == "batch":
            return failed
        if self.fsync == "interval":
            return failed - INTERVAL_S - SLACK_S
        return self._written_back

    def _look(self, failed: float) -> None:
        for load in self._loads:
            name = type(load).__name__.removesuffix("Load")
            try:
                outcomes, problems = load.audit(
                    self.daemon, self._horizon(failed), whole=self.fsync == "batch"
                )
            except Exception as error:
                self.problems.append(f"{name}: what is left cannot be read: {type(error).__name__}: {error}")
                continue
            for outcome in outcomes:
                self._count(f"{name} {outcome.kind} kept", outcome.kept)
                self._count(f"{name} {outcome.kind} lost", outcome.young)
                problems += outcome.problems()
            self.problems += [f"{name}: {problem}" for problem in problems]

    def _count(self, what: str, number: int) -> None:
        name = f"{self.fsync}: {what}"
        self.counts[name] = self.counts.get(name, 0) + number

    def end(self) -> None:
        for load in self._loads:
            if hasattr(load, "_workers"):
                load.halt()
        self.log = self.daemon.clean_up()
        self._disk.close()
