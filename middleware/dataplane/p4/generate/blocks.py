"""Shared by all functions of a generated pipeline: headers and metadata of the blocks, values preserved for
copies, and the writing of blocks and the deparser.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..runtime.values import Out
from .order import emits_in_order
from .parsing import Parsing
from .stores import Group, Header, Stack, Store, headers_in, leaf_texts
from .writer import Line, Writer


class Blocks(Parsing):
    """The blocks of v1model over one set of headers and metadata."""

    headers: Store
    user: Store
    meta: Store
    standard: dict[str, str]  # variables of standard metadata, by the field's name
    cuts = False  # whether packets can be cut short

    def _bind_standard(self) -> None:
        assert isinstance(self.meta, Group)
        assert isinstance(self.meta.type, ir.StructType)
        pairs = zip(self.meta.type.fields, self.meta.items, strict=True)
        self.standard = {field.name: self.scalar(store) for field, store in pairs}

    def _bind_blocks(self) -> None:
        """Binds all blocks to the same headers and metadata."""
        pipeline = self.program.pipeline
        blocks: list[ir.Parser | ir.Control] = [self.program.parsers[pipeline.parser]]
        for number in (
            pipeline.verify,
            pipeline.ingress,
            pipeline.egress,
            pipeline.compute,
            pipeline.deparser,
        ):
            blocks.append(self.program.controls[number])
        for block in blocks:
            for parameter, store in zip(block.parameters, (self.headers, self.user, self.meta), strict=False):
                self.stores[parameter.variable] = store

    def _bind_names(self) -> None:
        machine = self.machine
        self.env.update(
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

    def _written(self, write: Callable[[], None]) -> list[Line]:
        """Returns the lines that `write` writes."""
        self.writer = Writer()
        write()
        return self.writer.lines

    def _caught(self, write: Callable[[], None]) -> None:
        """Encloses code that may drop the packet."""
        before = self.writer.mark()
        with self.writer.block("try:"):
            write()
        if drops(self.writer.lines[before:]):
            with self.writer.block("except Drop_ as drop:"):
                self.writer.line("K.drop(drop.reason)")
            return
        del self.writer.lines[before]
        for line in self.writer.lines[before:]:
            line.indent -= 1

    def _valid_bytes(self) -> str:
        """Bytes of all headers that are valid."""
        return " + ".join(_bytes_of(one, self.element) for one in headers_in(self.headers)) or "0"

    def _fresh_meta(self) -> dict[str, str]:
        """Returns standard metadata of an arriving packet."""
        values = {"ingress_port": "port", "packet_length": "L", "ingress_global_timestamp": "us"}
        return {self.standard[n]: text for n, text in values.items() if n in self.standard}

    def _reset_colors(self) -> None:
        for number, one in enumerate(self.program.externs):
            if one.kind == "direct_meter":
                self.writer.assign(f"m{number}", "0")

    def _block(self, number: int) -> None:
        """Writes a top-level control."""
        body = self.program.controls[number].body
        if not self.exits(body):
            self.inline(body)
            return
        with self.writer.block("try:"):
            self.inline(body)
        with self.writer.block("except Exit_:"):
            self.writer.line("pass")

    # --- what is kept of user metadata

    def _kept_leaves(self) -> None:
        """Records, per variable, its field lists and its default."""
        self.kept: dict[str, list[int]] = {}
        for number, paths in self.program.field_lists.items():
            for path in paths:
                for text in leaf_texts(self._at_path(path)):
                    self.kept.setdefault(text, []).append(number)
        values = zip(leaf_texts(self.user), leaf_texts(self.default(self.user_type)), strict=True)
        self.fresh_user = dict(values)

    @property
    def user_type(self) -> ir.Type:
        return self.program.controls[self.program.pipeline.ingress].parameters[1].type

    def _at_path(self, path: tuple[str, ...]) -> Store:
        store = self.user
        for name in path:
            assert isinstance(store, Group)
            assert isinstance(store.type, ir.StructType)
            number = next(n for n, field in enumerate(store.type.fields) if field.name == name)
            store = store.items[number]
        return store

    def _kept_text(self, name: str, request: str) -> str:
        """Returns the value that a user metadata variable has for a copy: its own if the field list
        names it.
        """
        lists = self.kept.get(name)
        if not lists:
            return self.fresh_user[name]
        value = self._copied_text(name)
        return f"({value} if {request} in {tuple(lists)!r} else {self.fresh_user[name]})"

    def _copied_text(self, name: str) -> str:
        return self.copied(self.stacks[name]) if name in self.stacks else name

    @property
    def stacks(self) -> dict[str, Stack]:
        found = (one for store in (self.headers, self.user) for one in headers_in(store))
        return {one.text: one for one in found if isinstance(one, Stack)}

    def _kept_tuple(self, request: str) -> str:
        return f"({''.join(self._kept_text(name, request) + ', ' for name in self.kept)})"

    def _take_kept(self) -> None:
        if self.kept:
            with self.writer.block("if kept is not None:"):
                self.writer.assign_all(list(self.kept), [f"kept[{n}]" for n in range(len(self.kept))])

    # --- deparser

    def _deparse(self) -> None:
        control = self.program.controls[self.program.pipeline.deparser]
        if emits_in_order(self.program):
            with self.writer.block("if ch:"):
                self._build(control)
            with self.writer.block("else:"):
                self.writer.line("data = p")
        else:
            self._build(control)
        if self.cuts:
            self.writer.line("if q_cut is not None: data = data[:q_cut]")

    def _build(self, control: ir.Control) -> None:
        self.writer.line("data = b''")
        self._block(self.program.pipeline.deparser)
        self.writer.line("data += p[o:]")

    def emit(self, s: ir.Emit) -> None:
        for one in headers_in(self.value(s.value)):
            if isinstance(one, Header):
                self._emit_header(one)
                continue
            name = self.temp()
            with self.writer.block(f"for {name} in {one.text}:"):
                for header in headers_in(self.element(name, one.type.element)):
                    assert isinstance(header, Header)
                    self._emit_header(header)

    def _emit_header(self, header: Header) -> None:
        with self.writer.block(f"if {header.valid}:"):
            self.writer.line(f"data += {self.packed(header)}")


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
