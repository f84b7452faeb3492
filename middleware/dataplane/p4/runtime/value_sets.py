"""Parser value sets: filled by the control plane, matched in select."""

from __future__ import annotations

from .. import ir
from .errors import ControlError, Problem
from .match import MatchTable, Row
from .shapes import compile_matches, place
from .values import Matches, ValueSetMember


class ValueSetState:
    """One value set; `match` finds a row with `hit` for a key that is in it."""

    def __init__(self, value_set: ir.ValueSet) -> None:
        self.name = value_set.name
        self.size = value_set.size
        self.keys = place([(one.name, one.type, one.match_kind) for one in value_set.fields])
        self.match = MatchTable(False, Row(False, 0, ()))
        self._members: list[ValueSetMember] = []

    def set(self, members: list[ValueSetMember]) -> None:
        """Replaces all, or nothing if one is refused."""
        if len(members) > self.size:
            raise ControlError(Problem.FULL, f"value set {self.name} holds {self.size} members")
        match = MatchTable(False, self.match.miss)
        for member in members:
            row = self._row(member.matches)
            if row.identity not in match.by_identity:
                match.add(row)
        self.match = match
        self._members = list(members)

    def members(self) -> list[ValueSetMember]:
        return list(self._members)

    def has(self, key: int) -> bool:
        """Returns whether the fields, side by side, are in the set."""
        return self.match.find(key).hit

    def _row(self, matches: Matches) -> Row:
        compiled = compile_matches(self.name, self.keys, matches)
        row = Row(True, 0, ())
        row.value, row.mask, row.ranges = compiled.value, compiled.mask, compiled.ranges
        return row
