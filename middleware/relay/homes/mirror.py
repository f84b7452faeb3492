"""`HomeMirror`: sends the writes of this host's homes to the coordinator's store.

One call is in progress at a time. It carries all writes since the previous call began. While the coordinator
does not answer, this host accepts writes alone: it keeps the last write of each key and sends them when the
coordinator is back.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .ports import Coordinator, MirrorSettings, StateWrite

_log = Log(__name__)

_SHORT = 0.05  # s, the first pause between attempts


class Kept(enum.Enum):
    """The outcome of a write."""

    STORED = "the coordinator has it on disk"
    ALONE = "this host has it on disk; the coordinator gets it when it is back"


Outcome = Kept | TreecastError


class _Unsent(Struct):
    """Unsent items of one home. `fresh`: keys with waiters; `alone`: keys accepted alone, without waiters."""

    epoch: int
    items: dict[bytes, bytes | None] = {}
    fresh: set[bytes] = set()
    alone: set[bytes] = set()
    waiting: list[asyncio.Future[Outcome]] = []
    forget: bool = False

    def add(self, items: Mapping[bytes, bytes | None], *, forget: bool = False) -> None:
        for key, value in items.items():
            self.items.pop(key, None)  # keeps items in the order of their last writes
            self.items[key] = value
        self.forget = forget

    def put_under(self, newer: _Unsent) -> None:
        """Applies later writes of the same epoch."""
        self.add(newer.items, forget=newer.forget)
        self.fresh |= newer.fresh
        self.alone |= newer.alone
        self.waiting += newer.waiting

    def accept(self) -> int:
        """Answers all waiters that this host has accepted the write alone. Returns the number of items."""
        accepted, self.fresh = self.fresh, set()
        self.alone |= accepted
        self.forget = False  # the removals suffice, and other writes may follow
        self.answer(Kept.ALONE)
        return len(accepted)

    def answer(self, outcome: Outcome) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(outcome)

    def accepted_alone(self) -> dict[bytes, bytes | None]:
        return {key: value for key, value in self.items.items() if key in self.alone}

    @property
    def size(self) -> int:
        """Approximate bytes in a message."""
        return sum(_size(key, value) for key, value in self.items.items())

    def cut(self, room: int) -> _Unsent:
        """Removes and returns the first items that fit, at least one. Waiters stay with the rest."""
        part = _Unsent(self.epoch)
        for key in list(self.items):
            if part.items and room <= 0:
                break
            part.items[key] = value = self.items.pop(key)
            room -= _size(key, value)
        part.alone = self.alone & part.items.keys()
        return part


def _size(key: bytes, value: bytes | None) -> int:
    return len(key) + len(value or b"") + 16


# Called with a home's name and epoch, the refusal, and the items accepted alone in that epoch.
Lost = Callable[[HomeName, int, TreecastError, Mapping[bytes, bytes | None]], None]
# Called with a home's name, and the keys that were accepted alone and are in the store now.
Sent = Callable[[HomeName, Iterable[bytes]], None]


class HomeMirror:
    """Active from its first `put` to `close`. Calls `lost` if the coordinator refuses a home of this host,
    and `sent` once writes accepted alone are in the store."""

    def __init__(
        self,
        coordinator: Coordinator,
        counters: HomeCounters,
        *,
        lost: Lost,
        sent: Sent,
        settings: MirrorSettings,
    ) -> None:
        self._coordinator = coordinator
        self._counters = counters
        self._lost = lost
        self._sent = sent
        self._settings = settings
        self._unsent: dict[HomeName, _Unsent] = {}
        self._under_way: dict[HomeName, _Unsent] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.away = False  # whether the coordinator does not answer

    def put(self, write: StateWrite) -> asyncio.Future[Outcome]:
        """Returns the outcome of the write; done at once while the coordinator is away."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_result(Kept.ALONE)
            return future
        unsent = self._unsent_of(write.name, write.epoch)
        unsent.add(write.items, forget=write.forget)
        unsent.fresh |= write.items.keys()
        unsent.waiting.append(future)
        if self.away:
            self._counters.accepted_alone += unsent.accept()
        self._go_on()
        return future

    def remember(self, write: StateWrite, alone: Iterable[bytes] = ()) -> None:
        """Adds a write that may not be in the store yet. It has no waiter, and newer writes win.

        `alone`: the keys that were accepted without the store.
        """
        newer = self._unsent.pop(write.name, None)
        unsent = self._unsent_of(write.name, write.epoch)
        unsent.add(write.items)
        unsent.alone.update(alone)
        if newer is not None and newer.epoch == write.epoch:
            unsent.put_under(newer)
        self._go_on()

    def drop(
        self, name: HomeName, refusal: TreecastError, *, forgotten: bool = False
    ) -> dict[bytes, bytes | None]:
        """Drops the writes of a home that moved, or with `forgotten` ended: then a forgetting write succeeds.

        Returns the items that were accepted alone and will not reach the store.
        """
        alone: dict[bytes, bytes | None] = {}
        for place in (self._under_way, self._unsent):
            unsent = place.pop(name, None)
            if unsent is not None:
                alone |= unsent.accepted_alone()
                unsent.answer(Kept.STORED if forgotten and unsent.forget else refusal)
        return alone

    @property
    def waiting(self) -> int:
        """Number of items that the coordinator does not have yet."""
        return sum(len(unsent.items) for unsent in self._unsent.values())

    async def close(self, grace: float) -> None:
        """Sends the remaining items for at most `grace` seconds, then accepts the rest alone."""
        if self._task is not None and not self.away:
            await asyncio.wait([self._task], timeout=grace)
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for place in (self._under_way, self._unsent):
            for unsent in place.values():
                self._counters.accepted_alone += unsent.accept()

    # --- sending

    def _unsent_of(self, name: HomeName, epoch: int) -> _Unsent:
        unsent = self._unsent.get(name)
        if unsent is not None and unsent.epoch != epoch:
            unsent.answer(_outdated(name))
            unsent = None
        if unsent is None:
            unsent = self._unsent[name] = _Unsent(epoch)
        return unsent

    def _go_on(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._send_all(), name="homes to the coordinator")

    async def _send_all(self) -> None:
        """Sends until nothing is left. Pauses between attempts double."""
        loop = asyncio.get_running_loop()
        failing_since, pause = 0.0, _SHORT
        while self._unsent:
            error = await self._send_some()
            if error is None:
                failing_since, pause = 0.0, _SHORT
                self._found()
                continue
            failing_since = failing_since or loop.time()
            if not self.away and loop.time() - failing_since >= self._settings.patience:
                self._miss(error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._settings.pause)
        self._task = None

    async def _send_some(self) -> TreecastError | None:
        """Makes one call with the items that fit into it. Returns the error that refused all of them."""
        self._under_way = batch = self._take()
        writes = [StateWrite(name, u.epoch, u.items, u.forget) for name, u in batch.items()]
        try:
            async with asyncio.timeout(self._settings.call):
                refused = await self._coordinator.put(writes)
        except TimeoutError:
            error = TreecastError(Fault.COORDINATOR_UNAVAILABLE, "the coordinator does not answer in time")
        except TreecastError as raised:
            error = raised
        else:
            self._counters.store_calls += 1
            for place, write in enumerate(writes):
                if write.name in self._under_way:
                    self._end(write, self._under_way.pop(write.name), refused.get(place))
            return None
        self._put_back()
        return error

    def _take(self) -> dict[HomeName, _Unsent]:
        """Takes whole homes up to the bounds. A larger home goes in parts, with its waiters in the last."""
        taken: dict[HomeName, _Unsent] = {}
        room = self._settings.bytes
        for name in list(self._unsent):
            if len(taken) == self._settings.homes:
                break
            unsent = self._unsent[name]
            if unsent.size > room:
                if not taken:
                    taken[name] = unsent.cut(room)
                break
            taken[name] = self._unsent.pop(name)
            room -= unsent.size
        return taken

    def _put_back(self) -> None:
        """Puts unsent items back below newer writes."""
        batch, self._under_way = self._under_way, {}
        for name, older in batch.items():
            newer = self._unsent.pop(name, None)
            if newer is not None and newer.epoch != older.epoch:
                older.answer(_outdated(name))
                older = newer
            elif newer is not None:
                older.put_under(newer)
            self._unsent[name] = older

    def _end(self, write: StateWrite, unsent: _Unsent, refusal: TreecastError | None) -> None:
        unsent.answer(Kept.STORED if refusal is None else refusal)
        if refusal is None:
            if unsent.alone:
                self._sent(write.name, unsent.alone)
            return
        name = refusal.fault.name
        self._counters.store_refused[name] = self._counters.store_refused.get(name, 0) + 1
        if refusal.fault is Fault.NOT_COORDINATOR:
            self._lost(write.name, write.epoch, refusal, unsent.accepted_alone())
        elif unsent.alone:
            _log.error("coordinator's store refuses writes", home=write.name, error=refusal)

    # --- the coordinator's absence

    def _miss(self, error: TreecastError) -> None:
        self.away = True
        self._counters.store_lost += 1
        _log.warning("coordinator's store is unreachable; homes write to this host alone", error=error)
        for unsent in self._unsent.values():
            self._counters.accepted_alone += unsent.accept()

    def _found(self) -> None:
        if self.away:
            self.away = False
            _log.info("coordinator's store is back", waiting=self.waiting)


def _outdated(name: HomeName) -> TreecastError:
    return TreecastError(Fault.NOT_COORDINATOR, f"the home of {name} has a newer epoch")
