"""Definitions of AMQP: exchanges, queues, bindings and policies, which every host has to know.

The coordinator does not read them. It decides which of two hosts was first to define something: a definition
that exists stays, unless the writer replaces it knowingly (a policy). The host that was later sees the
definition of the other one.
"""

from __future__ import annotations

from treecast.middleware.api.entries import Change, DefinitionEntry, Kind, put
from treecast.middleware.model.errors import Fault, TreecastError

from .cluster_state import ClusterState
from .commands import DefinitionWrite, Done, PutDefinitions
from .decision import Decision, check_room, check_size
from .hosts import caller


def put_all(state: ClusterState, command: PutDefinitions) -> Decision[Done]:
    """Sets and removes definitions, in the order of the writes. A repeat changes nothing."""
    host = caller(state, command.session)
    limits = state.settings.limits
    if len(command.writes) > limits.definition_writes:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"more than {limits.definition_writes} definitions: send them in parts"
        )
    found: dict[str, DefinitionEntry | None] = {}
    for write in command.writes:
        check_size("a definition's key", write.key, limits.text)
        before = found[write.key] if write.key in found else state.definition(write.key)
        after = _after(before, write, host.host_id, limits.definition_value)
        if after != before:
            found[write.key] = after
    there = state.size(Kind.DEFINITION)
    added = sum(one is not None and state.definition(key) is None for key, one in found.items())
    check_room("definitions", there, added, limits.definitions)
    changes = [
        put(one) if one is not None else Change(Kind.DEFINITION, key, None) for key, one in found.items()
    ]
    return Decision(Done(), tuple(changes))


def _after(
    before: DefinitionEntry | None, write: DefinitionWrite, host_id: int, most: int
) -> DefinitionEntry | None:
    if write.value is None:
        return None
    if len(write.value) > most:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"a definition of {len(write.value)} bytes; at most {most} are taken"
        )
    if before is not None and (before.value == write.value or not write.replace):
        return before
    return DefinitionEntry(write.key, host_id, write.value)
