"""Reports on standard error what a command waits for, after it has waited for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from .output import say

LOOK_SECONDS: Final = 1.0
PATIENCE: Final = 5  # looks without progress until the first report
AGAIN: Final = 30  # looks until the next report


class Patience:
    """Counts consecutive looks without progress, and decides when to report. Pure."""

    def __init__(self) -> None:
        self._done = -1
        self._looks = 0

    def look(self, done: int, left: int) -> bool:
        """Records that `done` are done and `left` are waited for. Returns whether to report now."""
        if done != self._done or not left:
            self._done, self._looks = done, 0
            return False
        self._looks += 1
        return self._looks >= PATIENCE and (self._looks - PATIENCE) % AGAIN == 0


def waiting_text(left: int, address: str, problems: Sequence[str]) -> str:
    why = "; ".join(problems) or "no reason given"
    return f"waiting for {address} to acknowledge {left:,} record{'s' if left != 1 else ''}: {why}"


class Waiting:
    """A context manager whose thread watches `counts`: acknowledged records, and others.

    `problems` asks a daemon for its problems.
    """

    def __init__(
        self, counts: Callable[[], tuple[int, int]], address: str, problems: Callable[[], Sequence[str]]
    ) -> None:
        self._counts = counts
        self._address = address
        self._problems = problems
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Waiting:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()

    def _run(self) -> None:
        patience = Patience()
        while not self._done.wait(LOOK_SECONDS):
            done, left = self._counts()
            if patience.look(done, left):
                text = waiting_text(left, self._address, self._problems())
                if not self._done.is_set():
                    say(text, err=True)
