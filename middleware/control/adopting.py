"""Adoption of a host's view, by a store that is an older state of what the host knows, or that is empty.

The view is everything that was watched, as of its revision. What the store changed itself since its state was
left behind is *its own*. Per entry:

| the entry                        | what counts                                                          |
| -------------------------------- | -------------------------------------------------------------------- |
| is in the view alone             | the view's: it came after the store's state                          |
| is in both                       | the view's, unless the store's is its own; of rising numbers the higher |
| is in the store alone            | its own stays; any other was deleted, and goes                       |
| contradicts one of its own       | the store's; the view's is named as missing                          |

Where the logs of the view's topics end is unknown until their leaders report it: what the store has recorded
is as old as the store. Numbers that only rise continue well above the view's: it may be a little older than
the lost state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from treecast.middleware.api.entries import (
    Change,
    Counter,
    CounterEntry,
    DefinitionEntry,
    Entry,
    HomeEntry,
    HostEntry,
    InterestEntry,
    Kind,
    LostRange,
    PartitionEntry,
    Presence,
    StateEntry,
    TopicEntry,
    binding_ends,
    put,
)
from treecast.middleware.model.runs import LATER

from .cluster_state import ClusterState
from .commands import AdoptView, Done, Returned, SkipNumbers
from .decision import Decision
from .leads import unknown_ends
from .values import FIRST_STATE_ID, LAST_STATE_ID, Event, ItemWrite, ends_home

MISSING: Final = 50  # sentences about what could not come back; the rest is a number
_TOLD: Final = 1_000  # events of one adoption

# How many of each number may have been given out without the host's knowledge.
AHEAD: Final = {
    Counter.HOST_ID: 0,  # a host that joined last joins again
    Counter.PRODUCER_ID: 1_000_000,
    Counter.STATE_ID: 0,
    Counter.HOME_EPOCH: 1_000,
}
# How many are left out by a coordinator that could not hear from every host that was attached.
SKIPPED: Final = {Counter.HOST_ID: 10, Counter.STATE_ID: 4_096, Counter.HOME_EPOCH: 1_000}
_ORDER: Final = (
    Kind.HOST,
    Kind.TOPIC,
    Kind.HOME,
    Kind.STATE,
    Kind.INTEREST,
    Kind.DEFINITION,
    Kind.COUNTER,
)
_NAMED: Final = {Kind.TOPIC: "topic ", Kind.HOST: "host ", Kind.DEFINITION: ""}
_REMOVED: Final = (Kind.TOPIC, Kind.HOME, Kind.STATE, Kind.DEFINITION)


def adopt(state: ClusterState, command: AdoptView) -> Decision[Returned]:
    merge = Merge(state, command.own)
    merge.take(command.changes)
    merge.doubt(command.beside)
    changes, missing = merge.changes(), merge.missing()
    told = [Event("store older", command.name, what=f"the view has revision {command.revision}")]
    told += [Event("not restored", command.name, what=text) for text in missing]
    told += [_event(command.name, change) for change in changes if _is_news(state, change)]
    return Decision(Returned(len(changes), missing), changes, tuple(merge.items), events=tuple(told[:_TOLD]))


def skip(state: ClusterState, command: SkipNumbers) -> Decision[Done]:
    """Leaves out numbers that a host which is away may know as given out."""
    changes = []
    for name, more in SKIPPED.items():
        value = state.counter(name) + more
        if name is Counter.STATE_ID and value > LAST_STATE_ID:
            value = FIRST_STATE_ID + value - LAST_STATE_ID
        changes.append(put(CounterEntry(name, value)))
    return Decision(Done(), tuple(changes))


def _is_news(state: ClusterState, change: Change) -> bool:
    """Returns whether operators are told: a host that was there has only attached meanwhile."""
    if change.kind is Kind.HOST:
        return state.host(change.key) is None
    return change.kind in _NAMED


def _event(by: str, change: Change) -> Event:
    key = change.key.partition(":")[2] if change.kind is Kind.DEFINITION else change.key
    return Event("came back" if change.entry is not None else "deleted", by, what=_NAMED[change.kind] + key)


class Merge:
    """The changes that a store makes when it adopts a view.

    `items`: what it removes of homes, and the ends of logs.
    """

    def __init__(self, state: ClusterState, own: frozenset[tuple[Kind, str]] | None) -> None:
        """`own`: what the store has changed itself since its state was left behind. None: unknown; then
        everything may be its own, and nothing is removed.
        """
        self.items: list[ItemWrite] = []
        self._state = state
        self._own = own
        self._found: dict[tuple[Kind, str], Entry | None] = {}
        self._missing: list[str] = []
        self._foreign: set[int] = set()  # ids of hosts in the view that are those of others here
        self._partitions = state.partitions
        self._added = dict.fromkeys(Kind, 0)

    def take(self, changes: Iterable[Change]) -> None:
        """Adopts the entries of a whole view."""
        view: dict[Kind, dict[str, Entry]] = {kind: {} for kind in Kind}
        for change in changes:
            if change.entry is not None:
                view[change.kind][change.key] = change.entry
        if self._own is not None:
            for kind in _REMOVED:
                self._remove_missing(kind, view[kind])
        for kind in _ORDER:
            for entry in _ordered(view[kind]):
                self._take(entry)
        self._check_host_ids()

    def doubt(self, name: str) -> None:
        """Lets host `name`, which holds the store, count as one with an older directory when it attaches.

        Run ids do not always tell so, as what the store knows of the host's runs is as old as the directory.
        """
        host = self._now(Kind.HOST, name)
        if isinstance(host, HostEntry):
            self._put(replace(host, presence=Presence.AWAY, run_id=LATER))

    def changes(self) -> tuple[Change, ...]:
        """Returns what changes, removals first: no two entries may hold the same number at any time."""
        found = [Change(kind, key, entry) for (kind, key), entry in self._found.items()]
        return tuple(sorted(found, key=lambda change: change.entry is not None))

    def missing(self) -> tuple[str, ...]:
        """Returns what could not come back, as sentences."""
        more = len(self._missing) - MISSING
        rest = (f"{more} more entries could not come back",) if more > 0 else ()
        return (*self._missing[:MISSING], *rest)

    # --- what the store has

    def _is_own(self, kind: Kind, key: str) -> bool:
        return self._own is None or (kind, key) in self._own

    def _now(self, kind: Kind, key: str) -> Entry | None:
        return self._found[kind, key] if (kind, key) in self._found else self._state.entry(kind, key)

    def _put(self, entry: Entry) -> None:
        change = put(entry)
        if self._state.entry(change.kind, change.key) == entry:
            self._found.pop((change.kind, change.key), None)
        else:
            self._found[change.kind, change.key] = entry

    def _add(self, entry: Entry, limit: int) -> bool:
        """Puts an entry that the store does not have, if there is room."""
        change = put(entry)
        if self._state.size(change.kind) + self._added[change.kind] >= limit:
            self._lack(f"{change.kind.name.lower()} {change.key}: the limit of {limit} is reached")
            return False
        self._added[change.kind] += 1
        self._put(entry)
        return True

    def _lack(self, text: str) -> None:
        self._missing.append("".join(one if one.isprintable() else "?" for one in text[:300]))

    def _remove_missing(self, kind: Kind, view: Mapping[str, Entry]) -> None:
        for key, entry in self._state.all(kind).items():
            if key in view or self._is_own(kind, key):
                continue
            self._found[kind, key] = None
            if isinstance(entry, TopicEntry):
                self.items.append(ItemWrite(ends_home(entry.topic_id), None, None))
                self._partitions -= len(entry.partitions)
            elif isinstance(entry, HomeEntry):
                self.items.append(ItemWrite(entry.key, None, None))
            elif isinstance(entry, DefinitionEntry):
                self._found |= {(Kind.DEFINITION, bound): None for bound in self._state.bound_to(key)}

    # --- entry by entry

    def _take(self, entry: Entry) -> None:
        match entry:
            case HostEntry():
                self._host(entry)
            case TopicEntry():
                self._topic(entry)
            case HomeEntry():
                self._home(entry)
            case StateEntry():
                self._state_id(entry)
            case InterestEntry():
                self._interest(entry)
            case DefinitionEntry():
                self._definition(entry)
            case CounterEntry():
                value = max(self._state.counter(entry.name), entry.value + AHEAD[entry.name])
                self._put(CounterEntry(entry.name, value))

    def _host(self, view: HostEntry) -> None:
        """The view knows the host's directory and runs. A host that has attached to the older state attaches
        again, so that its directory is compared with those.
        """
        here, other = self._state.host(view.name), self._state.host_by_id(view.host_id)
        if (here or other) is not None and (here is None or here.host_id != view.host_id):
            self._foreign.add(view.host_id)
            now = other.name if other is not None else "nobody"
            self._lack(
                f"host {view.name}: its id {view.host_id} is that of {now} now; give it an empty data"
                " directory and another name"
            )
        elif here is None:
            gone = Presence.AWAY if view.presence is Presence.ATTACHED else view.presence
            if not self._add(replace(view, presence=gone), self._state.settings.limits.hosts):
                self._foreign.add(view.host_id)
        else:
            self._put(_merged_host(here, view, own=self._is_own(Kind.HOST, view.name)))

    def _topic(self, view: TopicEntry) -> None:
        here, own = self._state.topic(view.name), self._is_own(Kind.TOPIC, view.name)
        other = self._state.topic_by_id(view.topic_id)
        if any(one.leader in self._foreign for one in view.partitions):
            self._lack(f"topic {view.name}: a host that leads it could not come back")
        elif other is not None and other.name != view.name:
            self._lack(f"topic {view.name}: {other.name} has its id")
        elif here is None:
            self._add_topic(view)
        elif here.topic_id == view.topic_id:
            self._put(_merged_topic(here, view, own=own))
            self.items += unknown_ends([view])
        elif own:
            self._lack(
                f"topic {view.name}: another topic of this name was created since; hosts keep the files of"
                " the first under other names"
            )
        else:
            self.items.append(ItemWrite(ends_home(here.topic_id), None, None))
            self.items += unknown_ends([view])
            self._put(view)

    def _add_topic(self, view: TopicEntry) -> None:
        limits, more = self._state.settings.limits, len(view.partitions)
        if self._partitions + more > limits.partitions:
            self._lack(f"topic {view.name}: the limit of {limits.partitions} partitions is reached")
        elif self._add(view, limits.topics):
            self.items += unknown_ends([view])
            self._partitions += more

    def _home(self, view: HomeEntry) -> None:
        here = self._state.home(view.kind, view.id)
        if view.host_id in self._foreign:
            self._lack(f"home of {view.key}: its host could not come back")
            if here is not None and here.epoch <= view.epoch:
                self._put(replace(here, epoch=view.epoch + 1))  # that host has written in the epoch
        elif here is None:
            self._add(view, self._state.settings.limits.homes)
        elif view.epoch > here.epoch:
            self._put(view)
        elif here.epoch > view.epoch and here.host_id != view.host_id and self._is_own(Kind.HOME, view.key):
            self._lack(
                f"home of {view.key}: it was given to another host since; what the first holds is there"
            )
        elif view.epoch == here.epoch and view.host_id != here.host_id:
            self._put(replace(here, epoch=here.epoch + 1))  # two hosts hold one epoch: neither goes on in it

    def _state_id(self, view: StateEntry) -> None:
        key, here = str(view.state_id), self._state.state_of(view.levels)
        same = self._now(Kind.STATE, key)
        elsewhere = here is not None and here.state_id != view.state_id
        if elsewhere and self._now(Kind.STATE, str(here.state_id if here else 0)) is not None:
            self._lack(f"state id {key}: its topic has another one now")
        elif isinstance(same, StateEntry) and same.levels != view.levels:
            if self._is_own(Kind.STATE, key):
                self._lack(f"state id {key}: another topic has it now")
            else:
                self._put(view)
        elif isinstance(same, StateEntry):
            self._put(replace(same, holders=tuple(sorted({*same.holders, *view.holders}))))
        else:
            self._add(view, min(self._state.settings.limits.states, LAST_STATE_ID - FIRST_STATE_ID + 1))

    def _interest(self, view: InterestEntry) -> None:
        here = self._state.interest(view.host_id)
        if view.host_id in self._foreign:
            return  # the host tells it again when it attaches
        if here is None or (view.incarnation, view.version) > (here.incarnation, here.version):
            self._put(view)

    def _definition(self, view: DefinitionEntry) -> None:
        here = self._now(Kind.DEFINITION, view.key)
        if view.host_id in self._foreign:
            self._lack(f"definition {view.key}: its host could not come back")
        elif any(self._now(Kind.DEFINITION, end) is None for end in binding_ends(view.key)):
            self._lack(f"definition {view.key}: an end of the binding is gone")
        elif here is None:
            self._add(view, self._state.settings.limits.definitions)
        elif not self._is_own(Kind.DEFINITION, view.key):
            self._put(view)

    def _check_host_ids(self) -> None:
        """Raises the host id counter above every id in use."""
        hosts = [entry for (kind, _), entry in self._found.items() if kind is Kind.HOST]
        highest = max((host.host_id for host in hosts if isinstance(host, HostEntry)), default=0)
        now = self._now(Kind.COUNTER, Counter.HOST_ID.value)
        if highest > (now.value if isinstance(now, CounterEntry) else 0):
            self._put(CounterEntry(Counter.HOST_ID, highest))


def _ordered(entries: Mapping[str, Entry]) -> list[Entry]:
    """Returns the entries, bindings last: they need both their ends."""
    return sorted(
        entries.values(), key=lambda e: isinstance(e, DefinitionEntry) and bool(binding_ends(e.key))
    )


def _merged_host(here: HostEntry, view: HostEntry, *, own: bool) -> HostEntry:
    incarnation, presence = max(here.incarnation, view.incarnation), view.presence
    if own and here.presence is Presence.ATTACHED:
        # its session ends, and no lease stands in the way of its next attach with a directory that may be old
        return replace(view, incarnation=incarnation + 1, presence=Presence.AWAY, address=here.address)
    if own:
        presence = here.presence
    elif presence is Presence.ATTACHED and here.presence is not Presence.ATTACHED:
        presence = Presence.AWAY
    return replace(view, incarnation=incarnation, presence=presence)


def _merged_topic(here: TopicEntry, view: TopicEntry, *, own: bool) -> TopicEntry:
    both = zip(here.partitions, view.partitions, strict=False)
    partitions = tuple(_merged_partition(one, other, own=own) for one, other in both)
    longer = max(here.partitions, view.partitions, key=len)
    return TopicEntry(
        here.name,
        here.topic_id,
        (*partitions, *longer[len(partitions) :]),
        here.config if own else view.config,
    )


def _merged_partition(here: PartitionEntry, view: PartitionEntry, *, own: bool) -> PartitionEntry:
    if here.leader_epoch == view.leader_epoch:
        best = here if own else view
    else:
        best = max(here, view, key=lambda one: one.leader_epoch)
    lost = sorted({*here.lost, *view.lost}, key=_by_epoch)
    return replace(best, lost=tuple(lost))


def _by_epoch(lost: LostRange) -> tuple[int, int]:
    return lost.leader_epoch, lost.first
