"""State machines as tables: rows of events, indexed by state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

_State = TypeVar("_State")
_Event = TypeVar("_Event")
_Entry = TypeVar("_Entry")


def transitions(
    states: Iterable[_State], rows: Mapping[_Event, Sequence[_Entry]]
) -> Mapping[_State, Mapping[_Event, _Entry]]:
    """Returns table[state][event]. `rows` has for each event one entry per state, in the order of `states`.

    Raises ValueError if a row is longer or shorter.
    """
    table: dict[_State, dict[_Event, _Entry]] = {state: {} for state in states}
    for event, row in rows.items():
        for of_state, entry in zip(table.values(), row, strict=True):
            of_state[event] = entry
    return MappingProxyType({state: MappingProxyType(entries) for state, entries in table.items()})
