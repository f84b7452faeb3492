"""Resolution of a vector file's names and values in the program.

A name may be any unique suffix of the control plane's, so that `ipv4_lpm` finds `MyIngress.ipv4_lpm`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from .. import ir
from ..ir.annotations import written_name
from ..runtime import (
    ActionCall,
    ExactMatch,
    LpmMatch,
    Match,
    Matches,
    OptionalMatch,
    RangeMatch,
    TernaryMatch,
)
from .statements import Call, KeyValue, Value

_T = TypeVar("_T")
_NEED_PRIORITY = (ir.MatchKind.TERNARY, ir.MatchKind.RANGE, ir.MatchKind.OPTIONAL)


class ResolveError(ValueError):
    """The program has no such object, or it cannot have that value. `word` is the word to point at."""

    def __init__(self, message: str, word: str = "") -> None:
        super().__init__(message)
        self.word = word


class Target(msgspec.Struct, frozen=True):
    """A table that a statement names."""

    table: ir.Table
    program: ir.Program

    @property
    def has_priority(self) -> bool:
        """Whether an entry needs a priority."""
        return any(key.match_kind in _NEED_PRIORITY for key in self.table.keys)

    def matches(self, given: tuple[KeyValue, ...]) -> Matches:
        """Returns the matches of an entry, by key name, without keys that match everything."""
        found: Matches = {}
        keys = [key for key in self.table.keys if key.match_kind is not ir.MatchKind.SELECTOR]
        for one in given:
            key = _key(keys, one.name)
            if key.name in found:
                raise ResolveError(f"key {key.name} comes twice", one.name)
            match = _match(key, one)
            if match is not None:
                found[key.name] = match
        missing = [k.name for k in keys if k.match_kind is ir.MatchKind.EXACT and k.name not in found]
        if missing:
            raise ResolveError(f"the exact key {missing[0]} of {self.table.name} is missing")
        return found

    def priority(self, given: int | None) -> int:
        """Returns the switch's priority, which begins at 1; exact and lpm tables have none, whatever is
        given.
        """
        if not self.has_priority:
            return 0
        if given is None:
            raise ResolveError(
                f"an entry of {self.table.name} needs a priority: it has ternary, range or optional keys"
            )
        return given + 1

    def call(self, call: Call) -> ActionCall:
        """Returns an action of the table with all its arguments."""
        actions = [self.program.actions[reference.action] for reference in self.table.actions]
        action = named({one.name: one for one in actions}, call.action, f"action of {self.table.name}")
        parameters = {written_name(one.name, one.annotations): one for one in action.data}
        own = {one.name: one for one in action.data}
        arguments: dict[str, int] = {}
        for one in call.arguments:
            parameter = parameters.get(one.name, own.get(one.name))
            if parameter is None:
                there = ", ".join(parameters) or "none"
                raise ResolveError(f"{action.name} has no parameter {one.name}; it has {there}", one.name)
            if parameter.name in arguments:
                raise ResolveError(f"parameter {one.name} comes twice", one.name)
            arguments[parameter.name] = _plain(one, ir.width_of(parameter.type) or 32)
        missing = [name for name, parameter in parameters.items() if parameter.name not in arguments]
        if missing:
            raise ResolveError(f"{action.name} lacks its argument {missing[0]}", call.action)
        return ActionCall(action.name, arguments)


def find_table(program: ir.Program, name: str) -> Target:
    """Returns the table of that name, or of that unique suffix."""
    return Target(named({one.name: one for one in program.tables}, name, "table"), program)


def find_extern(program: ir.Program, name: str, kinds: Iterable[str]) -> ir.ExternInstance:
    """Returns the extern object of that name, or of that unique suffix, among those kinds."""
    wanted = tuple(kinds)
    there = {one.name: one for one in program.externs if one.kind in wanted}
    return named(there, name, wanted[0].replace("_", " "))


def named(there: dict[str, _T], name: str, what: str) -> _T:
    """Finds by the whole name; else by whole parts at its end; else, as p4c does, by any end."""
    name = name.removeprefix(".")
    if name in there:
        return there[name]
    for ending in (f".{name}", name):
        found = [full for full in there if full.endswith(ending)]
        if len(found) == 1:
            return there[found[0]]
        if found:
            raise ResolveError(f"{name} may be the {what} {' or '.join(sorted(found))}", name)
    listed = ", ".join(sorted(there)) or "none"
    raise ResolveError(f"there is no {what} {name}; there are: {listed}", name)


def _key(keys: list[ir.Key], name: str) -> ir.Key:
    """Returns a key: p4c writes `h$0.f` for `h[0].f`, and `h.$valid` for `h.isValid()`."""
    there = {_plain_name(key.name): key for key in keys}
    wanted = _plain_name(name)
    try:
        return named(there, wanted, "key")
    except ResolveError:
        if wanted != "$valid$":
            raise
        valid = [key for plain, key in there.items() if plain.endswith("$valid$")]
        if len(valid) != 1:
            raise
        return valid[0]


def _plain_name(name: str) -> str:
    """Returns one form for all spellings of the same key."""
    parts = name.split(".")
    last = parts[-1].removesuffix("()")
    if last in ("isValid", "$valid$", "$valid", "valid"):
        parts[-1] = "$valid$"
    plain = []
    for part in parts:
        head, mark, index = part.partition("$")
        plain.append(f"{head}[{index}]" if mark and index.isdigit() else part)
    return ".".join(plain)


def _width(key: ir.Key) -> int:
    if isinstance(key.type, ir.ErrorCode | ir.Enum):
        return 32
    return ir.width_of(key.type)


def _match(key: ir.Key, given: KeyValue) -> Match | None:
    """Returns the match of a key; None for everything."""
    width, value = _width(key), given.value
    if key.match_kind is ir.MatchKind.EXACT:
        return ExactMatch(_plain(given, width))
    if key.match_kind is ir.MatchKind.OPTIONAL:
        return _optional(given, width)
    if key.match_kind is ir.MatchKind.LPM:
        return _lpm(given, width)
    if key.match_kind is ir.MatchKind.TERNARY:
        mask = _mask(value, width)
        number = _fits(given, value.number, width)
        return TernaryMatch(number & mask, _fits(given, mask, width)) if mask else None
    return _range(given, width)


def _optional(given: KeyValue, width: int) -> Match | None:
    if given.value.stars and not given.value.digits:
        return None
    return OptionalMatch(_plain(given, width))


def _lpm(given: KeyValue, width: int) -> Match | None:
    value = given.value
    if value.mask is not None or value.high is not None:
        raise ResolveError(f"{given.name} is matched by prefix: write VALUE/LENGTH", given.name)
    prefix = value.prefix
    if prefix is None:
        stars = value.bits - value.digits.bit_count()
        if value.stars and value.digits & ((1 << stars) - 1):
            raise ResolveError(f"{given.name} is matched by prefix: `*` stand at the end only", given.name)
        prefix = width - stars
    if not 0 <= prefix <= width:
        raise ResolveError(f"{given.name} has {width} bits, a prefix of {prefix} is none", given.name)
    mask = ((1 << prefix) - 1) << (width - prefix)
    return LpmMatch(_fits(given, value.number, width) & mask, prefix) if prefix else None


def _mask(value: Value, width: int) -> int:
    """Returns the significant bits. With `*` they are only the written digits, as in p4c."""
    if value.prefix is not None:
        return ((1 << value.prefix) - 1) << max(width - value.prefix, 0)
    if value.mask is not None:
        return value.mask
    return value.digits if value.stars else (1 << width) - 1


def _range(given: KeyValue, width: int) -> Match | None:
    value = given.value
    if value.stars and not value.digits:
        return None
    low = _fits(given, value.number, width)
    high = low if value.high is None else _fits(given, value.high, width)
    if value.stars or value.mask is not None or value.prefix is not None or low > high:
        raise ResolveError(f"{given.name} is matched by range: write LOW..HIGH", given.name)
    return None if low == 0 and high == (1 << width) - 1 else RangeMatch(low, high)


def _plain(given: KeyValue, width: int) -> int:
    value = given.value
    if value.stars or value.mask is not None or value.prefix is not None or value.high is not None:
        raise ResolveError(f"{given.name} is one number, without `*`, mask, prefix or range", given.name)
    return _fits(given, value.number, width)


def _fits(given: KeyValue, number: int, width: int) -> int:
    if number >> width:
        raise ResolveError(f"{given.name} has {width} bits, {number:#x} does not fit", given.name)
    return number
