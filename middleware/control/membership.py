"""Network controllers in a secured cluster: they call daemons by a certificate, not by the cluster's token.

A controller joins as a host does, by a one-time token at its first start, under a name of its own. It keeps
its certificate in a folder, with the address of the coordinator, and renews it there; it follows no keys,
since it sends no packets between hosts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust_files import ADDRESS, FOLDER, is_secured
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

_log = Log(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what a controller of a secured cluster is told."""
    group = parser.add_argument_group("in a secured cluster")
    group.add_argument("--data", type=Path, metavar="DIR", help="where it keeps its certificate")
    group.add_argument(
        "--join",
        default="",
        metavar="HOST:PORT",
        help="the coordinator's control address (default: the last given)",
    )
    group.add_argument("--name", default="", help="its name there, as that of a host")
    group.add_argument(
        "--join-token", default="", metavar="@FILE", help="a one-time token, for the first start"
    )
    group.add_argument(
        "--trust",
        type=Path,
        metavar="DIR",
        default=os.environ.get("TREECAST_TRUST"),
        help="a folder with certificates that are there, instead (default: TREECAST_TRUST)",
    )


@asynccontextmanager
async def certified(given: argparse.Namespace) -> AsyncIterator[Path | None]:
    """Yields the folder with the certificate to call by; None in a cluster that is not secured. Joins first,
    if that is to be. Raises TreecastError, or OSError.
    """
    if given.data is None:
        yield Path(given.trust) if given.trust else None
        return
    from treecast.middleware.api.trust import Trust  # here: they load `cryptography`
    from treecast.middleware.api.trust_member import Member, join_patiently

    if not is_secured(given.data):
        if not (given.join and given.name and given.join_token):
            raise TreecastError(
                Fault.INVALID_REQUEST, "the first start with --data needs --join, --name and --join-token"
            )
        await join_patiently(given.join, _text(given.join_token), given.name, "", given.data)
    member = Member(Trust(given.data), [])
    await member.open(_target(given.data / FOLDER / ADDRESS, given.join), follows=False)
    try:
        yield given.data / FOLDER
    finally:
        await member.close()


def _target(kept: Path, given: str) -> str:
    """Returns where the certificate is renewed: what was given, which is kept, or what was kept. Raises
    OSError.
    """
    known = kept.read_text(encoding="utf-8").strip() if kept.exists() else ""
    if given and given != known:
        write_private(kept, given.encode())
    if not (given or known):
        _log.warning("certificate will not be renewed", advice="start once with --join HOST:PORT")
    return given or known


def _text(given: str) -> str:
    return Path(given[1:]).read_text(encoding="utf-8").strip() if given.startswith("@") else given
