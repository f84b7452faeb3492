"""`HomeMirror`: sends the writes of this host's homes to the coordinator's store.

One call is in progress at a time. It carries all writes since the previous call began. While the coordinator
does not answer, this host accepts writes alone: it keeps the last write of each key and sends them when the
coordinator is back. Rows that a start without the coordinator took over are compared with the store first:
older ones are never sent.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .ports import Alone, Coordinator, MirrorSettings, StateWrite, Version

_log = Log(__name__)

_SHORT = 0.05  # s, the first pause between attempts


class Kept(enum.Enum):
    """The outcome of a write."""

    STORED = "the coordinator has it on disk"
    ALONE = "this host has it on disk; the coordinator gets it when it is back"


Outcome = Kept | TreecastError


class _Unsent(Struct):
    """Unsent items of one home. `fresh`: keys with waiters; `alone`: keys accepted alone, without waiters,
    and the counts of their writes. `count`: of the home's last write among the items.
    """

    epoch: int
    items: dict[bytes, bytes | None] = {}
    fresh: set[bytes] = set()
    alone: dict[bytes, int] = {}
    waiting: list[asyncio.Future[Outcome]] = []
    forget: bool = False
    count: int = 0

    def add(self, items: Mapping[bytes, bytes | None], count: int, *, forget: bool = False) -> None:
        for key, value in items.items():
            self.items.pop(key, None)  # keeps items in the order of their last writes
            self.items[key] = value
        self.forget = forget
        self.count = max(self.count, count)

    def put_under(self, newer: _Unsent) -> None:
        """Applies later writes of the same epoch."""
        self.add(newer.items, newer.count, forget=newer.forget)
        self.fresh |= newer.fresh
        self.alone |= newer.alone
        self.waiting += newer.waiting

    def accept(self) -> int:
        """Answers all waiters that this host has accepted the write alone. Returns the number of items."""
        accepted, self.fresh = self.fresh, set()
        self.alone |= dict.fromkeys(accepted, self.count)
        self.forget = False  # the removals suffice, and other writes may follow
        self.answer(Kept.ALONE)
        return len(accepted)

    def answer(self, outcome: Outcome) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(outcome)

    def accepted_alone(self) -> dict[bytes, Alone]:
        return {key: Alone(self.items[key], count) for key, count in self.alone.items()}

    @property
    def size(self) -> int:
        """Approximate bytes in a message."""
        return sum(_size(key, value) for key, value in self.items.items())

    def cut(self, room: int) -> _Unsent:
        """Removes and returns the first items that fit, at least one. Waiters and count stay behind."""
        part = _Unsent(self.epoch)
        for key in list(self.items):
            if part.items and room <= 0:
                break
            part.items[key] = value = self.items.pop(key)
            room -= _size(key, value)
        part.alone = {key: self.alone.pop(key) for key in self.alone.keys() & part.items.keys()}
        return part


def _size(key: bytes, value: bytes | None) -> int:
    return len(key) + len(value or b"") + 16


# Called with a home's name and epoch, the refusal, and the items accepted alone in that epoch.
Lost = Callable[[HomeName, int, TreecastError, Mapping[bytes, Alone]], None]
# Called with a home's name, and the keys that were accepted alone and are in the store now.
Sent = Callable[[HomeName, Iterable[bytes]], None]


class Origin(Protocol):
    """The homes whose writes the mirror sends."""

    async def compare(self, names: Collection[HomeName]) -> None:
        """Compares rows with the store where that was not possible at the start. Drops homes whose rows are
        older. Raises COORDINATOR_UNAVAILABLE; homes that were compared before count as compared."""

    def version(self, name: HomeName, count: int) -> Version:
        """Returns the version of a home's items after its write `count`."""


class HomeMirror:
    """Active from its first `put` to `close`. Calls `lost` if the coordinator refuses a home of this host,
    and `sent` once writes accepted alone are in the store."""

    def __init__(
        self,
        coordinator: Coordinator,
        counters: HomeCounters,
        origin: Origin,
        *,
        lost: Lost,
        sent: Sent,
        settings: MirrorSettings,
    ) -> None:
        self._coordinator = coordinator
        self._counters = counters
        self._origin = origin
        self._lost = lost
        self._sent = sent
        self._settings = settings
        self._unsent: dict[HomeName, _Unsent] = {}
        self._under_way: dict[HomeName, _Unsent] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.away = False  # whether the coordinator does not answer

    def put(self, write: StateWrite, count: int = 0) -> asyncio.Future[Outcome]:
        """Returns the outcome of the home's write `count`; done at once while the coordinator is away."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_result(Kept.ALONE)
            return future
        unsent = self._unsent_of(write.name, write.epoch)
        unsent.add(write.items, count, forget=write.forget)
        unsent.fresh |= write.items.keys()
        unsent.waiting.append(future)
        if self.away:
            self._counters.accepted_alone += unsent.accept()
        self._go_on()
        return future

    def remember(self, write: StateWrite, count: int = 0, alone: Mapping[bytes, int] | None = None) -> None:
        """Adds all items of a home, as of its write `count`: they may not be in the store yet. This write has
        no waiter, and newer writes win.

        `alone`: the keys that were accepted without the store, and the counts of their writes.
        """
        newer = self._unsent.pop(write.name, None)
        unsent = self._unsent_of(write.name, write.epoch)
        unsent.add(write.items, count)
        unsent.alone |= alone or {}
        if newer is not None and newer.epoch == write.epoch:
            unsent.put_under(newer)
        self._go_on()

    def drop(self, name: HomeName, refusal: TreecastError, *, forgotten: bool = False) -> dict[bytes, Alone]:
        """Drops the writes of a home that moved, or with `forgotten` ended: then a forgetting write succeeds.

        Returns the items that were accepted alone and will not reach the store.
        """
        alone: dict[bytes, Alone] = {}
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
        # While the coordinator is away, waiting would bring nothing.
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
        writes: list[StateWrite] = []
        try:
            async with asyncio.timeout(self._settings.call):
                await self._origin.compare(self._unsent.keys())
                self._under_way = self._take()
                writes = [self._write(name, unsent) for name, unsent in self._under_way.items()]
                refused = await self._coordinator.put(writes) if writes else {}
        except TimeoutError:
            error = TreecastError(Fault.COORDINATOR_UNAVAILABLE, "the coordinator does not answer in time")
        except TreecastError as raised:
            error = raised
        except Exception:  # or nothing would be sent any more, and all writers would wait
            _log.exception("writes of homes are sent again")
            error = TreecastError(Fault.COORDINATOR_UNAVAILABLE)
        else:
            self._counters.store_calls += 1
            for place, write in enumerate(writes):
                # Otherwise `drop` has taken it out meanwhile, and answered its waiters.
                if write.name in self._under_way:
                    self._end(write, self._under_way.pop(write.name), refused.get(place))
            return None
        self._put_back()
        return error

    def _write(self, name: HomeName, unsent: _Unsent) -> StateWrite:
        version = self._origin.version(name, unsent.count) if unsent.count else None
        return StateWrite(name, unsent.epoch, unsent.items, unsent.forget, version)

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
