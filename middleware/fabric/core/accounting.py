"""The accounting of a stream's epoch, host by host, at its origin.

    addressed = delivered live + repaired + replayed + filtered
                + expired(reason) + refused(reason) + outstanding

All in records. A host is addressed every record from where it began. What has become of them it says
itself, in cumulative reports; what is behind its last report is outstanding. Of a host that has fallen
silent, what the origin's log no longer holds is expired instead: it cannot get that from here any more.
If it comes back, its reports replace that guess by what it knows. Closed means outstanding = 0.

A ledger can be carried into the epoch that follows: `account` is what to keep, `restore` takes it back, and
`resume` hears what a receiver of the old epoch had counted. What nobody has kept is derived from where it
goes on (`taken`). Where a stream has taken the place of others, whose sequences are not its own, their sum
stands before its own (`go_on`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct

from treecast.middleware.wire.segment_bodies import Expiry, Rejection, Report, Totals

from .log import StreamLog


class Verdict(enum.Enum):
    """What a report is worth."""

    TAKEN = "it says something new, or the same again"
    STALE = "it is older than one that is known"
    INCONSISTENT = "it contradicts what was addressed, or an earlier report"


class Row(Struct, frozen=True):
    """The equation of one host."""

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
    """What is known of one host."""

    first: int  # where this host, in this life, began
    earlier: Totals = Totals()  # of its earlier lives
    totals: Totals = Totals()
    next: int = 0
    left_at: int | None = None
    before: Totals = Totals()  # of streams that this one goes on for
    open: int = 0  # records of these of which is not known yet what has become


class Ledger:
    """All hosts that a stream's epoch was ever addressed to."""

    def __init__(self) -> None:
        self._accounts: dict[int, Account] = {}

    def hosts(self) -> list[int]:
        return sorted(self._accounts)

    def begin(self, host: int, first: int) -> None:
        """`host` is addressed from `first` on. What an earlier life of it left open is FORGOTTEN."""
        old = self._accounts.get(host)
        account = Account(first, next=first)
        if old is not None:
            account.before, account.open = old.before, old.open
            end = old.left_at if old.left_at is not None else max(first, old.next)
            reason = Expiry.LEFT if old.left_at is not None else Expiry.FORGOTTEN
            account.earlier = added(added(old.earlier, old.totals), _expired(reason, end - old.next))
        self._accounts[host] = account

    def taken(self, host: int, sequence: int) -> None:
        """`host` has shown that it has all before `sequence`, as it goes on from there: what it had not
        reported of it was delivered. How is not known, and counted as live."""
        account = self._accounts.get(host)
        if account is not None and account.left_at is None and account.next < sequence:
            account.totals = added(account.totals, Totals(live=sequence - account.next))
            account.next = sequence

    def account(self, host: int) -> Account:
        """What to keep of it, as it is now. Not to be changed."""
        return self._accounts[host]

    def restore(self, host: int, account: Account) -> None:
        """As it was kept in an earlier epoch; before the host begins in this one."""
        self._accounts[host] = account

    def go_on(self, host: int, before: Totals, open: int) -> None:
        """The account goes on for streams that were before this one: what became of their records, and of how
        many that is not known yet. `host` has begun."""
        account = self._accounts[host]
        account.before, account.open = before, open

    def resume(self, host: int, report: Report, end: int) -> None:
        """What `host` had counted when its origin went: the last word on an earlier epoch.

        A life of it that was not kept is begun here. What contradicts all that is known is let go.
        """
        if report.next > end:
            return
        account = self._accounts.get(host)
        if account is None or (account.left_at is None and report.first > account.first):
            self.taken(host, report.first)
            self.begin(host, report.first)
        self.report(host, report, end)

    def leave(self, host: int, end: int) -> None:
        """`host` is addressed no more: what is open of [.., end) has expired for it."""
        account = self._accounts[host]
        account.left_at = max(end, account.next)

    def report(self, host: int, report: Report, end: int) -> Verdict:
        """Takes a report; `end` is how much was addressed."""
        account = self._accounts[host]
        if report.first != account.first or not account.first <= report.next <= end:
            return Verdict.INCONSISTENT
        if report.next < account.next:
            return Verdict.STALE
        # that its sum is right, the codec has seen; here, that nothing that was settled changes
        if not _grows(account.totals, report.totals):
            return Verdict.INCONSISTENT
        account.next, account.totals = report.next, report.totals
        return Verdict.TAKEN

    def next(self, host: int) -> int:
        """All before it is settled at `host`, as far as is known."""
        return self._accounts[host].next

    def row(self, host: int, log: StreamLog, *, silent: bool) -> Row:
        """The equation now. What the log no longer holds has expired for a `silent` host."""
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
    """The account that says so; all three in records."""
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
    """Their sum."""
    return Totals(
        one.live + other.live,
        one.repaired + other.repaired,
        one.replayed + other.replayed,
        one.filtered + other.filtered,
        {why: one.expired.get(why, 0) + other.expired.get(why, 0) for why in {*one.expired, *other.expired}},
        {why: one.refused.get(why, 0) + other.refused.get(why, 0) for why in {*one.refused, *other.refused}},
    )


def _grows(old: Totals, new: Totals) -> bool:
    """Whether no cumulative number fell."""
    return (
        old.live <= new.live
        and old.repaired <= new.repaired
        and old.replayed <= new.replayed
        and old.filtered <= new.filtered
        and all(count <= new.expired.get(reason, 0) for reason, count in old.expired.items())
        and all(count <= new.refused.get(why, 0) for why, count in old.refused.items())
    )
