"""Shared by all functions of a generated pipeline: headers and metadata of the blocks, values preserved for
copies, and the writing of blocks and the deparser.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..runtime.values import Out
from .base import Draft
from .expressions import Expressions
from .order import emits_in_order
from .packing import Packing
from .statements import Statements
from .stores import Group, Header, Stack, Store, headers_in, leaf_texts
from .writer import Line, Writer


class Blocks:
    """The blocks of v1model over one set of headers and metadata."""

    headers: Store
    user: Store
    meta: Store
    standard: dict[str, str]  # variables of standard metadata, by the field's name
    cuts = False  # whether packets can be cut short

    def __init__(
        self, draft: Draft, packing: Packing, expressions: Expressions, statements: Statements
    ) -> None:
        self._draft = draft
        self._packing = packing
        self._expressions = expressions
        self._statements = statements
        statements.kinds[ir.Emit] = self.emit

    def bind_standard(self) -> None:
        assert isinstance(self.meta, Group)
        assert isinstance(self.meta.type, ir.StructType)
        pairs = zip(self.meta.type.fields, self.meta.items, strict=True)
        self.standard = {field.name: self._draft.scalar(store) for field, store in pairs}

    def bind_blocks(self) -> None:
        """Binds all blocks to the same headers and metadata."""
        pipeline = self._draft.program.pipeline
        blocks: list[ir.Parser | ir.Control] = [self._draft.program.parsers[pipeline.parser]]
        for number in (
            pipeline.verify,
            pipeline.ingress,
            pipeline.egress,
            pipeline.compute,
            pipeline.deparser,
        ):
            blocks.append(self._draft.program.controls[number])
        for block in blocks:
            for parameter, store in zip(block.parameters, (self.headers, self.user, self.meta), strict=False):
                self._draft.stores[parameter.variable] = store

    def bind_names(self) -> None:
        machine = self._draft.machine
        self._draft.env.update(
            {
                "int_": int.from_bytes,
                "K": machine.counts,
                "Out": Out,
                "ports_": machine.ports,
                "copies_": machine.replication.copies,
                "clones_": machine.replication.clones,
                "length_": machine.replication.packet_length,
                "microseconds_": machine.microseconds,
            }
        )

    def written(self, write: Callable[[], None]) -> list[Line]:
        """Returns the lines that `write` writes."""
        self._draft.writer = Writer()
        write()
        return self._draft.writer.lines

    def caught(self, write: Callable[[], None]) -> None:
        """Encloses code that may drop the packet."""
        before = self._draft.writer.mark()
        with self._draft.writer.block("try:"):
            write()
        if drops(self._draft.writer.lines[before:]):
            with self._draft.writer.block("except Drop_ as drop:"):
                self._draft.writer.line("K.drop(drop.reason)")
            return
        del self._draft.writer.lines[before]
        for line in self._draft.writer.lines[before:]:
            line.indent -= 1

    def valid_bytes(self) -> str:
        """Bytes of all headers that are valid."""
        return " + ".join(_bytes_of(one, self._draft.element) for one in headers_in(self.headers)) or "0"

    def fresh_meta(self) -> dict[str, str]:
        """Returns standard metadata of an arriving packet."""
        values = {"ingress_port": "port", "packet_length": "L", "ingress_global_timestamp": "us"}
        return {self.standard[n]: text for n, text in values.items() if n in self.standard}

    def reset_colors(self) -> None:
        for number, one in enumerate(self._draft.program.externs):
            if one.kind == "direct_meter":
                self._draft.writer.assign(f"m{number}", "0")

    def block(self, number: int) -> None:
        """Writes a top-level control."""
        body = self._draft.program.controls[number].body
        if not self._draft.exits(body):
            self._statements.inline(body)
            return
        with self._draft.writer.block("try:"):
            self._statements.inline(body)
        with self._draft.writer.block("except Exit_:"):
            self._draft.writer.line("pass")

    # --- what is kept of user metadata

    def kept_leaves(self) -> None:
        """Records, per variable, its field lists and its default."""
        self.kept: dict[str, list[int]] = {}
        for number, paths in self._draft.program.field_lists.items():
            for path in paths:
                for text in leaf_texts(self._at_path(path)):
                    self.kept.setdefault(text, []).append(number)
        values = zip(leaf_texts(self.user), leaf_texts(self._draft.default(self.user_type)), strict=True)
        self.fresh_user = dict(values)

    @property
    def user_type(self) -> ir.Type:
        return self._draft.program.controls[self._draft.program.pipeline.ingress].parameters[1].type

    def _at_path(self, path: tuple[str, ...]) -> Store:
        store = self.user
        for name in path:
            assert isinstance(store, Group)
            assert isinstance(store.type, ir.StructType)
            number = next(n for n, field in enumerate(store.type.fields) if field.name == name)
            store = store.items[number]
        return store

    def kept_text(self, name: str, request: str) -> str:
        """Returns the value that a user metadata variable has for a copy: its own if the field list
        names it.
        """
        lists = self.kept.get(name)
        if not lists:
            return self.fresh_user[name]
        value = self.copied_text(name)
        return f"({value} if {request} in {tuple(lists)!r} else {self.fresh_user[name]})"

    def copied_text(self, name: str) -> str:
        return self._draft.copied(self.stacks[name]) if name in self.stacks else name

    @property
    def stacks(self) -> dict[str, Stack]:
        found = (one for store in (self.headers, self.user) for one in headers_in(store))
        return {one.text: one for one in found if isinstance(one, Stack)}

    def kept_tuple(self, request: str) -> str:
        return f"({''.join(self.kept_text(name, request) + ', ' for name in self.kept)})"

    def take_kept(self) -> None:
        if self.kept:
            with self._draft.writer.block("if kept is not None:"):
                self._draft.writer.assign_all(list(self.kept), [f"kept[{n}]" for n in range(len(self.kept))])

    # --- deparser

    def deparse(self) -> None:
        control = self._draft.program.controls[self._draft.program.pipeline.deparser]
        if emits_in_order(self._draft.program):
            with self._draft.writer.block("if ch:"):
                self._build(control)
            with self._draft.writer.block("else:"):
                self._draft.writer.line("data = p")
        else:
            self._build(control)
        if self.cuts:
            self._draft.writer.line("if q_cut is not None: data = data[:q_cut]")

    def _build(self, control: ir.Control) -> None:
        self._draft.writer.line("data = b''")
        self.block(self._draft.program.pipeline.deparser)
        self._draft.writer.line("data += p[o:]")

    def emit(self, s: ir.Emit) -> None:
        for one in headers_in(self._expressions.value(s.value)):
            if isinstance(one, Header):
                self._emit_header(one)
                continue
            name = self._draft.temp()
            with self._draft.writer.block(f"for {name} in {one.text}:"):
                for header in headers_in(self._draft.element(name, one.type.element)):
                    assert isinstance(header, Header)
                    self._emit_header(header)

    def _emit_header(self, header: Header) -> None:
        with self._draft.writer.block(f"if {header.valid}:"):
            self._draft.writer.line(f"data += {self._packing.packed(header)}")


def drops(body: list[Line]) -> bool:
    return any("Drop_" in line.text for line in body)


def _bytes_of(one: Header | Stack, element: Callable[[str, ir.Type], Store]) -> str:
    if isinstance(one, Stack):
        inner = headers_in(element("e", one.type.element))
        return f"sum({' + '.join(_bytes_of(header, element) for header in inner)} for e in {one.text})"
    layout = one.layout
    size = str(layout.size)
    if layout.varbit is not None:
        size = f"({layout.size} + ({one.fields[layout.varbit]}[1] >> 3))"
    return f"({size} if {one.valid} else 0)"
