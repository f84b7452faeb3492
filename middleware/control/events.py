"""Events: what happened in the cluster, in order, for operators.

| kind                          | what                                | when                                 |
| ----------------------------- | ----------------------------------- | ------------------------------------ |
| `host joined`, `left`, `away` | address of the host                 | it attached, detached; lease expired |
| `host older`                  | number of its run                   | it came with another data directory, |
|                               |                                     | or an older state of it              |
| `joined`, `left`              | address of an application           | the host told so, later              |
| `missed`                      | number                              | more joined and left than were told  |
| `created`, `deleted`          | `topic NAME`, or a definition's key | its change was decided               |
| `changed`                     | a definition's key                  | another definition replaced it       |
| `bound`, `unbound`            | a binding's key                     | its change was decided               |
| `subscribed`, `unsubscribed`  | a pattern of topics                 | a host's interest was recorded       |
| `store older`                 | revision of a host's view           | the view was adopted                 |
| `came back`, `not restored`   | an entry, or why it could not       | the same                             |

The coordinator derives most of them from its own changes, and stores them in the same transaction. So no
event tells of something that did not happen, and none is missing. Keys of definitions are those of
`broker.queues.shared`, without the number in front. Events are numbered without gaps; the last `KEPT` stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from treecast.middleware.api.entries import (
    Change,
    DefinitionEntry,
    HostEntry,
    InterestEntry,
    Kind,
    Presence,
)
from treecast.middleware.api.messages import form
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.applications import JOINED, LEFT
from treecast.middleware.model.errors import Fault, TreecastError

from .cluster_state import ClusterState
from .commands import AdoptView, Command, Done, PutEvents
from .decision import Decision, check_text
from .hosts import caller
from .values import EVENTS, Event, ItemWrite, event_key

KEPT: Final = 50_000
_BINDING: Final = "5:"  # how keys of bindings begin
_MOST: Final = 1_000  # derived from one command; the rest is one event MISSED
MISSED: Final = "missed"
_PRESENCE: Final = {
    Presence.ATTACHED: "host joined",
    Presence.AWAY: "host away",
    Presence.DETACHED: "host left",
}


EVENT: Final = form(Event, pb.ClusterEvent)


def tell(state: ClusterState, command: PutEvents) -> Decision[Done]:
    """Takes what a host says of its applications."""
    host = caller(state, command.session)
    limits = state.settings.limits
    if len(command.events) > limits.events:
        raise TreecastError(Fault.INVALID_REQUEST, f"more than {limits.events} events: send them in parts")
    found: list[Event] = []
    for told in command.events:
        if told.kind not in (JOINED, LEFT):
            raise TreecastError(Fault.INVALID_REQUEST, f"event {told.kind[:100]!r}: send joined or left")
        check_text("a face", told.face, limits.text)
        found.append(Event(told.kind, host.name, told.face, _shown(told.who), _shown(told.what)))
    if command.missed:
        found.append(Event(MISSED, host.name, what=str(command.missed)))
    return Decision(Done(), events=tuple(found))


def _shown(text: str) -> str:
    """Removes what would disturb an operator's screen from a name that a client has chosen."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def of_changes(state: ClusterState, command: Command, changes: Iterable[Change]) -> tuple[Event, ...]:
    """Returns the events in changes that are not applied yet."""
    if isinstance(command, AdoptView):
        return ()  # it has events of its own: nothing of it happens now
    by = _caller(state, command)
    found = [event for change in changes for event in _of(state, change, by)]
    if len(found) > _MOST:
        found[_MOST:] = [Event(MISSED, by, what=str(len(found) - _MOST))]
    return tuple(found)


def _caller(state: ClusterState, command: Command) -> str:
    session = getattr(command, "session", None)
    host = state.host_by_id(session.host_id) if session is not None else None
    return host.name if host is not None else ""


def _of(state: ClusterState, change: Change, by: str) -> Iterator[Event]:
    after = change.entry
    if change.kind is Kind.DEFINITION:
        yield _of_definition(state.definition(change.key), after, change.key, by)
    elif change.kind is Kind.TOPIC:
        before = state.topic(change.key)
        if after is None or before is None:
            yield Event("deleted" if after is None else "created", by, "kafka", what=f"topic {change.key}")
    elif isinstance(after, HostEntry):
        known = state.host(after.name)
        if known is None or (known.presence, known.incarnation) != (after.presence, after.incarnation):
            yield Event(_PRESENCE[after.presence], after.name, what=after.address)
        if known is not None and known.lost_run != after.lost_run:
            yield Event("host older", after.name, what=f"run {after.lost_run}")
    elif change.kind is Kind.INTEREST:
        yield from _of_interest(state.interest(int(change.key)), after, by)


def _of_definition(before: DefinitionEntry | None, after: object, key: str, by: str) -> Event:
    if key.startswith(_BINDING):
        kind = "unbound" if after is None else "bound"
    elif after is not None and before is not None:
        kind = "changed"
    else:
        kind = "deleted" if after is None else "created"
    return Event(kind, by, "amqp", what=key.partition(":")[2])


def _of_interest(before: InterestEntry | None, after: object, by: str) -> Iterator[Event]:
    known = set(before.patterns) if before is not None else set()
    wanted = set(after.patterns) if isinstance(after, InterestEntry) else set()
    for pattern in sorted(known - wanted):
        yield Event("unsubscribed", by, what=pattern)
    for pattern in sorted(wanted - known):
        yield Event("subscribed", by, what=pattern)


def stored(events: Iterable[Event], last: int, time_ms: int) -> tuple[ItemWrite, ...]:
    """Returns the writes that store events after number `last`, and remove what is not kept any longer."""
    writes: list[ItemWrite] = []
    for number, event in enumerate(events, last + 1):
        message = EVENT.write(event)
        message.number, message.time_ms = number, time_ms
        writes.append(ItemWrite(EVENTS, event_key(number), message.SerializeToString()))
        if number > KEPT:
            writes.append(ItemWrite(EVENTS, event_key(number - KEPT), None))
    return tuple(writes)
