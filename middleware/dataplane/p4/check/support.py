"""What the target can't run: looked at when everything is lowered, so that what loads also runs. Pure."""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..ir.externs import METHODS
from ..ir.walk import bodies
from ..source import Span

Complain = Callable[[Span, str], None]
FIELD_LISTS = {"clone3": "clone", "resubmit": "resubmit", "recirculate": "recirculate"}


def check_supported(program: ir.Program, complain: Complain) -> None:
    """Says what of the program the target has nothing for."""
    for node in bodies(program):
        if isinstance(node, ir.ExternCall):
            _call(node, complain)
    for instance in program.externs:
        _instance(instance, complain)
    for table in program.tables:
        for key in table.keys:
            if key.match_kind is ir.MatchKind.RANGE and isinstance(key.type, ir.Bits) and key.type.signed:
                complain(key.span, "a range key is unsigned")


def _call(call: ir.ExternCall, complain: Complain) -> None:
    if call.name not in METHODS:
        complain(call.span, f"extern {call.name} is not supported by this target")
    elif call.name in FIELD_LISTS and any(ir.width_of(one) for one in call.type_arguments):
        better = f"{FIELD_LISTS[call.name]}_preserving_field_list"
        complain(call.span, f"{call.name} cannot preserve fields: use {better} and @field_list")


def _instance(one: ir.ExternInstance, complain: Complain) -> None:
    if one.kind == "register" and not isinstance(one.type_arguments[0], ir.Bits | ir.Bool):
        complain(one.span, f"register {one.name} has cells that are neither bits nor bool")
