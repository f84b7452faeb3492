"""`ClusterView`: the cluster as received from the coordinator, with look-ups and listeners for changes.

Pure: it takes updates and calls listeners. An update is applied completely before the first listener is
called, so each listener sees the cluster after the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from treecast.middleware.api.entries import (
    Change,
    CounterEntry,
    DefinitionEntry,
    Entry,
    HomeEntry,
    HomeKind,
    HostEntry,
    InterestEntry,
    Kind,
    PartitionEntry,
    Position,
    StateEntry,
    TopicEntry,
    Update,
    home_key,
    put,
)
from treecast.middleware.model.identity import TopicId

E = TypeVar("E", HostEntry, TopicEntry, HomeEntry, StateEntry, InterestEntry, DefinitionEntry)


class Shelf(Generic[E]):
    """All entries of one kind by key, and the listeners for changes."""

    def __init__(self, of: type[E]) -> None:
        self._of: type[E] = of
        self._entries: dict[str, E] = {}
        self._listeners: list[Callable[[E | None, E | None], None]] = []

    def get(self, key: str) -> E | None:
        return self._entries.get(key)

    def keys(self) -> set[str]:
        return set(self._entries)

    def __iter__(self) -> Iterator[E]:
        """Iterates over a copy; entries may change meanwhile."""
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def subscribe(self, listener: Callable[[E | None, E | None], None]) -> None:
        """Calls `listener(before, after)` for every change; None stands for a missing entry."""
        self._listeners.append(listener)

    def put(self, key: str, entry: Entry | None) -> Sequence[Callable[[], None]]:
        """Sets or removes an entry. Returns the calls that notify the listeners."""
        before = self._entries.get(key)
        if entry is None:
            self._entries.pop(key, None)
        elif isinstance(entry, self._of):
            self._entries[key] = entry
        after = self._entries.get(key)
        if before == after:
            return ()
        return [partial(listener, before, after) for listener in self._listeners]


class ClusterView:
    """The cluster as known to this host. Look-ups are local; only `apply` changes it."""

    def __init__(self) -> None:
        self.position = Position()
        # True while listeners are notified of a snapshot from another history than before, or from before
        # what is known: entries missing in it may not have been removed, but lost with the coordinator's
        # store.
        self.doubtful = False
        self.hosts: Shelf[HostEntry] = Shelf(HostEntry)
        self.topics: Shelf[TopicEntry] = Shelf(TopicEntry)
        self.homes: Shelf[HomeEntry] = Shelf(HomeEntry)
        self.states: Shelf[StateEntry] = Shelf(StateEntry)
        self.interest: Shelf[InterestEntry] = Shelf(InterestEntry)
        self.definitions: Shelf[DefinitionEntry] = Shelf(DefinitionEntry)
        self._counters: dict[str, CounterEntry] = {}  # of the coordinator, which may lose them
        self._hosts_by_id: dict[int, HostEntry] = {}
        self._names_by_topic_id: dict[TopicId, str] = {}
        self._states_by_topic: dict[tuple[str, ...], StateEntry] = {}
        self._reached: list[Callable[[Position], None]] = []

    # --- look-ups

    def host(self, host_id: int) -> HostEntry | None:
        return self._hosts_by_id.get(host_id)

    def host_named(self, name: str) -> HostEntry | None:
        return self.hosts.get(name)

    def topic(self, name: str) -> TopicEntry | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicEntry | None:
        name = self._names_by_topic_id.get(topic_id)
        return None if name is None else self.topics.get(name)

    def leader(self, topic: str, index: int) -> PartitionEntry | None:
        """Returns the partition's entry, or None if there is no such partition."""
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def group_home(self, group_id: str) -> HomeEntry | None:
        return self.homes.get(home_key(HomeKind.GROUP, group_id))

    def transaction_home(self, transactional_id: str) -> HomeEntry | None:
        return self.homes.get(home_key(HomeKind.TRANSACTION, transactional_id))

    def replicas_home(self, id: str) -> HomeEntry | None:
        return self.homes.get(home_key(HomeKind.REPLICAS, id))

    def share_home(self, id: str) -> HomeEntry | None:
        return self.homes.get(home_key(HomeKind.SHARE, id))

    def state_of(self, levels: tuple[str, ...]) -> StateEntry | None:
        return self._states_by_topic.get(levels)

    def interest_of(self, host_id: int) -> InterestEntry | None:
        return self.interest.get(str(host_id))

    def entries(self) -> list[Change]:
        """Returns everything that is known, as of `position`."""
        kinds = [kind for kind in Kind if kind is not Kind.COUNTER]
        found = [put(entry) for kind in kinds for entry in self._shelf(kind)]
        return [*found, *map(put, self._counters.values())]

    def on_reached(self, listener: Callable[[Position], None]) -> None:
        """Calls `listener` after each update, after all other listeners."""
        self._reached.append(listener)

    # --- updates

    def apply(self, update: Update) -> None:
        """Applies an update, then notifies the listeners.

        All listeners are called even if some fail; their exceptions are raised as an ExceptionGroup.
        """
        changes: Iterable[Change] = update.changes
        if update.snapshot:
            changes = (*self._missing_from(update.changes), *update.changes)
        before, now = self.position, update.position
        older = now.history != before.history or now.revision < before.revision
        self.doubtful = update.snapshot and older
        self.position = update.position
        told = [tell for change in changes for tell in self._put(change)]
        told += [partial(reached, self.position) for reached in self._reached]
        failed: list[Exception] = []
        for tell in told:
            try:
                tell()
            except Exception as error:
                failed.append(error)
        if failed:
            raise ExceptionGroup("who was told of a change has failed", failed)

    def _missing_from(self, changes: Iterable[Change]) -> list[Change]:
        there: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        for change in changes:
            there[change.kind].add(change.key)
        return [
            Change(kind, key, None)
            for kind in Kind
            # Counters stay: a coordinator that has lost its store can get them back from here.
            if kind is not Kind.COUNTER
            for key in sorted(self._shelf(kind).keys() - there[kind])
        ]

    def _put(self, change: Change) -> Sequence[Callable[[], None]]:
        match change.kind:
            case Kind.HOST:
                self._index_host(self.hosts.get(change.key), change.entry)
                return self.hosts.put(change.key, change.entry)
            case Kind.TOPIC:
                self._index_topic(self.topics.get(change.key), change.entry)
                return self.topics.put(change.key, change.entry)
            case Kind.STATE:
                self._index_state(self.states.get(change.key), change.entry)
                return self.states.put(change.key, change.entry)
            case Kind.HOME:
                return self.homes.put(change.key, change.entry)
            case Kind.INTEREST:
                return self.interest.put(change.key, change.entry)
            case Kind.DEFINITION:
                return self.definitions.put(change.key, change.entry)
            case Kind.COUNTER:
                if isinstance(change.entry, CounterEntry):
                    self._counters[change.key] = change.entry
                return ()

    def _index_host(self, before: HostEntry | None, after: Entry | None) -> None:
        if before is not None:
            self._hosts_by_id.pop(before.host_id, None)
        if isinstance(after, HostEntry):
            self._hosts_by_id[after.host_id] = after

    def _index_topic(self, before: TopicEntry | None, after: Entry | None) -> None:
        if before is not None:
            self._names_by_topic_id.pop(before.topic_id, None)
        if isinstance(after, TopicEntry):
            self._names_by_topic_id[after.topic_id] = after.name

    def _index_state(self, before: StateEntry | None, after: Entry | None) -> None:
        if before is not None:
            self._states_by_topic.pop(before.levels, None)
        if isinstance(after, StateEntry):
            self._states_by_topic[after.levels] = after

    def _shelf(
        self, kind: Kind
    ) -> (
        Shelf[HostEntry]
        | Shelf[TopicEntry]
        | Shelf[HomeEntry]
        | Shelf[StateEntry]
        | Shelf[InterestEntry]
        | Shelf[DefinitionEntry]
    ):
        match kind:
            case Kind.HOST:
                return self.hosts
            case Kind.TOPIC:
                return self.topics
            case Kind.HOME:
                return self.homes
            case Kind.STATE:
                return self.states
            case Kind.DEFINITION:
                return self.definitions
            case _:
                return self.interest

    def check_invariants(self) -> None:
        """For tests: asserts that the indexes match the entries."""
        assert self._hosts_by_id == {host.host_id: host for host in self.hosts}
        assert self._names_by_topic_id == {topic.topic_id: topic.name for topic in self.topics}
        assert self._states_by_topic == {state.levels: state for state in self.states}
