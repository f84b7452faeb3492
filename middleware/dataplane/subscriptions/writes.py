"""Changes of an installed rule set as writes to a switch."""

from __future__ import annotations

from treecast.middleware.dataplane.p4 import (
    ActionCall,
    Control,
    Entry,
    ExactMatch,
    Matches,
    MulticastGroup,
    Replica,
)
from treecast.middleware.filters.compiler.changes import (
    GroupStep,
    Installed,
    Kind,
    LeafStep,
    Place,
    RootStep,
    Step,
    Write,
)
from treecast.middleware.filters.compiler.program import LEAF
from treecast.middleware.filters.compiler.schema import Schema
from treecast.middleware.filters.compiler.terms import Effect

from .entries import custom_call, leaf_call, span_of, table_name


class Writer:
    """Writes to one switch that runs the program of a schema and an order of fields."""

    def __init__(
        self, installed: Installed, schema: Schema, order: tuple[int, ...], control: Control
    ) -> None:
        self._installed = installed
        self._schema = schema
        self._order = order
        self._control = control

    def begin(self) -> None:
        """Writes what an empty rule set needs: leaf 0, which does nothing, and a root that leads there."""
        self._leaf(LeafStep(Kind.INSERT, 0, Effect()))
        self.write(RootStep(0, -1))

    def write(self, one: Write) -> None:
        """Does one write."""
        match one:
            case GroupStep(kind, group, ports):
                if kind is Kind.DELETE:
                    self._control.replication.delete_group(group)
                else:
                    replicas = tuple(Replica(port) for port in ports)
                    self._control.replication.insert_group(MulticastGroup(group, replicas))
            case LeafStep():
                self._leaf(one)
            case RootStep(state, at):
                self._control.table(table_name("root")).set_default(_go(state, at))
            case Step():
                self._entry(one)

    def _entry(self, one: Step) -> None:
        table, matches = self._matches(one.place)
        self._do(one.kind, table, Entry(matches, _go(one.target, one.at), one.priority))

    def _do(self, kind: Kind, table: str, entry: Entry) -> None:
        match kind:
            case Kind.INSERT:
                self._control.table(table).insert(entry)
            case Kind.MODIFY:
                self._control.table(table).modify(entry)
            case Kind.DELETE:
                self._control.table(table).delete(entry.matches, entry.priority)

    def _matches(self, place: Place) -> tuple[str, Matches]:
        """Returns the table of an entry, and what it matches."""
        field = self._schema.fields[self._order[place.level]]
        matches: Matches = {"meta.state": ExactMatch(place.state)}
        value = field.value
        if place.part == "exact":
            matches[value] = ExactMatch(place.low)
        elif place.part == "span":
            matches |= span_of(value, place.low, place.high, field.kind, field.width)
        return table_name(f"{field.key}_{place.part}"), matches

    def _leaf(self, one: LeafStep) -> None:
        key: Matches = {"meta.state": ExactMatch(one.state)}
        ports = one.effect.ports
        # a group is deleted after the leaf's entry, which is found by its key alone
        group = self._installed.group(ports) if len(ports) > 1 and one.kind is not Kind.DELETE else 0
        self._do(one.kind, table_name("leaf"), Entry(key, leaf_call(one.effect, group, self._schema)))
        if one.effect.custom is not None:
            self._do(one.kind, table_name("custom"), Entry(key, custom_call(self._schema, one.effect.custom)))


def _go(state: int, at: int) -> ActionCall:
    return ActionCall(table_name("go"), {"at": LEAF if at < 0 else at, "state": state})
