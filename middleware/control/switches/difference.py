"""The writes that bring a switch to a target state. Pure.

The order is make before break, in stages; the writes of one stage may be done in any order, in one batch:

0. create what others refer to: members, multicast groups, clone sessions, value sets, cells 1. create groups
of members, which refer to members 2. write entries and default actions, which refer to all of the above 3.
delete obsolete entries 4. delete obsolete groups of members 5. delete obsolete members, multicast groups and
clone sessions, which nothing refers to any more
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from .state import SwitchState


class Kind(enum.Enum):
    """The kind of a write."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


class Change(Struct, frozen=True):
    """One write. `field` is the attribute of `SwitchState` that it changes, `key` the element in it.

    `value` is the new value. With MODIFY, None restores the program's own; with DELETE it is the old value.
    """

    stage: int
    kind: Kind
    field: str
    key: Any
    value: Any


# The stage in which elements of a field are created or changed, and the one in which they are deleted.
_STAGES: Final = {
    "members": (0, 5),
    "groups": (0, 5),
    "sessions": (0, 5),
    "value_sets": (0, 0),
    "registers": (0, 0),
    "meters": (0, 0),
    "selections": (1, 4),
    "entries": (2, 3),
    "defaults": (2, 2),
}
# These always exist: they are only modified, and restored to the program's own value.
_ALWAYS: Final = ("value_sets", "registers", "meters", "defaults")
# Of these only the cells in the target state are compared.
_OWNED: Final = ("registers", "meters")


def diff(actual: SwitchState, desired: SwitchState) -> tuple[Change, ...]:
    """Returns the writes that bring `actual` to `desired`, in execution order, without duplicates."""
    found = [change for field in _STAGES for change in _field(field, actual, desired)]
    return tuple(sorted(found, key=lambda change: change.stage))


def _field(field: str, actual: SwitchState, desired: SwitchState) -> Iterator[Change]:
    there: Mapping[Any, Any] = getattr(actual, field)
    wanted: Mapping[Any, Any] = getattr(desired, field)
    make, remove = _STAGES[field]
    for key, value in wanted.items():
        if key not in there:
            kind = Kind.MODIFY if field in _ALWAYS else Kind.INSERT
            yield Change(make, kind, field, key, value)
        elif there[key] != value:
            yield Change(make, Kind.MODIFY, field, key, value)
    if field in _OWNED:
        return
    for key, value in there.items():
        if key not in wanted:
            always = field in _ALWAYS
            yield Change(
                remove, Kind.MODIFY if always else Kind.DELETE, field, key, None if always else value
            )


def apply(state: SwitchState, changes: Iterable[Change]) -> SwitchState:
    """Returns a switch's state after these writes: the model that tests compare real switches with.

    Raises ValueError for a write that a switch would refuse: an insert of an existing element, a change of a
    missing one, or a reference to a missing one.
    """
    fields = {name: dict(getattr(state, name)) for name in SwitchState.__struct_fields__}
    for change in changes:
        _STEP[change.kind](fields[change.field], change)
        _check_references(fields)
    return SwitchState(**fields)


def _insert(field: dict[Any, Any], change: Change) -> None:
    if change.key in field:
        raise ValueError(f"{change.field} {change.key} is there already")
    field[change.key] = change.value


def _modify(field: dict[Any, Any], change: Change) -> None:
    if change.value is None:
        field.pop(change.key, None)
    elif change.field not in _ALWAYS and change.key not in field:
        raise ValueError(f"{change.field} {change.key} is not there")
    else:
        field[change.key] = change.value


def _delete(field: dict[Any, Any], change: Change) -> None:
    if change.key not in field:
        raise ValueError(f"{change.field} {change.key} is not there")
    del field[change.key]


_STEP: Final[dict[Kind, Callable[[dict[Any, Any], Change], None]]] = {
    Kind.INSERT: _insert,
    Kind.MODIFY: _modify,
    Kind.DELETE: _delete,
}


def _check_references(fields: dict[str, dict[Any, Any]]) -> None:
    """Checks that groups of members name existing members. (P4Info defines which entries use which
    profile.)
    """
    for (profile, number), group in fields["selections"].items():
        for member in group.members:
            if (profile, member.member) not in fields["members"]:
                raise ValueError(
                    f"group {number} of {profile} names member {member.member}, which is not there"
                )


class SwitchRefused(Exception):
    """The switch does not do what was requested: another controller is primary, or it refuses a write."""


class SwitchDiffers(Exception):
    """The switch acknowledged everything but holds something else. `changes` would correct it."""

    def __init__(self, name: str, changes: tuple[Change, ...]) -> None:
        first = changes[0]
        super().__init__(
            f"{name} differs from what was written in {len(changes)} places, the first:"
            f" {first.kind.value} {first.field} {first.key}"
        )
        self.changes = changes
