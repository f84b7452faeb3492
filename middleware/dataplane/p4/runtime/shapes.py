"""A table's shape for the control plane, extracted from the program once."""

from __future__ import annotations

import msgspec

from .. import ir
from ..bits import prefix_mask, to_signed
from .errors import ControlError, Problem
from .values import ActionCall, ExactMatch, LpmMatch, Match, Matches, OptionalMatch, RangeMatch, TernaryMatch

DEFAULT_SIZE = 1024  # of a table that names none, as p4c has it
ENUM_BITS = 32  # of keys that are enums or errors

Ranges = tuple[tuple[int, int, int, int], ...]


class KeyShape(msgspec.Struct, frozen=True):
    """One matched field; `shift` is its position in the table's single key number."""

    name: str
    width: int
    kind: ir.MatchKind
    shift: int

    @property
    def ones(self) -> int:
        return (1 << self.width) - 1


class ParamShape(msgspec.Struct, frozen=True):
    """One control plane parameter of an action."""

    name: str
    width: int
    signed: bool
    boolean: bool

    def value(self, raw: int) -> int:
        """Returns raw bits as the program's value."""
        return bool(raw) if self.boolean else to_signed(raw, self.width) if self.signed else raw

    def raw(self, value: int) -> int:
        return int(value) & ((1 << self.width) - 1)


class ActionShape(msgspec.Struct, frozen=True):
    """An action that a table or profile may run; `number` is its index in `Program.actions`."""

    name: str
    number: int
    params: tuple[ParamShape, ...]
    in_entries: bool = True  # False: @defaultonly
    as_default: bool = True  # False: @tableonly

    def arguments(self, call: ActionCall) -> tuple[int, ...]:
        """Returns the call's arguments in order, as the program sees them. Raises INVALID if one is missing
        or too wide.
        """
        known = {param.name for param in self.params}
        for name in call.arguments:
            if name not in known:
                raise ControlError(Problem.INVALID, f"action {self.name} has no parameter {name}")
        return tuple(self._argument(call, param) for param in self.params)

    def _argument(self, call: ActionCall, param: ParamShape) -> int:
        raw = call.arguments.get(param.name)
        if raw is None:
            raise ControlError(Problem.INVALID, f"action {self.name} wants a value for {param.name}")
        check_width(f"{param.name} of {self.name}", raw, param.width)
        return param.value(raw)

    def call(self, args: tuple[int, ...]) -> ActionCall:
        """Returns the opposite of `arguments`."""
        return ActionCall(self.name, {p.name: p.raw(v) for p, v in zip(self.params, args, strict=True)})


class Compiled(msgspec.Struct, frozen=True):
    """Matches as the engine has them."""

    value: int
    mask: int
    ranges: Ranges
    prefix: int


class TableShape(msgspec.Struct, frozen=True):
    """A table. `ranked`: its entries need a priority."""

    name: str
    keys: tuple[KeyShape, ...]
    actions: dict[str, ActionShape]
    size: int
    ranked: bool

    @property
    def exact(self) -> bool:
        return all(key.kind is ir.MatchKind.EXACT for key in self.keys)

    def compile(self, matches: Matches) -> Compiled:
        """Raises INVALID for unknown fields, wrong kinds, values too wide, a missing exact field."""
        known = {key.name for key in self.keys}
        for name in matches:
            if name not in known:
                raise ControlError(Problem.INVALID, f"table {self.name} has no key field {name}")
        return compile_matches(self.name, self.keys, matches)

    def action(self, name: str) -> ActionShape:
        found = self.actions.get(name)
        if found is None:
            raise ControlError(Problem.INVALID, f"table {self.name} has no action {name}")
        return found


def compile_matches(owner: str, keys: tuple[KeyShape, ...], matches: Matches) -> Compiled:
    """Returns all fields side by side."""
    value = mask = prefix = 0
    ranges: list[tuple[int, int, int, int]] = []
    for key in keys:
        match = matches.get(key.name)
        if match is None:
            if key.kind is ir.MatchKind.EXACT:
                raise ControlError(Problem.INVALID, f"{owner} wants an exact match for {key.name}")
            continue
        if isinstance(match, RangeMatch) and key.kind is ir.MatchKind.RANGE:
            ranges.extend(_range(owner, key, match))
            continue
        part, bits = _masked(owner, key, match)
        value |= part << key.shift
        mask |= bits << key.shift
        if isinstance(match, LpmMatch):
            prefix = match.prefix
    return Compiled(value, mask, tuple(ranges), prefix)


