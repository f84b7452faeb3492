"""The parser: states, select, subparsers."""

from __future__ import annotations

from .. import ir
from ..runtime.machine import MAX_STATES
from ..runtime.shapes import key_width
from .context import Context
from .expressions import Expressions
from .signals import ParserSignal
from .statements import Statements
from .values import Value, copy, raw


class Parsing:
    """Runs parsers."""

    def __init__(self, context: Context, expressions: Expressions, statements: Statements) -> None:
        self._context = context
        self._expressions = expressions
        self._statements = statements
        statements.kinds[ir.ApplyParser] = self._apply_parser

    def parse(self, number: int) -> int:
        """Runs to accept or reject; the error is an index into `Program.errors`, 0 if there was none."""
        self._context.in_parser = True
        try:
            self._walk(self._context.program.parsers[number])
            return 0  # an explicit transition to reject sets no error
        except ParserSignal as signal:
            return signal.error
        finally:
            self._context.in_parser = False

    def _walk(self, parser: ir.Parser) -> bool:
        """Returns whether it ends in accept."""
        self._statements.run(parser.setup)
        state = parser.start
        while state >= 0:
            self._context.states += 1
            if self._context.states > MAX_STATES:
                raise self._context.parser_error("ParserTimeout")
            self._statements.run(parser.states[state].body)
            state = self._next(parser.states[state].transition)
        return state == ir.ACCEPT

    def _next(self, transition: ir.Goto | ir.Select) -> int:
        if isinstance(transition, ir.Goto):
            return transition.target
        values = [copy(self._expressions.evaluate(key)) for key in transition.keys]
        for case in transition.cases:
            if self._fits(case, values, transition.keys):
                return case.target
        raise self._context.parser_error("NoMatch")

    def _fits(self, case: ir.Case, values: list[Value], keys: tuple[ir.Expression, ...]) -> bool:
        if case.matches and isinstance(case.matches[0], ir.MatchSet):
            return self._in_set(case.matches[0].value_set, values, keys)
        return all(fits(match, value) for match, value in zip(case.matches, values, strict=True))

    def _in_set(self, number: int, values: list[Value], keys: tuple[ir.Expression, ...]) -> bool:
        total = 0
        for value, key in zip(values, keys, strict=True):
            total = (total << key_width(key.type)) | raw(value, key.type)[0]
        return self._context.machine.value_sets[number].match.find_linear(total).hit

    def _apply_parser(self, s: ir.ApplyParser) -> None:
        """Runs a subparser. One that rejects ends everything: the signal passes through."""
        parser = self._context.program.parsers[s.parser]
        places = self._statements.copy_in(
            parser.parameters, [(one.direction, one.value) for one in s.arguments]
        )
        try:
            if not self._walk(parser):
                raise ParserSignal(0)
        finally:
            for variable, place in places:
                place.put(copy(self._context.variables[variable]))


def fits(match: ir.Match, value: Value) -> bool:
    """Returns whether one match of a select case fits."""
    match match:
        case ir.MatchAny():
            return True
        case ir.MatchValue(value=wanted):
            return bool(value == wanted)
        case ir.MatchMask(value=wanted, mask=mask):
            return bool(value & mask == wanted & mask)
        case ir.MatchRange(low=low, high=high):
            return bool(low <= value <= high)
    raise TypeError(f"{match} is no match of one key")
