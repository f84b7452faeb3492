"""The outcome of an event stream of an earlier run of its origin, for each host. Pure.

Only this is known of such a stream:

    kept     stored by the origin at intervals: the host's account, the end of the stream, and how many of
             the records not yet reported by the host were not promised
    owed     in the origin's journal: promised messages that the stored account does not have as settled
             everywhere. They are sent again by another stream and count there
    passed   in the host's journal: the highest number of promised messages that it has taken, by lineage
    a word   of the host, unless it was killed as well: its last report, and the end of the stream as it knew

The outcome is exact to the record. Records that the host has settled count as in its word. Without a word
they count as in the stored account, and later promised messages in the host's journal count as live. Of the
remaining records, promised ones are sent again; the others are lost with their origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from treecast.middleware.fabric.core.accounting import Account, Ledger, added
from treecast.middleware.relay.kept_accounts import KeptAccount, unpacked_account
from treecast.middleware.wire.segment_bodies import Expiry, Report, Totals

from .batches import Lineage

Promised = Sequence[tuple[int, Lineage]]  # numbers of messages, each with the stream that first sent it


class KeptHost(Struct):
    """The stored account of one host.

    `number`: the highest promised number that the host has reported. `fleeting`: how many of the records that
    it has not reported were not promised.
    """

    account: KeptAccount
    number: int
    fleeting: int


class KeptStream(Struct):
    """The stored accounts of a stream. `hosts`: those it was made for. `end`: its end sequence."""

    hosts: list[int]
    end: int
    accounts: dict[int, KeptHost]


class Word(Struct, frozen=True):
    """A host's report on a stream.

    `known`: the host knew of records before this sequence. `number`: the highest promised number that the
    stream has brought.
    """

    report: Report
    known: int
    number: int


def closed(
    host: int,
    kept: KeptHost,
    end: int,
    owed: Promised,
    passed: Mapping[Lineage, int],
    word: Word | None,
) -> Totals:
    """Returns the host's final totals for the stream, without open records.

    `end`: as stored. `owed`: of this stream. Messages that are sent again are left out.
    """
    account = _heard(host, kept, word) if word is not None else None
    if word is None or account is None:
        account = unpacked_account(kept.account)
        taken = [number for number, lineage in owed if number <= passed.get(lineage, 0)]
        unreported = sum(number > kept.number for number in taken)
        totals, lost = added(_settled(account), Totals(live=unreported)), kept.fleeting
    else:
        brought = max(word.number, kept.number)
        taken = [number for number, _ in owed if number <= brought]
        totals = _settled(account)
        lost = max(end, word.known) - account.next - (len(owed) - len(taken))
    if account.left_at is not None:
        return added(totals, Totals(expired={Expiry.LEFT: max(0, account.left_at - account.next)}))
    gone = {Expiry.ORIGIN_GONE: lost} if lost > 0 else {}
    return added(_less(totals, len(taken)), Totals(expired=gone))


def unknown(kept: KeptHost, end: int) -> int:
    """Returns how many records are open until the host reports their outcome."""
    account = kept.account
    return 0 if account.left_at is not None else max(0, end - account.next)


def settled(kept: KeptHost) -> Totals:
    """Returns the totals known without a report of the host. Raises if the account is invalid."""
    return _settled(unpacked_account(kept.account))


def _settled(account: Account) -> Totals:
    return added(account.earlier, account.totals)


def _heard(host: int, kept: KeptHost, word: Word) -> Account | None:
    """Returns the account updated with the host's last report; None if the report contradicts it."""
    ledger = Ledger()
    ledger.restore(host, unpacked_account(kept.account))
    ledger.resume(host, word.report, word.report.next)
    account = ledger.account(host)
    return account if account.next == word.report.next else None


def _less(totals: Totals, count: int) -> Totals:
    """Returns `totals` with `count` delivered records less, of whichever kind."""
    kinds = [totals.live, totals.repaired, totals.replayed, totals.filtered]
    for at, delivered in enumerate(kinds):
        taken = min(delivered, count)
        count -= taken
        kinds[at] = delivered - taken
    live, repaired, replayed, filtered = kinds
    return Totals(live, repaired, replayed, filtered, totals.expired, totals.refused)
