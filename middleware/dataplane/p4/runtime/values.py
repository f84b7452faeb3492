"""Values that the control plane of a switch writes and reads: entries, replicas, counters, meters, digests.

All numbers are raw bits: non-negative, two's complement for `int<W>`, booleans 0 and 1. Names are the control
plane's, as in P4Info (`MyIngress.ipv4_lpm`). Times are seconds, on the clock of `now`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Out(msgspec.Struct, frozen=True, gc=False):
    """A packet that leaves the switch."""

    port: int
    packet: bytes


# --- matches: what one key field of an entry says. A field that is left out matches everything.


class ExactMatch(msgspec.Struct, frozen=True, gc=False):
    """The field is `value`."""

    value: int


class LpmMatch(msgspec.Struct, frozen=True, gc=False):
    """The first `prefix` bits are those of `value`; its other bits are 0."""

    value: int
    prefix: int


class TernaryMatch(msgspec.Struct, frozen=True, gc=False):
    """The bits of `mask` are those of `value`; its other bits are 0."""

    value: int
    mask: int


class RangeMatch(msgspec.Struct, frozen=True, gc=False):
    """The field is between `low` and `high`, both included."""

    low: int
    high: int


class OptionalMatch(msgspec.Struct, frozen=True, gc=False):
    """The field is `value`; a field that is left out may be anything."""

    value: int


Match: TypeAlias = ExactMatch | LpmMatch | TernaryMatch | RangeMatch | OptionalMatch
Matches: TypeAlias = dict[str, Match]  # by the key field's name


# --- actions


class ActionCall(msgspec.Struct, frozen=True):
    """An action and its arguments by name."""

    action: str
    arguments: dict[str, int] = {}


class MemberRef(msgspec.Struct, frozen=True, gc=False):
    """The member of the table's action profile or selector with this id."""

    member: int


class GroupRef(msgspec.Struct, frozen=True, gc=False):
    """The group of the table's action selector with this id."""

    group: int


class WeightedCall(msgspec.Struct, frozen=True):
    """One choice of a one-shot entry. `watch_port` is carried for reading back only."""

    call: ActionCall
    weight: int = 1
    watch_port: bytes = b""


class OneShot(msgspec.Struct, frozen=True):
    """An action selector group that belongs to one entry, written with it."""

    choices: tuple[WeightedCall, ...]


Action: TypeAlias = ActionCall | MemberRef | GroupRef | OneShot


# --- counters and meters


class CounterData(msgspec.Struct, frozen=True, gc=False):
    """Counter data. Both numbers are kept whatever the counter's type; P4Info determines which ones
    to show.
    """

    packets: int = 0
    bytes: int = 0


class MeterConfig(msgspec.Struct, frozen=True, gc=False):
    """A two rate three colour marker (RFC 2698). Rates per second and bursts, in bytes or packets by the
    meter's type. A single rate marker (RFC 2697) has `single_rate`, then `pir` is unused and `pburst` is
    the excess burst."""

    cir: int
    cburst: int
    pir: int
    pburst: int
    single_rate: bool = False


class MeterCounts(msgspec.Struct, frozen=True):
    """The packets marked by a meter, by colour."""

    green: CounterData = CounterData()
    yellow: CounterData = CounterData()
    red: CounterData = CounterData()


# --- entries


class Entry(msgspec.Struct, frozen=True):
    """A table entry. `priority`: the largest wins; it is 0 exactly if the table has no ternary, range or
    optional field.

    `is_const` and `idle` are read-only; `counter` and `meter`, if given on a write, set the entry's direct
    counter and meter.
    """

    matches: Matches
    action: Action
    priority: int = 0
    metadata: bytes = b""
    controller_metadata: int = 0
    idle_timeout: float = 0.0  # 0: never
    counter: CounterData | None = None
    meter: MeterConfig | None = None
    is_const: bool = False
    idle: float | None = None  # seconds since the last hit, if the table has idle timeouts


class MemberEntry(msgspec.Struct, frozen=True):
    """A member of an action profile."""

    member: int
    call: ActionCall


class GroupMember(msgspec.Struct, frozen=True, gc=False):
    """A member in a group. `watch_port` is carried for reading back only."""

    member: int
    weight: int = 1
    watch_port: bytes = b""


class GroupEntry(msgspec.Struct, frozen=True):
    """A group of an action selector. `max_size` 0: the profile's limit."""

    group: int
    members: tuple[GroupMember, ...] = ()
    max_size: int = 0


# --- replication


class Replica(msgspec.Struct, frozen=True, gc=False):
    """One copy: the port it goes to and its `egress_rid`."""

    port: int
    instance: int = 0


class MulticastGroup(msgspec.Struct, frozen=True):
    """A group for `mcast_grp`; ids from 1 to 65535. `metadata` is the controller's own."""

    group: int
    replicas: tuple[Replica, ...] = ()
    metadata: bytes = b""


class CloneSession(msgspec.Struct, frozen=True):
    """The destination of clones; ids from 0 to 32767. `packet_length`: bytes kept of a copy; 0: all."""

    session: int
    replicas: tuple[Replica, ...] = ()
    class_of_service: int = 0
    packet_length: int = 0


# --- value sets


class ValueSetMember(msgspec.Struct, frozen=True):
    """One member of a parser value set: matches by the field's name, as in a table."""

    matches: Matches


# --- digests


class DigestConfig(msgspec.Struct, frozen=True, gc=False):
    """When digest lists are sent: after `max_timeout` seconds (0: at once) or with `max_list_size` digests
    (0: no limit). A digest that was sent is not sent again until it is acknowledged or older than
    `ack_timeout`.
    """

    max_timeout: float = 0.0
    max_list_size: int = 0
    ack_timeout: float = 0.0


class DigestList(msgspec.Struct, frozen=True):
    """Digests of one kind. `values` has one tuple per digest with one number per field, nested structs depth
    first.
    """

    name: str
    list_id: int
    values: tuple[tuple[int, ...], ...]
    at: float  # the time of the first of them


class IdleEntry(msgspec.Struct, frozen=True):
    """An entry that nothing has hit for as long as its `idle_timeout`."""

    table: str
    entry: Entry
