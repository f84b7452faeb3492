"""Homes of groups and transactional ids: allotted on first request, taken over when away, fenced by epoch."""

from __future__ import annotations

from treecast.middleware.api.entries import (
    Change,
    Counter,
    CounterEntry,
    HomeEntry,
    HomeKind,
    HostEntry,
    Kind,
    Presence,
    home_key,
    put,
)
from treecast.middleware.model.errors import Fault, TreecastError

from .cluster_state import ClusterState
from .commands import AskHome, CheckHome, Done, HomeRefusals, HomeWrite, PutHomeState
from .decision import Decision, check_room, check_size
from .hosts import caller
from .values import ItemWrite

_WHAT = {
    HomeKind.GROUP: "group id",
    HomeKind.TRANSACTION: "transactional id",
    HomeKind.REPLICAS: "replicas",
    HomeKind.SHARE: "shared subscription",
}


def ask(state: ClusterState, command: AskHome) -> Decision[HomeEntry]:
    """Returns the home. A new id, or one whose home has been away for long, goes to the calling host."""
    host = caller(state, command.session)
    check_size(f"the {_WHAT[command.kind]}", command.id, state.settings.limits.text)
    home = state.home(command.kind, command.id)
    if home is None:
        check_room("homes", state.size(Kind.HOME), 1, state.settings.limits.homes)
        epoch = state.counter(Counter.HOME_EPOCH) + 1
    elif not _may_be_taken_over(state, home):
        return Decision(home)
    else:
        epoch = max(home.epoch, state.counter(Counter.HOME_EPOCH)) + 1
    taken = HomeEntry(command.kind, command.id, host.host_id, epoch)
    return Decision(taken, (put(taken),))


def _may_be_taken_over(state: ClusterState, home: HomeEntry) -> bool:
    owner = state.host_by_id(home.host_id)
    if owner is None:
        return True
    return owner.presence is not Presence.ATTACHED and state.away_for(owner) > state.settings.takeover


def check(state: ClusterState, command: CheckHome) -> Decision[Done]:
    host = caller(state, command.session)
    if command.epoch:
        _fence(state, host, command.kind, command.id, command.epoch)
    return Decision(Done())


def put_state(state: ClusterState, command: PutHomeState) -> Decision[HomeRefusals]:
    """Writes items of homes. Each home's write is accepted or refused as a whole; accepted ones are written
    together.
    """
    host = caller(state, command.session)
    limits = state.settings.limits
    if len(command.writes) > limits.writes:
        raise TreecastError(Fault.INVALID_REQUEST, f"more than {limits.writes} writes: send them in parts")
    keys = [home_key(write.kind, write.id) for write in command.writes]
    if len(set(keys)) != len(keys):
        raise TreecastError(Fault.INVALID_REQUEST, "a home is named twice: put its items into one write")
    refused: dict[int, TreecastError] = {}
    items: list[ItemWrite] = []
    forgotten: list[HomeEntry] = []
    for index, write in enumerate(command.writes):
        try:
            home = _fence(state, host, write.kind, write.id, write.epoch)
            items += _items(state, home, write)
        except TreecastError as refusal:
            refused[index] = refusal
            continue
        if write.forget:
            forgotten.append(home)
    return Decision(HomeRefusals(refused), _forget(state, forgotten), tuple(items))


def _fence(state: ClusterState, host: HostEntry, kind: HomeKind, id: str, epoch: int) -> HomeEntry:
    home = state.home(kind, id)
    what = f"{_WHAT[kind]} {id[:300]!r}"
    if home is None:
        raise TreecastError(Fault.NOT_COORDINATOR, f"{what} has no home: ask for it first")
    if home.host_id != host.host_id or epoch < home.epoch:
        raise TreecastError(
            Fault.NOT_COORDINATOR,
            f"the home of {what} is host {home.host_id} at epoch {home.epoch}; this is host"
            f" {host.host_id} at epoch {epoch}: give it up, and ask for the home again",
        )
    if epoch > home.epoch:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"{what} is at epoch {home.epoch}; epoch {epoch} was never given"
        )
    return home


def _items(state: ClusterState, home: HomeEntry, write: HomeWrite) -> list[ItemWrite]:
    if write.forget:
        if write.items:
            raise TreecastError(Fault.INVALID_REQUEST, "a forgotten home must have no items: send none")
        return [ItemWrite(home.key, None, None)]
    limits = state.settings.limits
    for key, value in write.items:
        if not 1 <= len(key) <= limits.item_key:
            raise TreecastError(Fault.INVALID_REQUEST, f"an item's key has 1 to {limits.item_key} bytes")
        if value is not None and len(value) > limits.item_value:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"an item's value has {len(value)} bytes; {limits.item_value} are allowed",
            )
    return [ItemWrite(home.key, key, value) for key, value in write.items]


def _forget(state: ClusterState, homes: list[HomeEntry]) -> tuple[Change, ...]:
    """Returns the changes that forget the homes. New ids start above every forgotten epoch: epochs never
    decrease.
    """
    if not homes:
        return ()
    highest = max(home.epoch for home in homes)
    changes = [Change(Kind.HOME, home.key, None) for home in homes]
    if highest > state.counter(Counter.HOME_EPOCH):
        changes.append(put(CounterEntry(Counter.HOME_EPOCH, highest)))
    return tuple(changes)
