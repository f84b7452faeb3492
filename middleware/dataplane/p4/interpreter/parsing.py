"""The parser: states, select, subparsers."""

from __future__ import annotations

from .. import ir
from ..runtime.machine import MAX_STATES
from ..runtime.shapes import key_width
from .externs import Externs
from .signals import ParserSignal
from .statements import _RUN
from .values import Value, copy, raw


class Parsing(Externs):
    """Runs parsers."""

    def parse(self, number: int) -> int:
        """Runs to accept or reject; the error is an index into `Program.errors`, 0 if there was none."""
        self.in_parser = True
        try:
            self._walk(self.program.parsers[number])
            return 0  # an explicit transition to reject sets no error
        except ParserSignal as signal:
            return signal.error
        finally:
            self.in_parser = False

    def _walk(self, parser: ir.Parser) -> bool:
        """Returns whether it ends in accept."""
        self.run(parser.setup)
        state = parser.start
        while state >= 0:
            self.states += 1
            if self.states > MAX_STATES:
                raise self.parser_error("ParserTimeout")
            self.run(parser.states[state].body)
            state = self._next(parser.states[state].transition)
        return state == ir.ACCEPT

    def _next(self, transition: ir.Goto | ir.Select) -> int:
        if isinstance(transition, ir.Goto):
            return transition.target
        values = [copy(self.evaluate(key)) for key in transition.keys]
        for case in transition.cases:
            if self._fits(case, values, transition.keys):
                return case.target
        raise self.parser_error("NoMatch")

    def _fits(self, case: ir.Case, values: list[Value], keys: tuple[ir.Expression, ...]) -> bool:
        if case.matches and isinstance(case.matches[0], ir.MatchSet):
            return self._in_set(case.matches[0].value_set, values, keys)
        return all(fits(match, value) for match, value in zip(case.matches, values, strict=True))

    def _in_set(self, number: int, values: list[Value], keys: tuple[ir.Expression, ...]) -> bool:
        total = 0
        for value, key in zip(values, keys, strict=True):
            total = (total << key_width(key.type)) | raw(value, key.type)[0]
        return self.machine.value_sets[number].match.find_linear(total).hit

    def _apply_parser(self, s: ir.ApplyParser) -> None:
        """Runs a subparser. One that rejects ends everything: the signal passes through."""
        parser = self.program.parsers[s.parser]
        places = self._copy_in(parser.parameters, [(one.direction, one.value) for one in s.arguments])
        try:
            if not self._walk(parser):
                raise ParserSignal(0)
        finally:
            for variable, place in places:
                place.put(copy(self.variables[variable]))


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


_RUN[ir.ApplyParser] = Parsing._apply_parser
