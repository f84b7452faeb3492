"""`treecast schema`: the declared fields of topics, which filters of all faces may name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from treecast.middleware.filters.schemas import avro, protobuf, protobuf_text
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_schema import (
    DESCRIBED,
    FILLER,
    FORMATS,
    SCHEMA,
    DeclaredField,
    SchemaVersion,
    TopicSchema,
    read_fields,
    read_schema,
    write_schema,
)

from .options import Control, Json, Token, daemon_at
from .output import CommandError, print_json, print_table, say

if TYPE_CHECKING:
    from treecast.middleware.api.daemon_client import DaemonClient

app = typer.Typer(help="Declared fields of topics, which filters may name.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic whose records have the fields.")]
Fields = Annotated[
    str,
    typer.Option(
        metavar="NAME:TYPE,...",
        help="As in stock:8s,price:u32; with a schema text the default is all its scalar fields.",
    ),
]
Text = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="The Avro schema, or the .proto file.")
]
MessageName = Annotated[
    str, typer.Option("--message", metavar="NAME", help="The message of the .proto file; else its first.")
]
Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", help="The number that the schema registry gave it; may be repeated."),
]


@app.command()
def create(
    topic: Topic,
    format: Annotated[str, typer.Option("--from", metavar="|".join(FORMATS), help="What records are.")],
    fields: Fields = "",
    text: Text = None,
    message: MessageName = "",
    ids: Ids = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Avro and Protobuf without the five bytes of a schema registry.")
    ] = False,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Declares the fields of a topic's records."""
    if format not in FORMATS:
        raise CommandError(f"--from is {', '.join(FORMATS)}, not {format}")
    version = _version(format, fields, text, message, ids or ())
    with daemon_at(control, token) as client:
        if _schema_of(client, topic) is not None:
            raise CommandError(
                f"{topic} has a schema already: add to it with `treecast schema evolve {topic}`, or delete it"
                f" first with `treecast schema delete {topic}`"
            )
        schema = TopicSchema(format, (version,), not bare)
        client.alter_topic(topic, {SCHEMA: write_schema(schema)})
    _tell(topic, schema, f"declared {len(schema.fields)} fields of {topic}", json)


@app.command()
def evolve(
    topic: Topic,
    fields: Fields = "",
    text: Text = None,
    message: MessageName = "",
    ids: Ids = None,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Adds a version with more fields. Records of earlier versions go on to meet the schema."""
    with daemon_at(control, token) as client:
        before = _schema_of(client, topic)
        if before is None:
            raise CommandError(f"{topic} has no schema: declare one with `treecast schema create {topic}`")
        version = _version(before.format, fields, text, message, ids or ())
        if text is None:
            version = replace(version, fields=_with_more(before.versions[-1].fields, version.fields))
        schema = replace(before, versions=(*before.versions, version))
        client.alter_topic(topic, {SCHEMA: write_schema(schema)})
    _tell(topic, schema, f"{topic} has version {len(schema.versions)} of its schema", json)


@app.command("list")
def list_schemas(json: Json = False, control: Control = None) -> None:
    """Lists all schemas."""
    with daemon_at(control) as client:
        found = [
            (one.name, read_schema(one.overrides[SCHEMA]))
            for one in sorted(client.list_topics(), key=lambda one: one.name)
            if one.overrides.get(SCHEMA)
        ]
    if json:
        print_json([_as_dict(topic, schema) for topic, schema in found])
        return
    print_table(
        ("topic", "from", "versions", "fields"),
        [(topic, one.format, len(one.versions), _written(one.fields)) for topic, one in found],
        empty="no schemas; declare one with `treecast schema create TOPIC --from json --fields NAME:TYPE`",
    )


@app.command()
def delete(topic: Topic, json: Json = False, control: Control = None, token: Token = None) -> None:
    """Deletes a topic's schema. Records stay; filters read them as JSON again."""
    with daemon_at(control, token) as client:
        schema = _schema_of(client, topic)
        if schema is None:
            raise CommandError(f"{topic} has no schema; `treecast schema list` lists all")
        client.alter_topic(topic, {}, [SCHEMA])
    _tell(topic, schema, f"deleted the schema of {topic}", json)


# --- versions


def _version(format: str, fields: str, file: Path | None, message: str, ids: Sequence[int]) -> SchemaVersion:
    """Returns the version that the options state. Raises CommandError."""
    described = format in DESCRIBED
    if described and file is None:
        raise CommandError(
            f"{format} needs the schema that records are written by: name it with --schema FILE"
        )
    if not described and file is not None:
        raise CommandError(f"records from {format} need no --schema; declare them with --fields")
    if not described and not fields:
        raise CommandError("name the fields with --fields, as in --fields stock:8s,price:u32")
    try:
        text = file.read_text("utf-8") if file is not None else ""
        found = read_fields(fields) if fields else tuple(_fields_of(format, text, message))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CommandError(f"{file} cannot be read: {reason}") from error
    except ValueError as error:
        raise CommandError(str(error)) from error
    return SchemaVersion(found, text, message, tuple(ids))


def _fields_of(format: str, text: str, message: str) -> list[DeclaredField]:
    """Returns all scalar fields of a schema text."""
    if format == "avro":
        return avro.declared(avro.read_type(text))
    file = protobuf_text.read_file(text)
    return protobuf.declared(file, protobuf.message_of(file, message))


def _with_more(had: Sequence[DeclaredField], more: Sequence[DeclaredField]) -> tuple[DeclaredField, ...]:
    """Returns the fields there are and those that are new. Raises CommandError for one of another type."""
    types = {field.path: field.type for field in had if field.name != FILLER}
    for field in more:
        if types.get(field.path, field.type) != field.type:
            raise CommandError(f"{field.name} is {types[field.path]} already, and cannot become {field.type}")
    return (*had, *(field for field in more if field.path not in types))


def _schema_of(client: DaemonClient, topic: str) -> TopicSchema | None:
    text = client.describe_topic(topic).topic.overrides.get(SCHEMA)
    if not text:
        return None
    try:
        return read_schema(text)
    except TreecastError as error:
        raise TreecastError(Fault.INVALID_CONFIG, f"the schema of {topic} cannot be read: {error}") from error


def _written(fields: Sequence[DeclaredField]) -> str:
    return ",".join(field.text for field in fields)


def _as_dict(topic: str, schema: TopicSchema) -> dict[str, object]:
    return {
        "topic": topic,
        "from": schema.format,
        "framed": schema.framed,
        "fields": _written(schema.fields),
        "versions": [
            {"fields": _written(one.fields), "message": one.message, "ids": list(one.ids)}
            for one in schema.versions
        ],
    }


def _tell(topic: str, schema: TopicSchema, text: str, json: bool) -> None:
    if json:
        print_json(_as_dict(topic, schema))
    else:
        say(text)
