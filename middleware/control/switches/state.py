"""The state of a switch, actual or desired, as a value. Pure.

Names are those of the program's P4Info. The state excludes entries that the program itself fixes, and counts.

Elements missing from `defaults` and `value_sets` are as in the program: its own default action, an empty set.
`registers` and `meters` name the cells that the control plane owns; others belong to the data plane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.dataplane.p4 import (
    ActionCall,
    CloneSession,
    Entry,
    GroupEntry,
    Match,
    Matches,
    MemberEntry,
    MeterConfig,
    MulticastGroup,
    ValueSetMember,
)


class EntryKey(Struct, frozen=True):
    """The identity of an entry: no two entries have the same key."""

    table: str
    matches: tuple[tuple[str, Match], ...]
    priority: int = 0

    @classmethod
    def of(cls, table: str, matches: Matches, priority: int = 0) -> EntryKey:
        """Returns the key of an entry with these matches."""
        return cls(table, tuple(sorted(matches.items(), key=lambda item: item[0])), priority)


Cell = tuple[str, int]
"""An element of a named array: a register's cell, a profile's member."""


class SwitchState(Struct, frozen=True):
    """The whole state of one switch. Created by `of`; never changed."""

    entries: dict[EntryKey, Entry] = {}
    defaults: dict[str, ActionCall] = {}
    members: dict[Cell, MemberEntry] = {}
    selections: dict[Cell, GroupEntry] = {}
    groups: dict[int, MulticastGroup] = {}
    sessions: dict[int, CloneSession] = {}
    value_sets: dict[str, tuple[ValueSetMember, ...]] = {}
    registers: dict[Cell, int] = {}
    meters: dict[Cell, MeterConfig] = {}

    @classmethod
    def of(
        cls,
        *,
        entries: Iterable[tuple[str, Entry]] = (),
        defaults: Mapping[str, ActionCall] | None = None,
        members: Iterable[tuple[str, MemberEntry]] = (),
        selections: Iterable[tuple[str, GroupEntry]] = (),
        groups: Iterable[MulticastGroup] = (),
        sessions: Iterable[CloneSession] = (),
        value_sets: Mapping[str, Iterable[ValueSetMember]] | None = None,
        registers: Mapping[Cell, int] | None = None,
        meters: Mapping[Cell, MeterConfig] | None = None,
    ) -> SwitchState:
        """Returns a state from lists. Raises ValueError if two elements have the same key."""
        kept = [(EntryKey.of(table, one.matches, one.priority), plain(one)) for table, one in entries]
        return cls(
            _unique(kept, "entries"),
            dict(defaults or {}),
            _unique([((profile, one.member), one) for profile, one in members], "members"),
            _unique([((profile, one.group), one) for profile, one in selections], "groups of members"),
            _unique([(one.group, _sorted_group(one)) for one in groups], "multicast groups"),
            _unique([(one.session, _sorted_session(one)) for one in sessions], "clone sessions"),
            {name: tuple(given) for name, given in (value_sets or {}).items()},
            dict(registers or {}),
            dict(meters or {}),
        )

    def __len__(self) -> int:
        """Returns the number of elements."""
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


def plain(entry: Entry) -> Entry:
    """Returns the entry without values of the data plane or the program: counts, idle time."""
    return replace(entry, counter=None, idle=None, is_const=False)


_K = TypeVar("_K")
_V = TypeVar("_V")


def _unique(pairs: list[tuple[_K, _V]], what: str) -> dict[_K, _V]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        raise ValueError(f"two {what} have the same key: {counted.most_common(1)[0][0]}")
    return found


def _sorted_group(group: MulticastGroup) -> MulticastGroup:
    """Returns the group with sorted replicas, whose order has no meaning."""
    replicas = tuple(sorted(group.replicas, key=lambda one: (one.port, one.instance)))
    return replace(group, replicas=replicas)


def _sorted_session(session: CloneSession) -> CloneSession:
    replicas = tuple(sorted(session.replicas, key=lambda one: (one.port, one.instance)))
    return replace(session, replicas=replicas)
