"""Accounts of event streams across streams and runs: table `event_accounts`.

A stream serves a set of hosts. It ends when it is unused for a while or its origin ends; the next stream for
the same set continues its account. Entries are

    over.<hosts>              totals of all ended streams, by host
    stream.<epoch>.<number>   an open account: `earlier.KeptStream`

The journal releases a promised message only after an account that counts it as settled is stored
(`EventStream.accounted`). So after a kill of the origin, the journal covers what the stored account lacks.
The hosts report the rest in their answer to the first stream that they are then asked to receive.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

import msgspec

from treecast.middleware.fabric.core.accounting import Row, added, row_of
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.kept_accounts import KeptTotals, packed, packed_account, unpacked
from treecast.middleware.storage.tables import Change, Tables
from treecast.middleware.wire.segment import SegmentError
from treecast.middleware.wire.segment_bodies import Expiry, Report, Totals

from .batches import Lineage
from .earlier import KeptHost, KeptStream, Promised, Word, closed, settled, unknown
from .owing import Owed
from .ports import EventEnded
from .stream import EventStream, Promise, name_of

_log = Log(__name__)

EVENT_ACCOUNTS: Final = "event_accounts"
Hosts = frozenset[int]
_Mark = tuple[object, ...]


class Earlier:
    """A stream of an earlier run, with the hosts that have not reported its outcome yet."""

    def __init__(self, hosts: Hosts, kept: KeptStream, owed: Promised) -> None:
        self.hosts = hosts
        self.kept = kept
        self.owed = owed


class EventAccounts:
    """The accounts of one host in run `run`, from `start` to `close`. All calls come from the event loop."""

    def __init__(self, run: int, tables: Tables | None, every: float) -> None:
        """`every`: seconds between two writes of changed accounts. Without tables nothing is stored."""
        self._run = run
        self._tables = tables
        self._every = every
        self._over: dict[Hosts, dict[int, Totals]] = {}
        self._earlier: dict[Lineage, Earlier] = {}
        self._holders: dict[Hosts, EventStream] = {}  # the stream that continues the set's account
        self._written: dict[int, _Mark] = {}
        self._streams: Callable[[], Iterable[EventStream]] = tuple
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self, streams: Callable[[], Iterable[EventStream]], owed: Sequence[Owed]) -> list[Hosts]:
        """Loads the accounts of earlier runs. Returns the sets of hosts with an open account.

        `streams` returns the current streams. `owed`: what the journal owes.
        """
        if self._tables is None:
            return []
        self._streams = streams
        for key, value in self._tables.load(EVENT_ACCOUNTS).items():
            try:
                self._load(key, value)
            except (ValueError, KeyError, msgspec.MsgspecError) as error:
                _log.warning("stored account cannot be read and is discarded", key=key, error=error)
        for lineage, earlier in self._earlier.items():
            earlier.owed = self._owed_by(lineage, owed)
        self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)
        return list(dict.fromkeys(earlier.hosts for earlier in self._earlier.values()))

    def _load(self, key: str, value: bytes) -> None:
        kind, _, rest = key.partition(".")
        if kind == "over":
            totals = msgspec.json.decode(value, type=dict[int, KeptTotals])
            self._over[_hosts(rest)] = {host: unpacked(kept) for host, kept in totals.items()}
            return
        epoch, _, number = rest.partition(".")
        kept = msgspec.json.decode(value, type=KeptStream)
        for host in kept.accounts.values():
            settled(host)  # raises if the account is invalid
        self._earlier[int(epoch), int(number)] = Earlier(frozenset(kept.hosts), kept, ())

    def _owed_by(self, lineage: Lineage, owed: Sequence[Owed]) -> Promised:
        """Returns what the stream has promised.

        If it was the first stream of its run for its set, this includes the promises of earlier runs to the
        set, which it has sent again.
        """
        epoch, hosts = lineage[0], self._earlier[lineage].hosts
        first = min(one for one in self._earlier if one[0] == epoch and self._earlier[one].hosts == hosts)
        return [
            (number, old.lineage)
            for old in owed
            if old.lineage == lineage or (lineage == first and old.lineage[0] < epoch and old.hosts == hosts)
            for number in old.record.owed
        ]

    def close(self) -> None:
        """Stops writing."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._streams = tuple

    # --- streams

    def begun(self, stream: EventStream) -> None:
        """Handles a new stream: it continues the account of its set, unless another stream does."""
        if self._tables is None:
            return
        stream.accounted = 0
        if self._holders.setdefault(stream.whole, stream) is stream:
            self._carry(stream)
        self.changed(stream)

    def changed(self, stream: EventStream) -> None:
        """Schedules a write because a receiver has begun or restarted."""
        if self._tables is not None:
            self._spawn(self._write([stream]))

    def _carry(self, stream: EventStream) -> None:
        for host in stream.whole:
            stream.origin.sender.ledger.go_on(host, *self._before(stream.whole, host))

    def _before(self, hosts: Hosts, host: int) -> tuple[Totals, int]:
        """Returns (totals of the host's records in ended streams, how many of their records are open)."""
        totals, open_records = self._over.get(hosts, {}).get(host, Totals()), 0
        for earlier in self._earlier.values():
            kept = earlier.kept.accounts.get(host)
            if earlier.hosts == hosts and kept is not None:
                totals = added(totals, settled(kept))
                open_records += unknown(kept, earlier.kept.end)
        return totals, open_records

    def resting(self) -> list[tuple[str, dict[int, Row]]]:
        """Returns the accounts of sets without a current stream: (name of such a stream, rows)."""
        sets = {*self._over, *(earlier.hosts for earlier in self._earlier.values())} - self._holders.keys()
        return [
            (name_of(hosts), {host: _row(*self._before(hosts, host)) for host in sorted(hosts)})
            for hosts in sets
        ]

    def over(self, stream: EventStream) -> None:
        """Closes the account of an ended stream."""
        if self._tables is None:
            return
        totals, ledger = self._over.setdefault(stream.whole, {}), stream.origin.sender.ledger
        for host in ledger.hosts():
            ledger.go_on(host, Totals(), 0)  # `totals` already has what was before this stream
        for host, row in stream.origin.rows().items():
            totals[host] = added(totals.get(host, Totals()), _totals(row))
        if self._holders.get(stream.whole) is stream:
            del self._holders[stream.whole]
        self._written.pop(stream.number, None)
        gone = Change(EVENT_ACCOUNTS, f"stream.{self._run}.{stream.number}", None)
        self._spawn(self._commit([self._change_over(stream.whole), gone]))

    # --- hosts

    def waits_for(self, host: int) -> bool:
        """Whether an account of an earlier run is open until `host` reports its outcome."""
        return any(host in earlier.kept.accounts for earlier in self._earlier.values())

    def heard(self, host: int, ended: Iterable[EventEnded]) -> None:
        """Closes accounts with the host's report on streams of earlier runs.

        The host knows nothing of streams that it does not name.
        """
        said = {(one.epoch, one.stream): one for one in ended}
        passed = {lineage: one.passed for lineage, one in said.items()}
        for lineage, earlier in list(self._earlier.items()):
            kept = earlier.kept.accounts.get(host)
            if kept is not None:
                word = _word(said.get(lineage))
                self._settle(lineage, host, closed(host, kept, earlier.kept.end, earlier.owed, passed, word))

    def left(self, host: int) -> None:
        """Closes the accounts of a host that has left the cluster, which will not report."""
        for lineage, earlier in list(self._earlier.items()):
            kept = earlier.kept.accounts.get(host)
            if kept is not None:
                lost = Totals(expired={Expiry.LEFT: unknown(kept, earlier.kept.end)})
                self._settle(lineage, host, added(settled(kept), lost))

    def _settle(self, lineage: Lineage, host: int, totals: Totals) -> None:
        """Closes one host's account of one stream with `totals`."""
        earlier = self._earlier[lineage]
        over = self._over.setdefault(earlier.hosts, {})
        over[host] = added(over.get(host, Totals()), totals)
        del earlier.kept.accounts[host]
        left = msgspec.json.encode(earlier.kept) if earlier.kept.accounts else None
        if left is None:
            del self._earlier[lineage]
        holder = self._holders.get(earlier.hosts)
        if holder is not None:
            self._carry(holder)
        key = "stream.{}.{}".format(*lineage)
        self._spawn(self._commit([self._change_over(earlier.hosts), Change(EVENT_ACCOUNTS, key, left)]))

    # --- writing

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)
        # One write at a time: a second would write the same accounts again.
        if not self._tasks:
            self._spawn(self.write())

    async def write(self) -> None:
        """Writes all changed accounts now."""
        await self._write(self._streams())

    async def _write(self, streams: Iterable[EventStream]) -> None:
        changes: list[Change] = []
        accounted: list[tuple[EventStream, int]] = []
        for stream in streams:
            mark = _mark(stream)
            if self._written.get(stream.number) != mark:
                # Before the commit: what changes during it makes another mark, and is written at the next
                # tick.
                self._written[stream.number] = mark
                accounted.append((stream, stream.settled))
                key = f"stream.{self._run}.{stream.number}"
                changes.append(Change(EVENT_ACCOUNTS, key, msgspec.json.encode(kept_stream(stream))))
        if changes and await self._commit(changes):
            for stream, sequence in accounted:
                stream.accounted = max(stream.accounted, sequence)
        elif changes:
            for stream, _ in accounted:
                self._written.pop(stream.number, None)

    def _change_over(self, hosts: Hosts) -> Change:
        totals = {host: packed(one) for host, one in self._over.get(hosts, {}).items()}
        key = "over." + ",".join(map(str, sorted(hosts)))
        return Change(EVENT_ACCOUNTS, key, msgspec.json.encode(totals))

    async def _commit(self, changes: Sequence[Change]) -> bool:
        """Commits the changes. Returns whether they were stored."""
        assert self._tables is not None
        try:
            await self._tables.commit(changes)
        except TreecastError as error:
            _log.warning("accounts of event streams cannot be written", error=error)
            return False
        return True

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="event accounts")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def kept_stream(stream: EventStream) -> KeptStream:
    """Returns the stored form of a stream's account as of now."""
    ledger, end = stream.origin.sender.ledger, stream.origin.end
    accounts: dict[int, KeptHost] = {}
    for host in ledger.hosts():
        account = ledger.account(host)
        number, promised = _promised(stream, account.next, end)
        accounts[host] = KeptHost(packed_account(account), number, max(0, end - account.next - promised))
    return KeptStream(sorted(stream.whole), end, accounts)


