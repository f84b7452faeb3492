"""Readers that wait for records at the leader: one pending call to the leader serves all of them."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import Future
from functools import partial
from typing import Final

from treecast.middleware.broker.cluster import ReadWaiter
from treecast.middleware.broker.values import Isolation, PartitionRead
from treecast.middleware.fabric.channel import Answer
from treecast.middleware.model.errors import TreecastError

from . import calls
from .proxy import LeaderProxy

_UNKNOWN: Final = -1
_PAUSE: Final = 0.2  # s after a failed call, so that readers do not retry at once


class Watches:
    """The waiters of one partition, by isolation level."""

    def __init__(self, leader: LeaderProxy) -> None:
        self._leader = leader
        self.waiters: dict[ReadWaiter, Isolation] = {}
        self._known: dict[Isolation, int] = {}  # the readable end in the leader's last answer
        self._parked: dict[Isolation, Future[Answer]] = {}

    def __bool__(self) -> bool:
        return bool(self.waiters)

    def told(self, found: PartitionRead) -> None:
        """Notes the leader's answer to a fetch."""
        self._known[Isolation.READ_UNCOMMITTED] = found.high_watermark
        self._known[Isolation.READ_COMMITTED] = found.last_stable_offset

    def known(self, isolation: Isolation) -> int:
        """Returns the readable end that the leader last told; -1 if unknown."""
        return self._known.get(isolation, _UNKNOWN)

    def forget(self, isolation: Isolation) -> None:
        self._known.pop(isolation, None)

    def add(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        self.waiters[waiter] = isolation
        self._park(isolation)

    def remove(self, waiter: ReadWaiter) -> None:
        isolation = self.waiters.pop(waiter, None)
        if isolation is not None and isolation not in self.waiters.values():
            parked = self._parked.pop(isolation, None)
            if parked is not None:
                parked.cancel()

    def wake(self) -> None:
        """Makes all waiters read again."""
        for waiter in list(self.waiters):
            waiter.grown(0)

    def gone(self) -> None:
        waiters = list(self.waiters)
        self.waiters.clear()
        for parked in self._parked.values():
            parked.cancel()
        self._parked.clear()
        for waiter in waiters:
            waiter.gone()

    def _park(self, isolation: Isolation) -> None:
        if isolation in self._parked:
            return
        asked = self._leader.watch(self.known(isolation), isolation)
        self._parked[isolation] = asked
        asked.add_done_callback(partial(self._answered, isolation))

    def _answered(self, isolation: Isolation, asked: Future[Answer]) -> None:
        if self._parked.get(isolation) is asked:
            del self._parked[isolation]
        if asked.cancelled():
            return
        readable = _UNKNOWN
        if asked.exception() is None:
            with contextlib.suppress(TreecastError):
                readable = calls.WATCH.answered(asked.result())
        if readable == _UNKNOWN:
            asyncio.get_running_loop().call_later(_PAUSE, self._wake, isolation)
        elif readable > self.known(isolation):
            self._wake(isolation)
        elif isolation in self.waiters.values():
            self._park(isolation)  # time-out without growth

    def _wake(self, isolation: Isolation) -> None:
        for waiter, wanted in list(self.waiters.items()):
            if wanted is isolation:
                waiter.grown(0)
