"""The cluster's state as a value: entries, indexes over them, and leases in the coordinator's own time.

Only `apply` changes entries, so the same code builds a state that is loaded from disk, one that a watcher
replays, and the coordinator's own. Leases are not stored: after a restart every attached host has a full
lease, and the absence of every home that was away starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

from treecast.middleware.api.entries import (
    Change,
    Counter,
    CounterEntry,
    DefinitionEntry,
    Entry,
    HomeEntry,
    HomeKind,
    HostEntry,
    InterestEntry,
    Kind,
    Presence,
    StateEntry,
    TopicEntry,
    binding_ends,
    home_key,
    put,
)
from treecast.middleware.model.identity import TopicId

from .values import StateSettings

E = TypeVar("E", HostEntry, TopicEntry, HomeEntry, StateEntry, InterestEntry, CounterEntry, DefinitionEntry)


class ClusterState:
    """The known state. `apply` and `pass_time` change it."""

    def __init__(self, settings: StateSettings) -> None:
        self.settings = settings
        self._entries: dict[Kind, dict[str, Entry]] = {kind: {} for kind in Kind}
        self._names: dict[int, str] = {}  # host id -> name
        self._states: dict[tuple[str, ...], str] = {}  # topic -> key of its state id
        self._topic_names: dict[TopicId, str] = {}
        self._bound: dict[str, dict[str, None]] = {}  # keys of bindings, by the key of either end
        self._led: dict[int, int] = {}  # host id -> number of partitions that it leads
        self.last_event = 0  # its number
        self.producer_floor = 0  # no lower producer id is given
        self._elapsed = 0.0  # seconds that have counted so far
        self._seen: float | None = None  # the clock at the last call
        self._leases: dict[str, float] = {}  # host name -> end of its lease, in elapsed time
        self._away: dict[str, float] = {}  # host name -> time when it became away

    # --- reading

    def entries(self) -> Iterator[Change]:
        """Yields the whole state as changes that build it."""
        for found in self._entries.values():
            yield from (put(entry) for entry in found.values())

    def all(self, kind: Kind) -> Mapping[str, Entry]:
        """Returns the entries of a kind by key, read-only."""
        return MappingProxyType(self._entries[kind])

    def entry(self, kind: Kind, key: str) -> Entry | None:
        return self._entries[kind].get(key)

    def size(self, kind: Kind) -> int:
        return len(self._entries[kind])

    def host(self, name: str) -> HostEntry | None:
        return self._typed(Kind.HOST, name, HostEntry)

    def host_by_id(self, host_id: int) -> HostEntry | None:
        name = self._names.get(host_id)
        return None if name is None else self.host(name)

    def hosts(self) -> list[HostEntry]:
        return [entry for entry in self._entries[Kind.HOST].values() if isinstance(entry, HostEntry)]

    def topic(self, name: str) -> TopicEntry | None:
        return self._typed(Kind.TOPIC, name, TopicEntry)

    def topic_by_id(self, topic_id: TopicId) -> TopicEntry | None:
        name = self._topic_names.get(topic_id)
        return None if name is None else self.topic(name)

    def topics(self) -> list[TopicEntry]:
        return [entry for entry in self._entries[Kind.TOPIC].values() if isinstance(entry, TopicEntry)]

    def home(self, kind: HomeKind, id: str) -> HomeEntry | None:
        return self._typed(Kind.HOME, home_key(kind, id), HomeEntry)

    def homes_of(self, host_id: int) -> list[HomeEntry]:
        homes = (entry for entry in self._entries[Kind.HOME].values() if isinstance(entry, HomeEntry))
        return [home for home in homes if home.host_id == host_id]

    def state(self, state_id: int) -> StateEntry | None:
        return self._typed(Kind.STATE, str(state_id), StateEntry)

    def state_of(self, levels: tuple[str, ...]) -> StateEntry | None:
        key = self._states.get(levels)
        return None if key is None else self._typed(Kind.STATE, key, StateEntry)

    def interest(self, host_id: int) -> InterestEntry | None:
        return self._typed(Kind.INTEREST, str(host_id), InterestEntry)

    def definition(self, key: str) -> DefinitionEntry | None:
        return self._typed(Kind.DEFINITION, key, DefinitionEntry)

    def bound_to(self, key: str) -> list[str]:
        """Returns the keys of the bindings of which the definition `key` is an end."""
        return list(self._bound.get(key, ()))

    def counter(self, counter: Counter) -> int:
        found = self._typed(Kind.COUNTER, counter.value, CounterEntry)
        return 0 if found is None else found.value

    def led(self, host_id: int) -> int:
        """Returns the number of partitions that the host leads."""
        return self._led.get(host_id, 0)

    @property
    def partitions(self) -> int:
        return sum(self._led.values())

    def _typed(self, kind: Kind, key: str, of: type[E]) -> E | None:
        found = self._entries[kind].get(key)
        assert found is None or isinstance(found, of)
        return found

    # --- time

    def pass_time(self, now: float) -> None:
        """Advances time to `now` (seconds of any clock that should be steady). Steps back count as 0."""
        if self._seen is not None:
            self._elapsed += min(max(now - self._seen, 0.0), self.settings.longest_step)
        self._seen = now

    def overdue(self) -> list[str]:
        """Returns the names of hosts that are entered as attached but whose leases have expired."""
        return [name for name, until in self._leases.items() if until <= self._elapsed]

    def away_for(self, host: HostEntry) -> float:
        """Returns the seconds since the host's lease expired; infinite if it detached."""
        if host.presence is Presence.DETACHED:
            return float("inf")
        return self._elapsed - self._away.get(host.name, self._elapsed)

    def prolong(self, name: str) -> None:
        """Gives an attached host a full lease."""
        self._leases[name] = self._elapsed + self.settings.lease

    # --- changing

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            found = self._entries[change.kind]
            before = found.pop(change.key, None)
            if change.entry is not None:
                found[change.key] = change.entry
            self._index(before, change.entry)

    def _index(self, before: Entry | None, after: Entry | None) -> None:
        if isinstance(before, TopicEntry):
            self._count_leaders(before, -1)
            del self._topic_names[before.topic_id]
        if isinstance(before, StateEntry):
            del self._states[before.levels]
        if isinstance(before, DefinitionEntry) and after is None:
            self._forget_binding(before.key)
        match after:
            case DefinitionEntry():
                for end in binding_ends(after.key):
                    self._bound.setdefault(end, {})[after.key] = None
            case TopicEntry():
                self._count_leaders(after, 1)
                self._topic_names[after.topic_id] = after.name
            case StateEntry():
                self._states[after.levels] = str(after.state_id)
            case HostEntry():
                self._names[after.host_id] = after.name
                self._set_presence(after)

    def _forget_binding(self, key: str) -> None:
        for end in binding_ends(key):
            del self._bound[end][key]
            if not self._bound[end]:
                del self._bound[end]

    def _count_leaders(self, topic: TopicEntry, sign: int) -> None:
        for partition in topic.partitions:
            self._led[partition.leader] = self._led.get(partition.leader, 0) + sign

    def _set_presence(self, host: HostEntry) -> None:
        if host.presence is Presence.ATTACHED:
            self._away.pop(host.name, None)
            self.prolong(host.name)
            return
        self._leases.pop(host.name, None)
        if host.presence is Presence.AWAY:
            self._away.setdefault(host.name, self._elapsed)

    def check_invariants(self) -> None:
        """For tests: checks that the indexes match the entries and that no number is held twice."""
        hosts = self.hosts()
        assert self._names == {host.host_id: host.name for host in hosts}
        assert len(self._names) == len(hosts)
        assert max(self._names, default=0) <= self.counter(Counter.HOST_ID)
        states = [entry for entry in self._entries[Kind.STATE].values() if isinstance(entry, StateEntry)]
        assert self._states == {entry.levels: str(entry.state_id) for entry in states}
        assert len(self._states) == len(states)
        topics = self.topics()
        assert self.partitions == sum(len(topic.partitions) for topic in topics)
        assert len({topic.topic_id for topic in topics}) == len(topics)
        assert self._topic_names == {topic.topic_id: topic.name for topic in topics}
        bound = {(end, key) for key in self._entries[Kind.DEFINITION] for end in binding_ends(key)}
        assert {(end, key) for end, keys in self._bound.items() for key in keys} == bound
        attached = {host.name for host in hosts if host.presence is Presence.ATTACHED}
        assert set(self._leases) == attached
