"""Statements, inlined calls, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import ir
from ..runtime.counts import DROP_LOOP
from ..runtime.machine import MAX_ROUNDS, walk
from .base import Frame, has_effects
from .expressions import Expressions
from .layout import Unsupported
from .stores import Header, Scalar, SliceOf, Store
from .texts import wrap
from .writer import MAX_LINES

Directed = tuple[ir.Direction, ir.Expression]


class Statements(Expressions):
    """`run` writes a body in place."""

    def run(self, body: tuple[ir.Statement, ...]) -> None:
        if len(self.writer.lines) > MAX_LINES:
            raise Unsupported("too much code")
        for statement in body:
            _RUN[type(statement)](self, statement)

    # --- calls

    def inline(self, body: tuple[ir.Statement, ...], result: Store | None = None) -> None:
        """Writes a callee's body; an early return in it leaves a loop that runs once."""
        frame = Frame(result)
        self.frames.append(frame)
        if _returns_early(body):
            frame.wrapped = True
            frame.flag = self.temp() if _returns_in_loop(body) else ""
            if frame.flag:
                self.writer.assign(frame.flag, "False")
            with self.writer.block("while True:"):
                self.run(body)
                self.writer.line("break")
        else:
            self.run(body)
        self.frames.pop()

    def call(
        self,
        parameters: tuple[ir.Parameter, ...],
        arguments: list[Directed],
        body: tuple[ir.Statement, ...],
        alias: bool,
        result: Store | None = None,
    ) -> None:
        """Writes copy-in, body, copy-out. `alias`: the callee sees only its parameters, so they may be
        replaced by arguments that do not overlap.
        """
        aliases, copies = self._arguments(parameters, arguments, alias)
        self._copy_in(copies)
        kept = {number: self.stores.get(number) for number in aliases}
        self.stores.update(aliases)
        with self._guarded(copies, body):
            self.inline(body, result)
        self._copy_out(copies)
        for number, store in kept.items():
            if store is None:
                self.stores.pop(number, None)
            else:
                self.stores[number] = store

    def _arguments(
        self, parameters: tuple[ir.Parameter, ...], arguments: list[Directed], alias: bool
    ) -> tuple[dict[int, Store], list[tuple[ir.Parameter, ir.Direction, Store]]]:
        """Returns parameters replaced by their arguments, and those that are copied."""
        aliases: dict[int, Store] = {}
        copies: list[tuple[ir.Parameter, ir.Direction, Store]] = []
        effects = any(has_effects(e) for _, e in arguments)
        for number, (parameter, (direction, expression)) in enumerate(
            zip(parameters, arguments, strict=True)
        ):
            out = direction in (ir.Direction.OUT, ir.Direction.INOUT)
            store = self.place(expression) if out else self.value(expression)
            if alias and not effects and direction is not ir.Direction.OUT and self._alone(number, arguments):
                aliases[parameter.variable] = store
            else:
                saved = self._saved(store) if effects and not out else store
                copies.append((parameter, direction, saved))
        return aliases, copies

    def _alone(self, number: int, arguments: list[Directed]) -> bool:
        """Returns whether the argument is a plain path that no other argument overlaps."""
        path = _path(arguments[number][1])
        if path is None:
            return False
        others = [_path(e) for n, (_, e) in enumerate(arguments) if n != number]
        return not any(other is None or _overlap(path, other) for other in others)

    def _copy_in(self, copies: list[tuple[ir.Parameter, ir.Direction, Store]]) -> None:
        for parameter, direction, store in copies:
            target = self.store_of(parameter.variable)
            if direction is ir.Direction.OUT:
                self.put(target, self.default(parameter.type))
            elif isinstance(store, SliceOf):
                self.put(target, Scalar(_slice_text(store), parameter.type))
            else:
                self.put(target, store)

    def _copy_out(self, copies: list[tuple[ir.Parameter, ir.Direction, Store]]) -> None:
        for parameter, direction, store in copies:
            if direction in (ir.Direction.OUT, ir.Direction.INOUT):
                self.store(store, self.store_of(parameter.variable))

    @contextmanager
    def _guarded(
        self, copies: list[tuple[ir.Parameter, ir.Direction, Store]], body: tuple[ir.Statement, ...]
    ) -> Iterator[None]:
        """Makes an exit copy out, too."""
        out = any(direction in (ir.Direction.OUT, ir.Direction.INOUT) for _, direction, _ in copies)
        if not out or not self.exits(body):
            yield
            return
        with self.writer.block("try:"):
            yield
        with self.writer.block("except Exit_:"):
            self._copy_out(copies)
            self.writer.line("raise")

    def _call(self, e: ir.Call) -> Store:
        function = self.program.functions[e.function]
        result = None if isinstance(e.type, ir.Void) else self.new_store(self.temp(), e.type)
        arguments = [(one.direction, one.value) for one in e.arguments]
        self.call(function.parameters, arguments, function.body, True, result)
        return result if result is not None else Scalar("None", e.type)

    def _call_action(self, s: ir.CallAction) -> None:
        action = self.program.actions[s.action]
        arguments = [(one.direction, one.value) for one in s.arguments]
        self.call(action.parameters, arguments, action.body, False)

    def _apply_control(self, s: ir.ApplyControl) -> None:
        control = self.program.controls[s.control]
        arguments = [(one.direction, one.value) for one in s.arguments]
        self.call(control.parameters, arguments, control.body, True)

    # --- storing

    def store(self, target: Store, value: Store) -> None:
        """Writes an assignment to any l-value."""
        if not isinstance(target, SliceOf):
            self.put(target, value)
            return
        base, width = target.base, target.high - target.low + 1
        keep = ~(((1 << width) - 1) << target.low)
        if not isinstance(base.type, ir.Bits) or not base.type.signed:
            keep &= (1 << ir.width_of(base.type)) - 1
        changed = f"({base.text} & {keep} | {self.scalar(value)} << {target.low})"
        signed_base = isinstance(base.type, ir.Bits) and base.type.signed
        self.put(base, Scalar(wrap(changed, base.type) if signed_base else changed, base.type))

    def _declare(self, s: ir.Declare) -> None:
        type_ = self.program.variables[s.variable].type
        value = self.default(type_) if s.value is None else self.value(s.value)
        self.put(self.store_of(s.variable), value)

    def _assign(self, s: ir.Assign) -> None:
        target = self.place(s.target)
        self.store(target, self.value(s.value))

    def _header(self, e: ir.Expression) -> Header:
        header = self.value(e)
        assert isinstance(header, Header)
        return header

    def _set_valid(self, s: ir.SetValid) -> None:
        header = self._header(s.header)
        fresh = self._default_header(header.layout, "True", "True")
        with self.writer.block(f"if not {header.valid}:"):
            self.writer.assign_all(header.texts(), fresh.texts())
            self.writer.assign("ch", "True")
        if header.union is not None:
            self.only_in_union(header, "")

    def _set_invalid(self, s: ir.SetInvalid) -> None:
        header = self._header(s.header)
        self.writer.assign(header.valid, "False")
        self.writer.assign("ch", "True")

    def _push_front(self, s: ir.PushFront) -> None:
        self._shift_stack(s.stack, s.count, True)

    def _pop_front(self, s: ir.PopFront) -> None:
        self._shift_stack(s.stack, s.count, False)

    def _shift_stack(self, e: ir.Expression, count: int, push: bool) -> None:
        stack = self._stack(e)
        size = stack.type.size
        moved = min(count, size)
        fresh = f"[{', '.join([self.fresh_element(stack.type.element)] * moved)}]"
        if push:
            self.writer.assign(stack.text, f"{fresh} + {stack.text}[:{size - moved}]")
            self.writer.assign(stack.next, f"min({size}, {stack.next} + {count})")
        else:
            self.writer.assign(stack.text, f"{stack.text}[{moved}:] + {fresh}")
            self.writer.assign(stack.next, f"max(0, {stack.next} - {count})")
        self.writer.assign("ch", "True")

    def _evaluate(self, s: ir.Evaluate) -> None:
        self.value(s.call)

    # --- control flow

    def _if(self, s: ir.If) -> None:
        condition = self.text(s.condition)
        if s.yes:
            with self.writer.block(f"if {condition}:"):
                self.run(s.yes)
            if s.no:
                self._else(s.no)
        elif s.no:
            with self.writer.block(f"if not {condition}:"):
                self.run(s.no)
        else:
            self.writer.line(f"{condition}")

    def _else(self, body: tuple[ir.Statement, ...]) -> None:
        """Writes `elif` if the next condition needs no lines of its own."""
        if len(body) == 1 and isinstance(body[0], ir.If) and body[0].yes:
            condition, lines = self._aside(body[0].condition)
            if not lines:
                with self.writer.block(f"elif {condition}:"):
                    self.run(body[0].yes)
                if body[0].no:
                    self._else(body[0].no)
                return
        with self.writer.block("else:"):
            self.run(body)

    def _switch(self, s: ir.Switch) -> None:
        subject = self.hold(self.text(s.subject))
        cases = [(" or ".join(f"{subject} == {one.value!r}" for one in c.labels), c.body) for c in s.cases]
        self._cases(cases, s.default)

    def _cases(
        self, cases: list[tuple[str, tuple[ir.Statement, ...]]], default: tuple[ir.Statement, ...]
    ) -> None:
        word = "if"
        for condition, body in cases:
            with self.writer.block(f"{word} {condition}:"):
                self.run(body)
            word = "elif"
        if not cases:
            self.run(default)
        elif default:
            with self.writer.block("else:"):
                self.run(default)

    def _switch_action(self, s: ir.SwitchAction) -> None:
        _, action = self.apply_table(s.table)
        actions = self.program.tables[s.table].actions
        cases = [
            (" or ".join(f"{action} == {actions[number].action}" for number in case.actions), case.body)
            for case in s.cases
        ]
        self._cases(cases, s.default)

    def _for(self, s: ir.For) -> None:
        first = self.temp()
        rounds = self._rounds()
        self.writer.assign(first, "True")
        with self._loop("while True:"):
            with self.writer.block(f"if {first}:"):
                self.writer.assign(first, "False")
            with self.writer.block("else:"):
                self.run(s.update)
            self.writer.line(f"if not {self.text(s.condition)}: break")
            self._count_round(rounds)
            self.run(s.body)

    def _for_range(self, s: ir.ForRange) -> None:
        low, high = self.hold(self.text(s.low)), self.hold(self.text(s.high))
        rounds = self._rounds()
        name = self.temp()
        with self._loop(f"for {name} in range({low}, {high} + 1):"):
            self._count_round(rounds)
            self.put(self.store_of(s.variable), Scalar(name, s.low.type))
            self.run(s.body)

    def _for_each(self, s: ir.ForEach) -> None:
        items = [self.value(item) for item in s.items]
        name = self.temp()
        texts = [item.text for item in items if isinstance(item, Scalar)]
        if len(texts) != len(items):
            raise Unsupported("a loop over headers")
        with self._loop(f"for {name} in [{', '.join(texts)}]:"):
            self.put(self.store_of(s.variable), Scalar(name, s.items[0].type))
            self.run(s.body)

    def _rounds(self) -> str:
        name = self.temp()
        self.writer.assign(name, "0")
        return name

    def _count_round(self, rounds: str) -> None:
        self.writer.line(f"{rounds} += 1")
        self.writer.line(f"if {rounds} > {MAX_ROUNDS}: raise Drop_({DROP_LOOP!r})")

    @contextmanager
    def _loop(self, head: str) -> Iterator[None]:
        """Writes a P4 loop; a return inside leaves it first, and then its callee."""
        frame = self.frames[-1] if self.frames else Frame(None)
        frame.loops += 1
        with self.writer.block(head):
            yield
        frame.loops -= 1
        if frame.flag:
            self.writer.line(f"if {frame.flag}: break")

    def _break(self, s: ir.Break) -> None:
        self.writer.line("break")

    def _continue(self, s: ir.Continue) -> None:
        self.writer.line("continue")

    def _return(self, s: ir.Return) -> None:
        frame = self.frames[-1]
        if s.value is not None and frame.result is not None:
            self.put(frame.result, self.value(s.value))
        if not frame.wrapped:
            return  # the last statement
        if frame.loops:
            self.writer.assign(frame.flag, "True")
        self.writer.line("break")

    def _exit(self, s: ir.Exit) -> None:
        self.writer.line("raise Exit_")


