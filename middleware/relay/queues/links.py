"""`QueueLinks`: the way of AMQP's queues to other hosts, over the coordinator and the channels.

Methods 140-159 of the channel. Messages travel from the spool of their origin to the home of their queues in
calls that are answered once the home's turn has stored what is persistent in them. Deliveries and settlements
are notices, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from treecast.middleware.api.entries import DefinitionEntry, Presence
from treecast.middleware.broker.queues import (
    Ask,
    Defined,
    JoinedQueues,
    QueueAnswer,
    QueueCall,
    QueueNotice,
    Write,
)
from treecast.middleware.broker.stored import stored
from treecast.middleware.broker.turn import StoredWaits, Turn
from treecast.middleware.fabric.channel import Answer, Later, Method, Nothing
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.distribution import Distribution

from .known import Edit, KnownDefinitions

_log = Log(__name__)

CALL: Final = Method(141, QueueCall, QueueAnswer)
TELL: Final = Method(142, QueueNotice, Nothing)
CARRY: Final = Method(143, Nothing, Nothing)
MANAGE: Final = Method(144, Nothing, Nothing)
_CALL_SECONDS: Final = 10.0
_MANAGE_SECONDS: Final = 5.0
_PATIENCE: Final = 2.0  # after which a definition is confirmed although the coordinator has not answered
_AGAIN: Final = 0.5  # pause after the coordinator has not answered
_LATE: Final = 0.05  # pause until notices are sent that the channel did not take
_MOST: Final = 5000  # definitions in one call
_FINAL: Final = {Fault.INVALID_REQUEST, Fault.POLICY_VIOLATION, Fault.NOT_SUPPORTED}
_PROMISES: Final = {Ask.PURGE, Ask.DELETE, Ask.GET}

# The number of the call (0 for notices), the content, and the body of a notice.
_Late = tuple[int, QueueCall | QueueNotice, bytes]


class QueueLinks:
    """Implements `queues.Reach`. Other hosts are refused until `join`, and after `leave`."""

    def __init__(
        self, host: int, run: int, known: KnownDefinitions, distribution: Distribution, turn: Turn
    ) -> None:
        # Not in `join`: a start that fails before it closes the queues, which may define something.
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._run = run
        self._known = known
        self._distribution = distribution
        self._methods = known.methods
        self._waits = StoredWaits(turn)
        self._queues: JoinedQueues | None = None
        self._edits: deque[list[Write]] = deque()  # one for each call of `define`
        self._defined = 0  # calls of `define`
        self._released = 0  # those whose answers were released
        self._moved = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: dict[int, deque[_Late]] = {}  # by host, from the first notice on that was not taken
        self._methods.register(CALL, self._called)
        self._methods.register(TELL, self._told)
        self._methods.register(CARRY, self._arrived)
        self._methods.register(MANAGE, self._asked)
        self._managed: Callable[[int, bytes], Awaitable[bytes]] | None = None

    # --- life

    def join(self, queues: JoinedQueues) -> None:
        self._queues = queues
        self._distribution.listeners.append(self)
        self._clock(queues)
        known = [Defined(one.key, one.host_id, one.value) for one in self._known.all()]
        queues.begin(known, self._known.removed)
        self._known.listener = self._heard
        self._spawn(self._define_all(), "definitions of queues")

    async def leave(self, seconds: float) -> None:
        if self._queues is None:
            return
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            _log.info("not all changes of definitions are known to other hosts")
        self._queues = None
        self._known.listener = None
        self._distribution.listeners.remove(self)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._waits.close()

    def _clock(self, queues: JoinedQueues) -> JoinedQueues:
        queues.now, queues.wall = self._loop.time(), time.time()
        return queues

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _joined(self) -> JoinedQueues:
        if self._queues is None:
            raise TreecastError(Fault.NOT_SUPPORTED, "the queues of this host are not open")
        return self._clock(self._queues)

    # --- as `queues.Reach`

    @property
    def host(self) -> int:
        return self._host

    @property
    def run(self) -> int:
        return self._run

    def name(self, host: int) -> str:
        found = self._known.link.view.host(host)
        return found.name if found is not None else str(host)

    def up(self) -> Collection[int]:
        return self._distribution.up

    def hosts(self) -> Collection[int]:
        return [
            one.host_id
            for one in self._known.link.view.hosts
            if one.host_id != self._host
            and not one.leads_nothing
            and (one.presence is not Presence.DETACHED or one.host_id in self._distribution.up)
        ]

    async def manage(self, host: int, request: bytes) -> bytes:
        return bytes((await self._methods.ask(host, MANAGE, Nothing(), _MANAGE_SECONDS, request))[1])

    def serve(self, managed: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self._managed = managed

    def define(self, writes: Sequence[Write]) -> None:
        self._edits.append(list(writes))
        self._defined += 1
        self._idle.clear()
        self._moved.set()
        self._loop.call_later(_PATIENCE, self._release, self._defined)

    def call(self, host: int, number: int, call: QueueCall) -> None:
        self._pass_on(host, (number, call, b""))

    def tell(self, host: int, notice: QueueNotice, body: bytes = b"") -> None:
        self._pass_on(host, (0, notice, body))

    def _pass_on(self, host: int, message: _Late) -> None:
        """Sends a call or a notice, after those that the channel did not take yet."""
        late = self._late.get(host)
        if late is not None:
            late.append(message)
        elif not self._sent(host, message) and host in self._distribution.up:
            self._late[host] = deque([message])
            self._loop.call_later(_LATE, self._send_late, host)

    def _sent(self, host: int, message: _Late) -> bool:
        """Returns whether the channel has taken it. It takes each call, and tells what becomes of it."""
        number, what, body = message
        if isinstance(what, QueueNotice):
            return self._methods.tell(host, TELL, what, body)
        then = partial(self._answered, number, what)
        self._methods.ask_then(host, CALL, what, then, _CALL_SECONDS)
        return True

    def _send_late(self, host: int) -> None:
        late = self._late.get(host)
        while late and self._sent(host, late[0]):
            late.popleft()
        if late:
            self._loop.call_later(_LATE, self._send_late, host)
        else:
            self._late.pop(host, None)

    def carry(self, host: int, number: int, body: bytes) -> None:
        then = partial(self._carried, host, number)
        self._methods.ask_then(host, CARRY, Nothing(), then, _CALL_SECONDS, body)

    # --- definitions

    def _heard(self, changes: Mapping[str, DefinitionEntry | None]) -> None:
        if self._queues is not None:
            found = {
                key: Defined(key, one.host_id, one.value) if one is not None else None
                for key, one in changes.items()
            }
            self._clock(self._queues).heard(found)

    def _release(self, number: int) -> None:
        while self._released < number:
            self._released += 1
            if self._queues is not None:
                self._clock(self._queues).released()

    async def _define_all(self) -> None:
        """Passes on the changes of definitions, in order, until they are decided."""
        decided = 0
        while True:
            await self._moved.wait()
            self._moved.clear()
            while self._edits:
                count = await self._define(list(self._edits))
                decided += count
                for _ in range(count):
                    self._edits.popleft()
                    self._release(decided)
                    self._take_outcome()
            self._idle.set()

    def _take_outcome(self) -> None:
        """Takes over the outcome of the oldest changes. If the disk stops that, as where messages move to a
        host that was first, later changes are still passed on."""
        try:
            self._joined().decided()
        except TreecastError as error:
            _log.error("the outcome of a definition cannot be applied", error=error)

    async def _define(self, calls: list[list[Write]]) -> int:
        """Returns how many of the calls are decided: at least one."""
        count, edits = 0, list[Edit]()
        for writes in calls:
            if count and len(edits) + len(writes) > _MOST:
                break
            count += 1
            edits += [Edit(write.key, write.value, write.replace) for write in writes]
        revision = 0
        for at in range(0, len(edits), _MOST):
            revision = await self._write(edits[at : at + _MOST])
        await asyncio.gather(*[self._known.seen_by(host, revision) for host in list(self._distribution.up)])
        return count

    async def _write(self, edits: list[Edit]) -> int:
        """Returns the revision. Tries again until the coordinator answers."""
        while True:
            try:
                return await self._known.write(edits)
            except TreecastError as error:
                # One of them is refused, and the coordinator decides a call as a whole: each is asked for
                # alone.
                if error.fault in _FINAL and len(edits) > 1:
                    return max([await self._write([edit]) for edit in edits])
                if error.fault in _FINAL:
                    _log.error("definition is known to this host only", key=edits[0].key[:200], error=error)
                    return 0
                _log.debug("definitions are not known to the coordinator yet", error=error)
            await asyncio.sleep(_AGAIN)

    # --- calls of this host

    def _answered(
        self, number: int, call: QueueCall, outcome: tuple[QueueAnswer, memoryview] | TreecastError
    ) -> None:
        answer: QueueAnswer | None = None
        body: Buffer = b""
        if isinstance(outcome, TreecastError):
            queue = call.queue.decode(errors="replace")
            _log.info("home of a queue does not answer", queue=queue, error=outcome)
        else:
            answer, body = outcome
        if self._queues is not None:
            self._joined().answered(number, answer, bytes(body))

    def _carried(self, host: int, number: int, outcome: tuple[Nothing, memoryview] | TreecastError) -> None:
        refused = isinstance(outcome, TreecastError)
        if refused:
            _log.info("host has not taken messages for its queues", host=host, error=outcome)
        if self._queues is not None:
            self._joined().carried(host, number, not refused)

    # --- calls of other hosts

    def _called(
        self, host: int, call: QueueCall, body: memoryview
    ) -> tuple[QueueAnswer, Buffer] | Awaitable[tuple[QueueAnswer, Buffer]]:
        """Acts at once, as `_told` does: the notice that cancels a consumer may come right behind the call
        that asks for it."""
        answer, delivery, version = self._joined().called(host, call)
        if call.ask in _PROMISES and not answer.reason:
            return self._promised(answer, delivery, version)
        return answer, delivery

    async def _promised(
        self, answer: QueueAnswer, delivery: bytes, version: int
    ) -> tuple[QueueAnswer, Buffer]:
        await self._stored()
        await self.known(version)
        return answer, delivery

    async def _stored(self) -> None:
        """Raises STORAGE if the disk refuses."""
        if not await stored(self._waits):
            raise _disk_refuses()

    async def known(self, version: int) -> None:
        queues = self._joined()
        if queues.definitions.known >= version:
            return
        queues.definitions.send()
        known: asyncio.Future[None] = self._loop.create_future()

        def look() -> None:
            if queues.definitions.known >= version and not known.done():
                known.set_result(None)

        queues.on_known.append(look)
        try:
            await known
        finally:
            queues.on_known.remove(look)

    def _told(self, host: int, notice: QueueNotice, body: memoryview) -> tuple[Nothing, Buffer]:
        if self._queues is not None:
            self._joined().told(host, notice, bytes(body))
        return Nothing(), b""

    def _arrived(self, host: int, request: Nothing, body: memoryview) -> tuple[Nothing, Buffer] | Later:
        """Takes the messages at once. The answer waits until they are stored, if they are to be."""
        if not self._joined().arrived(host, bytes(body)):
            return Nothing(), b""
        later = Later()
        self._waits.then(partial(_confirm, later))
        return later

    async def _asked(self, host: int, request: Nothing, body: memoryview) -> tuple[Nothing, Buffer]:
        self._joined()
        if self._managed is None:
            raise TreecastError(Fault.NOT_SUPPORTED, "this host answers no management calls")
        return Nothing(), await self._managed(host, bytes(body))

    # --- hosts come and go, as `distribution.HostListener`

    def host_up(self, host: int) -> None:
        if self._queues is not None:
            self._joined().host_up(host)

    def host_down(self, host: int) -> None:
        for message in self._late.pop(host, ()):
            if isinstance(message[1], QueueCall):  # the notices are lost with the connection
                self._sent(host, message)
        if self._queues is not None:
            self._joined().host_down(host)


def _confirm(later: Later, stored: bool) -> None:
    later.give(Answer(CARRY.head(Nothing())) if stored else _disk_refuses())


def _disk_refuses() -> TreecastError:
    return TreecastError(Fault.STORAGE, "the disk refuses")
