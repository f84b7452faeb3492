"""Publications of this host's VNFs: numbers, and the updates that the replica controller still lacks."""

from __future__ import annotations

from collections import deque

from .settings import StareSettings

Pair = tuple[int, int]  # state id, VNF id


class Published:
    """One VNF's updates of one state. `end`: next number. The controller has all before `acknowledged`."""

    __slots__ = ("acknowledged", "attempts", "base", "end", "kept")

    def __init__(self, first: int) -> None:
        self.base = first  # the first number ever used
        self.end = first
        self.acknowledged = first
        self.attempts = 0  # unanswered TAILs
        self.kept: deque[bytes] = deque()  # the last values; `end` follows the last of them

    @property
    def first(self) -> int:
        """The number of the first update still kept."""
        return self.end - len(self.kept)

    @property
    def last(self) -> bytes:
        """The last value."""
        return self.kept[-1]

    def get(self, number: int) -> bytes | None:
        at = number - self.first
        return self.kept[at] if 0 <= at < len(self.kept) else None


class PublishedStates:
    """All published pairs of a host. Keeps `keep` updates of each and `keep_bytes` in total, but always the
    last update of each.
    """

    def __init__(self, settings: StareSettings) -> None:
        self._settings = settings
        self._pairs: dict[Pair, Published] = {}
        self._bytes = 0
        self.dropped = 0  # updates dropped before the controller acknowledged them

    def __len__(self) -> int:
        return len(self._pairs)

    def get(self, pair: Pair) -> Published | None:
        return self._pairs.get(pair)

    def pairs(self) -> list[Pair]:
        return list(self._pairs)

    def add(self, pair: Pair, value: bytes, first: int) -> int:
        """Adds an update and returns its number. `first`: the VNF's first number."""
        published = self._pairs.get(pair)
        if published is None:
            published = self._pairs[pair] = Published(first)
        published.kept.append(value)
        self._bytes += len(value)
        published.end += 1
        crowded = self._bytes > self._settings.keep_bytes
        while len(published.kept) > 1 and (
            published.first < published.acknowledged or len(published.kept) > self._settings.keep or crowded
        ):
            self._drop(published)
        return published.end - 1

    def _drop(self, published: Published) -> None:
        if published.first >= published.acknowledged:
            self.dropped += 1
        self._bytes -= len(published.kept.popleft())

    def acknowledge(self, published: Published, end: int) -> None:
        """Notes that the controller has all updates before `end`."""
        published.acknowledged = min(max(published.acknowledged, end), published.end)
        published.attempts = 0
        while len(published.kept) > 1 and published.first < published.acknowledged:
            self._drop(published)

    def forget_acknowledgements(self) -> None:
        """Forgets all acknowledgements. A new controller may have nothing yet."""
        for published in self._pairs.values():
            published.acknowledged = published.base

    def remove(self, pair: Pair) -> None:
        published = self._pairs.pop(pair, None)
        if published is not None:
            self._bytes -= sum(map(len, published.kept))
