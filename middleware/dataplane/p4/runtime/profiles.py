"""Action profiles and selectors: members, groups, and references to them."""

from __future__ import annotations

from .errors import ControlError, Problem
from .match import Cell
from .shapes import ActionShape
from .values import ActionCall, GroupEntry, MemberEntry, OneShot

MAX_WEIGHT = 1 << 16  # sum of a group's weights
DEFAULT_SIZE = 1024


class Choices:
    """The choices of a table's row. `cells` contains a member as often as its weight."""

    __slots__ = ("cells", "users")

    def __init__(self, cells: list[Cell]) -> None:
        self.cells = cells
        self.users = 0  # rows, and of a member also groups


class Profile:
    """One action profile or selector, shared by tables. `actions` are those of all of them."""

    def __init__(self, name: str, size: int, is_selector: bool) -> None:
        self.name = name
        self.size = size
        self.is_selector = is_selector
        self.actions: dict[str, ActionShape] = {}
        self._members: dict[int, Choices] = {}
        self._groups: dict[int, Choices] = {}
        self._written_members: dict[int, MemberEntry] = {}
        self._written_groups: dict[int, GroupEntry] = {}

    # --- for tables

    def member(self, number: int) -> Choices:
        found = self._members.get(number)
        if found is None:
            raise ControlError(Problem.NOT_FOUND, f"{self.name} has no member {number}")
        return found

    def group(self, number: int) -> Choices:
        found = self._groups.get(number)
        if found is None:
            raise ControlError(Problem.NOT_FOUND, f"{self.name} has no group {number}")
        return found

    def one_shot(self, action: OneShot) -> Choices:
        """Cells of their own."""
        if not self.is_selector:
            raise ControlError(Problem.INVALID, f"{self.name} is no action selector")
        if not action.choices:
            raise ControlError(Problem.INVALID, "a one-shot has at least one action")
        _check_weights([choice.weight for choice in action.choices], 0)
        return Choices([cell for one in action.choices for cell in [self._cell(one.call)] * one.weight])

    # --- members

    def insert_member(self, entry: MemberEntry) -> None:
        if entry.member in self._members:
            raise ControlError(Problem.EXISTS, f"{self.name} has a member {entry.member}")
        if len(self._members) >= self.size:
            raise ControlError(Problem.FULL, f"{self.name} has {self.size} members, as many as it may")
        self._members[entry.member] = Choices([self._cell(entry.call)])
        self._written_members[entry.member] = entry

    def modify_member(self, entry: MemberEntry) -> None:
        cell = self.member(entry.member).cells[0]
        changed = self._cell(entry.call)
        cell.action, cell.args = changed.action, changed.args
        self._written_members[entry.member] = entry

    def delete_member(self, number: int) -> None:
        if self.member(number).users:
            raise ControlError(Problem.IN_USE, f"member {number} of {self.name} is in use")
        del self._members[number], self._written_members[number]

    def written_member(self, number: int) -> MemberEntry:
        self.member(number)
        return self._written_members[number]

    def members(self) -> list[MemberEntry]:
        return list(self._written_members.values())

    # --- groups

    def insert_group(self, entry: GroupEntry) -> None:
        if not self.is_selector:
            raise ControlError(Problem.INVALID, f"{self.name} is no action selector")
        if entry.group in self._groups:
            raise ControlError(Problem.EXISTS, f"{self.name} has a group {entry.group}")
        if len(self._groups) >= self.size:
            raise ControlError(Problem.FULL, f"{self.name} has {self.size} groups, as many as it may")
        self._groups[entry.group] = Choices(self._weighted(entry))
        self._note(entry)

    def modify_group(self, entry: GroupEntry) -> None:
        group = self.group(entry.group)
        group.cells[:] = self._weighted(entry)  # rows share this list
        self._forget(entry.group)
        self._note(entry)

    def delete_group(self, number: int) -> None:
        if self.group(number).users:
            raise ControlError(Problem.IN_USE, f"group {number} of {self.name} is in use")
        self._forget(number)
        del self._groups[number], self._written_groups[number]

    def written_group(self, number: int) -> GroupEntry:
        self.group(number)
        return self._written_groups[number]

    def groups(self) -> list[GroupEntry]:
        return list(self._written_groups.values())

    def _note(self, entry: GroupEntry) -> None:
        self._written_groups[entry.group] = entry
        for one in entry.members:
            self._members[one.member].users += 1

    def _forget(self, number: int) -> None:
        for one in self._written_groups[number].members:
            self._members[one.member].users -= 1

    def _weighted(self, entry: GroupEntry) -> list[Cell]:
        _check_weights([one.weight for one in entry.members], entry.max_size)
        if len({one.member for one in entry.members}) != len(entry.members):
            raise ControlError(Problem.INVALID, f"a member is named twice in group {entry.group}")
        return [cell for one in entry.members for cell in self.member(one.member).cells * one.weight]

    def _cell(self, call: ActionCall) -> Cell:
        shape = self.actions.get(call.action)
        if shape is None:
            raise ControlError(Problem.INVALID, f"{self.name} has no action {call.action}")
        return Cell(shape.number, shape.arguments(call))


def _check_weights(weights: list[int], max_size: int) -> None:
    if any(weight < 1 for weight in weights):
        raise ControlError(Problem.INVALID, "weights are at least 1")
    if sum(weights) > min(max_size or MAX_WEIGHT, MAX_WEIGHT):
        raise ControlError(Problem.FULL, f"the weights add up to {sum(weights)}, which is too much")
