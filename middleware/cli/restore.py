"""`treecast restore-coordinator`: rebuilds the store of a coordinator with a lost disk, from a host's view.

`treecast copy-coordinator`: copies a store into PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, daemon_at
from .output import CommandError, print_json, say


def restore_coordinator(
    source: Annotated[
        str,
        typer.Option("--from", metavar="HOST:PORT", help="The control address of a host that was attached."),
    ],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Where the daemon with the coordinator will run, or the coordinator.",
        ),
    ],
    join_token: Annotated[
        str,
        typer.Option("--join-token", metavar="TOKEN|@FILE", help="The cluster's; every host has kept it."),
    ],
    json: Json = False,
) -> None:
    """Rebuilds a coordinator's store from a host's view, after the coordinator's disk is lost.

    Write it to an empty directory, then start there the process that ran before. Data of homes, such as
    committed offsets, comes from the homes.
    """
    from treecast.middleware.api.entries import Position
    from treecast.middleware.control.restore import restored, write_store
    from treecast.middleware.daemon.file_permissions import DIRECTORY_MODE, keep_private
    from treecast.middleware.daemon.settings import STORE
    from treecast.middleware.daemon.tokens import given_token, keep_token

    token = given_token(join_token)
    keep_private()
    with daemon_at(source, join_token) as client:
        told = client.export_view()
    if told.cluster_id != token.cluster_id:
        raise CommandError(
            f"{source} is of cluster {told.cluster_id}, and the join token of {token.cluster_id}: name a host"
            " of that cluster"
        )
    changes = restored(told.changes)
    data.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    write_store(data / STORE, token.cluster_id, changes, Position(told.history, told.revision))
    keep_token(data, token)
    done = {"store": str(data / STORE), "entries": len(changes), "revision": told.revision}
    if json:
        print_json(done | {"cluster_id": told.cluster_id})
        return
    say(f"{data / STORE} has {len(changes)} entries, as of revision {told.revision}")


def copy_coordinator(
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="The data directory of a coordinator that is stopped."),
    ],
    store: Annotated[
        str,
        typer.Option(
            "--store", metavar="URL|@FILE", help="An empty PostgreSQL database, as coordinators name it."
        ),
    ],
    json: Json = False,
) -> None:
    """Copies a coordinator's store into a PostgreSQL database that coordinators can share.

    Ids, epochs and the history continue, so hosts notice nothing. The file in the data directory is kept, but
    no coordinator starts on it again. Then start coordinators with --store and the cluster's join token.
    """
    from treecast.middleware.control.postgres_session import shown
    from treecast.middleware.control.restore import copy_store
    from treecast.middleware.daemon.coordinate import given_database
    from treecast.middleware.daemon.listeners import StartError
    from treecast.middleware.daemon.settings import STORE

    try:
        url = given_database(store)
    except StartError as error:
        raise CommandError(str(error)) from error
    cluster_id, entries = copy_store(data / STORE, url)
    if json:
        print_json({"store": shown(url), "entries": entries, "cluster_id": cluster_id})
        return
    say(f"{shown(url)} has the {entries} entries of {data / STORE}")
