"""A checked program with everything instantiated, as the target runs it. Pure.

Objects refer to each other by index into the tuples of `Program`, so that a program is one immutable value.
Names are those of control planes: qualified by the enclosing instances, with `@name` applied
("MyIngress.ipv4_lpm", "MyIngress.sub.t", "NoAction"); `hidden` means that `@hidden` hides it from them.
"""

from __future__ import annotations

import enum

import msgspec

from ..source import Span
from .annotations import Annotation, Scalar
from .expressions import Direction, Expression
from .statements import Statement
from .types import Bits, HeaderType, StructType, Type, UnionType


class VariableInfo(msgspec.Struct, frozen=True):
    """Storage for one value during the processing of a packet. `owner` is the declaring object's name, for
    people.
    """

    name: str
    type: Type
    owner: str
    span: Span


class Parameter(msgspec.Struct, frozen=True):
    """A parameter and its variable. Direction.NONE of an action's parameter means that the control plane
    supplies it.

    `named`: the new type or serializable enum of its declaration.
    """

    name: str
    direction: Direction
    variable: int
    type: Type
    annotations: tuple[Annotation, ...] = ()
    named: str | None = None


class Action(msgspec.Struct, frozen=True):
    """An action. `parameters` in their order: first those with a direction, then the control plane's."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    annotations: tuple[Annotation, ...]
    hidden: bool
    span: Span

    @property
    def data(self) -> tuple[Parameter, ...]:
        """The parameters that an entry supplies."""
        return tuple(one for one in self.parameters if one.direction is Direction.NONE)


class Function(msgspec.Struct, frozen=True):
    """A function; a generic one is there once per binding of its types."""

    name: str
    parameters: tuple[Parameter, ...]
    result: Type
    body: tuple[Statement, ...]
    span: Span


class ExternInstance(msgspec.Struct, frozen=True):
    """An extern object of v1model.

    `kind` is "register", "counter", "direct_counter", "meter", "direct_meter", "action_profile",
    "action_selector" or
    "Checksum16". `arguments` are the constructor's, by parameter name: int, bool, or of an enum its member's
    name ("packets_and_bytes", "crc16"). `type_arguments` in the declaration's order (register's T first).
    """

    name: str
    kind: str
    type_arguments: tuple[Type, ...]
    arguments: tuple[tuple[str, Scalar], ...]
    annotations: tuple[Annotation, ...]
    hidden: bool
    span: Span
    named: str | None = None  # of a register's T: the new type it was declared with

    def argument(self, name: str) -> Scalar:
        """Returns the constructor argument of that name."""
        return dict(self.arguments)[name]


class ValueSet(msgspec.Struct, frozen=True):
    """`value_set<T>(size)`. `fields` are one per select key it covers; match kinds as by `@match` (else
    exact)."""

    name: str
    size: int
    fields: tuple[ValueSetField, ...]
    annotations: tuple[Annotation, ...]
    hidden: bool
    span: Span


class ValueSetField(msgspec.Struct, frozen=True):
    """One component of a value set's members; `name` is "" if T is not a struct."""

    name: str
    type: Type
    match_kind: MatchKind
    annotations: tuple[Annotation, ...] = ()
    named: str | None = None


