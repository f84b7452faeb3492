"""The parser of rule files.

  rules  = { rule [ ";" ] }
  rule   = ( filter | "default" ) ":" action { "," action }
  action = "fwd" "(" port { "," port } ")" | "drop" [ "(" ")" ]
         | name "(" [ constant { "," constant } ] ")"      an action of the header description: answerDNS
         | name "<-" function "(" [ field ] ")"            an update of a state variable

Filters are those of `parse`. Spaces and ends of lines separate tokens only.
"""

from __future__ import annotations

from typing import Final

from .actions import Action, Custom, Drop, Forward, Rule, Rules, Update
from .errors import FilterError
from .parse import MAX_LENGTH, Parser
from .tokens import Kind
from .tree import Field, Scalar

MAX_FILE: Final = 256 << 20  # characters
MAX_PORT: Final = 510  # 511 is v1model's port of dropped packets
FUNCTIONS: Final = ("count", "sum", "avg")


def parse_rules(text: str) -> Rules:
    """Returns the rules of a file. Raises FilterError, which names line and column."""
    if len(text) > MAX_FILE:
        raise FilterError(f"a rule file has at most {MAX_FILE:,} characters, this one {len(text):,}", text, 0)
    return _RuleParser(text).rules()


class _RuleParser(Parser):
    """Filters, and what is around them."""

    def rules(self) -> Rules:
        found: list[Rule] = []
        default: tuple[Action, ...] | None = None
        while self.next.kind is not Kind.END:
            position = self.next.position
            if not self._is_default():
                found.append(self._rule(position))
            elif default is None:
                default = self._actions()
            else:
                raise FilterError("there are two default rules", self.text, position)
            self.took(";")
        return Rules(tuple(found), default or (), self.text)

    def _is_default(self) -> bool:
        """Takes `default` if it stands for a whole filter; a field may have this name too."""
        if self.next.kind is not Kind.WORD or self.next.text != "default":
            return False
        after = self.text[self.next.position + len("default") :].lstrip()[:1]
        if after != ":":
            return False
        self.take()
        return True

    def _rule(self, position: int) -> Rule:
        if self.next.text == ":":
            raise FilterError(
                "a filter is wanted before ':'; `true` matches every packet", self.text, position
            )
        tree = self.either()
        length = self.next.position - position
        if length > MAX_LENGTH:
            raise FilterError(
                f"a filter has at most {MAX_LENGTH:,} characters, this one {length:,}", self.text, position
            )
        return Rule(tree, self._actions(), position)

    def _actions(self) -> tuple[Action, ...]:
        if not self.took(":"):
            raise self.error("'and', 'or', or ':' and an action")
        found = [self._action()]
        while self.took(","):
            found.append(self._action())
        return tuple(found)

    def _action(self) -> Action:
        if self.next.kind is not Kind.WORD:
            raise self.error("an action, such as fwd(1)")
        position = self.next.position
        name = self.take().text
        if self.took("<-"):
            return self._update(name)
        if name == "drop":
            if self.took("("):
                self._closed()
            return Drop()
        if not self.took("("):
            raise self.error("'('")
        arguments = self._arguments()
        return self._forward(arguments, position) if name == "fwd" else Custom(name, arguments)

    def _arguments(self) -> tuple[Scalar, ...]:
        """Takes constants and the closing bracket."""
        found: list[Scalar] = []
        if self.took(")"):
            return ()
        found.append(self.constant())
        while self.took(","):
            found.append(self.constant())
        self._closed()
        return tuple(found)

    def _closed(self) -> None:
        if not self.took(")"):
            raise self.error("',' or ')'")

    def _forward(self, ports: tuple[Scalar, ...], position: int) -> Forward:
        if not ports:
            raise FilterError("fwd needs a port; `drop` sends to none", self.text, position)
        numbers = []
        for port in ports:
            if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= MAX_PORT:
                raise FilterError(f"{port} is no port: a number from 0 to {MAX_PORT}", self.text, position)
            numbers.append(port)
        return Forward(tuple(sorted(set(numbers))))

    def _update(self, variable: str) -> Update:
        if self.next.text not in FUNCTIONS:
            raise self.error("count, sum or avg")
        position = self.next.position
        function = self.take().text
        if not self.took("("):
            raise self.error("'('")
        if self.took(")"):
            fields: tuple[Field, ...] = ()
        else:
            fields = (self.field(self.name()),)
            self._closed()
        if (function == "count") is bool(fields):
            wants = "no field" if function == "count" else "a field"
            raise FilterError(f"{function} takes {wants}", self.text, position)
        return Update(variable, function, fields)
