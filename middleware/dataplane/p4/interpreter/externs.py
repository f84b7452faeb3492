"""v1model's extern functions and methods."""

from __future__ import annotations

from .. import ir
from ..bits import in_range
from ..ir.externs import METHODS
from ..runtime.arrays import CounterArray, MeterArray, RegisterArray
from ..runtime.counts import DROP_ASSERT
from ..runtime.machine import digest_name, is_standard
from ..runtime.select import hashed
from ..runtime.text import format_log
from .context import Context
from .expressions import Expressions
from .signals import DropSignal
from .values import Value, fit, leaves, raw


class Externs:
    """Calls by name. All arguments are evaluated first; results go to the places of out arguments."""

    def __init__(self, context: Context, expressions: Expressions) -> None:
        self._context = context
        self._expressions = expressions
        expressions.kinds[ir.ExternCall] = self.call_extern

    def call_extern(self, call: ir.ExternCall) -> Value:
        return getattr(self, METHODS[call.name])(call)

    def _values(self, call: ir.ExternCall) -> list[Value]:
        """Returns the arguments; of an out argument its place."""
        out = (ir.Direction.OUT, ir.Direction.INOUT)
        return [
            self._expressions.place(one.value)
            if one.direction in out
            else self._expressions.evaluate(one.value)
            for one in call.arguments
        ]

    # --- objects

    def _count(self, call: ir.ExternCall) -> None:
        (index,) = self._values(call)
        assert call.instance is not None
        array = self._context.machine.externs[call.instance]
        assert isinstance(array, CounterArray)
        array.count(index, self._context.length)

    def _count_direct(self, call: ir.ExternCall) -> None:
        """Does nothing: the look-up has counted."""

    def _execute_meter(self, call: ir.ExternCall) -> None:
        index, result = self._values(call)
        assert call.instance is not None
        array = self._context.machine.externs[call.instance]
        assert isinstance(array, MeterArray)
        if 0 <= index < array.size:
            result.put(
                fit(
                    array.execute(index, self._context.length, self._context.now),
                    call.arguments[1].value.type,
                )
            )

    def _read_direct_meter(self, call: ir.ExternCall) -> None:
        """Stores the colour; the look-up has marked the packet."""
        (result,) = self._values(call)
        assert call.instance is not None
        result.put(fit(self._context.colors.get(call.instance, 0), call.arguments[0].value.type))

    def _register(self, call: ir.ExternCall) -> RegisterArray:
        assert call.instance is not None
        array = self._context.machine.externs[call.instance]
        assert isinstance(array, RegisterArray)
        return array

    def _read_register(self, call: ir.ExternCall) -> None:
        result, index = self._values(call)
        value = self._register(call).get(index)
        result.put(bool(value) if isinstance(call.arguments[0].value.type, ir.Bool) else value)

    def _write_register(self, call: ir.ExternCall) -> None:
        index, value = self._values(call)
        self._register(call).put(index, int(value))

    # --- numbers

    def _hash(self, call: ir.ExternCall) -> None:
        result, algorithm, base, data, size = self._values(call)
        kind = call.arguments[1].value.type
        assert isinstance(kind, ir.Enum)
        bits, width = raw(data, call.arguments[3].value.type)
        number = hashed(kind.members[algorithm], bits, width, self._context.machine.random)
        type_ = call.arguments[0].value.type
        result.put(fit(in_range(number, base, size, 64), type_))

    def _random(self, call: ir.ExternCall) -> None:
        result, low, high = self._values(call)
        result.put(self._context.machine.random.between(low, high))

    def _checksum16(self, call: ir.ExternCall) -> Value:
        (data,) = self._values(call)
        return hashed("csum16", *raw(data, call.arguments[0].value.type), self._context.machine.random)

    # --- checksums

    def _checked(self, call: ir.ExternCall, values: list[Value], payload: bool) -> int:
        """Returns the checksum over `data` and optionally the payload, as wide as its field."""
        kind = call.arguments[3].value.type
        assert isinstance(kind, ir.Enum)
        bits, width = raw(values[1], call.arguments[1].value.type)
        if payload:
            rest, size = self._context.cursor.rest()
            bits, width = (bits << size) | rest, width + size
        number = hashed(kind.members[values[3]], bits, width, self._context.machine.random)
        return fit(number, call.arguments[2].value.type)

    def _verify_checksum(self, call: ir.ExternCall) -> None:
        values = self._values(call)
        if values[0] and self._checked(call, values, call.name.endswith("payload")) != values[2]:
            self._context.checksum_error = True

    def _update_checksum(self, call: ir.ExternCall) -> None:
        values = self._values(call)
        if values[0]:
            values[2].put(self._checked(call, values, call.name.endswith("payload")))

    # --- the packet's future

    def _mark_to_drop(self, call: ir.ExternCall) -> None:
        for meta in self._values(call):
            self._drop(meta.get(), call.arguments[0].value.type)
        if not call.arguments:  # the old form: all standard metadata
            for info, value in zip(self._context.program.variables, self._context.variables, strict=True):
                if value is not None and is_standard(info.type):
                    self._drop(value, info.type)

    def _drop(self, fields: list[Value], type_: ir.Type) -> None:
        assert isinstance(type_, ir.StructType)
        for number, field in enumerate(type_.fields):
            if field.name == "egress_spec":
                fields[number] = self._context.drop_port
            elif field.name == "mcast_grp":
                fields[number] = 0

    def _clone(self, call: ir.ExternCall) -> None:
        values = self._values(call)
        self._context.clone = (values[1], values[2] if call.name == "clone_preserving_field_list" else -1)

    def _resubmit(self, call: ir.ExternCall) -> None:
        self._context.resubmit = self._field_list(call)

    def _recirculate(self, call: ir.ExternCall) -> None:
        self._context.recirculate = self._field_list(call)

    def _field_list(self, call: ir.ExternCall) -> int:
        values = self._values(call)
        return int(values[0]) if call.name.endswith("_preserving_field_list") else -1

    def _truncate(self, call: ir.ExternCall) -> None:
        (length,) = self._values(call)
        self._context.truncate = (
            length if self._context.truncate is None else min(length, self._context.truncate)
        )

    # --- what goes to people and controllers

    def _digest(self, call: ir.ExternCall) -> None:
        values = self._values(call)
        numbers = tuple(leaves(values[1], call.arguments[1].value.type))
        self._context.machine.digest(digest_name(call), numbers, self._context.now)

    def _assert(self, call: ir.ExternCall) -> None:
        (check,) = self._values(call)
        if not check:
            self._context.machine.log.append(f"{call.span}: {call.name} failed")
            raise DropSignal(DROP_ASSERT)

    def _log_msg(self, call: ir.ExternCall) -> None:
        values = self._values(call)
        data = [] if len(values) < 2 else shown(values[1], call.arguments[1].value.type)
        self._context.machine.log.append(format_log(values[0], data))


def shown(value: Value, type_: ir.Type) -> list[int]:
    """Numbers as a program sees them, for log_msg."""
    match type_:
        case ir.StructType(fields=fields):
            return [n for one, f in zip(value, fields, strict=True) for n in shown(one, f.type)]
        case ir.TupleType(elements=elements):
            return [n for one, element in zip(value, elements, strict=True) for n in shown(one, element)]
        case ir.HeaderType(fields=fields):
            return [n for one, f in zip(value.fields, fields, strict=True) for n in shown(one, f.type)]
    return [value[0] if isinstance(value, tuple) else int(value)]
