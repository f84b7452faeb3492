"""A compiled rule set as entries and multicast groups of the generated program."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from treecast.middleware.dataplane.p4 import (
    ActionCall,
    Entry,
    ExactMatch,
    LpmMatch,
    Match,
    MulticastGroup,
    RangeMatch,
    Replica,
    Switch,
    TernaryMatch,
)
from treecast.middleware.filters.compiler.compile import Compiled, everybody
from treecast.middleware.filters.compiler.program import CONTROL, LEAF
from treecast.middleware.filters.compiler.schema import QueryField, Schema
from treecast.middleware.filters.compiler.tables import LevelTables
from treecast.middleware.filters.compiler.terms import Effect

_PRIORITY = 1  # spans of one state are disjoint

TableEntry = tuple[str, Entry]


class Installation(Struct, frozen=True):
    """All that a rule set writes, in this order. `defaults` are tables' default actions; the last, of the
    root, makes the rules hold.
    """

    groups: list[MulticastGroup]
    entries: list[TableEntry]
    defaults: list[tuple[str, ActionCall]]


def installation(compiled: Compiled) -> Installation:
    """Returns all that a switch with the generated program needs."""
    groups = [
        MulticastGroup(number, tuple(Replica(port) for port in ports))
        for ports, number in compiled.groups.items()
    ]
    return Installation(groups, list(_Writer(compiled).entries()), _defaults(compiled))


def _defaults(compiled: Compiled) -> list[tuple[str, ActionCall]]:
    """Returns where copies of a packet with several messages go, and the first state."""
    root = root_call(compiled)
    if compiled.schema.messages is None:
        return [root]
    ports = everybody(compiled.leaves)
    call = ActionCall(table_name("multicast"), {"group": compiled.groups[ports], "ports": 0})
    return [(table_name("everybody"), call if ports else ActionCall(table_name("nothing"))), root]


def install(compiled: Compiled, switch: Switch) -> None:
    """Writes a rule set to a switch that has none."""
    found = installation(compiled)
    for group in found.groups:
        switch.control.replication.insert_group(group)
    for table, entry in found.entries:
        switch.control.table(table).insert(entry)
    for table, call in found.defaults:
        switch.control.table(table).set_default(call)


def root_call(compiled: Compiled) -> tuple[str, ActionCall]:
    """Returns the table and default action that make a rule set hold."""
    return table_name("root"), _Writer(compiled).go(compiled.root)


def table_name(table: str) -> str:
    """Returns the control plane's name of a table or action."""
    return f"{CONTROL}.{table}"


