"""`treecast explain`: which hosts get a message that is published here, and by which carriers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.messages import as_dict

from .options import Control, Json, daemon_at, pairs
from .output import Cell, CommandError, print_json, print_table

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb

COLUMNS = ("from", "to", "carrier", "address", "state", "stream", "why")


def explain(
    exchange: Annotated[
        str | None, typer.Argument(metavar="[EXCHANGE]", help='Of AMQP; "" is the default exchange.')
    ] = None,
    key: Annotated[str, typer.Argument(metavar="[KEY]", help="The routing key.")] = "",
    vhost: Annotated[str, typer.Option(help="The exchange's virtual host.")] = "/",
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="For an exchange that looks at headers; repeatable."),
    ] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="A Kafka topic.")] = None,
    mqtt: Annotated[str | None, typer.Option(metavar="TOPIC", help="An MQTT topic.")] = None,
    json: Json = False,
    control: Control = None,
) -> None:
    """Shows which hosts get a message published here now, by which carriers, to which addresses, and why.

    The message is one to EXCHANGE with KEY, or to a topic of Kafka or MQTT. Nothing is sent.
    """
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    if sum(one is not None for one in (exchange, topic, mqtt)) != 1:
        raise CommandError("give one of EXCHANGE KEY, --topic NAME and --mqtt TOPIC")
    request = pb.ExplainRequest(
        topic=topic,
        mqtt=mqtt,
        exchange=exchange,
        key=key,
        vhost=vhost,
        headers=pairs(header or (), "--header"),
    )
    with daemon_at(control) as client:
        answer = client.explain(request)
    if json:
        print_json(as_dict(answer))
    else:
        print_table(COLUMNS, [_row(way) for way in answer.ways], empty="no host wants such a message")


def _row(way: pb.MessageWay) -> list[Cell]:
    return [
        way.sender,
        ", ".join(way.hosts) or "-",
        way.carrier,
        way.address or "-",
        str(way.state_id or "-"),
        way.stream or "-",
        way.why or "-",
    ]
