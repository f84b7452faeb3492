"""Tables and parser states. Pure."""

from __future__ import annotations

from .. import ast
from ..ir.annotations import Annotation
from ..source import Span
from .annotations import Annotations
from .expressions import Expressions
from .statements import Statements
from .stream import Mistake, Stream


class Tables:
    """The part of the parser that reads tables and the states of parsers."""

    def __init__(
        self, tokens: Stream, expressions: Expressions, annotations: Annotations, statements: Statements
    ) -> None:
        self._tokens = tokens
        self._expressions = expressions
        self._annotations = annotations
        self._statements = statements

    def table(self, annotations: tuple[Annotation, ...]) -> ast.Table:
        """Parses `table name { properties }`."""
        self._tokens.expect("table", "before a table")
        name = self._tokens.name("of a table")
        self._tokens.expect("{", "before the properties of a table")
        keys: tuple[ast.Key, ...] | None = None
        actions: tuple[ast.ActionRef, ...] | None = None
        entries: ast.Entries | None = None
        properties: list[ast.Property] = []
        while not self._tokens.accept("}"):
            first = self._tokens.token.span
            marks = self._annotations.annotations()
            constant = self._tokens.accept("const") is not None
            word = self._tokens.token
            if word.kind == "entries":
                self._once(entries, word.span, "entries")
                entries = self._entries(constant)
            elif word.kind == "key":
                self._once(keys, word.span, "key")
                if entries is not None:
                    raise Mistake(word.span, "the keys of a table come before its entries")
                keys = self._keys()
            elif word.kind == "actions":
                self._once(actions, word.span, "actions")
                actions = self._actions()
            else:
                properties.append(self._property(first, marks, constant))
        self._tokens.declare(name.text, False)
        return ast.Table(name.text, keys, actions, entries, tuple(properties), annotations, name.span)

    def _once(self, already: object, span: Span, name: str) -> None:
        if already is not None:
            raise Mistake(span, f"the table has '{name}' twice")

    def _property(self, first: Span, marks: tuple[Annotation, ...], constant: bool) -> ast.Property:
        name = self._tokens.name("of a table property")
        self._tokens.expect("=", "after a table property's name")
        value = self._expressions.expression()
        self._tokens.expect(";", "after a table property")
        return ast.Property(name.text, value, constant, marks, name.span)

    def _opened(self) -> None:
        self._tokens.advance()
        self._tokens.expect("=", "after a table property's name")
        self._tokens.expect("{", "before a table property's parts")

    def _keys(self) -> tuple[ast.Key, ...]:
        self._opened()
        keys: list[ast.Key] = []
        while not self._tokens.accept("}"):
            expression = self._expressions.expression()
            self._tokens.expect(":", "after a key")
            token = self._tokens.name("of a match kind")
            kind = ast.Name(token.text, False, token.span)
            annotations = self._annotations.annotations()
            self._tokens.expect(";", "after a key")
            keys.append(ast.Key(expression, kind, annotations, expression.span))
        return tuple(keys)

    def _actions(self) -> tuple[ast.ActionRef, ...]:
        self._opened()
        found: list[ast.ActionRef] = []
        while not self._tokens.accept("}"):
            annotations = self._annotations.annotations()
            found.append(self._action_ref(annotations))
            self._tokens.expect(";", "after an action")
        self._tokens.accept(";")
        return tuple(found)

    def _action_ref(self, annotations: tuple[Annotation, ...]) -> ast.ActionRef:
        first = self._tokens.token.span
        absolute = self._tokens.accept(".") is not None
        token = self._tokens.name("of an action")
        name = ast.Name(token.text, absolute, first.to(token.span))
        arguments = self._expressions.arguments() if self._tokens.token.kind == "(" else None
        return ast.ActionRef(name, arguments, annotations, name.span)

    def _entries(self, constant: bool) -> ast.Entries:
        first = self._tokens.token.span
        self._opened()
        found: list[ast.Entry] = []
        while not self._tokens.accept("}"):
            found.append(self._entry())
        self._tokens.accept(";")
        return ast.Entries(tuple(found), constant, first)

    def _entry(self) -> ast.Entry:
        constant = self._tokens.accept("const") is not None
        priority = None
        if self._tokens.token.kind == "priority" and self._tokens.peek().kind == "=":
            self._tokens.advance()
            self._tokens.advance()
            priority = self._expressions.expression()
            self._tokens.expect(":", "after an entry's priority")
        keys = self._keys_of()
        self._tokens.expect(":", "after an entry's keys")
        action = self._action_ref(())
        annotations = self._annotations.annotations()
        self._tokens.expect(";", "after an entry")
        return ast.Entry(constant, priority, keys, action, annotations, keys.span)

    def _keys_of(self) -> ast.Expression:
        """Parses the key sets of a select case or an entry: one, or several in brackets."""
        if self._tokens.token.kind != "(":
            return self._expressions.key_set()
        position, nested = self._tokens.position(), self._expressions.nested
        try:
            found = self._expressions.key_set()
            if self._tokens.token.kind == ":":
                return found
        except Mistake:
            pass
        self._tokens.rewind(position)
        self._expressions.nested = nested
        first = self._tokens.advance().span
        elements: list[ast.Expression] = []
        while self._tokens.token.kind != ")":
            elements.append(self._expressions.key_set())
            if not self._tokens.accept(","):
                break
        self._tokens.expect(")", "after a key set")
        return ast.KeySet(tuple(elements), self._tokens.since(first))

    def state(self) -> ast.State:
        """Parses `state name { statements transition }`."""
        annotations = self._annotations.annotations()
        self._tokens.expect("state", "before a parser state")
        name = self._tokens.name("of a state")
        self._tokens.expect("{", "before the statements of a state")
        self._tokens.push()
        statements: list[ast.Statement] = []
        while self._tokens.token.kind not in ("}", "transition"):
            statements.append(self._statements.statement())
        transition = self._transition() if self._tokens.accept("transition") else None
        self._tokens.pop()
        self._tokens.expect("}", "after a parser state")
        return ast.State(name.text, tuple(statements), transition, annotations, name.span)

    def _transition(self) -> ast.Name | ast.Select:
        if self._tokens.token.kind != "select":
            token = self._tokens.name("of a state")
            self._tokens.expect(";", "after a transition")
            return ast.Name(token.text, False, token.span)
        first = self._tokens.advance().span
        self._tokens.expect("(", "after 'select'")
        keys: list[ast.Expression] = []
        while self._tokens.token.kind != ")":
            keys.append(self._expressions.bracketed())
            if not self._tokens.accept(","):
                break
        self._tokens.expect(")", "after what is selected on")
        self._tokens.expect("{", "before the cases of a select")
        cases: list[ast.SelectCase] = []
        while not self._tokens.accept("}"):
            keyset = self._keys_of()
            self._tokens.expect(":", "after the key set of a case")
            token = self._tokens.name("of a state")
            self._tokens.expect(";", "after a case")
            target = ast.Name(token.text, False, token.span)
            cases.append(ast.SelectCase(keyset, target, keyset.span))
        return ast.Select(tuple(keys), tuple(cases), first)
