"""A rule set as texts: vectors for `treecast p4 run`, and P4Runtime's write request in protobuf's text
form.
"""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r
from google.protobuf import text_format

from treecast.middleware.dataplane.p4 import (
    ActionCall,
    Entry,
    ExactMatch,
    LpmMatch,
    Match,
    Program,
    RangeMatch,
    Schema,
    TernaryMatch,
    action_to,
    build_p4info,
    entry_to,
    group_entry_to,
)

from .entries import Installation, TableEntry


def vectors(found: Installation) -> Iterator[str]:
    """Yields the lines of an .stf file that install a rule set; packets may follow."""
    for node, group in enumerate(found.groups):
        ports = " ".join(str(replica.port) for replica in group.replicas)
        yield f"mc_mgrp_create {group.group}"
        yield f"mc_node_create 0 {ports}"
        yield f"mc_node_associate {group.group} {node}"
    for table, entry in found.entries:
        yield vector(table, entry)
    for table, call in found.defaults:
        yield f"setdefault {table} {_call(call)}"


def vector(table: str, entry: Entry) -> str:
    """Returns one entry as a line."""
    assert isinstance(entry.action, ActionCall)
    words = ["add", table]
    if entry.priority:
        words.append(str(entry.priority))
    words += [f"{name}:{_match(match)}" for name, match in entry.matches.items()]
    return " ".join([*words, _call(entry.action)])


def _match(match: Match) -> str:
    match match:
        case ExactMatch(value):
            return str(value)
        case RangeMatch(low, high):
            return f"{low}..{high}"
        case LpmMatch(value, prefix):
            return f"{value}/{prefix}"
        case TernaryMatch(value, mask):
            return f"{value}&&&{mask}"
    raise AssertionError(f"{match!r} is in no generated table")


def _call(call: ActionCall) -> str:
    arguments = ", ".join(f"{name}:{value}" for name, value in call.arguments.items())
    return f"{call.action}({arguments})"


def write_request(program: Program, found: Installation) -> p4r.WriteRequest:
    """Returns the updates that install a rule set, in an order in which no packet is misrouted."""
    schema = Schema(build_p4info(program))
    updates = [_group(group_entry_to(group)) for group in found.groups]
    updates += [_insert(schema, entry) for entry in found.entries]
    for table, call in found.defaults:
        default = p4r.TableEntry(
            table_id=schema.tables.names[table].id, is_default_action=True, action=action_to(schema, call)
        )
        updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=default)))
    return p4r.WriteRequest(updates=updates)


def _group(message: p4r.MulticastGroupEntry) -> p4r.Update:
    entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
    return p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(packet_replication_engine_entry=entry))


def _insert(schema: Schema, named: TableEntry) -> p4r.Update:
    table, entry = named
    message = entry_to(schema, schema.tables.names[table], entry)
    return p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=message))


def request_text(program: Program, found: Installation) -> str:
    """Returns `write_request` as text."""
    return text_format.MessageToString(write_request(program, found))
