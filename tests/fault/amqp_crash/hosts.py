"""The same on two hosts: clients are beside one, the queues are at home on the other, which is killed."""

from __future__ import annotations

import random
import time
from pathlib import Path

from treecast.middleware.daemon.process import DaemonProcess

from .episode import OFF, START_S, Episode
from .workers import KEEP, ready

ORIGIN_TOO = 0.3  # of the kills


class HostsEpisode(Episode):
    """`daemon`: the clients' host, with the coordinator; `killed`: the queues' home."""

    def __init__(self, folder: Path, seed: int, number: int, python: str, patience: float) -> None:
        super().__init__(folder, seed, number, python, patience)
        self.daemon.clean_up()
        faces = [flag for face in OFF if face != "--control" for flag in (face, "off")]
        faces += ["--amqp", "127.0.0.1:0", "--fabric", "127.0.0.1:0", "--fsync", self.fsync]
        self.daemon = DaemonProcess(folder / "origin", [*faces, "--name", "origin"], python=python)
        self._rng = random.Random(seed * 1000 + number)
        self._home = [*faces, "--name", "home"]
        self._folder = folder
        self._python = python

    def begin(self) -> None:
        self.daemon.start(wait=False).wait_ready(START_S)
        self.daemon.pin_ports()
        token = f"@{self._folder / 'origin' / 'join-token'}"
        joins = ["--join", self.daemon.ready["control"], "--join-token", token]
        self.killed = DaemonProcess(self._folder / "home", [*self._home, *joins], python=self._python)
        self.killed.start(wait=False).wait_ready(START_S)
        self.killed.pin_ports()
        self._declare(self.killed)  # `_start` waits until the clients' host reaches a queue
        super().begin()

    def _kill(self) -> None:
        super()._kill()
        time.sleep(self._rng.uniform(0.0, 0.3))  # publishers go on, into the spool
        for publisher in self.publishers:
            publisher.gate.clear()
        if self._rng.random() < ORIGIN_TOO:
            self.daemon.kill()
            self.kills += 1

    def _start(self) -> None:
        if not self.daemon.running:
            self.daemon.start(wait=False).wait_ready(START_S)
        if not self.killed.running:
            super()._start()
        deadline = time.monotonic() + START_S
        while not self._reaches() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _reaches(self) -> bool:
        """Whether the clients' host reaches the home."""
        try:
            ready(self.daemon.address("amqp"), KEEP)
        except OSError:
            return False
        return True

    def end(self) -> None:
        super().end()
        if self.killed.running:
            self.killed.stop()
        self.log += self.killed.clean_up()