class MatchKind(enum.Enum):
    """v1model's match kinds. `selector` keys are hashed to choose a member, never matched."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"
    SELECTOR = "selector"


class MatchAny(msgspec.Struct, frozen=True):
    """`_` or `default`: fits everything."""


class MatchValue(msgspec.Struct, frozen=True):
    """Fits this value alone."""

    value: int | bool


class MatchMask(msgspec.Struct, frozen=True):
    """`value &&& mask`: matches what equals `value` (whose other bits are 0) in the bits of `mask`.

    In an entry for an lpm key, the mask's ones are its highest bits.
    """

    value: int
    mask: int


class MatchRange(msgspec.Struct, frozen=True):
    """`low .. high`, both inclusive."""

    low: int
    high: int


class MatchSet(msgspec.Struct, frozen=True):
    """A value set (index into `Program.value_sets`). It is the only match of its case, and covers all
    keys."""

    value_set: int


Match = MatchAny | MatchValue | MatchMask | MatchRange | MatchSet


class Key(msgspec.Struct, frozen=True):
    """A table's key. `name` is the control plane's: `@name`, else the expression as written:
    "hdr.ipv4.dstAddr", "hdr.stack[0].a", and "hdr.ipv4.$valid$" for isValid()."""

    name: str
    expression: Expression
    match_kind: MatchKind
    annotations: tuple[Annotation, ...]
    span: Span
    named: str | None = None

    @property
    def type(self) -> Type:
        """Bits, Bool, Enum or ErrorCode."""
        return self.expression.type


class TableAction(msgspec.Struct, frozen=True):
    """An action that a table may run. `arguments`: for the parameters that have a direction, bound by the
    program.

    They are evaluated when the action is run. `annotations` are those on the reference: `@tableonly`,
    `@defaultonly`.
    """

    action: int
    arguments: tuple[Expression, ...]
    annotations: tuple[Annotation, ...]

    @property
    def default_only(self) -> bool:
        return any(one.name == "defaultonly" for one in self.annotations)

    @property
    def table_only(self) -> bool:
        return any(one.name == "tableonly" for one in self.annotations)


class ActionData(msgspec.Struct, frozen=True):
    """An action of the table (index into `Table.actions`) with values for its `Action.data` parameters."""

    action: int
    values: tuple[int | bool, ...]


class Entry(msgspec.Struct, frozen=True):
    """An entry in the program: one match per key. Among several that match, the highest `priority` wins.

    Priorities are above 0. If the program gives none, the first entry has the highest. For a table with only
    exact or lpm keys it has no meaning: at most one matches, or the longest prefix wins.
    """

    matches: tuple[Match, ...]
    action: ActionData
    priority: int
    constant: bool
    annotations: tuple[Annotation, ...]
    span: Span


class Table(msgspec.Struct, frozen=True):
    """A table of one control instance.

    `default` runs when no entry matches. `size` is None if the program does not specify it. `implementation`:
    index into `Program.externs` of an action profile or selector; `counters`, `meters`: of a direct counter
    and a direct meter. `constant_entries`: `entries` is const, so that the control plane cannot add any.
    """

    name: str
    keys: tuple[Key, ...]
    actions: tuple[TableAction, ...]
    default: ActionData
    default_constant: bool
    entries: tuple[Entry, ...]
    constant_entries: bool
    size: int | None
    implementation: int | None
    counters: int | None
    meters: int | None
    support_timeout: bool
    annotations: tuple[Annotation, ...]
    hidden: bool
    span: Span


class Control(msgspec.Struct, frozen=True):
    """One instance of a control. `body` begins with the Declares of the control's own variables.

    `parameters` are without packet_in and packet_out. The body reads and writes them as variables.
    """

    name: str
    type_name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    annotations: tuple[Annotation, ...]
    span: Span


ACCEPT = -1
REJECT = -2


class Case(msgspec.Struct, frozen=True):
    """A line of select: goes to state `target` (index into `Parser.states`, ACCEPT or REJECT) if all
    matches fit."""

    matches: tuple[Match, ...]
    target: int
    span: Span


class Goto(msgspec.Struct, frozen=True):
    """`transition name;`. A state that names no transition goes to REJECT."""

    target: int
    span: Span


class Select(msgspec.Struct, frozen=True):
    """`transition select(keys)`: the first case that fits; none: error.NoMatch, reject."""

    keys: tuple[Expression, ...]
    cases: tuple[Case, ...]
    span: Span


class State(msgspec.Struct, frozen=True):
    """A parser state."""

    name: str
    body: tuple[Statement, ...]
    transition: Goto | Select
    annotations: tuple[Annotation, ...]
    span: Span


class Parser(msgspec.Struct, frozen=True):
    """One instance of a parser. `setup` declares its variables, then `states[start]` runs. Loops are
    possible."""

    name: str
    type_name: str
    parameters: tuple[Parameter, ...]
    setup: tuple[Statement, ...]
    states: tuple[State, ...]
    start: int
    annotations: tuple[Annotation, ...]
    span: Span


class Pipeline(msgspec.Struct, frozen=True):
    """V1Switch: indices into `Program.parsers` and `Program.controls`.

    The parser's parameters are (headers, metadata, standard metadata), those of verify and compute (headers,
    metadata), of ingress and egress all three, of the deparser (headers).
    """

    parser: int
    verify: int
    ingress: int
    egress: int
    compute: int
    deparser: int


class NewType(msgspec.Struct, frozen=True):
    """`type bit<9> PortId_t;` with its annotations (`@p4runtime_translation`)."""

    name: str
    original: Type
    original_name: str | None
    annotations: tuple[Annotation, ...]


class EnumInfo(msgspec.Struct, frozen=True):
    """An enum. With `representation` it is serializable, and `values` are the members' values; else their
    indices."""

    name: str
    members: tuple[str, ...]
    values: tuple[int, ...]
    representation: Bits | None
    annotations: tuple[Annotation, ...]


class Program(msgspec.Struct, frozen=True):
    """A whole program.

    `headers`, `structs`, `unions`, `enums`, `new_types` are those declared, whether used or not; generic
    ones are left
    out. `field_lists[n]` are the paths, as field names, of the user metadata's fields with
    `@field_list(n)`: a path to a
    struct means all of it. `annotations` are those on `main` (`@pkginfo`). `lines` is the text of every
    file, for errors.
    `v1model_version` is the value of V1MODEL_VERSION.
    """

    name: str
    errors: tuple[str, ...]
    headers: tuple[HeaderType, ...]
    structs: tuple[StructType, ...]
    unions: tuple[UnionType, ...]
    enums: tuple[EnumInfo, ...]
    new_types: tuple[NewType, ...]
    variables: tuple[VariableInfo, ...]
    externs: tuple[ExternInstance, ...]
    value_sets: tuple[ValueSet, ...]
    functions: tuple[Function, ...]
    actions: tuple[Action, ...]
    tables: tuple[Table, ...]
    controls: tuple[Control, ...]
    parsers: tuple[Parser, ...]
    pipeline: Pipeline
    field_lists: dict[int, tuple[tuple[str, ...], ...]]
    v1model_version: int
    annotations: tuple[Annotation, ...]
    lines: dict[str, tuple[str, ...]]
    warnings: tuple[str, ...] = ()
