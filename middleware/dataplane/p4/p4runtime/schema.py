"""P4Info's content, by identifier and by name, for the endpoint."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from finsy.proto import p4i, p4t
from msgspec import Struct
from msgspec.structs import replace

from .bytestrings import decode, encode
from .errors import Code, P4RuntimeError, not_found
from .names import Names


class MatchKind(enum.IntEnum):
    """P4Info's match types."""

    EXACT = 2
    LPM = 3
    TERNARY = 4
    RANGE = 5
    OPTIONAL = 6


_PRIORITY = (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL)


class Field(Struct, frozen=True):
    """A match field, an action's parameter or a field of packet metadata; `kind` is of match fields only.

    `translated`: the control plane knows it as a string, which `names` translates; None: nobody does.
    """

    id: int
    name: str
    width: int
    kind: MatchKind = MatchKind.EXACT
    translated: bool = False
    names: Names | None = None

    def number(self, data: bytes, what: str) -> int:
        """Returns the switch's number of a value as controllers write it. P4RuntimeError."""
        return self._names(what).number(data, what) if self.translated else decode(data, self.width, what)

    def data(self, number: int) -> bytes:
        """Returns the value as controllers read it."""
        return self._names(self.name).data(number) if self.translated else encode(number)

    def _names(self, what: str) -> Names:
        if self.names is None:
            raise P4RuntimeError(Code.UNIMPLEMENTED, f"{what}: strings are not translated here")
        return self.names


class Action(Struct, frozen=True):
    """An action with its parameters by identifier."""

    id: int
    name: str
    params: dict[int, Field]


class Table(Struct, frozen=True):
    """A table. `scopes` per action: 0 anywhere, 1 entries only, 2 default only. With `has_priority`, entries
    need one.
    """

    id: int
    name: str
    fields: dict[int, Field]
    scopes: dict[int, int]
    size: int
    profile: int
    direct_counter: int
    direct_meter: int
    const_default: bool
    is_const: bool
    idles: bool
    has_priority: bool


class Profile(Struct, frozen=True):
    """An action profile or selector."""

    id: int
    name: str
    with_selector: bool
    actions: frozenset[int]


class Array(Struct, frozen=True):
    """Counters or meters. `unit` is P4Info's: 1 bytes, 2 packets, 3 both. `size` 0: those of a table's
    entries."""

    id: int
    name: str
    unit: int
    size: int = 0
    table: int = 0


class ValueSet(Struct, frozen=True):
    """A parser's value set with the fields of its members."""

    id: int
    name: str
    fields: dict[int, Field]


class Data(Struct, frozen=True):
    """A register or a digest with its type; `size` is of registers only."""

    id: int
    name: str
    type: p4t.P4DataTypeSpec
    size: int = 0


class Metadata(Struct, frozen=True):
    """The header between controller and switch: its fields in order, and its wire form as (bits, field's id),
    where id 0 marks bits that controllers do not see.
    """

    id: int
    name: str
    fields: tuple[Field, ...]
    wire: tuple[tuple[int, int], ...]


class _Named(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


class Kindred(dict[int, _T]):
    """Objects of one kind by identifier; `what` names the kind in refusals."""

    def __init__(self, what: str, objects: Iterable[_T]) -> None:
        super().__init__({found.id: found for found in objects})
        self.what = what
        self.names = {found.name: found for found in self.values()}

    def find(self, number: int) -> _T:
        """Returns the object, or NOT_FOUND."""
        found = self.get(number)
        if found is None:
            raise not_found(f"there is no {self.what} with id {number:#x}")
        return found

    def chosen(self, number: int) -> list[_T]:
        """Returns all of them for 0, the wildcard, else the one."""
        return [self.find(number)] if number else list(self.values())


Wires = Mapping[str, tuple[tuple[int, int], ...]]


class Schema:
    """One program's P4Info, indexed. The switch adds what P4Info lacks: the numbers of strings, by type, and
    the wire form of headers between it and the controller.
    """

    def __init__(
        self, info: p4i.P4Info, names: Mapping[str, Names] | None = None, wires: Wires | None = None
    ) -> None:
        self.info = info
        self.names, self._wires = names or {}, wires or {}
        self._new_types = info.type_info.new_types
        self.actions = Kindred("action", [self._action(action) for action in info.actions])
        self.tables = Kindred("table", [self._table(table) for table in info.tables])
        self.profiles = Kindred(
            "action profile", [self._profile(profile) for profile in info.action_profiles]
        )
        self.counters = Kindred(
            "counter", [Array(c.preamble.id, c.preamble.name, c.spec.unit, c.size) for c in info.counters]
        )
        self.meters = Kindred(
            "meter", [Array(m.preamble.id, m.preamble.name, m.spec.unit, m.size) for m in info.meters]
        )
        self.direct_counters = Kindred(
            "direct counter",
            [
                Array(c.preamble.id, c.preamble.name, c.spec.unit, table=c.direct_table_id)
                for c in info.direct_counters
            ],
        )
        self.registers = Kindred(
            "register", [Data(r.preamble.id, r.preamble.name, r.type_spec, r.size) for r in info.registers]
        )
        self.digests = Kindred(
            "digest", [Data(d.preamble.id, d.preamble.name, d.type_spec) for d in info.digests]
        )
        self.value_sets = Kindred(
            "value set",
            [ValueSet(v.preamble.id, v.preamble.name, self._fields(v.match)) for v in info.value_sets],
        )
        self.metadata = {
            header.preamble.name: self._metadata(header) for header in info.controller_packet_metadata
        }

    def _field(self, field: Field, type_name: str) -> Field:
        """Returns the field, adapted to its type."""
        found = self._new_types.get(type_name)
        if found is None or not found.translated_type.HasField("sdn_string"):
            return field
        return replace(field, translated=True, names=self.names.get(type_name))

    def _action(self, action: p4i.Action) -> Action:
        params = {p.id: self._field(Field(p.id, p.name, p.bitwidth), p.type_name.name) for p in action.params}
        return Action(action.preamble.id, action.preamble.name, params)

    def _fields(self, fields: Iterable[p4i.MatchField]) -> dict[int, Field]:
        return {
            f.id: self._field(Field(f.id, f.name, f.bitwidth, MatchKind(f.match_type)), f.type_name.name)
            for f in fields
        }

    def _table(self, table: p4i.Table) -> Table:
        direct = {number >> 24: number for number in table.direct_resource_ids}
        fields = self._fields(table.match_fields)
        return Table(
            table.preamble.id,
            table.preamble.name,
            fields,
            {reference.id: reference.scope for reference in table.action_refs},
            table.size,
            table.implementation_id,
            direct.get(p4i.P4Ids.DIRECT_COUNTER, 0),
            direct.get(p4i.P4Ids.DIRECT_METER, 0),
            bool(table.const_default_action_id),
            table.is_const_table,
            table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL,
            any(field.kind in _PRIORITY for field in fields.values()),
        )

    def _profile(self, profile: p4i.ActionProfile) -> Profile:
        tables = [table for table in self.info.tables if table.preamble.id in profile.table_ids]
        actions = frozenset(reference.id for table in tables for reference in table.action_refs)
        return Profile(profile.preamble.id, profile.preamble.name, profile.with_selector, actions)

    def _metadata(self, header: p4i.ControllerPacketMetadata) -> Metadata:
        fields = tuple(
            self._field(Field(m.id, m.name, m.bitwidth), m.type_name.name) for m in header.metadata
        )
        wire = self._wires.get(header.preamble.name) or tuple((field.width, field.id) for field in fields)
        return Metadata(header.preamble.id, header.preamble.name, fields, wire)
