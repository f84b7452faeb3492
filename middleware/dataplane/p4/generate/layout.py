"""Layout of headers in packets, and the fields that a program accesses.

A field that is never read or written on its own does not become a variable: it stays in the header's bytes.
This is decided per header type, so that headers of one type can be copied as they are.
"""

from __future__ import annotations

import msgspec

from .. import ir
from ..runtime.machine import walk


class Unsupported(Exception):
    """The generator leaves this program to the interpreter."""


class Leaf(msgspec.Struct, frozen=True):
    """A field without parts. `path` are field numbers, `after` the fixed bits of the header behind it."""

    path: tuple[int, ...]
    type: ir.Type
    width: int
    offset: int  # fixed bits before it
    after: int
    before_varbit: bool  # a varbit follows, so its length comes on top of `after`


class Layout:
    """A header type. `live`: numbers of the leaves that are variables, `written`: those that change."""

    def __init__(self, type_: ir.HeaderType) -> None:
        self.type = type_
        self.leaves = _leaves(type_)
        self.fixed = sum(leaf.width for leaf in self.leaves if not isinstance(leaf.type, ir.Varbit))
        if self.fixed % 8:
            raise Unsupported(f"header {type_.name} is no whole number of bytes")
        self.size = self.fixed // 8
        varbits = [n for n, leaf in enumerate(self.leaves) if isinstance(leaf.type, ir.Varbit)]
        self.varbit = varbits[0] if varbits else None
        self.live: set[int] = set(range(len(self.leaves))) if varbits else set()
        self.written: set[int] = set(self.live)
        self._by_path = {leaf.path: number for number, leaf in enumerate(self.leaves)}

    def under(self, path: tuple[int, ...]) -> list[int]:
        """Returns the leaves of a field."""
        return [n for n, leaf in enumerate(self.leaves) if leaf.path[: len(path)] == path]

    def number(self, path: tuple[int, ...]) -> int:
        return self._by_path[path]

    def order(self) -> list[int]:
        """Returns the live leaves in their order."""
        return sorted(self.live)


def _leaves(type_: ir.HeaderType) -> list[Leaf]:
    flat = list(_flat(type_, ()))
    fixed = sum(0 if isinstance(t, ir.Varbit) else ir.width_of(t) for _, t in flat)
    varbit = next((n for n, (_, t) in enumerate(flat) if isinstance(t, ir.Varbit)), -1)
    leaves, offset = [], 0
    for number, (path, leaf) in enumerate(flat):
        width = ir.width_of(leaf)
        own = 0 if isinstance(leaf, ir.Varbit) else width
        leaves.append(Leaf(path, leaf, width, offset, fixed - offset - own, number < varbit))
        offset += own
    return leaves


def _flat(type_: ir.Type, path: tuple[int, ...]) -> list[tuple[tuple[int, ...], ir.Type]]:
    if isinstance(type_, ir.HeaderType | ir.StructType):
        return [one for n, f in enumerate(type_.fields) for one in _flat(f.type, (*path, n))]
    return [(path, type_)]


BUILT = (ir.HeaderValue, ir.Cast, ir.StructValue)  # values from parts


class Layouts:
    """The layouts of all headers of a program, by type name."""

    def __init__(self, program: ir.Program) -> None:
        self._by_name: dict[str, Layout] = {}
        bodies = (program.functions, program.actions, program.tables, program.controls, program.parsers)
        for node in walk(bodies):
            self._note(node)

    def of(self, type_: ir.Type) -> Layout:
        assert isinstance(type_, ir.HeaderType)
        found = self._by_name.get(type_.name)
        if found is None:
            found = self._by_name[type_.name] = Layout(type_)
        return found

    def _note(self, node: msgspec.Struct) -> None:
        if isinstance(node, ir.Member):
            self._touch(node, False)
        elif isinstance(node, ir.Assign):
            self._write(node.target)
        elif isinstance(node, ir.Argument):
            if node.direction in (ir.Direction.OUT, ir.Direction.INOUT):
                self._write(node.value)
        elif isinstance(node, ir.TableAction):
            for argument in node.arguments:
                self._write(argument)  # their directions are the action's
        elif isinstance(node, ir.ExternCall) and node.name in ("digest", "log_msg"):
            for one in node.arguments:
                self._touch_in(one.value.type)
        elif isinstance(node, BUILT) and isinstance(node.type, ir.HeaderType):
            self._touch_all(self.of(node.type))

    def _write(self, target: ir.Expression) -> None:
        for node in walk(target):
            if isinstance(node, ir.Member):
                self._touch(node, True)

    def _touch(self, member: ir.Member, write: bool) -> None:
        """Marks a field of a header, or of a struct in a header."""
        path: list[int] = []
        at: ir.Expression = member
        while isinstance(at, ir.Member):
            path.insert(0, at.index)
            at_type = at.base.type
            if isinstance(at_type, ir.HeaderType):
                layout = self.of(at_type)
                leaves = layout.under(tuple(path))
                layout.live.update(leaves)
                if write:
                    layout.written.update(leaves)
                return
            at = at.base

    def _touch_in(self, type_: ir.Type) -> None:
        """Marks all headers in a value."""
        if isinstance(type_, ir.HeaderType):
            layout = self.of(type_)
            layout.live.update(range(len(layout.leaves)))
        elif isinstance(type_, ir.StructType):
            for field in type_.fields:
                self._touch_in(field.type)
        elif isinstance(type_, ir.TupleType):
            for element in type_.elements:
                self._touch_in(element)

    def _touch_all(self, layout: Layout) -> None:
        layout.live.update(range(len(layout.leaves)))
        layout.written.update(range(len(layout.leaves)))
