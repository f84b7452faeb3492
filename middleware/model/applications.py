"""The applications that have joined and left this host's faces, until they are told to the coordinator.

A face notes each of its clients by the name that the client gives itself. Nothing is kept unless somebody
takes the notes, and no more than a bound; further ones are counted.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

JOINED: Final = "joined"
LEFT: Final = "left"
_MOST: Final = 10_000  # notes that wait
_LONGEST: Final = 200  # characters of a name


class Application(Struct, frozen=True):
    """A note: `kind` is JOINED or LEFT. `who`: the client's name; `address`: where it connects from."""

    kind: str
    face: str
    who: str
    address: str


class Applications:
    """The notes of one host. `taken` is set by whoever takes them. `missed` counts those beyond the bound."""

    def __init__(self) -> None:
        self.taken = False
        self.missed = 0
        self._notes: deque[Application] = deque()

    def joined(self, face: str, who: str, address: str) -> None:
        self._note(JOINED, face, who, address)

    def left(self, face: str, who: str, address: str) -> None:
        self._note(LEFT, face, who, address)

    def _note(self, kind: str, face: str, who: str, address: str) -> None:
        if not self.taken:
            return
        if len(self._notes) >= _MOST:
            self.missed += 1
            return
        self._notes.append(Application(kind, face, who[:_LONGEST], address))

    def __len__(self) -> int:
        return len(self._notes)

    def first(self, count: int) -> list[Application]:
        """Returns the oldest notes, which stay until `forget`."""
        return [self._notes[at] for at in range(min(count, len(self._notes)))]

    def forget(self, count: int, missed: int) -> None:
        """Removes the oldest notes, and subtracts from `missed`, once they are told."""
        for _ in range(count):
            self._notes.popleft()
        self.missed -= missed
