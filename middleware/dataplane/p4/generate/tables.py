"""Look-ups and their actions."""

from __future__ import annotations

from .. import ir
from ..bits import Generator
from ..runtime.match import Cell, MatchTable, Row
from ..runtime.select import choose
from ..runtime.shapes import key_width
from .base import Draft, has_effects
from .expressions import Expressions
from .packing import Packing
from .statements import Statements
from .stores import Scalar, Store
from .texts import unsigned


class Tables:
    """Inlines tables, with their actions, at each application."""

    def __init__(
        self, draft: Draft, packing: Packing, expressions: Expressions, statements: Statements
    ) -> None:
        self._draft = draft
        self._packing = packing
        self._expressions = expressions
        self._statements = statements
        draft.tables = self
        expressions.kinds[ir.TableApply] = self._hit

    def _hit(self, e: ir.TableApply) -> Store:
        return Scalar(self.apply_table(e.table)[0], e.type)

    def apply_table(self, number: int) -> tuple[str, str]:
        """Texts of whether an entry was hit, and of the action's number."""
        table, state = self._draft.program.tables[number], self._draft.machine.tables[number]
        row, cell = self._look_up(number)
        match = self._draft.bound(f"M{number}", state.match)
        hit, action = self._draft.temp(), self._draft.temp()
        self._draft.writer.assign(hit, f"{row}.hit")
        with self._draft.writer.block(f"if {row}.hit:"):
            self._draft.writer.line(f"{match}.hits += 1")
        with self._draft.writer.block("else:"):
            self._draft.writer.line(f"{match}.misses += 1")
        self._direct(number, row)
        self._draft.writer.assign(action, f"{cell}.action")
        self._dispatch(table, action, f"{cell}.args")
        return hit, action

    def _look_up(self, number: int) -> tuple[str, str]:
        """Returns the row, and the cell of its profile or the row again."""
        table, state = self._draft.program.tables[number], self._draft.machine.tables[number]
        row = self._draft.temp()
        if not state.shape.keys:
            self._draft.writer.assign(row, self._draft.bound(f"M{number}_miss", state.match.miss))
        else:
            self._find(number, row)
        if table.implementation is None:
            return row, row
        cell, picked = self._draft.temp(), self._draft.temp()
        bits, width = self._key([k for k in table.keys if k.match_kind is ir.MatchKind.SELECTOR])
        pick = self._draft.bound("pick", pick_cell)
        instance = self._draft.constant("X", self._draft.program.externs[table.implementation])
        match = self._draft.bound(f"M{number}", state.match)
        random = self._draft.bound("random_", self._draft.machine.random)
        self._draft.writer.line(
            f"{picked}, {cell} = {pick}({match}, {row}, {instance}, {bits}, {width}, {random})"
        )
        return picked, cell

    def _find(self, number: int, row: str) -> None:
        table, match = self._draft.program.tables[number], self._draft.machine.tables[number].match
        key, _ = self._key([k for k in table.keys if k.match_kind is not ir.MatchKind.SELECTOR])
        get = self._draft.bound(f"M{number}_get", match.cache.get)
        if match.exact:
            miss = self._draft.bound(f"M{number}_miss", match.miss)
            self._draft.writer.assign(row, f"{get}({key}, {miss})")
            return
        find = self._draft.bound(f"M{number}_find", match.find)
        key = self._expressions.hold(key)
        self._draft.writer.assign(row, f"{get}({key}) or {find}({key})")

    def _key(self, keys: list[ir.Key]) -> tuple[str, str]:
        parts = []
        for key in keys:
            value = self._expressions.value(key.expression)
            if any(has_effects(other.expression) for other in keys):
                value = self._expressions.saved(value)
            parts.append((unsigned(self._draft.scalar(value), key.type), str(key_width(key.type))))
        return self._packing.joined(parts)

    def _direct(self, number: int, row: str) -> None:
        table, state = self._draft.program.tables[number], self._draft.machine.tables[number]
        if state.counted:
            self._draft.writer.line(f"{row}.packets += 1")
            self._draft.writer.line(f"{row}.bytes += L")
        if state.metered:
            size = "L" if state.metered_by_bytes else "1"
            self._draft.writer.line(f"m{table.meters} = {row}.meter.execute({size}, L, now)")
        if state.timed:
            self._draft.writer.line(f"{row}.seen = now")

    def _dispatch(self, table: ir.Table, action: str, args: str) -> None:
        word = "if"
        for one in table.actions:
            body = self._draft.program.actions[one.action].body
            if not body and not one.arguments:
                continue
            with self._draft.writer.block(f"{word} {action} == {one.action}:"):
                self._run_action(one, args)
            word = "elif"

    def _run_action(self, one: ir.TableAction, args: str) -> None:
        action = self._draft.program.actions[one.action]
        names = [self._draft.scalar(self._draft.store_of(p.variable)) for p in action.data]
        for place, name in enumerate(names):
            self._draft.writer.assign(name, f"{args}[{place}]")
        directed = tuple(p for p in action.parameters if p.direction is not ir.Direction.NONE)
        pairs = [(p.direction, e) for p, e in zip(directed, one.arguments, strict=True)]
        self._statements.call(directed, pairs, action.body, False)


def pick_cell(
    match: MatchTable, row: Row, instance: ir.ExternInstance, bits: int, width: int, random: Generator
) -> tuple[Row, Row | Cell]:
    """Returns the row that counts and the cell that acts, of a table with an action profile or selector."""
    if row.choices is not None and not row.choices:
        row = match.miss
    if not row.choices:
        return row, row
    return row, choose(instance, row.choices, bits, width, random)
