"""`treecast partitions`: shows leaders, and makes the operator's decisions after a host's disk is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.messages import as_dict

from .options import Control, Json, Token, daemon_at
from .output import Cell, print_json, print_table, say
from .streams import LED, LOST, lost_rows, open_losses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treecast.middleware.api.v1 import daemon_pb2 as pb

app = typer.Typer(
    no_args_is_help=True, help="Show the leaders of partitions, and decide after the loss of a host's disk."
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, as Kafka clients spell it.")]
Number = Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition's number.")]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Give up the records that no reachable copy has."),
]


@app.command("list")
def list_partitions(
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="Only this topic's.")] = "",
    json: Json = False,
    control: Control = None,
) -> None:
    """Lists partitions: their leaders, whether they wait, and this host's copies."""
    with daemon_at(control) as client:
        found = client.list_partitions(topic)
    if json:
        print_json([as_dict(standing) for standing in found])
        return
    print_table(COLUMNS, [_row(standing) for standing in found], empty="no partitions")
    lost = [row for standing in found for row in lost_rows(standing)]
    if lost:
        print()
        print_table(LOST, lost, empty="")
    _explain(found)


COLUMNS = ("topic", "partition", "leader", "epoch", "state", "start here", "end here")


def _row(standing: pb.PartitionStanding) -> list[Cell]:
    state = standing.state if standing.state == LED else standing.state.upper()
    here: list[Cell] = [standing.start, standing.end] if standing.copy else ["-", "-"]
    return [
        standing.topic,
        standing.partition,
        standing.leader,
        str(standing.leader_epoch),
        state,
        *here,
    ]


def _explain(found: Sequence[pb.PartitionStanding]) -> None:
    problems = [standing for standing in found if standing.problem]
    if problems:
        print()
    for standing in problems:
        say(f"{standing.topic}-{standing.partition}: {standing.problem}")


@app.command()
def promote(
    topic: Topic,
    partition: Number,
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="The host that is to lead it. Default: the one asked."),
    ] = "",
    accept_loss: AcceptLoss = False,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Makes a host with a copy the leader of a partition whose leader is gone."""
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    request = pb.PromotePartitionRequest(topic=topic, partition=partition, host=host, accept_loss=accept_loss)
    with daemon_at(control, token) as client:
        done = client.promote_partition(request)
    _tell(done, json)


@app.command()
def rebuild(
    topic: Topic,
    partition: Number,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Whose copy. Default: the leader's where the partition waits, else that of the host asked.",
        ),
    ] = "",
    accept_loss: AcceptLoss = False,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Lets a waiting partition continue with the most complete copy, or restarts a refused copy.

    Data that must make room is moved aside within the data directory, not deleted.
    """
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    request = pb.RebuildPartitionRequest(topic=topic, partition=partition, host=host, accept_loss=accept_loss)
    with daemon_at(control, token) as client:
        done = client.rebuild_partition(request)
    _tell(done, json)


@app.command()
def accept(
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="Only this topic's losses.")] = "",
    partition: Annotated[
        int | None, typer.Argument(metavar="[PARTITION]", min=0, help="Only this partition's.")
    ] = None,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Says that you know of the records that were lost with disks: checks and problems then leave them out.

    They stay listed.
    """
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    with daemon_at(control, token) as client:
        found = [one for one in client.list_partitions(topic) if partition in (None, one.partition)]
        done = [
            client.rebuild_partition(
                pb.RebuildPartitionRequest(topic=one.topic, partition=one.partition, accept_loss=True)
            )
            for one in found
            if one.state == LED and open_losses(one)
        ]
    if json:
        print_json([as_dict(one) for one in done])
        return
    for one in done:
        say(one.said)
    if not done:
        print("no loss of records waits to be accepted")


def _tell(done: pb.PromotePartitionResponse | pb.RebuildPartitionResponse, json: bool) -> None:
    if json:
        print_json(as_dict(done))
    else:
        say(done.said)
