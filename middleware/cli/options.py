"""Options that several commands share, and the way to the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.discovery import Address, find_control, find_face

from .output import CommandError

if TYPE_CHECKING:
    from treecast.middleware.api.daemon_client import DaemonClient

# What messages to the daemon and Kafka's requests have room for.
INT31 = 2**31 - 1
INT63 = 2**63 - 1

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Control = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The daemon's control address. Default: TREECAST_CONTROL, else this host's daemon.",
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The Kafka face's address. Default: TREECAST_KAFKA, else this host's daemon.",
    ),
]


@contextmanager
def daemon_at(control: str | None) -> Iterator[DaemonClient]:
    """A client of the daemon; one that cannot be reached is a CommandError that says how to start it."""
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.rpc import Unreachable

    try:
        endpoint = str(Address.parse(control).reachable) if control else find_control()
    except ValueError as error:
        raise CommandError(f"--control {control}: {error}" if control else str(error)) from error
    with DaemonClient(endpoint) as client:
        try:
            yield client
        except Unreachable as error:
            raise CommandError(
                f"{error}; start one with `treecast up`, or name another with --control HOST:PORT"
            ) from error


def kafka_at(kafka: str | None) -> Address:
    """Where the Kafka face is."""
    try:
        return Address.parse(kafka).reachable if kafka else find_face("kafka").address
    except ValueError as error:
        raise CommandError(f"--kafka {kafka}: {error}" if kafka else str(error)) from error


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`["retention.ms=1000"]` as a dictionary."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} {text}: expected NAME=VALUE, as in {option} retention.ms=86400000")
        found[name] = value
    return found
