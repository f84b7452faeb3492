"""`treecast streams`: what this host sends to others and gets from them, accounted for to the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.plain import as_dict

from .options import Control, Json, daemon_at
from .output import Cell, print_json, print_table, size_text

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb

UNBALANCED = 1  # the exit code where an equation does not hold


def streams(
    name: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only the streams of this topic.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="End with 1 unless every account is closed: nothing is outstanding."),
    ] = False,
    json: Json = False,
    control: Control = None,
) -> None:
    """Shows streams between hosts, and the account of each receiver in records.

    addressed = live + repaired + replayed + filtered + expired + refused + outstanding
    """
    with daemon_at(control) as client:
        found = [stream for stream in client.list_streams() if name is None or _topic(stream) == name]
    if json:
        print_json([as_dict(stream) for stream in found])
    else:
        _show([stream for stream in found if stream.outgoing], [s for s in found if not s.outgoing])
    accounts = [account for stream in found for account in stream.accounts]
    if any(not account.balanced for account in accounts) or (
        check and any(not account.closed for account in accounts)
    ):
        raise typer.Exit(UNBALANCED)


def _topic(stream: pb.StreamStatus) -> str:
    """Of a partition's stream, `topic-partition`."""
    return stream.name.rpartition("-")[0]


SENT = (
    *("stream", "name", "epoch", "to", "state", "carrier", "addressed", "live", "repaired", "replayed"),
    *("filtered", "expired", "refused", "outstanding", "account"),
)
COST = ("stream", "name", "epoch", "carrier", "purpose", "packets", "bytes")
RECEIVED = ("from", "stream", "name", "epoch", "state", "next", "end", "behind")


def _show(sent: Sequence[pb.StreamStatus], received: Sequence[pb.StreamStatus]) -> None:
    rows = [_sent(stream, account) for stream in sent for account in stream.accounts]
    print_table(SENT, rows, empty="no stream of this host has a receiver")
    print()
    print_table(
        COST, [_cost(stream, one) for stream in sent for one in stream.sent], empty="nothing was sent"
    )
    print()
    print_table(RECEIVED, [_received(stream) for stream in received], empty="no stream is received here")


def _sent(stream: pb.StreamStatus, account: pb.StreamAccount) -> list[Cell]:
    return [
        str(stream.stream),
        stream.name or "-",
        str(stream.epoch),
        account.host,
        account.state or "left",
        account.carrier or "-",
        account.addressed,
        account.live,
        account.repaired,
        account.replayed,
        account.filtered,
        _reasons(account.expired),
        _reasons(account.refused),
        account.outstanding,
        "DOES NOT ADD UP" if not account.balanced else "closed" if account.closed else "open",
    ]


def _cost(stream: pb.StreamStatus, sent: pb.StreamSent) -> list[Cell]:
    name = stream.name or "-"
    size = size_text(sent.bytes)
    return [str(stream.stream), name, str(stream.epoch), sent.carrier, sent.purpose, sent.packets, size]


def _reasons(counts: Mapping[str, int]) -> str:
    """`12 (size 10, age 2)`."""
    total = sum(counts.values())
    if not total:
        return "0"
    return f"{total:,} ({', '.join(f'{reason} {count:,}' for reason, count in sorted(counts.items()))})"


def _received(stream: pb.StreamStatus) -> list[Cell]:
    return [
        stream.origin,
        str(stream.stream),
        stream.name or "-",
        str(stream.epoch),
        stream.state,
        stream.next,
        stream.end,
        stream.end - stream.next,
    ]
