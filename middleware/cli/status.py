"""`treecast status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treecast.middleware.api.plain import as_dict

from .options import Control, Json, daemon_at
from .output import Cell, duration_text, print_json, print_pairs, print_table, size_text

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb


def status(json: Json = False, control: Control = None) -> None:
    """Shows the daemon: its faces, topics, connections, records, memory."""
    with daemon_at(control) as client:
        found = client.status()
    if json:
        print_json(as_dict(found))
        return
    print_pairs(_summary(found))
    print()
    columns = ("face", "address", "connections", "requests", "received", "sent", "errors", "socket")
    print_table(columns, [_row(face) for face in found.faces], empty="no faces")


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


def _summary(found: pb.StatusResponse) -> list[tuple[str, str | int]]:
    totals, resources = found.totals, found.resources
    compiled = len(found.compiled_modules)
    return [
        ("name", found.name),
        ("version", found.version),
        ("cluster", found.cluster_id),
        ("up for", duration_text(found.uptime_seconds)),
        ("process", f"pid {found.pid}, {found.event_loop} loop"),
        (
            "hot modules",
            f"{compiled} compiled" if compiled else "interpreted (slower; see docs/operating.md)",
        ),
        ("data", f"{found.data_dir}, fsync {found.fsync}"),
        ("topics", f"{totals.topics:,} with {totals.partitions:,} partitions"),
        ("groups", totals.groups),
        ("records in", f"{totals.records_in:,} ({size_text(totals.bytes_in)}) since the start"),
        ("read", f"{size_text(totals.bytes_out)} since the start"),
        ("stored", f"{totals.records_stored:,} records, {size_text(totals.bytes_stored)}"),
        ("memory", size_text(resources.resident_bytes)),
        ("CPU time", f"{resources.cpu_seconds:.1f} s"),
        ("open files", f"{resources.open_files:,} of {resources.open_files_limit:,}"),
    ]
