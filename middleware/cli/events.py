"""`treecast events`: what happened in the cluster, as its coordinator has recorded it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote

import typer

from treecast.middleware.api.messages import as_dict
from treecast.middleware.model.errors import Fault, TreecastError

from .options import INT31, Control, Json, daemon_at
from .output import json_line, plain, print_json, print_table, say
from .times import time_text

if TYPE_CHECKING:
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.v1 import coordinator_pb2 as pb

COLUMNS = ("number", "time", "host", "event", "face", "application", "object")
_PAUSE = 1.0  # seconds between questions of --follow
_LATER = {Fault.COORDINATOR_UNAVAILABLE, Fault.TIMED_OUT, Fault.NOT_COORDINATOR}


def events(
    last: Annotated[int, typer.Option(min=1, max=INT31, help="The latest so many events.")] = 100,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only this kind, for example joined, created, bound or left; repeatable."),
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="NAME", help="Only events of this host.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new events; with --json one per line.")
    ] = False,
    json: Json = False,
    control: Control = None,
) -> None:
    """Shows events: hosts and applications that joined and left, definitions created and deleted, queues
    bound, topics subscribed to.
    """

    def chosen(found: Sequence[pb.ClusterEvent]) -> list[pb.ClusterEvent]:
        return [one for one in found if (not kind or one.kind in kind) and host in (None, one.host)]

    with daemon_at(control) as client:
        first = _latest(client, last)
        if not follow:
            _show(chosen(first), json)
            return
        for page in _pages(client, first):
            for one in chosen(page):
                _show_line(one, json)


def _latest(client: DaemonClient, last: int) -> list[pb.ClusterEvent]:
    answer = client.list_events(last=last)
    found = list(answer.events)
    while answer.more:
        answer = client.list_events(after=found[-1].number)
        found += answer.events
    return found


def _pages(client: DaemonClient, first: list[pb.ClusterEvent]) -> Iterator[Sequence[pb.ClusterEvent]]:
    """Yields pages of events for ever, from the given one on. Waits while no coordinator answers."""
    yield first
    after, said = first[-1].number if first else 0, ""
    while True:
        page: Sequence[pb.ClusterEvent] = ()
        problem = ""
        try:
            page = client.list_events(after=after).events
        except TreecastError as error:
            if error.fault not in _LATER:
                raise
            problem = str(error)
        if problem and problem != said:
            say(f"treecast: {problem}; waiting", err=True)
        said = problem
        if page:
            after = page[-1].number
            yield page
        else:
            time.sleep(_PAUSE)


def _show(found: list[pb.ClusterEvent], json: bool) -> None:
    if json:
        print_json([as_dict(one) for one in found])
    else:
        print_table(COLUMNS, [_row(one) for one in found], empty="no event")


def _show_line(one: pb.ClusterEvent, as_json: bool) -> None:
    """Prints one line at once, also into a pipe."""
    typer.echo(json_line(as_dict(one)) if as_json else "  ".join([plain(cell) for cell in _row(one)]))


def _row(one: pb.ClusterEvent) -> list[str]:
    return [
        str(one.number),
        time_text(one.time_ms),
        one.host or "-",
        one.kind,
        one.face or "-",
        one.who or "-",
        unquote(one.what) or "-",
    ]
