"""The coordinator as a state machine: `decide(state, command)` returns the answer and the changes.

Pure: deciding changes nothing. The caller makes the decision durable, applies its changes, and only then
answers. A refusal is a raised TreecastError and changes nothing. The decisions are in `hosts` (with the table
of a host's life), `topics`, `leads`, `homes`, `allotments`, `definitions`, `events` and `adopting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, get_args

from msgspec.structs import replace

from . import adopting, allotments, commands, definitions, events, homes, hosts, leads, topics
from .cluster_state import ClusterState
from .commands import Command
from .decision import Decision

_DECIDERS: Mapping[type, Callable[[ClusterState, Any], Decision[Any]]] = MappingProxyType(
    {
        commands.Attach: hosts.attach,
        commands.Renew: hosts.renew,
        commands.Detach: hosts.detach,
        commands.Expire: hosts.expire,
        commands.CreateTopic: topics.create,
        commands.DeleteTopic: topics.delete,
        commands.AlterTopic: topics.alter,
        commands.CreatePartitions: topics.create_partitions,
        commands.TakeLead: leads.take_lead,
        commands.GiveUp: leads.give_up,
        commands.AcceptLosses: leads.accept_losses,
        commands.PutEnds: leads.put_ends,
        commands.AskHome: homes.ask,
        commands.CheckHome: homes.check,
        commands.PutHomeState: homes.put_state,
        commands.TakeProducerIds: allotments.take_producer_ids,
        commands.AllotState: allotments.allot_state,
        commands.ReleaseState: allotments.release_state,
        commands.PutInterest: allotments.put_interest,
        commands.PutDefinitions: definitions.put_all,
        commands.PutEvents: events.tell,
        commands.AdoptView: adopting.adopt,
        commands.SkipNumbers: adopting.skip,
    }
)
assert set(_DECIDERS) == set(get_args(Command))


def decide(state: ClusterState, command: Command) -> Decision[Any]:
    """Returns the answer to `command` and its changes, without changing `state`. Raises TreecastError."""
    return _DECIDERS[type(command)](state, command)


def step(state: ClusterState, command: Command) -> Decision[Any]:
    """Decides, and applies the changes to `state`. Returns the decision with the events in its changes."""
    decision = decide(state, command)
    derived = events.of_changes(state, command, decision.changes)
    if derived:
        decision = replace(decision, events=decision.events + derived)
    state.apply(decision.changes)
    if decision.prolonged is not None:
        state.prolong(decision.prolonged)
    return decision
