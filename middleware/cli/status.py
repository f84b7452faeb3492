"""`treecast status`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.api.messages import as_dict

from .options import Control, Json, daemon_at
from .output import Cell, CommandError, duration_text, print_json, print_pairs, print_table, say, size_text

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import coordinator_pb2
    from treecast.middleware.api.v1 import daemon_pb2 as pb


def status(
    json: Json = False,
    control: Control = None,
    coordinator: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Show the coordinator at this control address instead."),
    ] = None,
    join_token: Annotated[
        str | None,
        typer.Option("--join-token", metavar="TOKEN|@FILE", help="The cluster's, for --coordinator."),
    ] = None,
) -> None:
    """Shows the daemon: its faces, topics, connections, records, memory."""
    if coordinator is not None:
        _show_coordinator(coordinator, join_token, json=json)
        return
    with daemon_at(control) as client:
        found = client.status()
    if json:
        print_json(as_dict(found))
        return
    problems = [
        *found.problems,
        *(f"at the coordinator: {problem}" for problem in found.coordinator.problems),
    ]
    print_pairs(_summary(found))
    for problem in problems:
        say(f"\nPROBLEM: {problem}")
    print()
    columns = ("face", "address", "connections", "requests", "received", "sent", "errors", "socket")
    print_table(columns, [_row(face) for face in found.faces], empty="no faces")
    if found.hosts:
        print()
        print_table(HOSTS, [_host(host) for host in found.hosts], empty="")
    if problems:
        print()
    for problem in problems:
        say(f"PROBLEM: {problem}")


def _show_coordinator(address: str, join_token: str | None, *, json: bool) -> None:
    found = asyncio.run(_asked(address, join_token))
    if json:
        print_json(as_dict(found))
        return
    print_pairs(_of_coordinator(found))
    for problem in found.problems:
        say(f"\nPROBLEM: {problem}")


async def _asked(address: str, join_token: str | None) -> coordinator_pb2.CoordinatorStatusResponse:
    from treecast.middleware.api.coordinator_client import CoordinatorClient
    from treecast.middleware.daemon.tokens import given_token

    if join_token is None:
        raise CommandError("--coordinator needs --join-token TOKEN or @FILE: it answers its own cluster only")
    client = CoordinatorClient(address, given_token(join_token))
    try:
        return await client.status()
    finally:
        await client.close()


def _of_coordinator(found: coordinator_pb2.CoordinatorStatusResponse) -> list[tuple[str, str | int]]:
    rows: list[tuple[str, str | int]] = [
        ("cluster", found.cluster_id),
        ("version", found.version),
        ("revision", found.revision),
        ("hosts", f"{found.hosts} attached, {found.watchers} watch"),
        ("refused writes", found.refused_writes),
        *_shared(found),
    ]
    if found.pid:  # otherwise it is part of a daemon, whose status has the rest
        space = _space(found.disk_free_bytes, found.disk_bytes)
        rows += [
            ("up for", duration_text(found.uptime_seconds)),
            ("process", f"pid {found.pid}"),
            ("data", f"{found.data_dir}, fsync {found.fsync}{space}"),
            ("memory", size_text(found.resident_bytes)),
            ("CPU time", f"{found.cpu_seconds:.1f} s"),
            ("open files", f"{found.open_files:,} of {found.open_files_limit:,}"),
        ]
    return rows


def _shared(found: coordinator_pb2.CoordinatorStatusResponse) -> list[tuple[str, str | int]]:
    """Returns rows about a store that several coordinators share."""
    if not found.store:
        return []
    role = f"{found.role}, epoch {found.epoch}" if found.epoch else found.role
    if found.leader and not found.epoch:
        role += f"; {found.leader} leads" if found.role == "waits for the lock" else ""
    return [
        ("role", role),
        ("store", found.store),
        ("since its start", f"led {found.takeovers} times, lost the store {found.store_losses} times"),
    ]


HOSTS = ("id", "host", "fabric", "presence", "channel", "round trip", "received", "sent", "leads", "problem")


def _host(host: pb.HostStatus) -> list[Cell]:
    channel = host.channel
    if host.here:
        reached: list[Cell] = ["this host", "-", "-", "-"]
    elif channel.connected:
        rtt = f"{channel.round_trip_seconds * 1000:.2f} ms" if channel.round_trip_seconds else "-"
        reached = ["connected", rtt, size_text(channel.bytes_in), size_text(channel.bytes_out)]
    else:
        reached = ["not connected", "-", "-", "-"]
    problem = "-" if host.here or channel.connected else channel.last_error or "-"
    if problem != "-" and channel.advice:
        problem += f"; {channel.advice}"
    return [host.host_id, host.name, host.address, host.presence, *reached, host.leads, problem]


def _coordinator(found: pb.StatusResponse) -> list[tuple[str, str | int]]:
    if not found.HasField("coordinator"):
        return []
    coordinator = found.coordinator
    where = f"at {coordinator.address}" if coordinator.address else "in this daemon"
    state = "" if coordinator.reachable else f", AWAY: {coordinator.problem or 'no answer'}"
    return [("coordinator", f"{where}, revision {coordinator.revision}{state}")]


def _row(face: pb.Face) -> list[Cell]:
    traffic = face.traffic
    counted: list[Cell] = ["-"] * 5
    if face.HasField("traffic"):
        counted = [
            traffic.connections,
            traffic.requests,
            size_text(traffic.bytes_in),
            size_text(traffic.bytes_out),
            traffic.protocol_errors,
        ]
    return [face.name, face.address, *counted, face.unix_socket or "-"]


def _space(free: int, size: int) -> str:
    return f", {size_text(free)} of {size_text(size)} free" if size else ""


def _summary(found: pb.StatusResponse) -> list[tuple[str, str | int]]:
    totals, resources = found.totals, found.resources
    compiled = len(found.compiled_modules)
    return [
        ("name", found.name),
        ("version", found.version),
        ("cluster", found.cluster_id),
        *_coordinator(found),
        ("up for", duration_text(found.uptime_seconds)),
        ("process", f"pid {found.pid}, {found.event_loop} loop"),
        (
            "hot modules",
            f"{compiled} compiled" if compiled else f"interpreted, slower: {found.why_interpreted}",
        ),
        (
            "data",
            f"{found.data_dir}, fsync {found.fsync}{_space(resources.disk_free_bytes, resources.disk_bytes)}",
        ),
        ("topics", f"{totals.topics:,} with {totals.partitions:,} partitions"),
        ("groups", totals.groups),
        ("records in", f"{totals.records_in:,} ({size_text(totals.bytes_in)}) since the start"),
        ("read", f"{size_text(totals.bytes_out)} since the start"),
        ("stored", f"{totals.records_stored:,} records, {size_text(totals.bytes_stored)}"),
        ("memory", size_text(resources.resident_bytes)),
        ("CPU time", f"{resources.cpu_seconds:.1f} s"),
        ("open files", f"{resources.open_files:,} of {resources.open_files_limit:,}"),
    ]