def _slice_text(store: SliceOf) -> str:
    return f"(({store.base.text} >> {store.low}) & {(1 << (store.high - store.low + 1)) - 1})"


def _path(e: ir.Expression) -> tuple[int, ...] | None:
    """Returns a variable and the field numbers from there; () for a literal, which nothing changes."""
    if isinstance(e, ir.Literal):
        return ()
    if isinstance(e, ir.Variable):
        return (e.index,)
    if isinstance(e, ir.Member):
        base = _path(e.base)
        return None if not base else (*base, e.index)
    return None


def _overlap(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if not a or not b:
        return False
    size = min(len(a), len(b))
    return a[:size] == b[:size]


def _returns_early(body: tuple[ir.Statement, ...]) -> bool:
    """Returns whether there is a return other than as the last statement."""
    early = any(isinstance(node, ir.Return) for node in walk(body[:-1]))
    last = body[-1] if body else None
    return early or (not isinstance(last, ir.Return) and any(isinstance(n, ir.Return) for n in walk((last,))))


def _returns_in_loop(body: tuple[ir.Statement, ...]) -> bool:
    loops = [node for node in walk(body) if isinstance(node, ir.For | ir.ForRange | ir.ForEach)]
    return any(isinstance(node, ir.Return) for loop in loops for node in walk(loop.body))


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
    ir.For: _S._for,
    ir.ForRange: _S._for_range,
    ir.ForEach: _S._for_each,
    ir.Break: _S._break,
    ir.Continue: _S._continue,
    ir.Return: _S._return,
    ir.Exit: _S._exit,
    ir.Extract: lambda self, s: self.extract(s),
    ir.Skip: lambda self, s: self.skip(s),
    ir.Verify: lambda self, s: self.verify(s),
    ir.Emit: lambda self, s: self.emit(s),
    ir.ApplyParser: lambda self, s: self.apply_parser(s),
}
