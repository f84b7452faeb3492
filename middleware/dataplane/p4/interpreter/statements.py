"""Statements, calls and tables."""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..runtime.match import Cell, Row
from ..runtime.select import choose
from ..runtime.shapes import key_width
from .context import Rounds
from .expressions import Expressions
from .packets import Bits, fixed_width, read, varbit_limit
from .places import Nowhere, Place
from .signals import BreakSignal, ContinueSignal, ExitSignal, ReturnSignal
from .values import HeaderValue, StackValue, UnionValue, Value, copy, default, raw


class Statements(Expressions):
    """`run` carries out a body; signals end it early."""

    def run(self, body: tuple[ir.Statement, ...]) -> None:
        for statement in body:
            _RUN[type(statement)](self, statement)

    def call(
        self,
        parameters: tuple[ir.Parameter, ...],
        arguments: tuple[ir.Argument, ...],
        body: tuple[ir.Statement, ...],
    ) -> Value:
        """Copies in, runs, copies out; also copies out when an exit passes through."""
        places = self._copy_in(parameters, [(one.direction, one.value) for one in arguments])
        try:
            self.run(body)
        except ReturnSignal as signal:
            return signal.value
        finally:
            for variable, place in places:
                place.put(copy(self.variables[variable]))
        return None

    def _copy_in(
        self, parameters: tuple[ir.Parameter, ...], arguments: list[tuple[ir.Direction, ir.Expression]]
    ) -> list[tuple[int, Place]]:
        """Evaluates all arguments before the first parameter is written. Returns what is copied out."""
        places: list[tuple[int, Place]] = []
        values: list[tuple[int, Value]] = []
        for parameter, (direction, expression) in zip(parameters, arguments, strict=True):
            if direction in (ir.Direction.OUT, ir.Direction.INOUT):
                place = self.place(expression)
                places.append((parameter.variable, place))
                inout = direction is ir.Direction.INOUT
                values.append((parameter.variable, copy(place.get()) if inout else default(parameter.type)))
            else:
                values.append((parameter.variable, copy(self.evaluate(expression))))
        for variable, value in values:
            self.variables[variable] = value
        return places

    # --- plain ones

    def _declare(self, s: ir.Declare) -> None:
        type_ = self.program.variables[s.variable].type
        self.variables[s.variable] = default(type_) if s.value is None else copy(self.evaluate(s.value))

    def _assign(self, s: ir.Assign) -> None:
        place = self.place(s.target)
        place.put(copy(self.evaluate(s.value)))

    def _set_valid(self, s: ir.SetValid) -> None:
        place = self.place(s.header)
        header = place.get()
        if not header.valid and not isinstance(place, Nowhere):
            assert isinstance(s.header.type, ir.HeaderType)
            header.valid, header.fields = True, [default(field.type) for field in s.header.type.fields]
        if place.union is not None:
            place.union.only(header)

    def _set_invalid(self, s: ir.SetInvalid) -> None:
        self.place(s.header).get().valid = False

    def _push_front(self, s: ir.PushFront) -> None:
        stack: StackValue = self.place(s.stack).get()
        assert isinstance(s.stack.type, ir.StackType)
        size, count = len(stack.items), min(s.count, len(stack.items))
        fresh = [default(s.stack.type.element) for _ in range(count)]
        stack.items = fresh + stack.items[: size - count]
        stack.next = min(size, stack.next + s.count)

    def _pop_front(self, s: ir.PopFront) -> None:
        stack: StackValue = self.place(s.stack).get()
        assert isinstance(s.stack.type, ir.StackType)
        count = min(s.count, len(stack.items))
        fresh = [default(s.stack.type.element) for _ in range(count)]
        stack.items = stack.items[count:] + fresh
        stack.next = max(0, stack.next - s.count)

    def _evaluate(self, s: ir.Evaluate) -> None:
        self.evaluate(s.call)

    # --- control flow

    def _if(self, s: ir.If) -> None:
        self.run(s.yes if self.evaluate(s.condition) else s.no)

    def _switch(self, s: ir.Switch) -> None:
        subject = self.evaluate(s.subject)
        for case in s.cases:
            if any(label.value == subject for label in case.labels):
                self.run(case.body)
                return
        self.run(s.default)

    def _switch_action(self, s: ir.SwitchAction) -> None:
        _, action = self.apply_table(s.table)
        actions = self.program.tables[s.table].actions
        for case in s.cases:
            if any(actions[number].action == action for number in case.actions):
                self.run(case.body)
                return
        self.run(s.default)

    def _for(self, s: ir.For) -> None:
        rounds = Rounds()
        while self.evaluate(s.condition):
            rounds.next()
            if not self._round(s.body):
                return
            self.run(s.update)

    def _for_range(self, s: ir.ForRange) -> None:
        rounds = Rounds()
        low, high = self.evaluate(s.low), self.evaluate(s.high)
        for value in range(low, high + 1):
            rounds.next()
            self.variables[s.variable] = value
            if not self._round(s.body):
                return

    def _for_each(self, s: ir.ForEach) -> None:
        for value in [copy(self.evaluate(item)) for item in s.items]:
            self.variables[s.variable] = value
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
        raise ReturnSignal(None if s.value is None else copy(self.evaluate(s.value)))

    def _exit(self, s: ir.Exit) -> None:
        raise ExitSignal

    def _call_action(self, s: ir.CallAction) -> None:
        action = self.program.actions[s.action]
        self.call(action.parameters, s.arguments, action.body)

    def _apply_control(self, s: ir.ApplyControl) -> None:
        control = self.program.controls[s.control]
        self.call(control.parameters, s.arguments, control.body)

    # --- packets

    def _extract(self, s: ir.Extract) -> None:
        place = self.place(s.target)
        type_ = s.target.type
        varbit = self._varbit_bits(s, type_)
        if self.cursor.left() < fixed_width(type_) + varbit:
            raise self.parser_error("PacketTooShort")
        if varbit > varbit_limit(type_):
            raise self.parser_error("HeaderTooShort")
        place.put(read(self.cursor, type_, varbit))
        self._advance_stack(s.target)

    def _varbit_bits(self, s: ir.Extract, type_: ir.Type) -> int:
        if s.varbit_bits is None:
            return 0
        bits = self.evaluate(s.varbit_bits)
        if bits % 8:
            raise self.parser_error("ParserInvalidArgument")
        return int(bits)

    def _advance_stack(self, target: ir.Expression) -> None:
        """Advances the stack after an extraction to `stack.next`, or to a member of its next union."""
        if isinstance(target, ir.Member):
            target = target.base
        if isinstance(target, ir.Next):
            self.place(target.base).get().next += 1

    def _skip(self, s: ir.Skip) -> None:
        bits = self.evaluate(s.bits)
        if self.cursor.left() < bits:
            raise self.parser_error("PacketTooShort")
        self.cursor.at += bits

    def _verify(self, s: ir.Verify) -> None:
        if not self.evaluate(s.condition):
            raise self._signal(self.evaluate(s.error))

    def _signal(self, error: int) -> Exception:
        return self.parser_error(self.program.errors[error])

    def _emit(self, s: ir.Emit) -> None:
        emit(self.out, self.evaluate(s.value), s.value.type)

    # --- tables

    def apply_table(self, number: int) -> tuple[bool, int]:
        """Returns whether an entry was hit, and the action that ran (an index into Program.actions)."""
        table, state = self.program.tables[number], self.machine.tables[number]
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
                bits, _ = raw(self.evaluate(key.expression), key.type)
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
                bits.add(*raw(self.evaluate(key.expression), key.type))
        instance = self.program.externs[table.implementation]
        return choose(instance, row.choices, bits.value, bits.width, self.machine.random)

    def _direct(self, table: ir.Table, number: int, row: Row) -> None:
        state = self.machine.tables[number]
        if state.counted:
            row.packets += 1
            row.bytes += self.length
        if state.metered:
            assert table.meters is not None
            assert row.meter is not None
            size = self.length if state.metered_by_bytes else 1
            self.colors[table.meters] = row.meter.execute(size, self.length, self.now)
        if state.timed:
            row.seen = self.now

    def _run_action(self, table: ir.Table, number: int, args: tuple[int, ...]) -> None:
        action = self.program.actions[number]
        bound = next(one for one in table.actions if one.action == number).arguments
        directed = tuple(p for p in action.parameters if p.direction is not ir.Direction.NONE)
        pairs = [(p.direction, e) for p, e in zip(directed, bound, strict=True)]
        places = self._copy_in(directed, pairs)
        for parameter, value in zip(action.data, args, strict=True):
            self.variables[parameter.variable] = value
        try:
            self.run(action.body)
        except ReturnSignal:
            pass
        finally:
            for variable, place in places:
                place.put(copy(self.variables[variable]))


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


_S = Statements
_RUN: dict[type, Callable[..., None]] = {
    ir.Declare: _S._declare,
    ir.Assign: _S._assign,
    ir.SetValid: _S._set_valid,
    ir.SetInvalid: _S._set_invalid,
    ir.PushFront: _S._push_front,
    ir.PopFront: _S._pop_front,
    ir.If: _S._if,
    ir.Switch: _S._switch,
    ir.SwitchAction: _S._switch_action,
    ir.Evaluate: _S._evaluate,
    ir.CallAction: _S._call_action,
    ir.ApplyControl: _S._apply_control,
    ir.Extract: _S._extract,
    ir.Skip: _S._skip,
    ir.Verify: _S._verify,
    ir.Emit: _S._emit,
    ir.For: _S._for,
    ir.ForRange: _S._for_range,
    ir.ForEach: _S._for_each,
    ir.Break: _S._break,
    ir.Continue: _S._continue,
    ir.Return: _S._return,
    ir.Exit: _S._exit,
}
