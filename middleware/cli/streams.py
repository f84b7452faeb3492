"""`treecast streams`: the streams that this host sends and receives, accounted for to the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.copies import copies_per_payload
from treecast.middleware.api.messages import as_dict

from .options import Control, Json, daemon_at
from .output import Cell, print_json, print_table, say, size_text
from .times import time_text

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb

UNBALANCED = 1  # the exit code if an equation does not hold or, with --check, something is wrong


def streams(
    name: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only the streams of this topic.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="End with 1 unless every account is closed, nothing is outstanding, every partition is led,"
            " no copy here was refused, every loss of records is accepted, and the coordinator's store lacks"
            " nothing that hosts know.",
        ),
    ] = False,
    json: Json = False,
    control: Control = None,
) -> None:
    """Shows streams between hosts, the account of each receiver in records, and partitions in trouble.

    addressed = live + repaired + replayed + filtered + expired + refused + outstanding
    """
    with daemon_at(control) as client:
        answer = client.streams()
    found = [stream for stream in answer.streams if name is None or _topic(stream) == name]
    partitions = [standing for standing in answer.partitions if name is None or standing.topic == name]
    if json:
        missing = map(_as_older, answer.missing)
        print_json([*map(as_dict, found), *map(_as_stream, partitions), *missing])
    else:
        _show([stream for stream in found if stream.outgoing], [s for s in found if not s.outgoing])
        _show_partitions(partitions)
        for text in (*answer.unreached, *answer.missing):
            say(f"\nPROBLEM: {text}")
    accounts = [account for stream in found for account in stream.accounts]
    closed = all(account.closed for account in accounts)
    led = all(standing.state == LED and not open_losses(standing) for standing in partitions)
    well = closed and led and not answer.missing
    if any(not account.balanced for account in accounts) or (check and not well):
        raise typer.Exit(UNBALANCED)


def _topic(stream: pb.StreamStatus) -> str:
    """Returns the topic of a partition's stream `topic-partition`."""
    return stream.name.rpartition("-")[0]


SENT = (
    *("stream", "name", "epoch", "host", "state", "carrier", "addressed", "live", "repaired", "replayed"),
    *("filtered", "expired", "refused", "outstanding", "account"),
)
PACE = (
    *("stream", "name", "epoch", "rate/s", "window", "on its way", "records unsent", "set by", "why"),
    "copies",
)
PACED = ("stream", "name", "epoch", "host", "state", "window", "turnaround ms", "out s", "left times")
COST = ("stream", "name", "epoch", "carrier", "purpose", "packets", "bytes")
LED = "led"
TROUBLED = ("partition", "leader", "state", "end here", "problem")
LOST = (
    "partition",
    "lost disk of",
    "time",
    "first",
    "reported end",
    "records",
    "epoch",
    "accepted",
)
RECEIVED = ("origin", "stream", "name", "epoch", "state", "next", "end", "behind")


def _show(sent: Sequence[pb.StreamStatus], received: Sequence[pb.StreamStatus]) -> None:
    rows = [_sent(stream, account) for stream in sent for account in _by_name(stream)]
    print_table(SENT, rows, empty="no stream of this host has a receiver")
    print()
    print_table(
        PACE, [_pace(stream) for stream in sent if stream.HasField("pace")], empty="no stream is paced"
    )
    print()
    paced = [_paced(stream, one) for stream in sent for one in _by_name(stream) if one.window]
    print_table(PACED, paced, empty="no stream has a receiver that is paced")
    print()
    print_table(
        COST, [_cost(stream, one) for stream in sent for one in stream.sent], empty="nothing was sent"
    )
    print()
    print_table(RECEIVED, [_received(stream) for stream in received], empty="no stream is received here")


def _by_name(stream: pb.StreamStatus) -> list[pb.StreamAccount]:
    """Returns the stream's receivers, sorted by name."""
    return sorted(stream.accounts, key=lambda account: account.host)


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


def copies(stream: pb.StreamStatus) -> float:
    """Returns bytes sent with payload per payload byte; 0 before the first payload."""
    return copies_per_payload([(one.purpose, one.bytes) for one in stream.sent], stream.pace.payload_bytes)


def _pace(stream: pb.StreamStatus) -> list[Cell]:
    pace = stream.pace
    return [
        str(stream.stream),
        stream.name or "-",
        str(stream.epoch),
        size_text(int(pace.rate)),
        size_text(pace.window),
        size_text(pace.on_way),
        pace.unsent,
        pace.set_by or "-",
        pace.why or "-",
        f"{copies(stream):.2f}",
    ]


def _paced(stream: pb.StreamStatus, account: pb.StreamAccount) -> list[Cell]:
    return [
        str(stream.stream),
        stream.name or "-",
        str(stream.epoch),
        account.host,
        account.state,
        size_text(account.window),
        f"{account.turnaround * 1000:.1f}",
        f"{account.out_for:.1f}",
        account.left,
    ]


def _cost(stream: pb.StreamStatus, sent: pb.StreamSent) -> list[Cell]:
    name = stream.name or "-"
    size = size_text(sent.bytes)
    return [str(stream.stream), name, str(stream.epoch), sent.carrier, sent.purpose, sent.packets, size]


def _as_stream(standing: pb.PartitionStanding) -> dict[str, object]:
    """Returns a partition that is in trouble or has lost records as a stream, without an account."""
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    name = f"{standing.topic}-{standing.partition}"
    return {**as_dict(pb.StreamStatus(name=name, origin=standing.leader)), **as_dict(standing)}


def _as_older(text: str) -> dict[str, object]:
    """Returns what the coordinator's store lacks as a stream without a name."""
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    return {**as_dict(pb.StreamStatus(state="older store")), "problem": text}


def _show_partitions(partitions: Sequence[pb.PartitionStanding]) -> None:
    """Prints partitions in trouble; nothing if there are none."""
    troubled = [standing for standing in partitions if standing.state != LED]
    if troubled:
        print()
        print_table(TROUBLED, [_troubled(standing) for standing in troubled], empty="")
    lost = [row for standing in partitions for row in lost_rows(standing)]
    if lost:
        print()
        print_table(LOST, lost, empty="")


def _reasons(counts: Mapping[str, int]) -> str:
    """Returns counts in the form `12 (size 10, age 2)`."""
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


def _troubled(standing: pb.PartitionStanding) -> list[Cell]:
    end = standing.end if standing.copy else "-"
    name = f"{standing.topic}-{standing.partition}"
    return [name, standing.leader, standing.state.upper(), end, standing.problem]


def open_losses(standing: pb.PartitionStanding) -> bool:
    """Whether the partition has lost records of which no operator has said that he knows."""
    return any(not lost.accepted for lost in standing.lost)


def lost_rows(standing: pb.PartitionStanding) -> list[list[Cell]]:
    """Returns one row per lost disk; `records` counts the known lost ones."""
    name = f"{standing.topic}-{standing.partition}"
    return [
        [
            name,
            lost.host,
            time_text(lost.time_ms),
            lost.first,
            "unknown" if lost.unknown else lost.heard,
            f"{lost.heard - lost.first:,} or more" if lost.unknown else lost.heard - lost.first,
            str(lost.leader_epoch),
            "yes" if lost.accepted else "NO",
        ]
        for lost in standing.lost
    ]
