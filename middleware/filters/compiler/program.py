"""The static step of Camus (section V.A): a header description to a whole v1model program.

The program depends on the description and the order of fields alone. Rules are entries of its tables:

  parser -> root -> for each field: exact, span, rest or absent -> link -> state -> for each block: exact,
  span, rest -> leaf -> custom -> updates

If packets have several messages, each passes through these tables (`program_messages`).

`meta.at` says which table is next, and `meta.state` the state of the diagram there; a table that isn't next
is passed by. `root` has no key: its default action names the first state, so that one write goes from one
rule set to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from . import program_messages as several
from .schema import STATE_BITS, Counter, Header, Next, QueryField, Schema
from .variables import AVG, SUM

LEAF: Final = 255  # `at` of leaves
SIZE: Final = 1 << 17  # entries of a table, unless said otherwise
MAX_FIELDS: Final = 200
CONTROL: Final = "Subscriptions"
_META: Final = "inout metadata_t meta, inout standard_metadata_t standard"
_KIND: Final = {"range": "range", "lpm": "lpm", "ternary": "ternary"}


def program_text(schema: Schema, order: Sequence[int], size: int = SIZE) -> str:
    """Returns the program. `order`: places of all query fields; `size`: of each table."""
    return "\n".join(_Writer(schema, order, size).lines()) + "\n"


class _Writer:
    """One program."""

    def __init__(self, schema: Schema, order: Sequence[int], size: int) -> None:
        self.schema = schema
        self.order = order
        self.size = size
        self.link = len(order)

    def lines(self) -> Iterator[str]:
        yield "// Written by `treecast filter compile`. Rules are entries of its tables."
        yield "#include <core.p4>"
        yield "#include <v1model.p4>"
        yield ""
        types, actions = split_source(self.schema.source)
        yield types.strip() or "\n".join(_header(header) for header in self.schema.headers)
        yield ""
        yield from self._structs()
        if actions.strip():
            yield actions.strip()
            yield ""
        yield from self._parser()
        yield from self._ingress()
        yield from self._rest_of_pipeline()

    # --- types and parser

    def _structs(self) -> Iterator[str]:
        if self.schema.messages:
            yield from several.raw_type(self.schema.messages)
        yield "struct headers_t {"
        yield from (f"    {header.name} {header.name};" for header in self.schema.headers)
        if self.schema.messages:
            yield f"    tc_message_t[{self.schema.messages.most}] {several.RAW};"
        yield "}"
        yield ""
        yield "struct metadata_t {"
        yield "    bit<8> at;  // the level of the next table"
        yield "    bit<32> state;"
        yield "    bit<1> back;  // a copy may leave by the port by which the packet came"
        for field in self._low_fields():
            yield f"    bit<{field.bits}> {field.key}_class;"
        for counter in self.schema.counters:
            for name, width in (
                ("cell", 32),
                ("function", 8),
                ("argument", 8),
                ("counts", 1),
                ("value", STATE_BITS),
            ):
                yield f"    bit<{width}> {counter.name}_{name};"
        if self.schema.messages:
            yield from several.metadata(self.schema.messages)
        yield "}"
        yield ""

    def _low_fields(self) -> list[QueryField]:
        return [self.schema.fields[place] for place in self.order if self.schema.fields[place].kind == "low"]

    def _parser(self) -> Iterator[str]:
        yield f"parser Parse(packet_in packet, out headers_t hdr, {_META}) {{"
        yield "    state start {"
        yield f"        transition {self.schema.headers[0].name};"
        yield "    }"
        messages = self.schema.messages
        inside = several.message_headers(self.schema) if messages else []
        for header in self.schema.headers:
            yield ""
            yield f"    state {header.name} {{"
            yield f"        packet.extract(hdr.{header.name});"
            if header.name in inside:
                yield f"        meta.bytes = meta.bytes + {several.bytes_of(header)};"
            if messages and header.name == messages.header:
                yield from several.leave(messages)
            else:
                nexts = [one for one in self.schema.nexts if one.header == header.name]
                yield from _transition(nexts, "tc_fits" if header.name in inside else "accept")
            yield "    }"
        if messages:
            yield from several.states(messages)
        yield "}"
        yield ""

    # --- ingress

    def _ingress(self) -> Iterator[str]:
        yield f"control {CONTROL}(inout headers_t hdr, {_META}) {{"
        for counter in self.schema.counters:
            for name, width in (("window", 48), ("count", STATE_BITS), ("total", STATE_BITS)):
                yield f"    register<bit<{width}>>({counter.cells}) {counter.name}_{name};"
        yield from _indented(self._actions())
        for place in self.order:
            yield from _indented(self._field_tables(self.schema.fields[place]))
        if self.schema.counters:
            yield from _indented(
                _table("links", ["meta.state: exact"], ["link", "nowhere"], "nowhere()", self.size)
            )
            for counter in self.schema.counters:
                yield from _indented(self._value_tables(counter.name, f"meta.{counter.name}_value", "range"))
        yield from _indented(self._last_tables())
        yield "    apply {"
        messages = self.schema.messages
        yield from _indented(several.ingress(messages, self._apply()) if messages else self._apply(), 2)
        yield "    }"
        yield "}"
        yield ""

    def _actions(self) -> Iterator[str]:
        yield "action go(bit<8> at, bit<32> state) {"
        yield "    meta.at = at;"
        yield "    meta.state = state;"
        yield "}"
        yield "action nowhere() {"
        yield f"    meta.at = {LEAF};"
        yield "    meta.state = 0;"
        yield "}"
        yield "action nothing() {"
        yield "    mark_to_drop(standard);"
        yield "}"
        mask = f", bit<{several.MASK_PORTS}> ports" if self.schema.messages else ""
        keep = ["    meta.ports = ports;"] if self.schema.messages else []
        yield f"action unicast(bit<9> port{mask}) {{"
        yield "    standard.egress_spec = port;"
        yield from keep
        yield "}"
        yield f"action multicast(bit<16> group{mask}) {{"
        yield "    standard.mcast_grp = group;"
        yield from keep
        yield "}"
        yield from self._link_actions()
        for action in self.schema.actions:
            parameters = ", ".join(f"bit<{one.width}> {one.name}" for one in action.parameters)
            arguments = ", ".join((*action.bound, *(one.name for one in action.parameters)))
            yield f"action run_{action.name}({parameters}) {{"
            yield "    meta.back = 1;"
            yield f"    {action.name}({arguments});"
            yield "}"

    def _link_actions(self) -> Iterator[str]:
        """The update functions get their variable and argument from entries: rules link them at run time."""
        if not self.schema.counters:
            return
        parts = [(f"{one.name}_{name}", width) for one in self.schema.counters for name, width in LINKED]
        parameters = ", ".join(f"bit<{width}> {name}" for name, width in parts)
        yield f"action link(bit<8> at, bit<32> state, {parameters}) {{"
        yield "    meta.at = at;"
        yield "    meta.state = state;"
        yield from (f"    meta.{name} = {name};" for name, _ in parts)
        yield "}"
        counts = [f"{one.name}_counts" for one in self.schema.counters]
        yield f"action count({', '.join(f'bit<1> {name}' for name in counts)}) {{"
        yield from (f"    meta.{name} = {name};" for name in counts)
        yield "}"

    def _field_tables(self, field: QueryField) -> Iterator[str]:
        value = field.value
        if field.kind == "low":
            yield f"action {field.key}_is(bit<{field.bits}> class) {{"
            yield f"    meta.{field.key}_class = class;"
            yield "}"
            yield from _table(
                f"{field.key}_map", [f"{value}: range"], [f"{field.key}_is"], f"{field.key}_is(0)", self.size
            )
            value = f"meta.{field.key}_class"
        yield from self._value_tables(field.key, value, _KIND.get(field.kind, ""))
        yield from _table(
            f"{field.key}_absent", ["meta.state: exact"], ["go", "nowhere"], "nowhere()", self.size
        )

    def _value_tables(self, name: str, value: str, kind: str) -> Iterator[str]:
        state = "meta.state: exact"
        yield from _table(
            f"{name}_exact", [state, f"{value}: exact"], ["go", "NoAction"], "NoAction()", self.size
        )
        if kind:
            yield from _table(
                f"{name}_span", [state, f"{value}: {kind}"], ["go", "NoAction"], "NoAction()", self.size
            )
        yield from _table(f"{name}_rest", [state], ["go", "nowhere"], "nowhere()", self.size)

    def _last_tables(self) -> Iterator[str]:
        yield from _table("root", [], ["go", "nowhere"], "nowhere()", 0)
        state = ["meta.state: exact"]
        yield from _table("leaf", state, ["nothing", "unicast", "multicast"], "nothing()", self.size)
        if self.schema.actions:
            names = [f"run_{action.name}" for action in self.schema.actions]
            yield from _table("custom", state, [*names, "NoAction"], "NoAction()", self.size)
        if self.schema.messages:
            yield from _table("everybody", [], ["nothing", "multicast"], "nothing()", 0)
        if self.schema.counters:
            yield from _table("updates", state, ["count", "NoAction"], "NoAction()", self.size)

    def _apply(self) -> Iterator[str]:
        yield "root.apply();"
        for level, place in enumerate(self.order):
            yield from self._apply_field(level, self.schema.fields[place])
        if self.schema.counters:
            yield f"if (meta.at == {self.link}) {{"
            yield "    links.apply();"
            for counter in self.schema.counters:
                yield from _indented(self._count(counter, reads=True))
            yield "}"
            for place, counter in enumerate(self.schema.counters):
                yield f"if (meta.at == {self.link + 1 + place}) {{"
                yield from _indented(_tries(counter.name, True))
                yield "}"
        yield "leaf.apply();"
        if self.schema.actions:
            yield "custom.apply();"
        if self.schema.counters:
            yield "if (updates.apply().hit) {"
            for counter in self.schema.counters:
                yield from _indented(self._count(counter, reads=False))
            yield "}"

    def _apply_field(self, level: int, field: QueryField) -> Iterator[str]:
        yield f"if (meta.at == {level}) {{"
        yield f"    if ({field.there}) {{"
        if field.kind == "low":
            yield f"        {field.key}_map.apply();"
        yield from _indented(_tries(field.key, field.kind in _KIND), 2)
        yield "    } else {"
        yield f"        {field.key}_absent.apply();"
        yield "    }"
        yield "}"

    def _count(self, counter: Counter, reads: bool) -> Iterator[str]:
        """The update functions of one block: a variable's window, count and total; then its value."""
        name = counter.name
        cell = f"meta.{name}_cell"
        yield f"if (meta.{name}_function != 0) {{"
        yield f"    bit<48> now = standard.ingress_global_timestamp / {counter.window} + 1;"
        yield "    bit<48> window;"
        yield f"    bit<{STATE_BITS}> count;"
        yield f"    bit<{STATE_BITS}> total;"
        yield f"    {name}_window.read(window, {cell});"
        yield f"    {name}_count.read(count, {cell});"
        yield f"    {name}_total.read(total, {cell});"
        yield "    if (window != now) {"
        yield "        count = 0;"
        yield "        total = 0;"
        yield "    }"
        yield f"    if (meta.{name}_counts == 1) {{"
        yield from _indented(self._argument(name), 2)
        yield f"        {name}_window.write({cell}, now);"
        yield f"        {name}_count.write({cell}, count);"
        yield f"        {name}_total.write({cell}, total);"
        yield "    }"
        if reads:
            yield f"    meta.{name}_value = count;"
            yield f"    if (meta.{name}_function == {SUM}) {{"
            yield f"        meta.{name}_value = total;"
            yield f"    }} else if (meta.{name}_function == {AVG} && count != 0) {{"
            yield f"        meta.{name}_value = total / count;"
            yield "    }"
        yield "}"

    def _argument(self, name: str) -> Iterator[str]:
        """Adds the field that the entry names: 0 none, n the field at n - 1 of the description."""
        yield f"if (meta.{name}_argument == 0) {{"
        yield "    count = count + 1;"
        for place, field in enumerate(self.schema.fields):
            if field.width <= STATE_BITS:
                yield f"}} else if (meta.{name}_argument == {place + 1} && {field.there}) {{"
                yield "    count = count + 1;"
                yield f"    total = total |+| (bit<{STATE_BITS}>) {field.value};"
        yield "}"

    def _rest_of_pipeline(self) -> Iterator[str]:
        yield f"control Copies(inout headers_t hdr, {_META}) {{"
        yield "    apply {"
        if self.schema.messages:
            yield from _indented(several.egress(self.schema.messages), 2)
        yield "        if (standard.egress_port == standard.ingress_port && meta.back == 0) {"
        yield "            mark_to_drop(standard);"
        yield "        }"
        yield "    }"
        yield "}"
        yield ""
        yield "control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }"
        yield "control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }"
        yield ""
        yield "control Deparse(packet_out packet, in headers_t hdr) {"
        yield "    apply {"
        yield from self._emits()
        yield "    }"
        yield "}"
        yield ""
        yield f"V1Switch(Parse(), Verify(), {CONTROL}(), Copies(), Compute(), Deparse()) main;"

    def _emits(self) -> Iterator[str]:
        messages = self.schema.messages
        yield from (f"        packet.emit(hdr.{header.name});" for header in self.schema.headers)
        if messages:  # in the last pass the headers of a message are not read, but all messages whole
            yield f"        packet.emit(hdr.{several.RAW});"


