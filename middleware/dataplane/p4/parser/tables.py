"""Tables and parser states. Pure."""

from __future__ import annotations

from .. import ast
from ..ir.annotations import Annotation
from ..source import Span
from .statements import Statements
from .stream import Mistake


class Tables(Statements):
    """The part of the parser that reads tables and the states of parsers."""

    def table(self, annotations: tuple[Annotation, ...]) -> ast.Table:
        """Parses `table name { properties }`."""
        self.expect("table", "before a table")
        name = self.name("of a table")
        self.expect("{", "before the properties of a table")
        keys: tuple[ast.Key, ...] | None = None
        actions: tuple[ast.ActionRef, ...] | None = None
        entries: ast.Entries | None = None
        properties: list[ast.Property] = []
        while not self.accept("}"):
            first = self.token.span
            marks = self.annotations()
            constant = self.accept("const") is not None
            word = self.token
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
        self.declare(name.text, False)
        return ast.Table(name.text, keys, actions, entries, tuple(properties), annotations, name.span)

    def _once(self, already: object, span: Span, name: str) -> None:
        if already is not None:
            raise Mistake(span, f"the table has '{name}' twice")

    def _property(self, first: Span, marks: tuple[Annotation, ...], constant: bool) -> ast.Property:
        name = self.name("of a table property")
        self.expect("=", "after a table property's name")
        value = self.expression()
        self.expect(";", "after a table property")
        return ast.Property(name.text, value, constant, marks, name.span)

    def _opened(self) -> None:
        self.advance()
        self.expect("=", "after a table property's name")
        self.expect("{", "before a table property's parts")

    def _keys(self) -> tuple[ast.Key, ...]:
        self._opened()
        keys: list[ast.Key] = []
        while not self.accept("}"):
            expression = self.expression()
            self.expect(":", "after a key")
            token = self.name("of a match kind")
            kind = ast.Name(token.text, False, token.span)
            annotations = self.annotations()
            self.expect(";", "after a key")
            keys.append(ast.Key(expression, kind, annotations, expression.span))
        return tuple(keys)

    def _actions(self) -> tuple[ast.ActionRef, ...]:
        self._opened()
        found: list[ast.ActionRef] = []
        while not self.accept("}"):
            annotations = self.annotations()
            found.append(self._action_ref(annotations))
            self.expect(";", "after an action")
        self.accept(";")
        return tuple(found)

    def _action_ref(self, annotations: tuple[Annotation, ...]) -> ast.ActionRef:
        first = self.token.span
        absolute = self.accept(".") is not None
        token = self.name("of an action")
        name = ast.Name(token.text, absolute, first.to(token.span))
        arguments = self.arguments() if self.token.kind == "(" else None
        return ast.ActionRef(name, arguments, annotations, name.span)

    def _entries(self, constant: bool) -> ast.Entries:
        first = self.token.span
        self._opened()
        found: list[ast.Entry] = []
        while not self.accept("}"):
            found.append(self._entry())
        self.accept(";")
        return ast.Entries(tuple(found), constant, first)

    def _entry(self) -> ast.Entry:
        constant = self.accept("const") is not None
        priority = None
        if self.token.kind == "priority" and self.peek().kind == "=":
            self.advance()
            self.advance()
            priority = self.expression()
            self.expect(":", "after an entry's priority")
        keys = self._keys_of()
        self.expect(":", "after an entry's keys")
        action = self._action_ref(())
        annotations = self.annotations()
        self.expect(";", "after an entry")
        return ast.Entry(constant, priority, keys, action, annotations, keys.span)

    def _keys_of(self) -> ast.Expression:
        """Parses the key sets of a select case or an entry: one, or several in brackets."""
        if self.token.kind != "(":
            return self.key_set()
        position, nested = self.position(), self._nested
        try:
            found = self.key_set()
            if self.token.kind == ":":
                return found
        except Mistake:
            pass
        self.rewind(position)
        self._nested = nested
        first = self.advance().span
        elements: list[ast.Expression] = []
        while self.token.kind != ")":
            elements.append(self.key_set())
            if not self.accept(","):
                break
        self.expect(")", "after a key set")
        return ast.KeySet(tuple(elements), self.since(first))

    def state(self) -> ast.State:
        """Parses `state name { statements transition }`."""
        annotations = self.annotations()
        self.expect("state", "before a parser state")
        name = self.name("of a state")
        self.expect("{", "before the statements of a state")
        self.push()
        statements: list[ast.Statement] = []
        while self.token.kind not in ("}", "transition"):
            statements.append(self.statement())
        transition = self._transition() if self.accept("transition") else None
        self.pop()
        self.expect("}", "after a parser state")
        return ast.State(name.text, tuple(statements), transition, annotations, name.span)

    def _transition(self) -> ast.Name | ast.Select:
        if self.token.kind != "select":
            token = self.name("of a state")
            self.expect(";", "after a transition")
            return ast.Name(token.text, False, token.span)
        first = self.advance().span
        self.expect("(", "after 'select'")
        keys: list[ast.Expression] = []
        while self.token.kind != ")":
            keys.append(self._bracketed())
            if not self.accept(","):
                break
        self.expect(")", "after what is selected on")
        self.expect("{", "before the cases of a select")
        cases: list[ast.SelectCase] = []
        while not self.accept("}"):
            keyset = self._keys_of()
            self.expect(":", "after the key set of a case")
            token = self.name("of a state")
            self.expect(";", "after a case")
            target = ast.Name(token.text, False, token.span)
            cases.append(ast.SelectCase(keyset, target, keyset.span))
        return ast.Select(tuple(keys), tuple(cases), first)
