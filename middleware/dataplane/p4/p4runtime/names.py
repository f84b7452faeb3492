"""Strings that controllers use in place of the switch's numbers: `@p4runtime_translation(uri, string)`.

The number of a string is, in this order: that in `@p4runtime_translation_mappings({ {"name", 7} })` of the
type; the number itself if the string is decimal, so that ports are "1" and "2"; otherwise one that the switch
assigns at first use, from the highest down, for the life of the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .. import ir
from .errors import Code, P4RuntimeError, invalid

MOST_NAMES: Final = 65_536  # that are picked for one type
LONGEST: Final = 1024
_PAIR: Final = re.compile(r'\{\s*"((?:[^"\\]|\\.)*)"\s*,\s*(0[xX][0-9a-fA-F]+|\d+)\s*\}')
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]*")


class Names:
    """The names of one type, whose numbers have `width` bits."""

    def __init__(self, type_name: str, width: int, fixed: Mapping[str, int]) -> None:
        self._type, self._width = type_name, width
        self._numbers = dict(fixed)
        self._names = {number: name for name, number in fixed.items()}
        self._next = (1 << width) - 1
        self._picked = 0

    def number(self, data: bytes, what: str) -> int:
        """Returns the number of a string. Raises INVALID_ARGUMENT if it is not one, RESOURCE_EXHAUSTED if no
        number is left.
        """
        name = _text(data, what)
        known = self._numbers.get(name)
        if known is not None:
            return known
        if _DECIMAL.fullmatch(name) and not int(name) >> self._width:
            taken = self._names.get(int(name))
            if taken is not None:
                raise invalid(f"{what}: the number {name} of {self._type} stands for {taken!r}")
            return int(name)
        if not name:
            raise invalid(f"{what}: the string is empty, and {self._type} maps it to nothing")
        return self._pick(name, what)

    def _pick(self, name: str, what: str) -> int:
        while self._next in self._names:
            self._next -= 1
        if self._next < 0 or self._picked >= MOST_NAMES:
            raise P4RuntimeError(
                Code.RESOURCE_EXHAUSTED, f"{what}: {self._type} has no number left for {name!r}"
            )
        number, self._next, self._picked = self._next, self._next - 1, self._picked + 1
        self._numbers[name], self._names[number] = number, name
        return number

    def adopt(self, earlier: Names) -> None:
        """Keeps the numbers that an earlier pipeline assigned. Raises ValueError if one has another meaning
        here.
        """
        for name, number in earlier._numbers.items():
            if self._numbers.get(name, number) != number or self._names.get(number, name) != name:
                raise ValueError(f"{name!r} of {self._type} was {number} before")
            if number >> self._width:
                raise ValueError(f"{name!r} of {self._type} was {number}: too wide now")
            self._numbers[name], self._names[number] = number, name
        self._picked += earlier._picked

    def data(self, number: int) -> bytes:
        """Returns the string that a controller sees."""
        return self._names.get(number, str(number)).encode()


def _text(data: bytes, what: str) -> str:
    if len(data) > LONGEST:
        raise invalid(f"{what}: a string of {len(data)} bytes; at most {LONGEST} are taken")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise invalid(f"{what}: the string is not UTF-8") from error


def names_of(program: ir.Program) -> dict[str, Names]:
    """Returns names by type. Raises ValueError if mappings do not fit or contradict each other."""
    found = {}
    for one in program.new_types:
        mark = ir.find(one.annotations, "p4runtime_translation")
        if mark is not None and len(mark.arguments) > 1 and mark.arguments[1] == "string":
            width = ir.width_of(one.original)
            found[one.name] = Names(one.name, width, _fixed(one, width))
    return found


def _fixed(type_: ir.NewType, width: int) -> dict[str, int]:
    mark = ir.find(type_.annotations, "p4runtime_translation_mappings")
    pairs = _PAIR.findall(mark.text) if mark is not None else []
    fixed = {name.replace('\\"', '"'): int(number, 0) for name, number in pairs}
    if any(number >> width for number in fixed.values()):
        raise ValueError(f"type {type_.name}: a mapped number does not fit into {width} bits")
    if len(set(fixed.values())) < len(pairs):
        raise ValueError(f"type {type_.name}: a string or a number is mapped twice")
    return fixed
