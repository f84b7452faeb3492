"""The group of a zone: hosts that no longer answer its questions get unicast, and return in time."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from treecast.middleware.fabric.zone_group import ZoneGroup


class Clock:
    """An edge without sockets: time, one timer, and the questions that were asked."""

    def __init__(self) -> None:
        self.time = 100.0
        self.timer: tuple[float, Callable[[], None]] | None = None
        self.random = random.Random(1)
        self.loop = self

    def now(self) -> float:
        return self.time

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        self.timer = self.time + seconds, call
        return SimpleNamespace(cancel=lambda: None)


class Zone:
    """A group in use whose members `answering` answer each question."""

    def __init__(self, *answering: int) -> None:
        self.clock = Clock()
        self.answering = set(answering)
        self.changes = 0
        edge: Any = self.clock
        self.group = ZoneGroup(edge, self._asked, self._changed)
        opened: Any = object()
        self.group._end = opened

    def _asked(self, nonce: int) -> None:
        self._nonce = nonce

    def _changed(self) -> None:
        self.changes += 1

    def turn(self, *, used: bool = True) -> None:
        """Lets the next question be asked, and answered."""
        if used:
            self.group.use()
        if self.clock.timer is not None:
            (self.clock.time, call), self.clock.timer = self.clock.timer, None
            call()
        for host in self.answering:
            self.group.answered(host, self._nonce)


def test_who_answers_is_reached_and_who_stops_is_not() -> None:
    zone = Zone(2, 3)
    zone.turn()
    assert zone.group.reached == {2, 3}
    for _ in range(8):
        zone.turn()
    assert zone.changes == 2
    zone.answering = {2}
    turns = 0
    while 3 in zone.group.reached:
        zone.turn()
        turns += 1
    assert (turns, zone.group.reached, zone.group.lost) == (4, {2}, [3])
    lost = zone.clock.time
    zone.answering = {2, 3}
    while 3 not in zone.group.reached:
        zone.turn()
    assert zone.clock.time - lost >= 5.0
    assert zone.group.lost == []


def test_a_wrong_number_is_no_answer_and_an_unused_group_asks_nobody() -> None:
    zone = Zone(2)
    assert not zone.group.answered(2, 0)
    zone.turn()
    assert not zone.group.answered(2, zone.group.nonce + 1)
    assert zone.group.answered(2, zone.group.nonce)
    while zone.clock.timer is not None:
        zone.turn(used=False)
    assert (zone.group.reached, zone.group.nonce) == (frozenset(), 0)
