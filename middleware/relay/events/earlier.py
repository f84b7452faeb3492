"""What has become of the records of an event stream of an earlier run of its origin, host by host. Pure.

Nothing but these is known of such a stream:

    kept     by the origin, now and then: the host's account, how far the stream went, and of what the host
             had not reported how many records nobody was promised
    owed     by the origin's journal: what was promised, and is not settled everywhere in the account that is
             kept. It is sent again, by another stream, and counts there
    passed   by the host's journal: the highest number that it has taken of what was promised, by lineage
    a word   of the host, unless it was killed as well: its last report, and how far it knew the stream to go

So to the record: what a host has settled by its own word counts as it says, or else as far as is kept, and
from there on what was promised as live, since its journal has it. Of the rest, what was promised is sent
again, and what was not has gone with its origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from treecast.middleware.fabric.core.accounting import Account, Ledger, added
from treecast.middleware.relay.kept_accounts import KeptAccount, unpacked_account
from treecast.middleware.wire.segment_bodies import Expiry, Report, Totals

from .batches import Lineage

Promised = Sequence[tuple[int, Lineage]]  # numbers of messages, each with the stream it was first sent by


class KeptHost(Struct):
    """Of one host. `number`: the highest of what was promised that it has reported; `fleeting`: how many
    records that it has not reported nobody was promised."""

    account: KeptAccount
    number: int
    fleeting: int


class KeptStream(Struct):
    """`hosts` that it was made for; `end`: how far it went."""

    hosts: list[int]
    end: int
    accounts: dict[int, KeptHost]


class Word(Struct, frozen=True):
    """What a host has said of a stream. `known`: it knew of records before this sequence; `number`: the
    highest of what was promised that the stream has brought."""

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
    """What counts for the stream: nothing of it is open any more.

    `end`: as kept. `owed`: of this stream. What is sent again is left out.
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
    """How many records are open until the host has said what became of them."""
    account = kept.account
    return 0 if account.left_at is not None else max(0, end - account.next)


def settled(kept: KeptHost) -> Totals:
    """What is known as long as the host has not said more."""
    return _settled(unpacked_account(kept.account))


def _settled(account: Account) -> Totals:
    return added(account.earlier, account.totals)


def _heard(host: int, kept: KeptHost, word: Word) -> Account | None:
    """The account with the host's last report in it; None where that contradicts what is known."""
    ledger = Ledger()
    ledger.restore(host, unpacked_account(kept.account))
    ledger.resume(host, word.report, word.report.next)
    account = ledger.account(host)
    return account if account.next == word.report.next else None


def _less(totals: Totals, count: int) -> Totals:
    """Without `count` records that were delivered, in whichever way."""
    kinds = [totals.live, totals.repaired, totals.replayed, totals.filtered]
    for at, delivered in enumerate(kinds):
        taken = min(delivered, count)
        count -= taken
        kinds[at] = delivered - taken
    live, repaired, replayed, filtered = kinds
    return Totals(live, repaired, replayed, filtered, totals.expired, totals.refused)
