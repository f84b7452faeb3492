"""A program without the actions that nothing runs: no table has them, and nobody calls them. Pure.

p4c leaves them out as well, before it asks what its target can do: what such an action says is checked as P4,
and asks nothing of the switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec

from .program import Program, TableAction
from .statements import CallAction
from .walk import LEAVES, walk

Node = TypeVar("Node")


def prune(program: Program) -> Program:
    """The same program with its actions counted anew."""
    reached = _reached(program)
    if len(reached) == len(program.actions):
        return program
    places = {old: new for new, old in enumerate(reached)}
    return msgspec.structs.replace(
        program,
        actions=_renumbered(tuple(program.actions[old] for old in reached), places),
        tables=_renumbered(program.tables, places),
        controls=_renumbered(program.controls, places),
    )


def _reached(program: Program) -> list[int]:
    """In their order: actions of tables, those that controls call, and those that these call."""
    waiting = [one.action for table in program.tables for one in table.actions]
    waiting += _called(program.controls)
    found: set[int] = set()
    while waiting:
        action = waiting.pop()
        if action not in found:
            found.add(action)
            waiting += _called(program.actions[action])
    return sorted(found)


def _called(node: object) -> list[int]:
    return [one.action for one in walk(node) if isinstance(one, CallAction)]


def _renumbered(node: Node, places: Mapping[int, int]) -> Node:
    """`node` with every index of an action replaced; what has none stays the same object."""
    if isinstance(node, tuple):
        made = tuple([_renumbered(one, places) for one in node])
        return node if all(a is b for a, b in zip(made, node, strict=True)) else cast(Node, made)
    if not isinstance(node, msgspec.Struct) or isinstance(node, LEAVES):
        return node
    fields = {name: getattr(node, name) for name in node.__struct_fields__}
    made_fields = {name: _renumbered(value, places) for name, value in fields.items()}
    if isinstance(node, CallAction | TableAction):
        made_fields["action"] = places[node.action]
    changed = {name: value for name, value in made_fields.items() if value is not fields[name]}
    return msgspec.structs.replace(node, **changed) if changed else node
