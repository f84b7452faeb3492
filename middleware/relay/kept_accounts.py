"""Accounts of streams in the form stored in tables, as JSON. Pure."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.fabric.core.accounting import Account
from treecast.middleware.wire.segment_bodies import Expiry, Rejection, Totals


class KeptTotals(Struct, array_like=True):
    """[live, repaired, replayed, filtered, expired, refused]; the last two map names of reasons to counts."""

    live: int
    repaired: int
    replayed: int
    filtered: int
    expired: dict[str, int]
    refused: dict[str, int]


class KeptAccount(Struct):
    """The stored form of an `Account`."""

    first: int
    next: int
    left_at: int | None
    earlier: KeptTotals
    totals: KeptTotals


def packed(totals: Totals) -> KeptTotals:
    return KeptTotals(
        totals.live,
        totals.repaired,
        totals.replayed,
        totals.filtered,
        {reason.name: count for reason, count in totals.expired.items()},
        {reason.name: count for reason, count in totals.refused.items()},
    )


def unpacked(kept: KeptTotals) -> Totals:
    """Returns the totals. Raises KeyError for an unknown reason."""
    return Totals(
        kept.live,
        kept.repaired,
        kept.replayed,
        kept.filtered,
        {Expiry[name]: count for name, count in kept.expired.items()},
        {Rejection[name]: count for name, count in kept.refused.items()},
    )


def packed_account(account: Account) -> KeptAccount:
    return KeptAccount(
        account.first, account.next, account.left_at, packed(account.earlier), packed(account.totals)
    )


def unpacked_account(kept: KeptAccount) -> Account:
    """Returns the account. Raises ValueError if its sum is wrong, KeyError for an unknown reason."""
    totals = unpacked(kept.totals)
    if totals.settled != kept.next - kept.first:
        raise ValueError(f"{totals.settled} records from {kept.first} to {kept.next}")
    return Account(kept.first, unpacked(kept.earlier), totals, kept.next, kept.left_at)
