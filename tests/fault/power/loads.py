"""The parts of a load: threads that work until the power fails, and a check of what is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from treecast.middleware.daemon.process import DaemonProcess

from .facts import Facts, Outcome

_HALT_S = 3.0


class Load(Protocol):
    """The load of one face. `audit` may be called once the daemon serves again."""

    facts: Facts

    def begin(self, daemon: DaemonProcess, cycle: int) -> None:
        """Begins; every answer of the daemon becomes a fact."""

    def halt(self) -> None:
        """Ends the threads, after the power has failed."""

    def audit(self, daemon: DaemonProcess, horizon: float, *, whole: bool) -> tuple[list[Outcome], list[str]]:
        """Returns how each kind of fact fared, and other problems. `whole`: what was answered together must
        be there together."""


class Workers:
    """Threads that call `step` until they are halted or it fails, as it does once the daemon is dead."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, step: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                while not self.over.is_set():
                    step()
            except Exception:  # the daemon is dead; whatever it did not answer is no fact
                self.over.wait()

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def halt(self) -> None:
        """Ends the threads. One that waits for a dead daemon is left to its time-out: what it hears of is
        nothing, as the next daemon has other ports."""
        self.over.set()
        deadline = time.monotonic() + _HALT_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        self._threads.clear()
