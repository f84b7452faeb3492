"""`treecast init`, `token`, `hosts` and `keys`: a secured cluster.

`init` makes its first host's files. The others call the authority in that host's daemon by the
administrator's certificate, which only the daemon's user can read.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from treecast.middleware.daemon.config import default_data

from .options import Json
from .output import CommandError, print_json, print_table, say

if TYPE_CHECKING:
    from treecast.middleware.api.trust_calls import Answer, Request

token = typer.Typer(no_args_is_help=True, help="Tokens with which hosts join a secured cluster.")
hosts = typer.Typer(no_args_is_help=True, help="The hosts of a secured cluster.")
keys = typer.Typer(no_args_is_help=True, help="The keys that protect packets between hosts.")

A = TypeVar("A", bound="Answer")

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data directory of the cluster's first host. Default: TREECAST_DATA, else the daemon's.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--control", metavar="HOST:PORT", help="Where the coordinator is. Default: as it has noted."
    ),
]

_DURATION = re.compile(r"([0-9]{1,6})([smhd])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _data(data: Path | None) -> Path:
    return data or Path(os.environ.get("TREECAST_DATA") or default_data(os.environ))


def init(
    secure: Annotated[
        bool, typer.Option("--secure", help="Hosts by certificates, clients by passwords and TLS.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="The host's name. Default: the machine's.")
    ] = None,
    address: Annotated[
        str,
        typer.Option("--address", metavar="IP", help="At which hosts and applications reach this machine."),
    ] = "",
    administrator: Annotated[str, typer.Option("--administrator", metavar="USER")] = "admin",
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="The administrator's password. Default: one is drawn and shown.",
        ),
    ] = None,
    data: Data = None,
) -> None:
    """Makes the first host of a secured cluster: authority, certificates, administrator, configuration."""
    if not secure:
        raise CommandError("a cluster without certificates needs no `init`: start it with `treecast up`")
    from treecast.middleware.daemon.file_permissions import keep_private
    from treecast.middleware.daemon.first_secured import make_secured

    keep_private()
    drawn = "" if password_file is not None else secrets.token_urlsafe(18)
    password = _password(password_file) if password_file is not None else drawn.encode()
    where = _data(data).absolute()
    try:
        made = make_secured(where, name or socket.gethostname(), address, administrator, password)
    except (OSError, ValueError) as error:
        raise CommandError(f"{where}: {error}") from error
    say(f"authority, certificates and {administrator} are made in {where}")
    if drawn:
        say(f"password of {administrator}, shown this once: {drawn}")
    say(f"start it:        treecast up --config {made}")
    say("a host joins it: treecast token create, and there")
    say("                 treecast up --join HOST:7671 --join-token @FILE --fabric IP:7672")


def _password(file: Path) -> bytes:
    try:
        found = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--password-file {file}: {error}") from error
    if not found:
        raise CommandError(f"--password-file {file}: an empty password")
    return found.encode()


def _call(data: Path | None, control: str | None, request: Request, kind: type[A]) -> A:
    """Makes a call to the authority with the administrator's certificate."""
    from treecast.middleware.api.trust_client import administer
    from treecast.middleware.api.trust_files import ADDRESS, FOLDER

    folder = _data(data) / FOLDER
    try:
        target = control or (folder / ADDRESS).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CommandError(
            f"{folder / ADDRESS}: {error.strerror}: run this at the cluster's first host, whose daemon"
            " was started, or name that with --data DIR"
        ) from error
    return asyncio.run(administer(target, folder, request, kind))


@token.command("create")
def create_token(
    expires: Annotated[str, typer.Option("--expires", metavar="TIME", help="As 30m, 1h or 2d.")] = "1h",
    name: Annotated[
        str, typer.Option("--name", metavar="HOST", help="Only a host of this name may use it.")
    ] = "",
    data: Data = None,
    control: At = None,
) -> None:
    """Prints a token with which one host joins, once."""
    from treecast.middleware.api.trust_calls import CreateToken, TokenCreated

    made = _call(data, control, CreateToken(_duration(expires), name), TokenCreated)
    say(made.token)
    say(f"treecast: valid once, until {_time(made.expires)}", err=True)


def _duration(text: str) -> float:
    found = _DURATION.match(text)
    if found is None:
        raise CommandError(f"--expires {text}: expected a number and s, m, h or d, as in 1h")
    return float(int(found[1]) * _SECONDS[found[2]])


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@hosts.command("list")
def list_hosts(json: Json = False, data: Data = None, control: At = None) -> None:
    """Lists all certificates that were given out."""
    from treecast.middleware.api.trust_calls import Hosts, ListHosts

    found = _call(data, control, ListHosts(), Hosts)
    if json:
        import msgspec

        print_json([msgspec.to_builtins(one) for one in found.issued])
        return
    print_table(
        ("name", "role", "valid until", "expelled"),
        [
            (one.name, one.role, _time(one.until), _time(one.expelled) if one.expelled else "-")
            for one in found.issued
        ],
        empty="no certificates",
    )


@hosts.command("expel")
def expel_host(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The host's name.")],
    data: Data = None,
    control: At = None,
) -> None:
    """Refuses a host's certificate everywhere and changes the keys: it reads and sends nothing any more."""
    from treecast.middleware.api.trust_calls import Done, Expel

    done = _call(data, control, Expel(name), Done)
    say(f"expelled {name}: {done.hosts} certificate(s) refused, keys changed (generation {done.generation})")


@keys.command("rotate")
def rotate_keys(data: Data = None, control: At = None) -> None:
    """Changes the key of packets between hosts, without a gap."""
    from treecast.middleware.api.trust_calls import Done, Rotate

    done = _call(data, control, Rotate(), Done)
    say(f"changed the key of packets between hosts (generation {done.generation})")
