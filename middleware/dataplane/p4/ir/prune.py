"""Removes unused actions and functions from a program: those that no table contains and nothing calls. Pure.

p4c also removes them, before it checks the target's abilities: such an action is checked as P4, but makes no
requirements on the switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec

from .expressions import Call
from .program import Program, TableAction
from .statements import CallAction
from .walk import LEAVES, walk

Node = TypeVar("Node")
Places = Mapping[int, int]  # a new index for each old one


def prune(program: Program) -> Program:
    """Returns the same program with only used actions and functions, renumbered."""
    actions, functions = _reached(program)
    if len(actions) == len(program.actions) and len(functions) == len(program.functions):
        return program
    places = tuple({old: new for new, old in enumerate(kept)} for kept in (actions, functions))
    kept = {
        "actions": tuple(program.actions[old] for old in actions),
        "functions": tuple(program.functions[old] for old in functions),
        "tables": program.tables,
        "controls": program.controls,
        "parsers": program.parsers,
    }
    return msgspec.structs.replace(
        program, **{name: _renumbered(part, places[0], places[1]) for name, part in kept.items()}
    )


def _reached(program: Program) -> tuple[list[int], list[int]]:
    """Returns the used actions and functions, in order: of tables, of controls and parsers, and of their
    calls.
    """
    actions: set[int] = set()
    functions: set[int] = set()
    waiting: list[object] = [program.tables, program.controls, program.parsers]
    waiting += [program.actions[one.action] for table in program.tables for one in table.actions]
    actions.update(one.action for table in program.tables for one in table.actions)
    while waiting:
        for one in walk(waiting.pop()):
            if isinstance(one, CallAction) and one.action not in actions:
                actions.add(one.action)
                waiting.append(program.actions[one.action])
            elif isinstance(one, Call) and one.function not in functions:
                functions.add(one.function)
                waiting.append(program.functions[one.function])
    return sorted(actions), sorted(functions)


def _renumbered(node: Node, actions: Places, functions: Places) -> Node:
    """Returns `node` with every index of an action or function replaced; a node without any stays the same
    object.
    """
    if isinstance(node, tuple):
        made = tuple([_renumbered(one, actions, functions) for one in node])
        return node if all(a is b for a, b in zip(made, node, strict=True)) else cast(Node, made)
    if not isinstance(node, msgspec.Struct) or isinstance(node, LEAVES):
        return node
    fields = {name: getattr(node, name) for name in node.__struct_fields__}
    made_fields = {name: _renumbered(value, actions, functions) for name, value in fields.items()}
    if isinstance(node, CallAction | TableAction):
        made_fields["action"] = actions[node.action]
    elif isinstance(node, Call):
        made_fields["function"] = functions[node.function]
    changed = {name: value for name, value in made_fields.items() if value is not fields[name]}
    return msgspec.structs.replace(node, **changed) if changed else node
