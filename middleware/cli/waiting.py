"""Says on standard error what a command waits for, once it has waited for a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

LOOK_SECONDS: Final = 1.0
PATIENCE: Final = 5  # looks without progress until it is said
AGAIN: Final = 30  # and until it is said again


class Patience:
    """Pure: how many looks in a row have found the same, and when that is said."""

    def __init__(self) -> None:
        self._done = -1
        self._looks = 0

    def look(self, done: int, left: int) -> bool:
        """`done` so many, and `left` are waited for. Whether that is to be said now."""
        if done != self._done or not left:
            self._done, self._looks = done, 0
            return False
        self._looks += 1
        return self._looks >= PATIENCE and (self._looks - PATIENCE) % AGAIN == 0


def waiting_text(left: int, address: str, problems: Sequence[str]) -> str:
    why = "; ".join(problems) or "it has not said why"
    return f"waiting for {address} to acknowledge {left:,} record{'s' if left != 1 else ''}: {why}"


class Waiting:
    """While it is entered, a thread looks at `counts`: records that are acknowledged, and those that are not.

    `problems` asks a daemon what is wrong.
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
                    print(text, file=sys.stderr, flush=True)
