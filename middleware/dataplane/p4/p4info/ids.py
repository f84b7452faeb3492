"""Identifiers and aliases of control-plane objects, the same as p4c's.

An identifier, 32 bits:

    kind (8) | hash of the name (24)

`kind` is P4Runtime's `P4Ids.Prefix`. The hash is Bob Jenkins' one-at-a-time over the name's UTF-8, its low 24
bits; if the number is taken, the next free one is used. Names are hashed in the order of their bytes, kind
after kind, so that numbers do not depend on positions in the program. `@id(N)` takes precedence over the hash
and reserves its number. Source: the P4Runtime specification, 6.3, and p4c's control-plane generator.
"""

from __future__ import annotations

import enum
from typing import Final

HASH_MASK: Final = 0xFFFFFF
_WORD: Final = 0xFFFFFFFF


class Kind(enum.IntEnum):
    """`P4Ids.Prefix`: the first byte of an identifier."""

    ACTION = 0x01
    TABLE = 0x02
    VALUE_SET = 0x03
    CONTROLLER_HEADER = 0x04
    ACTION_PROFILE = 0x11
    COUNTER = 0x12
    DIRECT_COUNTER = 0x13
    METER = 0x14
    DIRECT_METER = 0x15
    REGISTER = 0x16
    DIGEST = 0x17


class IdError(ValueError):
    """An `@id` that contradicts another, or its kind."""


def name_hash(name: bytes) -> int:
    """Returns Bob Jenkins' one-at-a-time hash, 32 bits."""
    state = 0
    for byte in name:
        state = (state + byte) & _WORD
        state = (state + (state << 10)) & _WORD
        state ^= state >> 6
    state = (state + (state << 3)) & _WORD
    state ^= state >> 11
    return (state + (state << 15)) & _WORD


class Symbols:
    """All names that a control plane sees. Collected first, numbered by `assign`, then looked up."""

    def __init__(self) -> None:
        self._ids: dict[Kind, dict[str, int]] = {}
        self._taken: set[int] = set()
        self._suffixes: dict[tuple[str, ...], int] = {}
        self._names: set[str] = set()

    def add(self, kind: Kind, name: str, wanted: int | None = None) -> None:
        """Adds a name; a repeated name is not an error. `wanted` is its `@id`, with or without the kind."""
        known = self._ids.setdefault(kind, {})
        if name in known:
            return
        known[name] = 0 if wanted is None else self._claim(kind, name, wanted)
        if name not in self._names:
            self._names.add(name)
            for suffix in _suffixes(name):
                self._suffixes[suffix] = self._suffixes.get(suffix, 0) + 1

    def _claim(self, kind: Kind, name: str, wanted: int) -> int:
        if wanted >> 24 not in (0, kind) or not wanted & HASH_MASK:
            raise IdError(f"@id({wanted:#x}) of {name} is no identifier of a {kind.name.lower()}")
        number = kind << 24 | wanted & HASH_MASK
        if number in self._taken:
            raise IdError(f"@id({wanted:#x}) of {name} belongs to something else already")
        self._taken.add(number)
        return number

    def assign(self) -> None:
        """Numbers all names that have no `@id`."""
        for kind in sorted(self._ids):
            for name in sorted(self._ids[kind], key=str.encode):
                if not self._ids[kind][name]:
                    self._ids[kind][name] = self._probe(kind, name_hash(name.encode()))

    def _probe(self, kind: Kind, hashed: int) -> int:
        while (number := kind << 24 | hashed & HASH_MASK) in self._taken:
            hashed += 1
        self._taken.add(number)
        return number

    def id(self, kind: Kind, name: str) -> int:
        """Returns a name's identifier."""
        return self._ids[kind][name]

    def alias(self, name: str) -> str:
        """Returns the shortest suffix, in whole parts, that no other name has; the whole name if there is
        none.
        """
        suffixes = _suffixes(name)
        unique = (suffix for suffix in suffixes if self._suffixes[suffix] < 2)
        return ".".join(next(unique, suffixes[-1]))


def _suffixes(name: str) -> list[tuple[str, ...]]:
    """Returns the suffixes of a dotted name, shortest first."""
    parts = tuple(name.split("."))
    return [parts[at:] for at in range(len(parts) - 1, -1, -1)]


def number_fields(wanted: list[int | None]) -> list[int]:
    """Returns identifiers of match fields, parameters and metadata: `@id` if given, else the next free one
    from 1.
    """
    taken = {number for number in wanted if number is not None}
    if 0 in taken or len(taken) < sum(number is not None for number in wanted):
        raise IdError("@id of a field is 0, or is used twice")
    numbers, following = [], 1
    for number in wanted:
        if number is not None:
            following += 1
            numbers.append(number)
            continue
        while following in taken:
            following += 1
        taken.add(following)
        numbers.append(following)
    return numbers
