"""What the target refuses when a program is loaded: by name and line, never later."""

from __future__ import annotations

from .. import ir
from ..ir.externs import METHODS
from ..source import Diagnostic, P4Error
from .machine import MAX_CELLS, extern_calls

FIELD_LISTS = {"clone3": "clone", "resubmit": "resubmit", "recirculate": "recirculate"}


def check_supported(program: ir.Program) -> None:
    """P4Error with everything that the target can't run."""
    found = [one for call in extern_calls(program) for one in _call(call)]
    found += [one for instance in program.externs for one in _instance(instance)]
    found += [one for table in program.tables for one in _table(table)]
    if found:
        raise P4Error(found, program.lines)


def _call(call: ir.ExternCall) -> list[Diagnostic]:
    if call.name not in METHODS:
        return [Diagnostic(call.span, f"extern {call.name} is not supported by this target")]
    if call.name in FIELD_LISTS and any(ir.width_of(one) for one in call.type_arguments):
        better = f"{FIELD_LISTS[call.name]}_preserving_field_list"
        return [Diagnostic(call.span, f"{call.name} cannot preserve fields: use {better} and @field_list")]
    return []


def _instance(one: ir.ExternInstance) -> list[Diagnostic]:
    found = []
    if one.kind == "register" and not isinstance(one.type_arguments[0], ir.Bits | ir.Bool):
        found.append(Diagnostic(one.span, f"register {one.name} has cells that are neither bits nor bool"))
    size = dict(one.arguments).get("size", 0)
    if not 0 <= int(size) <= MAX_CELLS:
        found.append(Diagnostic(one.span, f"{one.name} has {size} cells, at most {MAX_CELLS} are possible"))
    return found


def _table(table: ir.Table) -> list[Diagnostic]:
    found = []
    kinds = [key.match_kind for key in table.keys]
    ranked = {ir.MatchKind.TERNARY, ir.MatchKind.RANGE, ir.MatchKind.OPTIONAL}
    if kinds.count(ir.MatchKind.LPM) > 1 and not ranked.intersection(kinds):
        found.append(Diagnostic(table.span, f"table {table.name} has more than one lpm key"))
    for key in table.keys:
        if key.match_kind is ir.MatchKind.RANGE and isinstance(key.type, ir.Bits) and key.type.signed:
            found.append(Diagnostic(key.span, "a range key is unsigned"))
    return found