def check_width(what: str, value: int, width: int) -> None:
    """Raises INVALID unless `value` fits."""
    if value < 0 or value >> width:
        raise ControlError(Problem.INVALID, f"{what}: {value} does not fit into {width} bits")


def _range(owner: str, key: KeyShape, match: RangeMatch) -> Ranges:
    check_width(f"{key.name} of {owner}", match.low, key.width)
    check_width(f"{key.name} of {owner}", match.high, key.width)
    if match.low > match.high:
        raise ControlError(Problem.INVALID, f"{key.name} of {owner}: {match.low} is above {match.high}")
    if match.low == 0 and match.high == key.ones:
        return ()
    return ((key.shift, key.ones, match.low, match.high),)


def _masked(owner: str, key: KeyShape, match: Match) -> tuple[int, int]:
    """Returns value and mask of one field."""
    what = f"{key.name} of {owner}"
    bits = _mask_of(what, key, match)
    if isinstance(match, RangeMatch):
        raise ControlError(Problem.INVALID, f"{what} is {key.kind.value}, not a range")
    check_width(what, match.value, key.width)
    if match.value & ~bits:
        raise ControlError(Problem.INVALID, f"{what}: the value has bits outside of its mask")
    return match.value, bits


def _mask_of(what: str, key: KeyShape, match: Match) -> int:
    kind = key.kind
    if isinstance(match, ExactMatch) and kind is ir.MatchKind.EXACT:
        return key.ones
    if isinstance(match, OptionalMatch) and kind is ir.MatchKind.OPTIONAL:
        return key.ones
    if isinstance(match, TernaryMatch) and kind is ir.MatchKind.TERNARY:
        check_width(f"mask of {what}", match.mask, key.width)
        return match.mask
    if isinstance(match, LpmMatch) and kind is ir.MatchKind.LPM:
        if not 0 <= match.prefix <= key.width:
            raise ControlError(Problem.INVALID, f"{what}: no prefix of {match.prefix} bits in {key.width}")
        return prefix_mask(match.prefix, key.width)
    raise ControlError(Problem.INVALID, f"{what} is {kind.value}, which {type(match).__name__} is not")


# --- from the program


def key_width(type_: ir.Type) -> int:
    """Bits of a key, of a parameter, of a digest's field."""
    return ENUM_BITS if isinstance(type_, ir.Enum | ir.ErrorCode) else ir.width_of(type_)


def action_shape(program: ir.Program, number: int) -> ActionShape:
    action = program.actions[number]
    return ActionShape(action.name, number, tuple(_param(one) for one in action.data))


def _param(one: ir.Parameter) -> ParamShape:
    signed = isinstance(one.type, ir.Bits) and one.type.signed
    return ParamShape(one.name, key_width(one.type), signed, isinstance(one.type, ir.Bool))


def table_shape(program: ir.Program, table: ir.Table) -> TableShape:
    keys = matched_keys(table)
    kinds = {key.kind for key in keys}
    ranked = bool(kinds & {ir.MatchKind.TERNARY, ir.MatchKind.RANGE, ir.MatchKind.OPTIONAL})
    actions = {shape.name: shape for shape in (_table_action(program, one) for one in table.actions)}
    size = table.size if table.size is not None else DEFAULT_SIZE
    return TableShape(table.name, keys, actions, size, ranked)


def _table_action(program: ir.Program, one: ir.TableAction) -> ActionShape:
    shape = action_shape(program, one.action)
    return ActionShape(shape.name, shape.number, shape.params, not one.default_only, not one.table_only)


def matched_keys(table: ir.Table) -> tuple[KeyShape, ...]:
    """Returns the keys that are matched, with their places; selector keys are left out."""
    keys = [key for key in table.keys if key.match_kind is not ir.MatchKind.SELECTOR]
    return place([(key.name, key.type, key.match_kind) for key in keys])


def place(fields: list[tuple[str, ir.Type, ir.MatchKind]]) -> tuple[KeyShape, ...]:
    """Places fields side by side, the first one highest."""
    shift = sum(key_width(type_) for _, type_, _ in fields)
    placed = []
    for name, type_, kind in fields:
        shift -= key_width(type_)
        placed.append(KeyShape(name, key_width(type_), kind, shift))
    return tuple(placed)
