"""`treecast groups`: shows and changes consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.messages import as_dict

from .options import INT63, Control, Json, Token, daemon_at
from .output import CommandError, print_json, print_pairs, print_table, say
from .times import milliseconds

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb

app = typer.Typer(no_args_is_help=True, help="Show and change consumer groups.")

_AWAY = -2  # the epoch of a static member that has left temporarily

Id = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


@app.command("list")
def list_groups(json: Json = False, control: Control = None) -> None:
    """Lists all groups. A classic group's epoch is its generation."""
    with daemon_at(control) as client:
        groups = client.list_groups()
    if json:
        print_json([as_dict(group) for group in groups])
        return
    print_table(
        ("group", "type", "state", "epoch", "members", "protocol"),
        [(g.group_id, g.type or "-", g.state, g.epoch, g.members, g.protocol_type or "-") for g in groups],
        empty="no groups; a consumer creates one when it joins or commits an offset",
    )


@app.command()
def describe(group: Id, json: Json = False, control: Control = None) -> None:
    """Shows a group's members, committed offsets and lag."""
    with daemon_at(control) as client:
        found = client.describe_group(group)
    if json:
        print_json(as_dict(found))
        return
    lag = sum(offset.lag for offset in found.offsets)
    state = found.group.state + (f", {found.protocol}" if found.protocol else "")
    epochs = [("epoch", str(found.group.epoch))]
    if found.group.assignment_epoch:
        epochs.append(("assignment epoch", str(found.group.assignment_epoch)))
    print_pairs([("group", group), ("type", found.group.type), ("state", state), *epochs, ("lag", lag)])
    print()
    print_table(
        ("member", "protocol", "epoch", "client", "host", "partitions"),
        [_member_row(m) for m in found.members],
        empty="no members",
    )
    print()
    _print_offsets(found.offsets)


def _member_row(member: pb.GroupMember) -> tuple[str | int, ...]:
    name = member.instance_id or member.member_id
    epoch: str | int = "away" if member.epoch == _AWAY else member.epoch
    return name, member.protocol, epoch, member.client_id, member.client_host, _assigned(member)


def _assigned(member: pb.GroupMember) -> str:
    parts = (f"{a.topic}[{','.join(map(str, a.partitions))}]" for a in member.assigned)
    return " ".join(parts) or "-"


def _print_offsets(offsets: object) -> None:
    print_table(
        ("topic", "partition", "committed", "end", "lag"),
        [(o.topic, o.partition, o.committed, o.end_offset, o.lag) for o in offsets],  # type: ignore[attr-defined]
        empty="no committed offsets",
    )


@app.command()
def delete(
    group: Id,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Deletes a group without members, and its committed offsets."""
    with daemon_at(control, token) as client:
        if not yes:
            offsets = client.describe_group(group).offsets
            typer.confirm(f"delete {group} with {len(offsets)} committed offsets?", abort=True, err=True)
        client.delete_group(group)
    if json:
        print_json({"deleted": group})
    else:
        say(f"deleted {group}")


@app.command()
def reset(
    group: Id,
    topic: Annotated[
        str, typer.Option("--topic", help="Only this topic; default: all topics with committed offsets.")
    ] = "",
    earliest: Annotated[bool, typer.Option("--earliest", help="To the first record.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="To the end.")] = False,
    offset: Annotated[int | None, typer.Option("--offset", min=0, max=INT63, help="To this offset.")] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="To the first record at or after: ISO 8601, or ms.")
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option("--shift", min=-INT63, max=INT63, help="This many records on, or back where negative."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be set.")] = False,
    json: Json = False,
    control: Control = None,
    token: Token = None,
) -> None:
    """Sets the committed offsets of a group without members."""
    from treecast.middleware.api.v1 import daemon_pb2 as pb

    request = pb.ResetGroupRequest(group_id=group, topic=topic, dry_run=dry_run)
    _set_target(request, earliest, latest, offset, time, shift)
    with daemon_at(control, token) as client:
        done = client.reset_group(request)
    if json:
        print_json(as_dict(done))
        return
    print("would set" if dry_run else "set")
    _print_offsets(done.after)


def _set_target(
    request: pb.ResetGroupRequest,
    earliest: bool,
    latest: bool,
    offset: int | None,
    time: str | None,
    shift: int | None,
) -> None:
    if (earliest, latest, offset is not None, time is not None, shift is not None).count(True) != 1:
        raise CommandError("name a target: one of --earliest, --latest, --offset, --time, --shift")
    if earliest or latest:
        setattr(request, "earliest" if earliest else "latest", True)
    elif offset is not None:
        request.offset = offset
    elif time is not None:
        request.timestamp = milliseconds(time, "--time")
    elif shift is not None:
        request.shift = shift
