"""Digests: a program's messages to its controller, collected into lists (P4Runtime, section 9.7)."""

from __future__ import annotations

from collections import OrderedDict

from .errors import ControlError, Problem
from .values import DigestConfig, DigestList

MAX_WAITING = 4096  # digests of one kind that wait or are unacknowledged; more are dropped and counted
MAX_LIST = 1024  # digests in one list if the config has no limit


class DigestQueue:
    """Digests of one kind. Equal ones that wait, or were sent and are not yet acknowledged, count once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.config: DigestConfig | None = None
        self.dropped = 0
        self._waiting: OrderedDict[tuple[int, ...], float] = OrderedDict()  # value: when it came
        self._sent: dict[tuple[int, ...], tuple[int, float]] = {}  # value: its list, and until when
        self._next_list = 1

    def add(self, values: tuple[int, ...], now: float) -> None:
        """Adds a program's digest."""
        config = self.config
        if config is None or values in self._waiting:
            return
        sent = self._sent.get(values)
        if sent is not None and now < sent[1]:
            return
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting[values] = now

    def due_at(self) -> float | None:
        """Returns when the next list is due: at once if it is full or has no timeout."""
        if self.config is None or not self._waiting:
            return None
        first = next(iter(self._waiting.values()))
        return first if self._full() else first + self.config.max_timeout

    def take(self, now: float) -> list[DigestList]:
        """Returns the lists that are due."""
        lists: list[DigestList] = []
        due = self.due_at()
        while due is not None and due <= now:
            lists.append(self._cut(now))
            due = self.due_at()
        return lists

    def ack(self, list_id: int) -> None:
        """Acknowledges a list: its digests may be sent again. Ignores unknown and old ids, as the
        specification requires."""
        for values in [v for v, (sent, _) in self._sent.items() if sent == list_id]:
            del self._sent[values]

    # --- whether and how they are sent

    def insert(self, config: DigestConfig) -> None:
        """Digests without a config are counted and thrown away."""
        if self.config is not None:
            raise ControlError(Problem.EXISTS, f"digest {self.name} is configured")
        self._configure(config)

    def modify(self, config: DigestConfig) -> None:
        self._need()
        self._configure(config)

    def delete(self) -> None:
        self._need()
        self._configure(None)

    def _need(self) -> None:
        if self.config is None:
            raise ControlError(Problem.NOT_FOUND, f"digest {self.name} is not configured")

    def _configure(self, config: DigestConfig | None) -> None:
        if config is not None and min(config.max_timeout, config.max_list_size, config.ack_timeout) < 0:
            raise ControlError(Problem.INVALID, "times and sizes of a digest are not negative")
        self.config = config
        if config is None:
            self._waiting.clear()
            self._sent.clear()

    def _limit(self) -> int:
        assert self.config is not None
        return min(self.config.max_list_size or MAX_LIST, MAX_LIST)

    def _full(self) -> bool:
        return len(self._waiting) >= self._limit()

    def _cut(self, now: float) -> DigestList:
        assert self.config is not None
        at = next(iter(self._waiting.values()))
        count = min(len(self._waiting), self._limit())
        values = tuple(self._waiting.popitem(last=False)[0] for _ in range(count))
        list_id, self._next_list = self._next_list, self._next_list + 1
        if self.config.ack_timeout > 0:
            self._remember(values, list_id, now)
        return DigestList(self.name, list_id, values, at)

    def _remember(self, values: tuple[tuple[int, ...], ...], list_id: int, now: float) -> None:
        assert self.config is not None
        if len(self._sent) + len(values) > MAX_WAITING:
            self._sent = {v: sent for v, sent in self._sent.items() if sent[1] > now}
        if len(self._sent) + len(values) > MAX_WAITING:
            self._sent.clear()  # a controller that never acknowledges: repeats do no harm
        for value in values:
            self._sent[value] = (list_id, now + self.config.ack_timeout)
