"""The ledgers of this host's streams, stored across runs: table `accounts`.

There is one entry for each host that receives, or has received, a partition; its key is topic id, number and
host. Entries hold only what cannot be recovered otherwise and are written at intervals: a receiver that
resumes reports its position and its counts when it follows again. What both ends have lost, because both
were killed, counts as live.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from treecast.middleware.fabric.core.accounting import Account, Ledger
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.kept_accounts import KeptAccount, packed_account, unpacked_account
from treecast.middleware.storage.tables import Change, Tables

_log = Log(__name__)

ACCOUNTS: Final = "accounts"


class Place(NamedTuple):
    """A partition, named independently of its topic's name."""

    topic_id: uuid.UUID
    number: int


Ledgers = Callable[[], Iterable[tuple[Place, Ledger]]]
_Mark = tuple[int, int, int | None]


class Accounts:
    """The stored accounts, in use from `start` to `close`. All calls come from the event loop."""

    def __init__(self, tables: Tables, every: float) -> None:
        """`every`: seconds between two writes of changed accounts."""
        self._tables = tables
        self._every = every
        self._known: dict[Place, dict[int, Account]] = {}  # of earlier runs
        self._written: dict[str, _Mark] = {}
        self._ledgers: Ledgers = tuple
        self._begun: dict[Place, Ledger] = {}  # ledgers with a new receiver not written yet
        self._beginning: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, ledgers: Ledgers) -> list[Place]:
        """Loads the accounts of earlier runs. Returns the partitions with an open account.

        `ledgers` returns the current ledgers.
        """
        self._ledgers = ledgers
        for key, value in self._tables.load(ACCOUNTS).items():
            try:
                topic_id, number, host = key.split(".")
                place = Place(uuid.UUID(topic_id), int(number))
                self._known.setdefault(place, {})[int(host)] = decode(value)
            except (ValueError, KeyError, msgspec.MsgspecError) as error:
                _log.warning("stored account cannot be read and is discarded", key=key, error=error)
        self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)
        return [place for place, found in self._known.items() if any(map(_open, found.values()))]

    def close(self) -> None:
        """Stops writing."""
        if self._timer is not None:
            self._timer.cancel()
        self._ledgers = tuple

    def known(self, place: Place) -> Mapping[int, Account]:
        """Returns the accounts of earlier runs by host, once: they are then removed here."""
        return self._known.pop(place, {})

    def forget(self, place: Place) -> None:
        """Deletes the accounts of a partition that is no longer led here."""
        prefix = f"{_key(place)}."
        hosts = [*self._known.pop(place, ())]
        keys = [key for key in self._written if key.startswith(prefix)] + [
            f"{prefix}{host}" for host in hosts
        ]
        for key in keys:
            self._written.pop(key, None)
        self._spawn([Change(ACCOUNTS, key, None) for key in keys])

    # --- writing

    async def begun(self, place: Place, ledger: Ledger) -> None:
        """Writes the start of a receiver and waits for the write.

        All starts in one turn of the event loop are written together. The start is enough to resume the
        account later with the receiver's own counts.
        """
        self._begun[place] = ledger
        if self._beginning is None:
            self._beginning = asyncio.get_running_loop().create_task(
                self._write_begun(), name="begin accounts"
            )
        # Shared by all starts of this turn: a caller that gives up must not cancel the write.
        await asyncio.shield(self._beginning)

    async def _write_begun(self) -> None:
        # Taken before the commit: what begins during it gets a write of its own.
        begun, self._begun, self._beginning = self._begun, {}, None
        await self._commit(self._changes(begun.items()))

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)
        if self._task is None:
            self._spawn(self._changes(self._ledgers()))

    async def write(self) -> None:
        """Writes all changed accounts now."""
        if self._task is not None:
            await self._task
        await self._commit(self._changes(self._ledgers()))

    def _changes(self, ledgers: Iterable[tuple[Place, Ledger]]) -> list[Change]:
        """Returns the rows of changed accounts. An account has changed if its range has."""
        changes: list[Change] = []
        for place, ledger in ledgers:
            prefix = _key(place)
            for host in ledger.hosts():
                account = ledger.account(host)
                key, mark = f"{prefix}.{host}", (account.first, account.next, account.left_at)
                if self._written.get(key) != mark:
                    self._written[key] = mark
                    changes.append(Change(ACCOUNTS, key, encode(account)))
        return changes

    def _spawn(self, changes: list[Change]) -> None:
        if changes:
            self._task = asyncio.get_running_loop().create_task(self._commit(changes), name="write accounts")
            self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None

    async def _commit(self, changes: list[Change]) -> None:
        try:
            await self._tables.commit(changes)
        except TreecastError as error:
            _log.warning("accounts cannot be written", error=error)
            for change in changes:
                self._written.pop(change.key, None)


def _key(place: Place) -> str:
    return f"{place.topic_id.hex}.{place.number}"


def _open(account: Account) -> bool:
    return account.left_at is None


def encode(account: Account) -> bytes:
    return msgspec.json.encode(packed_account(account))


def decode(value: bytes) -> Account:
    """Returns the account. Raises ValueError, KeyError or msgspec.MsgspecError if `value` is not one."""
    return unpacked_account(msgspec.json.decode(value, type=KeptAccount))
