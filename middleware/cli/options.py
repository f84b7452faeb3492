"""Options shared by several commands, and access to the daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.discovery import DEFAULT_SOURCE, Address, Endpoint, find_face
from treecast.middleware.model.errors import TreecastError

from .output import CommandError, say

if TYPE_CHECKING:
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.join_token import JoinToken

NAMED = "the command line"

# The limits of integer fields in messages to the daemon and in Kafka's requests.
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
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN|@FILE",
        envvar="TREECAST_TOKEN",
        help="What changes at another host's daemon are signed with: its join-token or control-token.",
        show_envvar=False,
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The Kafka face's address. Default: TREECAST_KAFKA, else this host's daemon.",
    ),
]
KafkaUser = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="Log in as this user; with --password-file.")
]
KafkaPassword = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="A file with the password of --user."),
]


@contextmanager
def daemon_at(control: str | None, token: str | None = None) -> Iterator[DaemonClient]:
    """Yields a client of the daemon. If it is unreachable, raises a CommandError that states how to start it.

    `token`: as in `--token`.
    """
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.rpc import Unreachable

    endpoint = control_at(control)
    folder = os.environ.get("TREECAST_TRUST")
    trust = Path(folder) if folder else None
    with DaemonClient(endpoint, token=read_token(token) if token else None, trust=trust) as client:
        try:
            yield client
        except Unreachable as error:
            raise CommandError(
                f"{error}; start one with `treecast up`, or name another with --control HOST:PORT"
            ) from error
        except TreecastError:
            tell_which(endpoint)
            raise
    tell_which(endpoint)


def read_token(text: str) -> JoinToken:
    """Returns the token of `--token TOKEN|@FILE`."""
    from treecast.middleware.api.join_token import JoinToken

    name = f"--token {text}" if text.startswith("@") else "--token"
    try:
        return JoinToken.parse(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CommandError(f"{name}: the file cannot be read: {reason}") from error
    except TreecastError as error:
        raise CommandError(f"{name}: {error}") from error


def control_at(control: str | None) -> Endpoint:
    """Returns the place of the daemon's control service."""
    return _at("control", control)


def kafka_at(kafka: str | None) -> Endpoint:
    """Returns the place of the Kafka face."""
    return _at("kafka", kafka)


def kafka_log_in(user: str | None, password_file: Path | None) -> dict[str, str]:
    """Returns the options of a Kafka client that logs in by SCRAM, none without a user."""
    if user is None and password_file is None:
        return {}
    if user is None or password_file is None:
        raise CommandError("a log-in takes both: --user NAME and --password-file FILE")
    try:
        password = password_file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--password-file {password_file}: {error}") from error
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def _at(face: str, chosen: str | None) -> Endpoint:
    try:
        return Endpoint(Address.parse(chosen).reachable, None, NAMED) if chosen else find_face(face)
    except ValueError as error:
        raise CommandError(f"--{face} {chosen}: {error}" if chosen else str(error)) from error


def tell_which(endpoint: Endpoint) -> None:
    """Prints which daemon has answered, unless it is the one at the default address or was named."""
    if endpoint.source not in (NAMED, DEFAULT_SOURCE):
        say(f"treecast: answered by the daemon at {endpoint}, found by {endpoint.source}", err=True)


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Returns `["retention.ms=1000"]` as a dictionary."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} {text}: expected NAME=VALUE, as in {option} retention.ms=86400000")
        found[name] = value
    return found
