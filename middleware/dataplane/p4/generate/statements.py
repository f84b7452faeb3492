"""Statements, inlined calls, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import ir
from ..runtime.counts import DROP_LOOP
from ..runtime.machine import MAX_ROUNDS, walk
from .base import Draft, Frame, has_effects
from .expressions import Expressions
from .layout import Unsupported
from .stores import Header, Scalar, SliceOf, Store
from .texts import wrap
from .writer import MAX_LINES

Directed = tuple[ir.Direction, ir.Expression]


class Statements:
    """`run` writes a body in place."""

    def __init__(self, draft: Draft, expressions: Expressions) -> None:
        self._draft = draft
        self._expressions = expressions
        expressions.kinds[ir.Call] = self._call
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
            ir.For: self._for,
            ir.ForRange: self._for_range,
            ir.ForEach: self._for_each,
            ir.Break: self._break,
            ir.Continue: self._continue,
            ir.Return: self._return,
            ir.Exit: self._exit,
        }

    def run(self, body: tuple[ir.Statement, ...]) -> None:
        if len(self._draft.writer.lines) > MAX_LINES:
            raise Unsupported("too much code")
        for statement in body:
            self.kinds[type(statement)](statement)

    # --- calls

    def inline(self, body: tuple[ir.Statement, ...], result: Store | None = None) -> None:
        """Writes a callee's body; an early return in it leaves a loop that runs once."""
        frame = Frame(result)
        self._draft.frames.append(frame)
        if _returns_early(body):
            frame.wrapped = True
            frame.flag = self._draft.temp() if _returns_in_loop(body) else ""
            if frame.flag:
                self._draft.writer.assign(frame.flag, "False")
            with self._draft.writer.block("while True:"):
                self.run(body)
                self._draft.writer.line("break")
        else:
            self.run(body)
        self._draft.frames.pop()

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
        aliases, copies = self.arguments(parameters, arguments, alias)
        self.copy_in(copies)
        kept = {number: self._draft.stores.get(number) for number in aliases}
        self._draft.stores.update(aliases)
        with self._guarded(copies, body):
            self.inline(body, result)
        self.copy_out(copies)
        for number, store in kept.items():
            if store is None:
                self._draft.stores.pop(number, None)
            else:
                self._draft.stores[number] = store

    def arguments(
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
            store = self._expressions.place(expression) if out else self._expressions.value(expression)
            if alias and not effects and direction is not ir.Direction.OUT and self._alone(number, arguments):
                aliases[parameter.variable] = store
            else:
                saved = self._expressions.saved(store) if effects and not out else store
                copies.append((parameter, direction, saved))
        return aliases, copies

    def _alone(self, number: int, arguments: list[Directed]) -> bool:
        """Returns whether the argument is a plain path that no other argument overlaps."""
        path = _path(arguments[number][1])
        if path is None:
            return False
        others = [_path(e) for n, (_, e) in enumerate(arguments) if n != number]
        return not any(other is None or _overlap(path, other) for other in others)

    def copy_in(self, copies: list[tuple[ir.Parameter, ir.Direction, Store]]) -> None:
        for parameter, direction, store in copies:
            target = self._draft.store_of(parameter.variable)
            if direction is ir.Direction.OUT:
                self._draft.put(target, self._draft.default(parameter.type))
            elif isinstance(store, SliceOf):
                self._draft.put(target, Scalar(_slice_text(store), parameter.type))
            else:
                self._draft.put(target, store)

    def copy_out(self, copies: list[tuple[ir.Parameter, ir.Direction, Store]]) -> None:
        for parameter, direction, store in copies:
            if direction in (ir.Direction.OUT, ir.Direction.INOUT):
                self.store(store, self._draft.store_of(parameter.variable))

    @contextmanager
    def _guarded(
        self, copies: list[tuple[ir.Parameter, ir.Direction, Store]], body: tuple[ir.Statement, ...]
    ) -> Iterator[None]:
        """Makes an exit copy out, too."""
        out = any(direction in (ir.Direction.OUT, ir.Direction.INOUT) for _, direction, _ in copies)
        if not out or not self._draft.exits(body):
            yield
            return
        with self._draft.writer.block("try:"):
            yield
        with self._draft.writer.block("except Exit_:"):
            self.copy_out(copies)
            self._draft.writer.line("raise")

    def _call(self, e: ir.Call) -> Store:
        function = self._draft.program.functions[e.function]
        result = None if isinstance(e.type, ir.Void) else self._draft.new_store(self._draft.temp(), e.type)
        arguments = [(one.direction, one.value) for one in e.arguments]
        self.call(function.parameters, arguments, function.body, True, result)
        return result if result is not None else Scalar("None", e.type)

    def _call_action(self, s: ir.CallAction) -> None:
        action = self._draft.program.actions[s.action]
        arguments = [(one.direction, one.value) for one in s.arguments]
        self.call(action.parameters, arguments, action.body, False)

    def _apply_control(self, s: ir.ApplyControl) -> None:
        control = self._draft.program.controls[s.control]
        arguments = [(one.direction, one.value) for one in s.arguments]
        self.call(control.parameters, arguments, control.body, True)

    # --- storing

    def store(self, target: Store, value: Store) -> None:
        """Writes an assignment to any l-value."""
        if not isinstance(target, SliceOf):
            self._draft.put(target, value)
            return
        base, width = target.base, target.high - target.low + 1
        keep = ~(((1 << width) - 1) << target.low)
        if not isinstance(base.type, ir.Bits) or not base.type.signed:
            keep &= (1 << ir.width_of(base.type)) - 1
        changed = f"({base.text} & {keep} | {self._draft.scalar(value)} << {target.low})"
        signed_base = isinstance(base.type, ir.Bits) and base.type.signed
        self._draft.put(base, Scalar(wrap(changed, base.type) if signed_base else changed, base.type))

    def _declare(self, s: ir.Declare) -> None:
        type_ = self._draft.program.variables[s.variable].type
        value = self._draft.default(type_) if s.value is None else self._expressions.value(s.value)
        self._draft.put(self._draft.store_of(s.variable), value)

    def _assign(self, s: ir.Assign) -> None:
        target = self._expressions.place(s.target)
        self.store(target, self._expressions.value(s.value))

    def _header(self, e: ir.Expression) -> Header:
        header = self._expressions.value(e)
        assert isinstance(header, Header)
        return header

    def _set_valid(self, s: ir.SetValid) -> None:
        header = self._header(s.header)
        fresh = self._draft.default_header(header.layout, "True", "True")
        with self._draft.writer.block(f"if not {header.valid}:"):
            self._draft.writer.assign_all(header.texts(), fresh.texts())
            self._draft.writer.assign("ch", "True")
        if header.union is not None:
            self._draft.only_in_union(header, "")

    def _set_invalid(self, s: ir.SetInvalid) -> None:
        header = self._header(s.header)
        self._draft.writer.assign(header.valid, "False")
        self._draft.writer.assign("ch", "True")

    def _push_front(self, s: ir.PushFront) -> None:
        self._shift_stack(s.stack, s.count, True)

    def _pop_front(self, s: ir.PopFront) -> None:
        self._shift_stack(s.stack, s.count, False)

    def _shift_stack(self, e: ir.Expression, count: int, push: bool) -> None:
        stack = self._expressions.stack(e)
        size = stack.type.size
        moved = min(count, size)
        fresh = f"[{', '.join([self._draft.fresh_element(stack.type.element)] * moved)}]"
        if push:
            self._draft.writer.assign(stack.text, f"{fresh} + {stack.text}[:{size - moved}]")
            self._draft.writer.assign(stack.next, f"min({size}, {stack.next} + {count})")
        else:
            self._draft.writer.assign(stack.text, f"{stack.text}[{moved}:] + {fresh}")
            self._draft.writer.assign(stack.next, f"max(0, {stack.next} - {count})")
        self._draft.writer.assign("ch", "True")

    def _evaluate(self, s: ir.Evaluate) -> None:
        self._expressions.value(s.call)

    # --- control flow

    def _if(self, s: ir.If) -> None:
        condition = self._expressions.text(s.condition)
        if s.yes:
            with self._draft.writer.block(f"if {condition}:"):
                self.run(s.yes)
            if s.no:
                self._else(s.no)
        elif s.no:
            with self._draft.writer.block(f"if not {condition}:"):
                self.run(s.no)
        else:
            self._draft.writer.line(f"{condition}")

    def _else(self, body: tuple[ir.Statement, ...]) -> None:
        """Writes `elif` if the next condition needs no lines of its own."""
        if len(body) == 1 and isinstance(body[0], ir.If) and body[0].yes:
            condition, lines = self._expressions.aside(body[0].condition)
            if not lines:
                with self._draft.writer.block(f"elif {condition}:"):
                    self.run(body[0].yes)
                if body[0].no:
                    self._else(body[0].no)
                return
        with self._draft.writer.block("else:"):
            self.run(body)

    def _switch(self, s: ir.Switch) -> None:
        subject = self._expressions.hold(self._expressions.text(s.subject))
        cases = [(" or ".join(f"{subject} == {one.value!r}" for one in c.labels), c.body) for c in s.cases]
        self._cases(cases, s.default)

    def _cases(
        self, cases: list[tuple[str, tuple[ir.Statement, ...]]], default: tuple[ir.Statement, ...]
    ) -> None:
        word = "if"
        for condition, body in cases:
            with self._draft.writer.block(f"{word} {condition}:"):
                self.run(body)
            word = "elif"
        if not cases:
            self.run(default)
        elif default:
            with self._draft.writer.block("else:"):
                self.run(default)

    def _switch_action(self, s: ir.SwitchAction) -> None:
        _, action = self._draft.tables.apply_table(s.table)
        actions = self._draft.program.tables[s.table].actions
        cases = [
            (" or ".join(f"{action} == {actions[number].action}" for number in case.actions), case.body)
            for case in s.cases
        ]
        self._cases(cases, s.default)

    def _for(self, s: ir.For) -> None:
        first = self._draft.temp()
        rounds = self._rounds()
        self._draft.writer.assign(first, "True")
        with self._loop("while True:"):
            with self._draft.writer.block(f"if {first}:"):
                self._draft.writer.assign(first, "False")
            with self._draft.writer.block("else:"):
                self.run(s.update)
            self._draft.writer.line(f"if not {self._expressions.text(s.condition)}: break")
            self._count_round(rounds)
            self.run(s.body)

    def _for_range(self, s: ir.ForRange) -> None:
        low, high = (
            self._expressions.hold(self._expressions.text(s.low)),
            self._expressions.hold(self._expressions.text(s.high)),
        )
        rounds = self._rounds()
        name = self._draft.temp()
        with self._loop(f"for {name} in range({low}, {high} + 1):"):
            self._count_round(rounds)
            self._draft.put(self._draft.store_of(s.variable), Scalar(name, s.low.type))
            self.run(s.body)

    def _for_each(self, s: ir.ForEach) -> None:
        items = [self._expressions.value(item) for item in s.items]
        name = self._draft.temp()
        texts = [item.text for item in items if isinstance(item, Scalar)]
        if len(texts) != len(items):
            raise Unsupported("a loop over headers or structs")
        with self._loop(f"for {name} in [{', '.join(texts)}]:"):
            self._draft.put(self._draft.store_of(s.variable), Scalar(name, s.items[0].type))
            self.run(s.body)

    def _rounds(self) -> str:
        name = self._draft.temp()
        self._draft.writer.assign(name, "0")
        return name

    def _count_round(self, rounds: str) -> None:
        self._draft.writer.line(f"{rounds} += 1")
        self._draft.writer.line(f"if {rounds} > {MAX_ROUNDS}: raise Drop_({DROP_LOOP!r})")

    @contextmanager
    def _loop(self, head: str) -> Iterator[None]:
        """Writes a P4 loop; a return inside leaves it first, and then its callee."""
        frame = self._draft.frames[-1] if self._draft.frames else Frame(None)
        frame.loops += 1
        with self._draft.writer.block(head):
            yield
        frame.loops -= 1
        if frame.flag:
            self._draft.writer.line(f"if {frame.flag}: break")

    def _break(self, s: ir.Break) -> None:
        self._draft.writer.line("break")

    def _continue(self, s: ir.Continue) -> None:
        self._draft.writer.line("continue")

    def _return(self, s: ir.Return) -> None:
        frame = self._draft.frames[-1]
        if s.value is not None and frame.result is not None:
            self._draft.put(frame.result, self._expressions.value(s.value))
        if not frame.wrapped:
            return  # the last statement
        if frame.loops:
            self._draft.writer.assign(frame.flag, "True")
        self._draft.writer.line("break")

    def _exit(self, s: ir.Exit) -> None:
        self._draft.writer.line("raise Exit_")


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
