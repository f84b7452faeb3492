"""Facts are what clients were told, and when. One is due after a power loss if the policy promises it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

SHOWN = 5  # of the missing facts of one kind


class Facts:
    """The facts of one load: kind and key, with the time at which the client had the answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, Hashable], tuple[float, Any]] = {}

    def add(self, kind: str, key: Hashable, value: Any = None) -> None:
        """Adds or replaces a fact; called when the answer has arrived."""
        with self._lock:
            self._known[kind, key] = time.monotonic(), value

    def drop(self, kind: str, key: Hashable) -> None:
        """Removes a fact, because what made it untrue has been asked for."""
        with self._lock:
            self._known.pop((kind, key), None)

    def of(self, kind: str) -> dict[Any, Any]:
        """Returns key and value of all facts of one kind."""
        with self._lock:
            return {key: value for (one, key), (_, value) in self._known.items() if one == kind}

    def settle(self, kind: str, horizon: float, held: Callable[[Any, Any], bool]) -> Outcome:
        """Returns how many facts of `kind` hold, and which do not though they were known before `horizon`.

        What holds is on the disk now: it is due at every later loss. What does not hold is forgotten.
        """
        outcome = Outcome(kind)
        with self._lock:
            for (one, key), (at, value) in list(self._known.items()):
                if one != kind:
                    continue
                if held(key, value):
                    outcome.kept += 1
                    self._known[one, key] = 0.0, value
                    continue
                del self._known[one, key]
                if at <= horizon:
                    outcome.missing.append((key, value))
                else:
                    outcome.young += 1
        return outcome


class Outcome:
    """`kept`: facts that hold; `young`: lost, as the policy allows; `missing`: lost against its promise."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.kept = 0
        self.young = 0
        self.missing: list[tuple[Any, Any]] = []

    def problems(self) -> list[str]:
        if not self.missing:
            return []
        return [f"{len(self.missing)} of {self.kind} are gone, such as {self.missing[:SHOWN]}"]
