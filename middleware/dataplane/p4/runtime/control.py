"""The control face of a switch: everything that a controller writes and reads.

Every method either does the whole of what it says or raises `ControlError` and changes nothing. Names are the
control plane's. Reading returns values that may be written again as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    MulticastGroup,
    ValueSetMember,
)


class Control:
    """`Switch.control`."""

    # --- tables

    def insert(self, table: str, entry: Entry, now: float = 0.0) -> None:
        """EXISTS if an entry with these matches and this priority is there; FULL at the table's size."""
        raise NotImplementedError

    def modify(self, table: str, entry: Entry, now: float = 0.0) -> None:
        """Gives the entry with these matches and priority another action (and counter, meter where given)."""
        raise NotImplementedError

    def delete(self, table: str, matches: Matches, priority: int = 0) -> None:
        raise NotImplementedError

    def entry(self, table: str, matches: Matches, priority: int = 0, now: float = 0.0) -> Entry:
        raise NotImplementedError

    def entries(self, table: str, now: float = 0.0) -> Iterator[Entry]:
        """All entries, const ones too, in the order of insertion. The default entry isn't among them."""
        raise NotImplementedError

    def set_default(self, table: str, action: Action | None, now: float = 0.0) -> None:
        """None: the program's own default action again. READ_ONLY where the program says const."""
        raise NotImplementedError

    def default(self, table: str) -> Entry | None:
        """The default entry (no matches), or None where the table has no default action."""
        raise NotImplementedError

    # --- direct counters and meters; matches None: the default entry

    def direct_counter(self, table: str, matches: Matches | None, priority: int = 0) -> CounterData:
        raise NotImplementedError

    def set_direct_counter(
        self, table: str, matches: Matches | None, data: CounterData, priority: int = 0
    ) -> None:
        raise NotImplementedError

    def direct_meter(self, table: str, matches: Matches | None, priority: int = 0) -> MeterConfig | None:
        """None: not configured, all packets are green."""
        raise NotImplementedError

    def set_direct_meter(
        self, table: str, matches: Matches | None, config: MeterConfig | None, priority: int = 0
    ) -> None:
        raise NotImplementedError

    # --- counters, meters, registers by index

    def counter(self, name: str, index: int) -> CounterData:
        raise NotImplementedError

    def counters(self, name: str) -> list[CounterData]:
        raise NotImplementedError

    def set_counter(self, name: str, index: int | None, data: CounterData) -> None:
        """Index None: all of them."""
        raise NotImplementedError

    def meter(self, name: str, index: int) -> MeterConfig | None:
        raise NotImplementedError

    def meters(self, name: str) -> list[MeterConfig | None]:
        raise NotImplementedError

    def set_meter(self, name: str, index: int | None, config: MeterConfig | None) -> None:
        raise NotImplementedError

    def register(self, name: str, index: int) -> int:
        raise NotImplementedError

    def registers(self, name: str) -> list[int]:
        raise NotImplementedError

    def set_register(self, name: str, index: int | None, value: int) -> None:
        raise NotImplementedError

    # --- action profiles and selectors

    def insert_member(self, profile: str, entry: MemberEntry) -> None:
        raise NotImplementedError

    def modify_member(self, profile: str, entry: MemberEntry) -> None:
        raise NotImplementedError

    def delete_member(self, profile: str, member: int) -> None:
        raise NotImplementedError

    def members(self, profile: str) -> list[MemberEntry]:
        raise NotImplementedError

    def insert_group(self, profile: str, entry: GroupEntry) -> None:
        raise NotImplementedError

    def modify_group(self, profile: str, entry: GroupEntry) -> None:
        raise NotImplementedError

    def delete_group(self, profile: str, group: int) -> None:
        raise NotImplementedError

    def groups(self, profile: str) -> list[GroupEntry]:
        raise NotImplementedError

    # --- replication

    def insert_multicast_group(self, group: MulticastGroup) -> None:
        raise NotImplementedError

    def modify_multicast_group(self, group: MulticastGroup) -> None:
        raise NotImplementedError

    def delete_multicast_group(self, group: int) -> None:
        raise NotImplementedError

    def multicast_groups(self) -> list[MulticastGroup]:
        raise NotImplementedError

    def insert_clone_session(self, session: CloneSession) -> None:
        raise NotImplementedError

    def modify_clone_session(self, session: CloneSession) -> None:
        raise NotImplementedError

    def delete_clone_session(self, session: int) -> None:
        raise NotImplementedError

    def clone_sessions(self) -> list[CloneSession]:
        raise NotImplementedError

    # --- value sets

    def set_value_set(self, name: str, members: list[ValueSetMember]) -> None:
        """Replaces all members."""
        raise NotImplementedError

    def value_set(self, name: str) -> list[ValueSetMember]:
        raise NotImplementedError

    # --- what the switch tells by itself

    def insert_digest(self, name: str, config: DigestConfig) -> None:
        """Digests of a kind without a config are counted and thrown away."""
        raise NotImplementedError

    def modify_digest(self, name: str, config: DigestConfig) -> None:
        raise NotImplementedError

    def delete_digest(self, name: str) -> None:
        raise NotImplementedError

    def digest_configs(self) -> dict[str, DigestConfig]:
        raise NotImplementedError

    def take_digests(self, now: float) -> list[DigestList]:
        """The lists that are due; ask after every batch of packets, and at `next_digest_at`."""
        raise NotImplementedError

    def next_digest_at(self) -> float | None:
        """When a list will be due without another packet; None: nothing waits."""
        raise NotImplementedError

    def ack_digest(self, name: str, list_id: int) -> None:
        """Unknown and old ids are ignored, as the specification wants."""
        raise NotImplementedError

    def idle_entries(self, now: float) -> list[IdleEntry]:
        """Entries whose idle timeout has passed since they were hit or last returned here."""
        raise NotImplementedError