def _promised(stream: EventStream, first: int, end: int) -> tuple[int, int]:
    """Returns (the highest number promised before `first`, how many were promised from there to `end`)."""
    promises = stream.promises
    before = bisect_right(promises, first, key=_end)
    number = promises[before - 1].number if before else stream.number_settled
    return number, _total(stream, bisect_right(promises, end, key=_end)) - _total(stream, before)


def _total(stream: EventStream, count: int) -> int:
    """Returns how many messages the stream had promised by the last of its first `count` open promises."""
    promises = stream.promises
    if count:
        return promises[count - 1].total
    return promises[0].total - promises[0].count if promises else stream.promised


def _end(promise: Promise) -> int:
    return promise.end


def _mark(stream: EventStream) -> _Mark:
    """Returns a value that changes whenever the account does."""
    ledger = stream.origin.sender.ledger
    accounts = [ledger.account(host) for host in ledger.hosts()]
    return (
        stream.origin.end,
        stream.settled,
        *((account.first, account.next, account.left_at) for account in accounts),
    )


def _word(said: EventEnded | None) -> Word | None:
    if said is None or not said.report:
        return None
    try:
        return Word(Report.decode(said.report), said.known, said.number)
    except SegmentError as error:
        _log.warning("report of a host cannot be read", stream=said.stream, error=error)
        return None


def _totals(row: Row) -> Totals:
    """Returns the row's totals without the outstanding records."""
    return Totals(row.live, row.repaired, row.replayed, row.filtered, row.expired, row.refused)


def _row(totals: Totals, open_records: int) -> Row:
    return row_of(totals, totals.settled + open_records, open_records)


def _hosts(said: str) -> Hosts:
    return frozenset(int(host) for host in said.split(","))
