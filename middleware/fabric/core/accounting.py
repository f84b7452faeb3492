"""The origin's accounting of one epoch of a stream, per host.

    addressed = delivered live + repaired + replayed + filtered
                + expired(reason) + refused(reason) + outstanding

All counts are in records. Every record from a host's first sequence on is addressed to it. The host says in
cumulative reports what became of them; everything after its last report is outstanding. For a silent host,
records that the origin's log no longer holds count as expired, because the host can no longer get them from
here. If the host comes back, its reports replace that estimate. Closed means outstanding = 0.

A ledger can be carried into the next epoch: `account` returns what to save, `restore` loads it, and `resume`
takes the counts of a receiver of the old epoch. If no account was saved, it is derived from the sequence at
which the host continues (`taken`). If the stream replaces other streams with other sequences, their totals
are added to its own (`go_on`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct

from treecast.middleware.wire.segment_bodies import Expiry, Rejection, Report, Totals

from .log import StreamLog


class Verdict(enum.Enum):
    """How the ledger judges a report."""

    TAKEN = "the report is new, or repeats the last one"
    STALE = "the report is older than the last one"
    INCONSISTENT = "the report contradicts what was addressed, or an earlier report"


class Row(Struct, frozen=True):
    """The accounting equation of one host."""

    addressed: int
    live: int
    repaired: int
    replayed: int
    filtered: int
    expired: Mapping[Expiry, int]
    refused: Mapping[Rejection, int]
    outstanding: int

    @property
    def closed(self) -> bool:
        return self.outstanding == 0

    @property
    def balanced(self) -> bool:
        """Whether the equation holds."""
        delivered = self.live + self.repaired + self.replayed + self.filtered
        lost = sum(self.expired.values()) + sum(self.refused.values())
        return self.addressed == delivered + lost + self.outstanding


class Account(Struct):
    """The account of one host."""

    first: int  # where this host's current life began
    earlier: Totals = Totals()  # totals of its earlier lives
    totals: Totals = Totals()
    next: int = 0
    left_at: int | None = None
    before: Totals = Totals()  # totals of the streams that this one continues
    open: int = 0  # records of those streams whose outcome is not known yet


class Ledger:
    """The accounts of all hosts that an epoch of a stream was ever addressed to."""

    def __init__(self) -> None:
        self._accounts: dict[int, Account] = {}

    def hosts(self) -> list[int]:
        return sorted(self._accounts)

    def begin(self, host: int, first: int) -> None:
        """Addresses `host` from `first` on. Records left open by its earlier life expire as FORGOTTEN."""
        old = self._accounts.get(host)
        account = Account(first, next=first)
        if old is not None:
            account.before, account.open = old.before, old.open
            end = old.left_at if old.left_at is not None else max(first, old.next)
            reason = Expiry.LEFT if old.left_at is not None else Expiry.FORGOTTEN
            account.earlier = added(added(old.earlier, old.totals), _expired(reason, end - old.next))
        self._accounts[host] = account

    def taken(self, host: int, sequence: int) -> None:
        """Settles everything before `sequence`, because `host` continues from there. Records that it had not
        reported count as delivered live: how they were delivered is not known."""
        account = self._accounts.get(host)
        if account is not None and account.left_at is None and account.next < sequence:
            account.totals = added(account.totals, Totals(live=sequence - account.next))
            account.next = sequence

    def account(self, host: int) -> Account:
        """Returns the account of `host` to save. The caller must not change it."""
        return self._accounts[host]

    def restore(self, host: int, account: Account) -> None:
        """Loads an account saved in an earlier epoch. To be called before the host begins in this one."""
        self._accounts[host] = account

    def go_on(self, host: int, before: Totals, open: int) -> None:
        """Continues the accounts of earlier streams: `before` holds their totals, `open` the number of
        records whose outcome is not known yet. `host` must have begun."""
        account = self._accounts[host]
        account.before, account.open = before, open

    def resume(self, host: int, report: Report, end: int) -> None:
        """Takes what `host` had counted when its origin failed: the last report of an earlier epoch.

        Begins a life of the host that was not saved. Ignores a report that contradicts everything known.
        """
        if report.next > end:
            return
        account = self._accounts.get(host)
        if account is None or (account.left_at is None and report.first > account.first):
            self.taken(host, report.first)
            self.begin(host, report.first)
        self.report(host, report, end)

    def leave(self, host: int, end: int) -> None:
        """Stops addressing `host`: its open records before `end` expire with reason LEFT."""
        account = self._accounts[host]
        account.left_at = max(end, account.next)

    def report(self, host: int, report: Report, end: int) -> Verdict:
        """Takes a report; `end` is the end of what was addressed."""
        account = self._accounts[host]
        if report.first != account.first or not account.first <= report.next <= end:
            return Verdict.INCONSISTENT
        if report.next < account.next:
            return Verdict.STALE
        # The codec has checked the sum; check here that no settled count falls.
        if not _grows(account.totals, report.totals):
            return Verdict.INCONSISTENT
        account.next, account.totals = report.next, report.totals
        return Verdict.TAKEN

    def next(self, host: int) -> int:
        """The sequence before which everything is known to be settled at `host`."""
        return self._accounts[host].next

    def row(self, host: int, log: StreamLog, *, silent: bool) -> Row:
        """The current equation. For a `silent` host, records that the log no longer holds count as
        expired."""
        account = self._accounts[host]
        totals = added(added(account.before, account.earlier), account.totals)
        end = account.left_at if account.left_at is not None else max(log.end, account.next)
        open_records = end - account.next
        if account.left_at is not None:
            totals, open_records = added(totals, _expired(Expiry.LEFT, open_records)), 0
        elif silent:
            for reason, count in log.trimmed(account.next).items():
                totals = added(totals, _expired(reason, count))
                open_records -= count
        addressed = account.before.settled + account.open + account.earlier.settled + end - account.first
        return row_of(totals, addressed, open_records + account.open)


def row_of(totals: Totals, addressed: int, outstanding: int) -> Row:
    """Builds a row from totals; all three arguments are in records."""
    return Row(
        addressed,
        totals.live,
        totals.repaired,
        totals.replayed,
        totals.filtered,
        totals.expired,
        totals.refused,
        outstanding,
    )


def _expired(reason: Expiry, count: int) -> Totals:
    return Totals(expired={reason: count} if count else {})


def added(one: Totals, other: Totals) -> Totals:
    """Returns the sum of two totals."""
    return Totals(
        one.live + other.live,
        one.repaired + other.repaired,
        one.replayed + other.replayed,
        one.filtered + other.filtered,
        {why: one.expired.get(why, 0) + other.expired.get(why, 0) for why in {*one.expired, *other.expired}},
        {why: one.refused.get(why, 0) + other.refused.get(why, 0) for why in {*one.refused, *other.refused}},
    )


def _grows(old: Totals, new: Totals) -> bool:
    """Whether no cumulative count fell."""
    return (
        old.live <= new.live
        and old.repaired <= new.repaired
        and old.replayed <= new.replayed
        and old.filtered <= new.filtered
        and all(count <= new.expired.get(reason, 0) for reason, count in old.expired.items())
        and all(count <= new.refused.get(why, 0) for why, count in old.refused.items())
    )
