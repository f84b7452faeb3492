"""Retained messages of all hosts: a subscriber gets the latest one that any host has for each topic.

Before a subscription's retained messages are delivered, all reachable hosts are asked for theirs. Messages
later than the local ones are stored here, including tombstones, so one value per topic remains. The filters
of one turn of the event loop form one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from treecast.middleware.broker.pubsub import Message, PubSub, Waiter
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import EventCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .batches import RunEvent, batch_of, events_of
from .ports import RETAINED, EventSettings, RetainedRequest, RetainedResponse

_log = Log(__name__)

Reply = tuple[RetainedResponse, Buffer]


class Retained:
    """Both ends: requests and answers. `hosts` returns the hosts that can be asked."""

    def __init__(
        self,
        hub: PubSub,
        hosts: Callable[[], Iterable[int]],
        methods: Methods,
        settings: EventSettings,
        counters: EventCounters,
    ) -> None:
        self._hub = hub
        self._hosts = hosts
        self._methods = methods
        self._settings = settings
        self._counters = counters
        self._filters: dict[bytes, None] = {}
        self._waiters: list[Waiter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._methods.register(RETAINED, self._answer)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- asking

    def collect(self, filters: Iterable[bytes], waiter: Waiter) -> bool:
        """Whether all retained messages for `filters` are here.

        If not, asks the other hosts and calls `waiter` when they have answered, or after `retained_wait`.
        """
        wanted = [filter for filter in filters if not filter.startswith(b"$")]
        if not wanted or not any(True for _ in self._hosts()):
            return True
        if not self._waiters:
            task = asyncio.get_running_loop().create_task(self._ask_all(), name="retained messages")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._filters.update(dict.fromkeys(wanted))
        self._waiters.append(waiter)
        return False

    async def _ask_all(self) -> None:
        """Asks all hosts for the filters collected in this turn of the event loop."""
        filters, self._filters = list(self._filters), {}
        waiters, self._waiters = self._waiters, []
        questions = [asyncio.ensure_future(self._ask(host, filters)) for host in self._hosts()]
        try:
            if questions:
                _, late = await asyncio.wait(questions, timeout=self._settings.retained_wait)
                self._counters.retained_late += len(late)
        finally:
            for question in questions:
                question.cancel()
        for waiter in waiters:
            waiter.confirmed()

    async def _ask(self, host: int, filters: list[bytes]) -> None:
        """Asks one host, page by page. If it fails, the pages received so far count."""
        request = RetainedRequest(filters=filters)
        try:
            while True:
                answer, body = await self._methods.ask(host, RETAINED, request, self._settings.call)
                self._take(bytes(body))
                if not answer.more or not answer.count:
                    return
                request = RetainedRequest(filters, request.skip + answer.count)
        except TreecastError as error:
            if error.fault is not Fault.NOT_SUPPORTED:  # NOT_SUPPORTED: the host has no MQTT face
                self._counters.retained_late += 1
                _log.info("host cannot be asked for retained messages", host=host, error=error)

    def _take(self, body: bytes) -> None:
        for event in events_of(body) if body else ():
            if isinstance(event, RunEvent):
                continue  # runs have no retained messages
            message = event.message
            if message.stamp and message.topic and not message.topic.startswith(b"$"):
                self._hub.retain(message)

    # --- answering

    def _answer(self, host: int, request: RetainedRequest, body: memoryview) -> Reply:
        found: dict[bytes, Message] = {}
        for filter in request.filters:
            for message in self._hub.retained.match_all(filter, self._hub.clock.wall):
                found[message.topic] = message
        return self._page(list(found.values())[request.skip :])

    def _page(self, messages: list[Message]) -> Reply:
        page: list[Message] = []
        size = 0
        for message in messages:
            if size > self._settings.page_bytes:
                break
            page.append(message)
            size += message.size + 100
        more = len(page) < len(messages)
        return RetainedResponse(count=len(page), more=more), batch_of(page, 0) if page else b""
