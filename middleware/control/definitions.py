"""Definitions of AMQP: exchanges, queues, bindings and policies, which every host has to know.

The coordinator does not read them. It decides which of two hosts was first to define something: a definition
that exists stays, unless the writer replaces it knowingly (a policy). The host that was later sees the
definition of the other one.

It keeps no binding without both its ends (`binding_ends`): hosts that change definitions at the same time may
bind a queue that another one deletes. Such a binding is not taken, and goes with its end.
"""

from __future__ import annotations

from treecast.middleware.api.entries import Change, DefinitionEntry, Kind, binding_ends, put
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
    draft = _Draft(state)
    for write in command.writes:
        check_size("a definition's key", write.key, limits.text)
        draft.write(write, host.host_id, limits.definition_value)
    found = draft.found
    there = state.size(Kind.DEFINITION)
    added = sum(one is not None and state.definition(key) is None for key, one in found.items())
    check_room("definitions", there, added, limits.definitions)
    changes = [
        put(one) if one is not None else Change(Kind.DEFINITION, key, None) for key, one in found.items()
    ]
    return Decision(Done(), tuple(changes))


class _Draft:
    """The state with the writes of a command so far. `found`: what they set and removed."""

    def __init__(self, state: ClusterState) -> None:
        self.found: dict[str, DefinitionEntry | None] = {}
        self._state = state

    def write(self, write: DefinitionWrite, host_id: int, most: int) -> None:
        before = self._now(write.key)
        after = _after(before, write, host_id, most)
        if after == before:
            return
        if after is None:
            self._remove(write.key)
        elif all(self._now(end) is not None for end in binding_ends(write.key)):
            self.found[write.key] = after

    def _now(self, key: str) -> DefinitionEntry | None:
        return self.found[key] if key in self.found else self._state.definition(key)

    def _remove(self, key: str) -> None:
        """Removes a definition and the bindings of which it is an end."""
        self.found[key] = None
        bound = [one for one, entry in self.found.items() if entry is not None and key in binding_ends(one)]
        for one in (*bound, *self._state.bound_to(key)):
            if self._now(one) is not None:
                self.found[one] = None


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
