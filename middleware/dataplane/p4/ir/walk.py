"""Traversal of a program: all expressions and statements below a node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from . import expressions, program, statements, types
from .annotations import Annotation

LEAVES = (
    types.StructType,
    types.HeaderType,
    types.UnionType,
    types.StackType,
    types.TupleType,
    types.Bits,
    types.Enum,
    Annotation,
)
NODES = (
    *expressions.Expression.__args__,
    *statements.Statement.__args__,
)


def walk(node: object) -> Iterator[expressions.Expression | statements.Statement]:
    """Yields every expression and statement in `node` (a struct of `ir`, or a tuple of such), parents
    first.
    """
    todo: list[object] = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, NODES):
            yield one
        if isinstance(one, tuple):
            todo.extend(reversed(one))
        elif isinstance(one, msgspec.Struct) and not isinstance(one, LEAVES):
            todo.extend(getattr(one, name) for name in reversed(one.__struct_fields__) if name != "type")


def bodies(whole: program.Program) -> Iterator[expressions.Expression | statements.Statement]:
    """Yields every expression and statement of a program."""
    for part in (whole.controls, whole.parsers, whole.actions, whole.functions, whole.tables):
        yield from walk(part)
