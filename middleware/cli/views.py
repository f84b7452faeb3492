"""`treecast filter create`, `list` and `delete`: views, read-only Kafka topics that a filter makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from treecast.middleware.model.topic_config import VIEW

from .options import Control, Json, Token, daemon_at
from .output import CommandError, print_json, print_table, say

if TYPE_CHECKING:
    from treecast.middleware.api.daemon_client import DaemonClient

_INFIX = ".view."

Base = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic whose records it shows.")]


class _View(Struct, frozen=True):
    view: str  # the Kafka topic to read
    name: str
    topic: str
    filter: str
    partitions: int


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of letters, digits, _ and -.")],
    text: Annotated[str, typer.Argument(metavar="FILTER", help="As in 'stock == GOOGL and price > 50'.")],
    topic: Base,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Makes the read-only Kafka topic TOPIC.view.NAME, with the records of TOPIC that pass."""
    with daemon_at(control, token) as client:
        before = client.describe_topic(topic).topic.overrides
        if VIEW + name in before:
            raise CommandError(
                f"{topic}{_INFIX}{name} exists already: delete it first with"
                f" `treecast filter delete {name} --topic {topic}`"
            )
        made = client.alter_topic(topic, {VIEW + name: text})
    view = _View(f"{topic}{_INFIX}{name}", name, topic, text, made.partitions)
    _tell(view, f"created {view.view}: a view of {topic}", json)


def list_views(
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Only its views.")] = "",
    json: Json = False,
    control: Control = None,
) -> None:
    """Lists all views."""
    with daemon_at(control) as client:
        views = [view for view in _views(client) if topic in ("", view.topic)]
    if json:
        print_json([_as_dict(view) for view in views])
        return
    print_table(
        ("view", "partitions", "filter"),
        [(view.view, view.partitions, view.filter) for view in views],
        empty="no views; create one with `treecast filter create NAME FILTER --topic TOPIC`",
    )


def delete(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the view, or the Kafka topic TOPIC.view.NAME.")
    ],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic of the view.")] = "",
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Deletes a view, and what groups have committed for it. The topic's records stay."""
    with daemon_at(control, token) as client:
        view = _found(client, name, topic)
        client.alter_topic(view.topic, {}, [VIEW + view.name])
    _tell(view, f"deleted {view.view}", json)


def _views(client: DaemonClient) -> Iterator[_View]:
    for one in sorted(client.list_topics(), key=lambda topic: topic.name):
        for key, text in sorted(one.overrides.items()):
            if key.startswith(VIEW):
                name = key.removeprefix(VIEW)
                yield _View(f"{one.name}{_INFIX}{name}", name, one.name, text, one.partitions)


def _found(client: DaemonClient, name: str, topic: str) -> _View:
    """Returns the view that is meant. A name without its topic has to be that of one view only."""
    meant = [view for view in _views(client) if name in (view.name, view.view) and topic in ("", view.topic)]
    if not meant:
        raise CommandError(f"there is no view {name}; `treecast filter list` shows all")
    if len(meant) > 1:
        raise CommandError(
            f"views of {', '.join(view.topic for view in meant)} have the name {name}: name one with --topic"
        )
    return meant[0]


def _tell(view: _View, text: str, json: bool) -> None:
    if json:
        print_json(_as_dict(view))
    else:
        say(text)


def _as_dict(view: _View) -> dict[str, str | int]:
    return {
        "view": view.view,
        "name": view.name,
        "topic": view.topic,
        "filter": view.filter,
        "partitions": view.partitions,
    }
