"""The control interface of a switch: everything that a controller writes and reads.

Every method either completes or raises `ControlError` and changes nothing. Names are the control plane's.
Values that are read may be written again unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from .arrays import CounterArray, MeterArray, RegisterArray
from .digests import DigestQueue
from .errors import ControlError, Problem
from .machine import Machine
from .profiles import Profile
from .tables import TableState, configure
from .value_sets import ValueSetState
from .values import (
    Action,
    CloneSession,
    CounterData,
    DigestConfig,
    DigestList,
    Entry,
    GroupEntry,
    IdleEntry,
    Matches,
    MemberEntry,
    MeterConfig,
    MeterCounts,
    MulticastGroup,
    ValueSetMember,
)


class Control:
    """`Switch.control`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._tables = {table.shape.name: table for table in machine.tables}
        instances = machine.program.externs
        self._externs = dict(zip((one.name for one in instances), machine.externs, strict=True))
        self._value_sets = {one.name: one for one in machine.value_sets}

    # --- tables

    def insert(self, table: str, entry: Entry, now: float = 0.0) -> None:
        """Inserts an entry. Raises EXISTS if one with these matches and priority exists, FULL at the table's
        size.
        """
        self._table(table).insert(entry, now)

    def modify(self, table: str, entry: Entry, now: float = 0.0) -> None:
        """Replaces the action (and counter, meter if given) of the entry with these matches and priority."""
        self._table(table).modify(entry, now)

    def delete(self, table: str, matches: Matches, priority: int = 0) -> None:
        self._table(table).delete(matches, priority)

    def entry(self, table: str, matches: Matches, priority: int = 0, now: float = 0.0) -> Entry:
        return self._table(table).entry(matches, priority, now)

    def entries(self, table: str, now: float = 0.0) -> Iterator[Entry]:
        """Yields all entries, const ones too, in the order of insertion. The default entry isn't
        among them.
        """
        return self._table(table).entries(now)

    def set_default(self, table: str, action: Action | None, now: float = 0.0) -> None:
        """Sets the default action; None restores the program's own. Raises READ_ONLY if the program declares
        it const.
        """
        self._table(table).set_default(action)

    def default(self, table: str) -> Entry:
        """Returns the default entry: without matches; NoAction if the program names no action."""
        return self._table(table).default()

    def is_default_set(self, table: str) -> bool:
        """Returns whether the default action is another than the program's own."""
        return self._table(table).is_default_set()

    # --- direct counters and meters; matches None: the default entry

    def direct_counter(self, table: str, matches: Matches | None, priority: int = 0) -> CounterData:
        row = self._table(table).counter_row(matches, priority)
        return CounterData(row.packets, row.bytes)

    def set_direct_counter(
        self, table: str, matches: Matches | None, data: CounterData, priority: int = 0
    ) -> None:
        row = self._table(table).counter_row(matches, priority)
        row.packets, row.bytes = data.packets, data.bytes

    def direct_meter(self, table: str, matches: Matches | None, priority: int = 0) -> MeterConfig | None:
        """Returns the configuration; None: not configured, all packets are green."""
        meter = self._table(table).meter_row(matches, priority).meter
        return meter.config if meter is not None else None

    def direct_meter_counts(self, table: str, matches: Matches | None, priority: int = 0) -> MeterCounts:
        meter = self._table(table).meter_row(matches, priority).meter
        return meter.counts() if meter is not None else MeterCounts()

    def set_direct_meter_counts(
        self, table: str, matches: Matches | None, counts: MeterCounts, priority: int = 0
    ) -> None:
        meter = self._table(table).meter_row(matches, priority).meter
        if meter is not None:
            meter.set_counts(counts)

    def set_direct_meter(
        self,
        table: str,
        matches: Matches | None,
        config: MeterConfig | None,
        priority: int = 0,
        now: float = 0.0,
    ) -> None:
        configure(self._table(table).meter_row(matches, priority), config, now)

    # --- counters, meters, registers by index

    def counter(self, name: str, index: int) -> CounterData:
        return self._counter(name).read(index)

    def counters(self, name: str) -> list[CounterData]:
        cells = self._counter(name)
        return [cells.read(index) for index in range(cells.size)]

    def set_counter(self, name: str, index: int | None, data: CounterData) -> None:
        """Writes a counter; index None means all cells."""
        self._counter(name).write(index, data)

    def meter(self, name: str, index: int) -> MeterConfig | None:
        return self._meter(name).read(index)

    def meters(self, name: str) -> list[MeterConfig | None]:
        cells = self._meter(name)
        return [cells.read(index) for index in range(cells.size)]

    def set_meter(self, name: str, index: int | None, config: MeterConfig | None, now: float = 0.0) -> None:
        self._meter(name).write(index, config, now)

    def meter_counts(self, name: str, index: int) -> MeterCounts:
        """Returns the packets that the cell has marked, by colour."""
        return self._meter(name).counts(index)

    def set_meter_counts(self, name: str, index: int, counts: MeterCounts) -> None:
        self._meter(name).set_counts(index, counts)

    def register(self, name: str, index: int) -> int:
        return self._register(name).read(index)

    def registers(self, name: str) -> list[int]:
        cells = self._register(name)
        return [cells.read(index) for index in range(cells.size)]

    def set_register(self, name: str, index: int | None, value: int) -> None:
        self._register(name).write(index, value)

    # --- action profiles and selectors

    def insert_member(self, profile: str, entry: MemberEntry) -> None:
        self._profile(profile).insert_member(entry)

    def modify_member(self, profile: str, entry: MemberEntry) -> None:
        self._profile(profile).modify_member(entry)

    def delete_member(self, profile: str, member: int) -> None:
        self._profile(profile).delete_member(member)

    def member(self, profile: str, member: int) -> MemberEntry:
        return self._profile(profile).written_member(member)

    def members(self, profile: str) -> list[MemberEntry]:
        return self._profile(profile).members()

    def insert_group(self, profile: str, entry: GroupEntry) -> None:
        self._profile(profile).insert_group(entry)

    def modify_group(self, profile: str, entry: GroupEntry) -> None:
        self._profile(profile).modify_group(entry)

    def delete_group(self, profile: str, group: int) -> None:
        self._profile(profile).delete_group(group)

    def group(self, profile: str, group: int) -> GroupEntry:
        return self._profile(profile).written_group(group)

    def groups(self, profile: str) -> list[GroupEntry]:
        return self._profile(profile).groups()

    # --- replication

    def insert_multicast_group(self, group: MulticastGroup) -> None:
        self._machine.replication.insert_group(group)

    def modify_multicast_group(self, group: MulticastGroup) -> None:
        self._machine.replication.modify_group(group)

    def delete_multicast_group(self, group: int) -> None:
        self._machine.replication.delete_group(group)

    def multicast_group(self, group: int) -> MulticastGroup:
        return self._machine.replication.group(group)

    def multicast_groups(self) -> list[MulticastGroup]:
        return self._machine.replication.groups()

    def insert_clone_session(self, session: CloneSession) -> None:
        self._machine.replication.insert_session(session)

    def modify_clone_session(self, session: CloneSession) -> None:
        self._machine.replication.modify_session(session)

    def delete_clone_session(self, session: int) -> None:
        self._machine.replication.delete_session(session)

    def clone_session(self, session: int) -> CloneSession:
        return self._machine.replication.session(session)

    def clone_sessions(self) -> list[CloneSession]:
        return self._machine.replication.sessions()

    # --- value sets

    def set_value_set(self, name: str, members: list[ValueSetMember]) -> None:
        """Replaces all members."""
        self._value_set(name).set(members)

    def value_set(self, name: str) -> list[ValueSetMember]:
        return self._value_set(name).members()

    # --- what the switch tells by itself

    def insert_digest(self, name: str, config: DigestConfig) -> None:
        """Digests of a kind without a config are counted and thrown away."""
        queue = self._digest(name)
        if queue.config is not None:
            raise ControlError(Problem.EXISTS, f"digest {name} is configured")
        queue.configure(config)

    def modify_digest(self, name: str, config: DigestConfig) -> None:
        self._configured(name).configure(config)

    def delete_digest(self, name: str) -> None:
        self._configured(name).configure(None)

    def digest_configs(self) -> dict[str, DigestConfig]:
        queues = self._machine.digests.items()
        return {name: queue.config for name, queue in queues if queue.config is not None}

    def take_digests(self, now: float) -> list[DigestList]:
        """Returns the lists that are due; ask after every batch of packets, and at `next_digest_at`."""
        return [one for queue in self._machine.digests.values() for one in queue.take(now)]

    def next_digest_at(self) -> float | None:
        """Returns when a list is due without another packet; None: nothing waits."""
        times = [queue.due_at() for queue in self._machine.digests.values()]
        return min((at for at in times if at is not None), default=None)

    def ack_digest(self, name: str, list_id: int) -> None:
        """Acknowledges a list. Ignores unknown and old ids, as the specification requires."""
        self._digest(name).ack(list_id)

    def idle_entries(self, now: float) -> list[IdleEntry]:
        """Returns entries whose idle timeout has passed since their last hit or last report here."""
        return [one for table in self._machine.tables if table.timed for one in table.idle(now)]

    # --- by name

    def _table(self, name: str) -> TableState:
        found = self._tables.get(name)
        if found is None:
            raise ControlError(Problem.UNKNOWN, f"the program has no table {name}")
        return found

    def _counter(self, name: str) -> CounterArray:
        found = self._externs.get(name)
        if not isinstance(found, CounterArray):
            raise ControlError(Problem.UNKNOWN, f"the program has no counter {name}")
        return found

    def _meter(self, name: str) -> MeterArray:
        found = self._externs.get(name)
        if not isinstance(found, MeterArray):
            raise ControlError(Problem.UNKNOWN, f"the program has no meter {name}")
        return found

    def _register(self, name: str) -> RegisterArray:
        found = self._externs.get(name)
        if not isinstance(found, RegisterArray):
            raise ControlError(Problem.UNKNOWN, f"the program has no register {name}")
        return found

    def _profile(self, name: str) -> Profile:
        found = self._externs.get(name)
        if not isinstance(found, Profile):
            raise ControlError(Problem.UNKNOWN, f"the program has no action profile {name}")
        return found

    def _value_set(self, name: str) -> ValueSetState:
        found = self._value_sets.get(name)
        if found is None:
            raise ControlError(Problem.UNKNOWN, f"the program has no value set {name}")
        return found

    def _digest(self, name: str) -> DigestQueue:
        found = self._machine.digests.get(name)
        if found is None:
            raise ControlError(Problem.UNKNOWN, f"the program has no digest {name}")
        return found

    def _configured(self, name: str) -> DigestQueue:
        queue = self._digest(name)
        if queue.config is None:
            raise ControlError(Problem.NOT_FOUND, f"digest {name} is not configured")
        return queue
