"""Statements, calls and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ir
from ..runtime.match import Cell, Row
from ..runtime.select import choose
from ..runtime.shapes import key_width
from .context import Context, Rounds
from .expressions import Expressions
from .packets import Bits, fixed_width, read, varbit_limit
from .places import Nowhere, Place
from .signals import BreakSignal, ContinueSignal, ExitSignal, ReturnSignal
from .values import HeaderValue, StackValue, UnionValue, Value, copy, default, raw


class Statements:
    """`run` carries out a body; signals end it early."""

    def __init__(self, context: Context, expressions: Expressions) -> None:
        self._context = context
        self._expressions = expressions
        expressions.kinds |= {ir.TableApply: self._hit, ir.Call: self._function}
        self.kinds: dict[type, Callable[[Any], None]] = {
            ir.Declare: self._declare,
            ir.Assign: self._assign,
            ir.SetValid: self._set_valid,
            ir.SetInvalid: self._set_invalid,
            ir.PushFront: self._push_front,
            ir.PopFront: self._pop_front,
            ir.If: self._if,
            ir.Switch: self._switch,
            ir.SwitchAction: self._switch_action,
            ir.Evaluate: self._evaluate,
            ir.CallAction: self._call_action,
            ir.ApplyControl: self._apply_control,
            ir.Extract: self._extract,
            ir.Skip: self._skip,
            ir.Verify: self._verify,
            ir.Emit: self._emit,
            ir.For: self._for,
            ir.ForRange: self._for_range,
            ir.ForEach: self._for_each,
            ir.Break: self._break,
            ir.Continue: self._continue,
            ir.Return: self._return,
            ir.Exit: self._exit,
        }

    def run(self, body: tuple[ir.Statement, ...]) -> None:
        for statement in body:
            self.kinds[type(statement)](statement)

    def call(
        self,
        parameters: tuple[ir.Parameter, ...],
        arguments: tuple[ir.Argument, ...],
        body: tuple[ir.Statement, ...],
    ) -> Value:
        """Copies in, runs, copies out; also copies out when an exit passes through."""
        places = self.copy_in(parameters, [(one.direction, one.value) for one in arguments])
        try:
            self.run(body)
        except ReturnSignal as signal:
            return signal.value
        finally:
            for variable, place in places:
                place.put(copy(self._context.variables[variable]))
        return None

    def copy_in(
        self, parameters: tuple[ir.Parameter, ...], arguments: list[tuple[ir.Direction, ir.Expression]]
    ) -> list[tuple[int, Place]]:
        """Evaluates all arguments before the first parameter is written. Returns what is copied out."""
        places: list[tuple[int, Place]] = []
        values: list[tuple[int, Value]] = []
        for parameter, (direction, expression) in zip(parameters, arguments, strict=True):
            if direction in (ir.Direction.OUT, ir.Direction.INOUT):
                place = self._expressions.place(expression)
                places.append((parameter.variable, place))
                inout = direction is ir.Direction.INOUT
                values.append((parameter.variable, copy(place.get()) if inout else default(parameter.type)))
            else:
                values.append((parameter.variable, copy(self._expressions.evaluate(expression))))
        for variable, value in values:
            self._context.variables[variable] = value
        return places

    # --- plain ones

    def _declare(self, s: ir.Declare) -> None:
        type_ = self._context.program.variables[s.variable].type
        self._context.variables[s.variable] = (
            default(type_) if s.value is None else copy(self._expressions.evaluate(s.value))
        )

    def _assign(self, s: ir.Assign) -> None:
        place = self._expressions.place(s.target)
        place.put(copy(self._expressions.evaluate(s.value)))

    def _set_valid(self, s: ir.SetValid) -> None:
        place = self._expressions.place(s.header)
        header = place.get()
        if not header.valid and not isinstance(place, Nowhere):
            assert isinstance(s.header.type, ir.HeaderType)
            header.valid, header.fields = True, [default(field.type) for field in s.header.type.fields]
        if place.union is not None:
            place.union.only(header)

    def _set_invalid(self, s: ir.SetInvalid) -> None:
        self._expressions.place(s.header).get().valid = False

    def _push_front(self, s: ir.PushFront) -> None:
        stack: StackValue = self._expressions.place(s.stack).get()
        assert isinstance(s.stack.type, ir.StackType)
        size, count = len(stack.items), min(s.count, len(stack.items))
        fresh = [default(s.stack.type.element) for _ in range(count)]
        stack.items = fresh + stack.items[: size - count]
        stack.next = min(size, stack.next + s.count)

    def _pop_front(self, s: ir.PopFront) -> None:
        stack: StackValue = self._expressions.place(s.stack).get()
        assert isinstance(s.stack.type, ir.StackType)
        count = min(s.count, len(stack.items))
        fresh = [default(s.stack.type.element) for _ in range(count)]
        stack.items = stack.items[count:] + fresh
        stack.next = max(0, stack.next - s.count)

    def _evaluate(self, s: ir.Evaluate) -> None:
        self._expressions.evaluate(s.call)

    # --- control flow

    def _if(self, s: ir.If) -> None:
        self.run(s.yes if self._expressions.evaluate(s.condition) else s.no)

    def _switch(self, s: ir.Switch) -> None:
        subject = self._expressions.evaluate(s.subject)
        for case in s.cases:
            if any(label.value == subject for label in case.labels):
                self.run(case.body)
                return
        self.run(s.default)

    def _switch_action(self, s: ir.SwitchAction) -> None:
        _, action = self.apply_table(s.table)
        actions = self._context.program.tables[s.table].actions
        for case in s.cases:
            if any(actions[number].action == action for number in case.actions):
                self.run(case.body)
                return
        self.run(s.default)

    def _for(self, s: ir.For) -> None:
        rounds = Rounds()
        while self._expressions.evaluate(s.condition):
            rounds.next()
            if not self._round(s.body):
                return
            self.run(s.update)

    def _for_range(self, s: ir.ForRange) -> None:
        rounds = Rounds()
        low, high = self._expressions.evaluate(s.low), self._expressions.evaluate(s.high)
        for value in range(low, high + 1):
            rounds.next()
            self._context.variables[s.variable] = value
            if not self._round(s.body):
                return

    def _for_each(self, s: ir.ForEach) -> None:
        for value in [copy(self._expressions.evaluate(item)) for item in s.items]:
            self._context.variables[s.variable] = value
            if not self._round(s.body):
                return

    def _round(self, body: tuple[ir.Statement, ...]) -> bool:
        """Returns whether another round follows."""
        try:
            self.run(body)
        except ContinueSignal:
            return True
        except BreakSignal:
            return False
        return True

    def _break(self, s: ir.Break) -> None:
        raise BreakSignal

    def _continue(self, s: ir.Continue) -> None:
        raise ContinueSignal

    def _return(self, s: ir.Return) -> None:
        raise ReturnSignal(None if s.value is None else copy(self._expressions.evaluate(s.value)))

    def _exit(self, s: ir.Exit) -> None:
        raise ExitSignal

    def _call_action(self, s: ir.CallAction) -> None:
        action = self._context.program.actions[s.action]
        self.call(action.parameters, s.arguments, action.body)

    def _apply_control(self, s: ir.ApplyControl) -> None:
        control = self._context.program.controls[s.control]
        self.call(control.parameters, s.arguments, control.body)

    # --- packets

    def _extract(self, s: ir.Extract) -> None:
        place = self._expressions.place(s.target)
        type_ = s.target.type
        varbit = self._varbit_bits(s, type_)
        if self._context.cursor.left() < fixed_width(type_) + varbit:
            raise self._context.parser_error("PacketTooShort")
        if varbit > varbit_limit(type_):
            raise self._context.parser_error("HeaderTooShort")
        place.put(read(self._context.cursor, type_, varbit))
        self._advance_stack(s.target)

    def _varbit_bits(self, s: ir.Extract, type_: ir.Type) -> int:
        if s.varbit_bits is None:
            return 0
        bits = self._expressions.evaluate(s.varbit_bits)
        if bits % 8:
            raise self._context.parser_error("ParserInvalidArgument")
        return int(bits)

    def _advance_stack(self, target: ir.Expression) -> None:
        """Advances the stack after an extraction to `stack.next`, or to a member of its next union."""
        if isinstance(target, ir.Member):
            target = target.base
        if isinstance(target, ir.Next):
            self._expressions.place(target.base).get().next += 1

    def _skip(self, s: ir.Skip) -> None:
        bits = self._expressions.evaluate(s.bits)
        if self._context.cursor.left() < bits:
            raise self._context.parser_error("PacketTooShort")
        self._context.cursor.at += bits

    def _verify(self, s: ir.Verify) -> None:
        if not self._expressions.evaluate(s.condition):
            raise self._signal(self._expressions.evaluate(s.error))

    def _signal(self, error: int) -> Exception:
        return self._context.parser_error(self._context.program.errors[error])

    def _emit(self, s: ir.Emit) -> None:
        emit(self._context.out, self._expressions.evaluate(s.value), s.value.type)

    # --- tables

    def _hit(self, e: ir.TableApply) -> Value:
        return self.apply_table(e.table)[0]

    def _function(self, e: ir.Call) -> Value:
        function = self._context.program.functions[e.function]
        return self.call(function.parameters, e.arguments, function.body)

    def apply_table(self, number: int) -> tuple[bool, int]:
        """Returns whether an entry was hit, and the action that ran (an index into Program.actions)."""
        table, state = self._context.program.tables[number], self._context.machine.tables[number]
        row = state.match.find_linear(self.table_key(table)) if state.shape.keys else state.match.miss
        cell = self._choose(table, row)
        hit = row.hit
        if cell is None:
            row, hit = state.match.miss, False
            cell = self._choose(table, row)
        state.match.hits += hit
        state.match.misses += not hit
        self._direct(table, number, row)
        action, args = (row.action, row.args) if cell is None else (cell.action, cell.args)
        self._run_action(table, action, args)
        return hit, action

    def table_key(self, table: ir.Table) -> int:
        """Returns the matched fields side by side."""
        total = 0
        for key in table.keys:
            if key.match_kind is not ir.MatchKind.SELECTOR:
                bits, _ = raw(self._expressions.evaluate(key.expression), key.type)
                total = (total << key_width(key.type)) | bits
        return total

    def _choose(self, table: ir.Table, row: Row) -> Cell | None:
        """Returns the cell of an action profile; None: nothing to choose, so the default entry if it
        was hit.
        """
        if row.choices is None:
            return Cell(row.action, row.args)
        if not row.choices:
            return None
        assert table.implementation is not None
        bits = Bits()
        for key in table.keys:
            if key.match_kind is ir.MatchKind.SELECTOR:
                bits.add(*raw(self._expressions.evaluate(key.expression), key.type))
        instance = self._context.program.externs[table.implementation]
        return choose(instance, row.choices, bits.value, bits.width, self._context.machine.random)

    def _direct(self, table: ir.Table, number: int, row: Row) -> None:
        state = self._context.machine.tables[number]
        if state.counted:
            row.packets += 1
            row.bytes += self._context.length
        if state.metered:
            assert table.meters is not None
            assert row.meter is not None
            size = self._context.length if state.metered_by_bytes else 1
            self._context.colors[table.meters] = row.meter.execute(
                size, self._context.length, self._context.now
            )
        if state.timed:
            row.seen = self._context.now

    def _run_action(self, table: ir.Table, number: int, args: tuple[int, ...]) -> None:
        action = self._context.program.actions[number]
        bound = next(one for one in table.actions if one.action == number).arguments
        directed = tuple(p for p in action.parameters if p.direction is not ir.Direction.NONE)
        pairs = [(p.direction, e) for p, e in zip(directed, bound, strict=True)]
        places = self.copy_in(directed, pairs)
        for parameter, value in zip(action.data, args, strict=True):
            self._context.variables[parameter.variable] = value
        try:
            self.run(action.body)
        except ReturnSignal:
            pass
        finally:
            for variable, place in places:
                place.put(copy(self._context.variables[variable]))


def emit(out: Bits, value: Value, type_: ir.Type) -> None:
    """Appends the valid headers."""
    match type_:
        case ir.HeaderType():
            assert isinstance(value, HeaderValue)
            if value.valid:
                out.add(*raw(value, type_))
        case ir.StackType():
            for one in value.items:
                emit(out, one, type_.element)
        case ir.UnionType(fields=fields):
            assert isinstance(value, UnionValue)
            for one, field in zip(value.items, fields, strict=True):
                emit(out, one, field.type)
        case ir.StructType(fields=fields):
            for one, field in zip(value, fields, strict=True):
                emit(out, one, field.type)
        case ir.TupleType(elements=elements):
            for one, element in zip(value, elements, strict=True):
                emit(out, one, element)