LINKED: Final = (("cell", 32), ("function", 8), ("argument", 8), ("counts", 1))
"""What a link says of each block, with widths in bits."""


def split_source(source: str) -> tuple[str, str]:
    """Returns the description's text before its first action, which may use headers_t, and from there on."""
    lines = source.split("\n")
    for place, line in enumerate(lines):
        if line.startswith(("action ", "action\t")):
            return "\n".join(lines[:place]), "\n".join(lines[place:])
    return source, ""


def _header(header: Header) -> str:
    fields = "".join(f"    bit<{field.width}> {field.name};\n" for field in header.fields)
    return f"header {header.name} {{\n{fields}}}"


def _transition(nexts: Sequence[Next], end: str) -> Iterator[str]:
    always = [one for one in nexts if not one.field]
    chosen = [one for one in nexts if one.field]
    default = always[0].next if always else end
    if not chosen:
        yield f"        transition {default};"
        return
    fields = list(dict.fromkeys(one.field for one in chosen))
    yield f"        transition select({', '.join(f'hdr.{chosen[0].header}.{name}' for name in fields)}) {{"
    for one in chosen:
        keys = ", ".join(str(one.value) if name == one.field else "_" for name in fields)
        yield f"            {f'({keys})' if len(fields) > 1 else keys}: {one.next};"
    yield f"            default: {default};"
    yield "        }"


def _table(name: str, keys: Sequence[str], actions: Sequence[str], default: str, size: int) -> Iterator[str]:
    yield f"table {name} {{"
    if keys:
        yield "    key = {"
        yield from (f"        {key};" for key in keys)
        yield "    }"
    yield "    actions = {"
    yield from (f"        {action};" for action in actions)
    yield "    }"
    yield f"    default_action = {default};"
    if size:
        yield f"    size = {size};"
    yield "}"


def _tries(name: str, spans: bool) -> Iterator[str]:
    """The parts of one table, one after the other until one has an entry."""
    yield f"if (!{name}_exact.apply().hit) {{"
    if spans:
        yield f"    if (!{name}_span.apply().hit) {{"
        yield f"        {name}_rest.apply();"
        yield "    }"
    else:
        yield f"    {name}_rest.apply();"
    yield "}"


def _indented(lines: Iterator[str], by: int = 1) -> Iterator[str]:
    return (("    " * by + line) if line else line for line in lines)
