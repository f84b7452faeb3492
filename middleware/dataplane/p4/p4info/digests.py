"""The calls of `digest()` in a program: control planes know each by the name of its data's type."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .. import ir


class Digest(msgspec.Struct, frozen=True):
    """One kind of digest."""

    name: str
    type: ir.Type


def digest_calls(program: ir.Program) -> list[Digest]:
    """Every kind once, in the order of the program. Data without a named type is `digest_0` and so on."""
    found: dict[str, Digest] = {}
    unnamed = 0
    for call in _calls(program):
        type_ = call.type_arguments[0]
        if isinstance(type_, ir.StructType | ir.HeaderType | ir.UnionType):
            name = type_.name
        else:
            name, unnamed = f"digest_{unnamed}", unnamed + 1
        found.setdefault(name, Digest(name, type_))
    return list(found.values())


def _calls(program: ir.Program) -> Iterator[ir.ExternCall]:
    """Those of actions and of controls. Parsers cannot call it."""
    for action in program.actions:
        yield from _digests_in(action.body)
    for control in program.controls:
        yield from _digests_in(control.body)


def _digests_in(value: object) -> Iterator[ir.ExternCall]:
    """Walks statements and expressions, whatever they are: tuples of values, values of fields."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ir.ExternCall) and one.name == "digest":
            yield one
        elif isinstance(one, tuple):
            waiting.extend(reversed(one))
        elif isinstance(one, ir.Statement | ir.Expression | ir.SwitchCase | ir.ActionCase | ir.Argument):
            fields = [getattr(one, name) for name in one.__struct_fields__]
            waiting.extend(reversed(fields))
