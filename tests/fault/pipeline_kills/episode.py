"""One life of a pipeline's folder: rounds that are killed, and checks of its tables and of its advice."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from subprocess import Popen

from tests.clients.spark.pipeline import HOSTS, PACKETS, Telemetry, ring

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.daemon.process import DaemonProcess

from .command import GIVEN, PipelineCommand, kill_group, kill_worker, until_killed

# Files whose appearance is a step of a round.
STEPS = (
    "checkpoints/bronze/offsets/*",
    "checkpoints/bronze/commits/*",
    "checkpoints/silver_sends/offsets/*",
    "checkpoints/advice/offsets/*",
    "plans/*.json",
    "tables/gold_advice/*",
)
QUERIES = ("--only", "bronze", "--only", "silver_sends", "--only", "advice")
ROUND = ("--rounds", "1", "--window", "86400", *GIVEN, *QUERIES)
VICTIMS = ("driver", "driver", "driver", "worker", "daemon")  # chosen alike
MORE = 3  # intervals of each host before each kill


class Episode:
    """`problems`: violations found. `python` runs the daemon; `patience` is not needed."""

    fsync = "interval"
    before = ""  # the Python of an earlier installation, which makes the folder

    def __init__(self, folder: Path, seed: int, number: int, python: str, patience: float) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._seed = f"{seed}-{number}"
        self._seq = 0
        self._folder = folder
        self._command = PipelineCommand(folder / "pipeline", folder)
        self._daemon = DaemonProcess(folder / "data", ["--admin", "off", "--control", "off"], python=python)

    @property
    def kills(self) -> int:
        return sum(count for name, count in self.counts.items() if name.startswith("kills of"))

    @property
    def log(self) -> str:
        return self._command.log

    def begin(self) -> None:
        self._daemon.start()
        self._daemon.pin_ports()
        with closing(OwnTopics(self._daemon.kafka)) as own:
            own.ensure((topics.SENDS, topics.TOPOLOGY, topics.ADVICE, topics.APPLIED))
            Telemetry(own).describe(ring())
        if self.before:
            self._write()
            earlier = PipelineCommand(self._command.folder, self._folder, self.before)
            earlier.ended("run", "--kafka", self._daemon.kafka, *ROUND)
            self.counts["rounds of the earlier installation"] += 1
            self._check()

    def cycle(self, number: int, *, damage: bool = False) -> None:
        """Kills one part during a round, lets the next round go on, and checks. `damage`: an interval is
        written twice as two, which the checks must find.
        """
        rng = random.Random(f"{self._seed}-{number}")
        self._write()
        victim, step = rng.choice(VICTIMS), rng.choice(STEPS)
        self._kill(victim, step)
        if damage:
            with closing(OwnTopics(self._daemon.kafka)) as own:
                Telemetry(own).write(HOSTS[0], self._seq + 1000)
        self._command.ended("run", "--kafka", self._daemon.kafka, *ROUND)
        self._check()

    def _write(self) -> None:
        with closing(OwnTopics(self._daemon.kafka)) as own:
            telemetry = Telemetry(own)
            for host in HOSTS:
                for later in range(1, MORE + 1):
                    telemetry.write(host, self._seq + later)
        self._seq += MORE

    def _kill(self, victim: str, step: str) -> None:
        before = set(self._command.folder.glob(step))
        started = self._command.start("run", "--kafka", self._daemon.kafka, *ROUND)
        due = partial(self._appeared, step, before)
        if until_killed(started, due, self._way(victim, started)):
            self.counts[f"kills of the {victim}"] += 1
            self.counts[f"at {step.removesuffix('/*').removesuffix('/*.json')}"] += 1
        else:
            self.counts["rounds that ended before"] += 1
        self._command.log, _ = started.communicate()
        if victim == "daemon":
            self._daemon.start()

    def _appeared(self, step: str, before: set[Path]) -> bool:
        return not set(self._command.folder.glob(step)) <= before

    def _way(self, victim: str, started: Popen[str]) -> Callable[[], bool]:
        return {
            "driver": partial(kill_group, started),
            "worker": partial(kill_worker, started),
            "daemon": self._kill_daemon,
        }[victim]

    def _kill_daemon(self) -> bool:
        self._daemon.kill()
        return True

    # --- checks

    def _check(self) -> None:
        """Each interval is in the tables once, and each epoch was advised once, in order."""
        intervals = self._seq * len(HOSTS)
        status = self._command.status()
        rows = {one["query"]: one["rows"] for one in status["queries"]}
        self._same("rows of bronze", rows["bronze"], intervals + 1)  # with the description
        self._same("rows of silver_sends", rows["silver_sends"], 2 * intervals)
        with closing(OwnTopics(self._daemon.kafka)) as own:
            advice = [topics.decode(pb.TreeAdvice, one.value or b"") for one in own.after(topics.ADVICE, 0)]
        epochs = [one.epoch for one in advice]
        self._same("epochs advised", epochs, sorted(set(epochs)))
        if not epochs:
            self.problems.append("no epoch was advised")
            return
        self._same("the last epoch", status["epoch"], epochs[-1])
        self._same("packets that advice rests on", advice[-1].packets, 2 * PACKETS * intervals)
        self.counts["epochs"] += 1

    def _same(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self.problems.append(f"{what}: {found}, expected {expected}")

    def end(self) -> None:
        """Replays all epochs, and stops the daemon."""
        try:
            if not self.problems and self._seq:
                said = self._command.ended("replay", *GIVEN)
                if " != " in said:
                    self.problems.append(f"replayed epochs differ: {said[-500:]}")
                self.counts["lives replayed"] += 1
        finally:
            self._daemon.stop()
            print(self._daemon.clean_up()[-2000:], file=sys.stderr)
