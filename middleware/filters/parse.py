"""The parser: a filter's text to a tree.

  filter      = conjunction { ("or" | "||" | "∨") conjunction }
  conjunction = negation { ("and" | "&&" | "∧") negation }
  negation    = ("not" | "!" | "¬") negation | [ "sql" ] "(" filter ")" | "true" | "false" | constraint
  constraint  = attribute relation constant
  attribute   = name { "." name } | name "(" [ attribute { "," attribute } ] ")"
  relation    = "==" | "=" | "!=" | "<" | "<=" | ">" | ">=" | "prefix"
  constant    = number | string | word | "true" | "false"

A name with characters other than letters, digits, `_` and `-` stands between backquotes. A string stands
between quotes or as a bare word (`stock == GOOGL`, `ip.dst == 192.168.0.1`). Keywords are case-insensitive.
`sql(...)` holds where its filter is true in three-valued logic.
"""

from __future__ import annotations

from typing import Final

from .errors import FilterError
from .three_valued import where_true
from .tokens import Kind, Token, tokens
from .tree import (
    EVERYTHING,
    NOTHING,
    Aggregate,
    And,
    Attribute,
    Constraint,
    Field,
    Filter,
    Not,
    Or,
    Relation,
    Scalar,
)

MAX_LENGTH: Final = 65_536  # characters
MAX_DEPTH: Final = 100  # of nested brackets and negations
MAX_DIGITS: Final = 100
_RELATIONS: Final = {relation.value: relation for relation in Relation}


def parse(text: str) -> Filter:
    """Returns the filter that `text` states. Raises FilterError, which points at the character."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH:,} characters, this one {len(text):,}", text, 0)
    parser = Parser(text)
    tree = parser.either()
    parser.must_end()
    return tree


class Parser:
    """Recursive descent with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.next = next(self.tokens)
        self._depth = 0

    # --- tokens

    def take(self) -> Token:
        taken = self.next
        if taken.kind is not Kind.END:
            self.next = next(self.tokens)
        return taken

    def took(self, *signs: str) -> bool:
        """Takes the next token if it is one of `signs`; returns whether it did."""
        if self.next.kind is Kind.SIGN and self.next.text in signs:
            self.take()
            return True
        return False

    def error(self, wanted: str) -> FilterError:
        found = self.next
        what = "the filter ends" if found.kind is Kind.END else f"there is {found.text!r}"
        return FilterError(f"{wanted} is wanted, but {what}", self.text, found.position)

    def must_end(self) -> None:
        if self.next.kind is not Kind.END:
            raise self.error("'and', 'or' or the end")

    # --- logic

    def either(self) -> Filter:
        parts = [self._both()]
        while self.took("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Filter:
        parts = [self._negation()]
        while self.took("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self) -> Filter:
        position = self.next.position
        if self.took("not"):
            tree: Filter = Not(self._deeper(position)._negation())
        elif self.took("("):
            tree = self._inside(position)
        else:
            return self._literal()
        self._depth -= 1
        return tree

    def _inside(self, position: int) -> Filter:
        """Returns the filter up to the bracket that closes."""
        tree = self._deeper(position).either()
        if not self.took(")"):
            raise self.error("')'")
        return tree

    def _deeper(self, position: int) -> Parser:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"more than {MAX_DEPTH} parts inside one another", self.text, position)
        return self

    def _literal(self) -> Filter:
        if self.took("true"):
            return EVERYTHING
        if self.took("false"):
            return NOTHING
        position = self.next.position
        name = self.name()
        if name.lower() == "sql" and self.took("("):
            tree = where_true(self._inside(position))
            self._depth -= 1
            return tree
        return self._constraint(name)

    # --- constraints

    def _constraint(self, name: str) -> Constraint:
        attribute = self._attribute(name)
        if self.next.kind is not Kind.SIGN or self.next.text not in _RELATIONS:
            raise self.error("==, !=, <, <=, >, >= or prefix")
        relation = _RELATIONS[self.take().text]
        position = self.next.position
        constant = self.constant()
        if relation is Relation.PREFIX and not isinstance(constant, str):
            raise FilterError("a prefix is a string", self.text, position)
        if isinstance(constant, bool) and relation not in (Relation.EQ, Relation.NE):
            raise FilterError("true and false can only be equal or not", self.text, position)
        return Constraint(attribute, relation, constant)

    def _attribute(self, name: str) -> Attribute:
        if not self.took("("):
            return self.field(name)
        if self.took(")"):
            return Aggregate(name, ())
        arguments = [self.field(self.name())]
        while self.took(","):
            arguments.append(self.field(self.name()))
        if not self.took(")"):
            raise self.error("',' or ')'")
        return Aggregate(name, tuple(arguments))

    def field(self, first: str) -> Field:
        path = [first]
        while self.took("."):
            path.append(self.name())
        return Field(tuple(path))

    def name(self) -> str:
        if self.next.kind is not Kind.WORD:
            raise self.error("the name of a field")
        return self.take().text

    def constant(self) -> Scalar:
        if self.took("true"):
            return True
        if self.took("false"):
            return False
        if self.next.kind in (Kind.STRING, Kind.WORD):
            return self.take().text
        if self.next.kind is Kind.NUMBER:
            return self._number(self.take())
        raise self.error("a number or a string")

    def _number(self, token: Token) -> int | float:
        digits = token.text.lower()
        if len(digits) > MAX_DIGITS:
            raise FilterError(f"a number has at most {MAX_DIGITS} digits", self.text, token.position)
        if "x" in digits:
            return int(digits, 16)
        if not set(digits) & set(".e"):
            return int(digits)
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            raise FilterError("the number is too large", self.text, token.position)
        return number
