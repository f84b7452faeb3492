"""v1model's requirements beyond types, checked after everything is lowered. Pure."""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..ir.walk import walk
from ..source import Span

Complain = Callable[[Span, str], None]
_DIRECT = {"direct_counter.count": "counters", "direct_meter.read": "meters"}
# Type parameters that must be bit<w>, by position; for objects, those of their type.
_BITS = {
    "random": (0,),
    "hash": (0, 1, 3),
    "verify_checksum": (1,),
    "update_checksum": (1,),
    "verify_checksum_with_payload": (1,),
    "update_checksum_with_payload": (1,),
    "meter.execute_meter": (0,),
}
_OBJECT_BITS = {"direct_meter": (0,)}
_PLACES = {
    "verify_checksum": "verify",
    "verify_checksum_with_payload": "verify",
    "update_checksum": "compute",
    "update_checksum_with_payload": "compute",
}


def check_v1model(program: ir.Program, complain: Complain, warn: Complain) -> None:
    """Reports everything that a v1model switch cannot do with the program."""
    checker = _Checker(program, complain, warn)
    checker.pipeline()
    for table in program.tables:
        checker.keys(table)
    checker.direct_objects()
    checker.calls()
    for one in program.headers:
        checker.header(one)


class _Checker:
    def __init__(self, program: ir.Program, complain: Complain, warn: Complain) -> None:
        self.program = program
        self.complain = complain
        self.warn = warn

    def pipeline(self) -> None:
        """Headers and metadata are structs."""
        parser = self.program.parsers[self.program.pipeline.parser]
        headers, metadata = parser.parameters[0], parser.parameters[1]
        if not isinstance(headers.type, ir.StructType):
            said = f"the headers of a v1model program are a struct; '{headers.name}' is none"
            self.complain(self.program.variables[headers.variable].span, said)
        if not isinstance(metadata.type, ir.StructType):
            said = f"the metadata of a v1model program is a struct; '{metadata.name}' is none"
            self.complain(self.program.variables[metadata.variable].span, said)

    def keys(self, table: ir.Table) -> None:
        prefixes = [key for key in table.keys if key.match_kind is ir.MatchKind.LPM]
        if len(prefixes) > 1:
            self.complain(prefixes[1].span, f"table '{table.name}' has more than one lpm key")

    def header(self, one: ir.HeaderType) -> None:
        fixed = sum(ir.width_of(field.type) for field in one.fields if not isinstance(field.type, ir.Varbit))
        if fixed % 8 and not one.span.file.startswith("<"):
            said = f"header '{one.name}' has {fixed} bits, which is no whole number of bytes"
            self.warn(one.span, f"{said}; bmv2 refuses that")

    # --- direct counters and meters

    def direct_objects(self) -> None:
        """Checks that each direct object belongs to at most one table, and is used in that table's actions
        only.
        """
        owners: dict[int, ir.Table] = {}
        for table in self.program.tables:
            for index in (table.counters, table.meters):
                if index is not None and index in owners:
                    name = self.program.externs[index].name
                    self.complain(table.span, f"'{name}' belongs to table '{owners[index].name}' already")
                elif index is not None:
                    owners[index] = table
        for place, action in enumerate(self.program.actions):
            for node in walk(action.body):
                self._direct_use(node, place, owners)
        for control in self.program.controls:
            for node in walk(control.body):
                self._direct_use(node, None, owners)

    def _direct_use(
        self, node: ir.Expression | ir.Statement, action: int | None, owners: dict[int, ir.Table]
    ) -> None:
        if not isinstance(node, ir.ExternCall) or node.name not in _DIRECT or node.instance is None:
            return
        owner, name = owners.get(node.instance), self.program.externs[node.instance].name
        if owner is None:
            said = f"'{name}' belongs to no table: a table's property '{_DIRECT[node.name]}' names it"
            self.complain(node.span, said)
        elif action is None:
            self.complain(node.span, f"'{name}' can be used in the actions of table '{owner.name}' only")
        elif action not in [one.action for one in owner.actions]:
            self.warn(node.span, f"'{name}' belongs to table '{owner.name}', which does not have this action")

    # --- calls

    def calls(self) -> None:
        """Checks type arguments that must be bits, and the places of checksums."""
        for kind in self.program.externs:
            self._bits(kind.type_arguments, _OBJECT_BITS.get(kind.kind, ()), kind.kind, kind.span)
        pipeline, program = self.program.pipeline, self.program
        places = {"verify": pipeline.verify, "compute": pipeline.compute}
        for part in (program.controls, program.actions, program.functions, program.parsers):
            for node in walk(part):
                if isinstance(node, ir.ExternCall):
                    self._bits(node.type_arguments, _BITS.get(node.name, ()), node.name, node.span)
        elsewhere = {pipeline.ingress, pipeline.egress, pipeline.deparser, *places.values()}
        for number in sorted(elsewhere):
            for node in walk(program.controls[number].body):
                self._checksum_place(node, number, places)

    def _checksum_place(
        self, node: ir.Expression | ir.Statement, number: int, places: dict[str, int]
    ) -> None:
        if isinstance(node, ir.ExternCall) and node.name in _PLACES and number != places[_PLACES[node.name]]:
            noun = "VerifyChecksum" if _PLACES[node.name] == "verify" else "ComputeChecksum"
            self.complain(node.span, f"'{node.name}' can be called in the {noun} control only")

    def _bits(self, types: tuple[ir.Type, ...], places: tuple[int, ...], name: str, span: Span) -> None:
        for place in places:
            if place < len(types) and not isinstance(types[place], ir.Bits):
                self.complain(span, f"'{name}' works on bit<w> here, not on another type")
