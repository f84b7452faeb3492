"""`HomeRouter`: routes a call to the home, on this host or another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.fabric.channel import ChannelError, Method
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError

from .finder import HomeFinder
from .keeper import HomeKeeper
from .ports import Calls, HomeAt

_ATTEMPTS = 3
_LOOK = 0.05  # s

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")


class HomeRouter:
    """`is_up` tells whether a host is connected. `connect`: seconds to wait for a connection."""

    def __init__(
        self,
        host_id: int,
        finder: HomeFinder,
        keeper: HomeKeeper,
        calls: Calls,
        is_up: Callable[[int], bool],
        counters: HomeCounters,
        connect: float,
    ) -> None:
        self._host_id = host_id
        self._finder = finder
        self._keeper = keeper
        self._calls = calls
        self._is_up = is_up
        self._counters = counters
        self._connect = connect

    async def route(
        self,
        name: HomeName,
        here: Callable[[], Awaitable[T]],
        there: Callable[[HomeAt], Awaitable[T]],
    ) -> T:
        """Calls `here` if this host is the home, else `there` with the home.

        Looks the home up again if the called host is no longer the home. Raises COORDINATOR_UNAVAILABLE if
        the home is unreachable.
        """
        if not name.id:
            fault = Fault.INVALID_GROUP if name.kind is HomeKind.GROUP else Fault.INVALID_REQUEST
            raise TreecastError(fault, "on joined hosts, an id cannot be empty")
        denied = 0
        for _ in range(_ATTEMPTS):
            if name in self._keeper.owned:
                return await here()
            at = await self._finder.find(name, denied)
            try:
                if at.host_id != self._host_id:
                    return await there(at)
                await self._keeper.acquire(name, at.epoch)
            except TreecastError as error:
                if error.fault is not Fault.NOT_COORDINATOR:
                    raise
                denied = at.epoch
        raise TreecastError(Fault.NOT_COORDINATOR, f"the home of {name} is moving; try again")

    async def call(
        self,
        at: HomeAt,
        method: Method[Q, A],
        request: Q,
        timeout: float,
    ) -> A:
        """Calls the host `at`. Raises COORDINATOR_UNAVAILABLE if the home went away."""
        self._counters.forwarded += 1
        try:
            await self._connected(at.host_id)
            answer, _ = await self._calls.ask(at.host_id, method, request, timeout)
        except ChannelError as error:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, f"the home, host {at.host_id}, is unreachable: {error}"
            ) from error
        return answer

    async def _connected(self, host_id: int) -> None:
        """Waits for a connection, for a short time. The call itself would wait up to its own time-out."""
        waited = 0.0
        while not self._is_up(host_id):
            if waited >= self._connect:
                raise TreecastError(
                    Fault.COORDINATOR_UNAVAILABLE, f"the home, host {host_id}, is not connected"
                )
            pause = min(_LOOK, self._connect / 4)
            await asyncio.sleep(pause)
            waited += pause
