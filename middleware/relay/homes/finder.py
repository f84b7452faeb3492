"""`HomeFinder`: looks up the home of a group or a transactional id.

The view knows homes from the coordinator's watch. For an unknown home, the finder asks the coordinator, which
makes the asking host the home if there is none. The answer counts until the view has it too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError

from .ports import Coordinator, HomeAt

_REMEMBERED = 10_000  # bound of remembered answers


class HomeFinder:
    """`home` looks a home up in the view, `present` tells whether a host is attached, `clock` returns steady
    seconds. `ask_again`: seconds between questions about a home whose host is away.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        home: Callable[[HomeName], HomeAt | None],
        present: Callable[[int], bool],
        counters: HomeCounters,
        clock: Callable[[], float],
        ask_again: float,
        outside: Callable[[HomeName], HomeAt | None] = lambda name: None,
    ) -> None:
        """`outside`: the home of an id that a system outside the cluster owns."""
        self._outside = outside
        self._coordinator = coordinator
        self._home = home
        self._present = present
        self._counters = counters
        self._clock = clock
        self._ask_again = ask_again
        self._answers: OrderedDict[HomeName, tuple[HomeAt, float]] = OrderedDict()
        self._asking: dict[HomeName, asyncio.Task[HomeAt]] = {}

    def known(self, name: HomeName) -> HomeAt | None:
        """Returns the home as this host knows it, without asking."""
        outside = self._outside(name)
        if outside is not None:
            return outside
        at = self._home(name)
        answer = self._answers.get(name)
        if answer is not None and (at is None or answer[0].epoch > at.epoch):
            return answer[0]
        return at

    async def find(self, name: HomeName, denied: int = 0) -> HomeAt:
        """Returns the host to call. `denied`: the highest epoch in which a call got NOT_COORDINATOR.

        Raises COORDINATOR_UNAVAILABLE if the home is unknown and the coordinator does not answer.
        """
        at = self._outside(name)
        if at is not None:
            return at
        at = self.known(name)
        if at is None or at.epoch <= denied:
            self._answers.pop(name, None)
            return await self.ask(name)
        if self._present(at.host_id) or self._asked_lately(name):
            return at
        try:
            return await self.ask(name)  # the coordinator may have moved the home
        except TreecastError as error:
            if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                raise
            return at

    async def ask(self, name: HomeName) -> HomeAt:
        """Asks the coordinator. Concurrent questions share one call."""
        task = self._asking.get(name)
        if task is None:
            task = asyncio.create_task(self._ask(name), name=f"where is {name}")
            self._asking[name] = task
            task.add_done_callback(lambda _: self._asking.pop(name, None))
        # Shared: a caller that gives up must not end the question of the others.
        return await asyncio.shield(task)

    def forget(self, name: HomeName) -> None:
        """Forgets the answer about a home that no longer exists."""
        self._answers.pop(name, None)

    async def _ask(self, name: HomeName) -> HomeAt:
        self._counters.asked += 1
        at = await self._coordinator.ask(name)
        self._answers[name] = at, self._clock()
        self._answers.move_to_end(name)
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return at

    def _asked_lately(self, name: HomeName) -> bool:
        answer = self._answers.get(name)
        return answer is not None and self._clock() - answer[1] < self._ask_again
