"""Calls in a program that are visible to control planes: `digest()`, by the type of its data, and actions."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .. import ir

_WALKED = ir.Statement | ir.Expression | ir.SwitchCase | ir.ActionCase | ir.Argument


class Digest(msgspec.Struct, frozen=True):
    """One kind of digest."""

    name: str
    type: ir.Type


def digest_calls(program: ir.Program) -> list[Digest]:
    """Returns every kind once, in the order of the program. Data without a named type is `digest_0` and so
    on.
    """
    found: dict[str, Digest] = {}
    unnamed = 0
    for body in (*(one.body for one in program.actions), *(one.body for one in program.controls)):
        for call in _nodes(body):
            if not isinstance(call, ir.ExternCall) or call.name != "digest":
                continue
            type_ = call.type_arguments[0]
            if isinstance(type_, ir.StructType | ir.HeaderType | ir.UnionType):
                name = type_.name
            else:
                name, unnamed = f"digest_{unnamed}", unnamed + 1
            found.setdefault(name, Digest(name, type_))
    return list(found.values())


def called_actions(program: ir.Program) -> set[int]:
    """Returns the actions that controls call by themselves. p4c has put those that actions call in place by
    then.
    """
    bodies = [control.body for control in program.controls]
    return {node.action for node in _nodes(tuple(bodies)) if isinstance(node, ir.CallAction)}


def _nodes(value: object) -> Iterator[object]:
    """Statements and expressions below a value, whatever they are, in the order of the program."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(reversed(one))
        elif isinstance(one, _WALKED):
            yield one
            waiting.extend(reversed([getattr(one, name) for name in one.__struct_fields__]))
