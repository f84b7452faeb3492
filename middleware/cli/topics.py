"""`treecast topics`: shows and changes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.messages import as_dict
from treecast.middleware.model.topic_config import WISHED_COPIES

from .options import INT31, Control, Json, Token, daemon_at, pairs
from .output import CommandError, print_json, print_pairs, print_table, say, size_text

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb

app = typer.Typer(no_args_is_help=True, help="Show and change topics.")

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, as Kafka clients spell it.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A topic setting under Kafka's name; repeatable."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


@app.command("list")
def list_topics(json: Json = False, control: Control = None) -> None:
    """Lists all topics."""
    with daemon_at(control) as client:
        topics = client.list_topics()
    if json:
        print_json([as_dict(topic) for topic in topics])
        return
    print_table(
        ("topic", "partitions", "records", "size", "settings"),
        [(t.name, t.partitions, t.records, size_text(t.bytes), _settings(t)) for t in topics],
        empty="no topics; create one with `treecast topics create TOPIC`",
    )


def _settings(topic: pb.Topic) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(topic.overrides.items())) or "-"


@app.command()
def describe(topic: Name, json: Json = False, control: Control = None) -> None:
    """Shows a topic's partitions and settings."""
    with daemon_at(control) as client:
        found = client.describe_topic(topic)
    if json:
        print_json(as_dict(found))
        return
    print_pairs(
        [
            ("topic", found.topic.name),
            ("id", found.topic.topic_id),
            ("records", found.topic.records),
            ("size", size_text(found.topic.bytes)),
            ("settings", _settings(found.topic)),
            *_copies(found),
        ]
    )
    print()
    print_table(
        ("partition", "leader", "copies", "start", "end", "stable", "epoch", "size here"),
        [
            (
                p.index,
                p.leader or "-",
                p.copies or "-",
                *(
                    offset if offset >= 0 else "-"
                    for offset in (p.start_offset, p.end_offset, p.stable_offset)
                ),
                p.leader_epoch,
                size_text(p.bytes),
            )
            for p in found.partitions
        ],
        empty="no partitions",
    )


def _copies(found: pb.DescribeTopicResponse) -> list[tuple[str, str]]:
    """Returns the number of copies, for a topic whose creator requested more than one."""
    wished = next((entry.value for entry in found.config if entry.name == WISHED_COPIES), "1")
    if wished == "1":
        return []
    known = [partition.copies for partition in found.partitions if partition.copies]
    told = f"{min(known)} of" if known else "ask the leaders;"
    return [("copies", f"{told} {wished} that were asked for: at the leader, and at hosts that read it")]


@app.command()
def create(
    topic: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=INT31, help="How many. Default: the daemon's."),
    ] = None,
    config: Config = None,
    leader: Annotated[
        list[str] | None,
        typer.Option(
            "--leader",
            metavar="HOST",
            help="The host that leads it; repeated, one for each partition. Default: spread over all.",
        ),
    ] = None,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Creates a topic."""
    with daemon_at(control, token) as client:
        made = client.create_topic(topic, partitions or 0, pairs(config or [], "--config"), leader or [])
    _tell(made, f"created {topic}: {_partitions(made)}", json)


@app.command()
def delete(
    topic: Name,
    yes: Yes = False,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Deletes a topic and all its records."""
    with daemon_at(control, token) as client:
        if not yes:
            found = client.describe_topic(topic).topic
            typer.confirm(f"delete {topic} with {found.records:,} records?", abort=True, err=True)
        gone = client.delete_topic(topic)
    _tell(gone, f"deleted {topic}", json)


@app.command()
def alter(
    topic: Name,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Back to the default; repeatable."),
    ] = None,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Changes a topic's settings."""
    if not config and not unset:
        raise CommandError("nothing to change: give --config NAME=VALUE or --unset NAME")
    with daemon_at(control, token) as client:
        changed = client.alter_topic(topic, pairs(config or [], "--config"), unset or [])
    _tell(changed, f"changed {topic}: {_settings(changed)}", json)


@app.command()
def grow(
    topic: Name,
    partitions: Annotated[int, typer.Argument(min=1, max=INT31, help="How many it shall have in all.")],
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Adds partitions to a topic."""
    with daemon_at(control, token) as client:
        grown = client.create_partitions(topic, partitions)
    _tell(grown, f"grew {topic}: {_partitions(grown)}", json)


def _partitions(topic: pb.Topic) -> str:
    return f"{topic.partitions} partition{'' if topic.partitions == 1 else 's'}"


def _tell(topic: pb.Topic, text: str, json: bool) -> None:
    if json:
        print_json(as_dict(topic))
    else:
        say(text)
