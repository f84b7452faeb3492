"""`treecast bench`: one load of `middleware.load` against a Kafka face, or through it to other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, cast

import typer

from treecast.middleware.api.discovery import Address

from .fanout import fanout
from .options import Control, Json, Kafka, kafka_at
from .output import CommandError, print_json

KINDS = ("produce", "fetch", "latency", "fanout")


def bench(
    kind: Annotated[str, typer.Argument(metavar="|".join(KINDS), help="What to measure.")],
    topic: Annotated[str, typer.Option("--topic")] = "treecast-bench",
    records: Annotated[int, typer.Option("--records", min=1, help="How many to send.")] = 1_000_000,
    size: Annotated[int, typer.Option("--size", min=1, help="Bytes of a record's value.")] = 100,
    batch: Annotated[
        int, typer.Option("--batch", min=0, help="Records in a batch; 0: what fits into 16 KiB.")
    ] = 0,
    connections: Annotated[int, typer.Option("--connections", min=1, help="Each writes a partition.")] = 1,
    window: Annotated[int, typer.Option("--window", min=1, help="Requests in flight on each.")] = 16,
    acks: Annotated[int, typer.Option("--acks", min=-1, max=1, help="-1 stands for all.")] = 1,
    compression: Annotated[str, typer.Option("--compression")] = "none",
    rate: Annotated[float, typer.Option("--rate", min=1, help="Records a second, of latency.")] = 5_000,
    json: Json = False,
    kafka: Kafka = None,
    control: Control = None,
) -> None:
    """Sends pre-encoded batches, reads a topic, measures latency at a rate, or the delivery of a topic to
    other hosts.
    """
    from treecast.middleware import load

    if kind not in KINDS:
        raise CommandError(f"{kind}: expected {', '.join(KINDS)}")
    address = kafka_at(kafka).address
    options = load.BenchOptions(
        host=address.host,
        port=address.port,
        topic=topic,
        records=records,
        size=size,
        batch_records=batch,
        connections=connections,
        window=window,
        acks=acks,
        compression=compression,
        rate=rate,
    )
    if kind == "fanout":
        with _reachable(address):
            fanout(options, control, json)
        return
    chosen = cast(load.Kind, kind)
    with _reachable(address):
        result = load.run_bench(chosen, options)
    if json:
        print_json(load.as_json(chosen, options, result))
        return
    from rich.console import Console

    Console().print(load.as_table(chosen, options, result))


@contextmanager
def _reachable(address: Address) -> Iterator[None]:
    """Turns a load's failure into a CommandError that states the next step."""
    from treecast.middleware import load

    try:
        yield
    except load.LoadError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(
            f"{address}: {error.strerror or error}; start one with `treecast up`, or give --kafka HOST:PORT"
        ) from error