class _Writer:
    """The entries of one rule set."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    def go(self, state: int) -> ActionCall:
        level = self._compiled.diagram.level(state)
        return ActionCall(table_name("go"), {"at": LEAF if level < 0 else level, "state": state})

    def entries(self) -> Iterator[TableEntry]:
        compiled = self._compiled
        for place, tables in zip(compiled.order, compiled.fields, strict=True):
            yield from self._field(compiled.schema.fields[place], tables)
        for link in compiled.links:
            yield table_name("links"), Entry({"meta.state": ExactMatch(link)}, self._link(link))
        for counter, tables in zip(compiled.schema.counters, compiled.blocks, strict=True):
            yield from self._values(counter.name, f"meta.{counter.name}_value", tables, "range", 64)
        for number, effect in enumerate(compiled.leaves):
            yield from self._leaf(number, effect)

    def _field(self, field: QueryField, tables: LevelTables) -> Iterator[TableEntry]:
        value = field.value
        if field.kind == "low":
            yield from self._classes(field, tables, value)
            value = f"meta.{field.key}_class"
        for state, target in zip(tables.absent_state, tables.absent_target, strict=True):
            yield table_name(f"{field.key}_absent"), Entry({"meta.state": ExactMatch(state)}, self.go(target))
        yield from self._values(field.key, value, tables, field.kind, field.width)

    def _classes(self, field: QueryField, tables: LevelTables, value: str) -> Iterator[TableEntry]:
        ends = [*tables.classes[1:], 1 << field.width]
        for number, (low, end) in enumerate(zip(tables.classes, ends, strict=True)):
            call = ActionCall(table_name(f"{field.key}_is"), {"class": number})
            if number:  # class 0 is the default
                yield (
                    table_name(f"{field.key}_map"),
                    Entry({value: RangeMatch(low, end - 1)}, call, _PRIORITY),
                )

    def _values(
        self, name: str, value: str, tables: LevelTables, kind: str, width: int
    ) -> Iterator[TableEntry]:
        exact = zip(tables.exact_state, tables.exact_value, tables.exact_target, strict=True)
        for state, number, target in exact:
            matches: dict[str, Match] = {"meta.state": ExactMatch(state), value: ExactMatch(number)}
            yield table_name(f"{name}_exact"), Entry(matches, self.go(target))
        spans = zip(tables.span_state, tables.span_low, tables.span_high, tables.span_target, strict=True)
        for state, low, high, target in spans:
            matches = {"meta.state": ExactMatch(state), **span_of(value, low, high, kind, width)}
            yield (
                table_name(f"{name}_span"),
                Entry(matches, self.go(target), 0 if kind == "lpm" else _PRIORITY),
            )
        for state, target in zip(tables.rest_state, tables.rest_target, strict=True):
            yield table_name(f"{name}_rest"), Entry({"meta.state": ExactMatch(state)}, self.go(target))

    def _link(self, link: int) -> ActionCall:
        """Names the variables of a link to the update functions: block by block, 0 where there is none."""
        compiled = self._compiled
        arguments = dict(self.go(compiled.diagram.targets[link - compiled.diagram.leaves][0]).arguments)
        for counter in compiled.schema.counters:
            arguments |= {f"{counter.name}_{name}": 0 for name in ("cell", "function", "argument", "counts")}
        for variable in compiled.variables(link):
            name = compiled.schema.counters[variable.block].name
            arguments[f"{name}_cell"] = variable.cell
            arguments[f"{name}_function"] = variable.function
            arguments[f"{name}_argument"] = variable.argument + 1
            arguments[f"{name}_counts"] = 0 if variable.name else 1
        return ActionCall(table_name("link"), arguments)

    def _leaf(self, number: int, effect: Effect) -> Iterator[TableEntry]:
        key: dict[str, Match] = {"meta.state": ExactMatch(number)}
        schema, groups = self._compiled.schema, self._compiled.groups
        yield table_name("leaf"), Entry(key, leaf_call(effect, groups.get(effect.ports, 0), schema))
        if effect.custom is not None:
            yield table_name("custom"), Entry(key, custom_call(self._compiled.schema, effect.custom))
        if effect.updates:
            blocks = {self._compiled.terms.variables[update].block for update in effect.updates}
            counts = {
                f"{counter.name}_counts": int(block in blocks)
                for block, counter in enumerate(self._compiled.schema.counters)
            }
            yield table_name("updates"), Entry(key, ActionCall(table_name("count"), counts))


def leaf_call(effect: Effect, group: int, schema: Schema) -> ActionCall:
    """Returns the action of a leaf; `group` is the multicast group of its ports if there are several."""
    if not effect.ports:
        return ActionCall(table_name("nothing"))
    mask = {"ports": sum(1 << port for port in effect.ports)} if schema.messages is not None else {}
    if len(effect.ports) == 1:
        return ActionCall(table_name("unicast"), {"port": effect.ports[0], **mask})
    return ActionCall(table_name("multicast"), {"group": group, **mask})


def custom_call(schema: Schema, custom: tuple[str, tuple[int, ...]]) -> ActionCall:
    """Returns the call of an action of the description."""
    names = (parameter.name for parameter in schema.action(custom[0]).parameters)
    return ActionCall(table_name(f"run_{custom[0]}"), dict(zip(names, custom[1], strict=True)))


def span_of(value: str, low: int, high: int, kind: str, width: int) -> dict[str, Match]:
    """Returns the match of values from low to high, both included."""
    if kind == "range":
        return {value: RangeMatch(low, high)}
    free = (high - low).bit_length()  # a span of these kinds is a prefix
    if kind == "lpm":
        return {value: LpmMatch(low, width - free)} if free < width else {}
    mask = ((1 << width) - 1) ^ (high - low)
    return {value: TernaryMatch(low, mask)} if mask else {}
