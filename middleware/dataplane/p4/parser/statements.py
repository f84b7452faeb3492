"""Statements, and the declarations allowed among them. Pure."""

from __future__ import annotations

from collections.abc import Callable

from .. import ast
from ..ir.annotations import Annotation
from ..lexer import IDENTIFIER
from ..source import Span
from .annotations import Annotations, known_value
from .expressions import Expressions
from .stream import NAMES, Mistake, Stream

_ASSIGNMENTS = {
    "=": "",
    "+=": "+",
    "-=": "-",
    "*=": "*",
    "/=": "/",
    "%=": "%",
    "|+|=": "|+|",
    "|-|=": "|-|",
    "<<=": "<<",
    "&=": "&",
    "|=": "|",
    "^=": "^",
}
_MOST_BLOCKS = 60


class Statements:
    """The part of the parser that reads statements."""

    blocks = 0

    def __init__(self, tokens: Stream, expressions: Expressions, annotations: Annotations) -> None:
        self._tokens = tokens
        self._expressions = expressions
        self._annotations = annotations
        self._keywords: dict[str, Callable[[], ast.Statement]] = {
            ";": self._empty,
            "if": self._if,
            "return": self._return,
            "exit": self._exit,
            "break": self._break,
            "continue": self._continue,
            "switch": self._switch,
            "for": self._for,
        }

    def block(self, annotations: tuple[Annotation, ...] = ()) -> ast.Block:
        """Parses `{ ... }`, a separate scope."""
        self.blocks += 1
        if self.blocks > _MOST_BLOCKS:
            raise Mistake(self._tokens.token.span, f"blocks are nested more than {_MOST_BLOCKS} deep")
        first = self._tokens.expect("{", "before a block").span
        self._tokens.push()
        found: list[ast.Statement] = []
        while self._tokens.token.kind != "}":
            found.append(self.statement())
        self._tokens.pop()
        self._tokens.advance()
        self.blocks -= 1
        return ast.Block(tuple(found), annotations, first)

    def statement(self) -> ast.Statement:
        """Parses any statement or local declaration."""
        annotations = self._annotations.annotations()
        token = self._tokens.token
        kind = token.kind
        if kind == "{":
            return self.block(annotations)
        if kind in self._keywords:
            return self._keywords[kind]()
        if kind == "const":
            return self.constant(annotations)
        if self._declares():
            return self.variable_or_instance(annotations)
        found = self.assignment_or_call()
        if isinstance(found, ast.CallStatement) and self._tokens.token.kind in NAMES:
            return self._instance_after_all(found.call, annotations)
        self._tokens.expect(";", "after a statement")
        return found

    def _declares(self) -> bool:
        """Returns whether a declaration of a variable or an instance is next."""
        token = self._tokens.token
        if token.kind == IDENTIFIER:
            after = self._tokens.peek()
            if after.kind in NAMES:
                return True
            return self._tokens.is_type(token.text) and after.kind != "."
        if token.kind == ".":
            return self._tokens.starts_type() and self._tokens.peek(2).kind != "."
        return self._tokens.starts_type()

    def _instance_after_all(self, call: ast.Call, annotations: tuple[Annotation, ...]) -> ast.Instantiation:
        """Parses `something(arguments) name;` with an unknown `something`, which the checker reports."""
        if not isinstance(call.target, ast.Name):
            raise self._tokens.mistake("';' is expected after a statement")
        name = self._tokens.name("of an instance")
        self._tokens.expect(";", "after an instance")
        type_ = ast.TypeName(call.target.name, call.target.absolute, call.target.span)
        return ast.Instantiation(type_, call.arguments, name.text, False, annotations, name.span)

    def assignment_or_call(self) -> ast.Statement:
        """Parses an assignment or call without its semicolon."""
        first = self._tokens.token.span
        target = self._expressions.postfix()
        operator = self._tokens.token.kind
        place = self._tokens.token.span
        if operator in _ASSIGNMENTS:
            self._tokens.advance()
            value = self._expressions.expression()
            return ast.Assign(target, _ASSIGNMENTS[operator], value, place)
        after = self._tokens.peek()
        if operator == ">" and after.kind == ">=" and after.column == self._tokens.token.end:
            self._tokens.advance()
            self._tokens.advance()
            return ast.Assign(target, ">>", self._expressions.expression(), place)
        if isinstance(target, ast.Call):
            return ast.CallStatement(target, self._tokens.since(first))
        raise self._tokens.mistake("an assignment or a call is expected")

    def constant(self, annotations: tuple[Annotation, ...]) -> ast.ConstantDeclaration:
        """Parses `const type name = value;`."""
        self._tokens.expect("const", "before a constant")
        type_ = self._expressions.type_ref(" of the constant")
        name = self._tokens.name("of a constant")
        type_ = self.dimensions(type_)
        self._tokens.expect("=", "after a constant's name")
        value = self._expressions.expression()
        self._tokens.expect(";", "after a constant")
        known = known_value(value, self._annotations.constants)
        if known is not None:
            self._annotations.constants[name.text] = known
        self._tokens.declare(name.text, False)
        return ast.ConstantDeclaration(type_, name.text, value, annotations, name.span)

    def dimensions(self, type_: ast.TypeRef) -> ast.TypeRef:
        """Returns the sizes behind a name: `H h[3]`."""
        while self._tokens.accept("["):
            size = self._expressions.bracketed()
            self._tokens.expect("]", "after the size of a stack")
            type_ = ast.ArrayRef(type_, size, type_.span)
        return type_

    def variable_or_instance(
        self, annotations: tuple[Annotation, ...]
    ) -> ast.VariableDeclaration | ast.Instantiation:
        """Parses `type name = value;` or `type(arguments) name;`."""
        type_ = self._expressions.type_ref()
        if self._tokens.token.kind == "(":
            return self.instance(type_, annotations)
        found = self.variable(type_, annotations)
        self._tokens.expect(";", "after a variable")
        return found

    def variable(self, type_: ast.TypeRef, annotations: tuple[Annotation, ...]) -> ast.VariableDeclaration:
        """Parses the rest of a variable's declaration after its type, without the semicolon."""
        name = self._tokens.name("of a variable")
        type_ = self.dimensions(type_)
        value = self._expressions.expression() if self._tokens.accept("=") else None
        self._tokens.declare(name.text, False)
        return ast.VariableDeclaration(type_, name.text, value, annotations, name.span)

    def instance(self, type_: ast.TypeRef, annotations: tuple[Annotation, ...]) -> ast.Instantiation:
        arguments = self._expressions.arguments()
        name = self._tokens.name("of an instance")
        initializer = self._tokens.accept("=") is not None
        if initializer:
            self._skip_braces()
        self._tokens.expect(";", "after an instance")
        self._tokens.declare(name.text, False)
        return ast.Instantiation(type_, arguments, name.text, initializer, annotations, name.span)

    def _skip_braces(self) -> None:
        """Skips the initializer of an object with abstract methods, which are not supported."""
        self._tokens.expect("{", "before an object's initializer")
        depth = 1
        while depth:
            token = self._tokens.token
            if self._tokens.peek() is token:
                raise self._tokens.mistake("'}' is expected after an object's initializer")
            depth += (token.kind == "{") - (token.kind == "}")
            self._tokens.advance()

    # --- statements that begin with a keyword

    def _empty(self) -> ast.Statement:
        return ast.Empty(self._tokens.advance().span)

    def _if(self) -> ast.Statement:
        first = self._tokens.advance().span
        self._tokens.expect("(", "after 'if'")
        condition = self._expressions.bracketed()
        self._tokens.expect(")", "after a condition")
        yes = self._nested_statement()
        no = self._nested_statement() if self._tokens.accept("else") else None
        return ast.If(condition, yes, no, first)

    def _nested_statement(self) -> ast.Statement:
        self.blocks += 1
        if self.blocks > _MOST_BLOCKS * 2:
            raise Mistake(self._tokens.token.span, f"statements are nested more than {_MOST_BLOCKS * 2} deep")
        found = self.statement()
        self.blocks -= 1
        return found

    def _return(self) -> ast.Statement:
        first = self._tokens.advance().span
        value = None if self._tokens.token.kind == ";" else self._expressions.expression()
        self._tokens.expect(";", "after 'return'")
        return ast.Return(value, first)

    def _exit(self) -> ast.Statement:
        first = self._tokens.advance().span
        self._tokens.expect(";", "after 'exit'")
        return ast.Exit(first)

    def _break(self) -> ast.Statement:
        first = self._tokens.advance().span
        self._tokens.expect(";", "after 'break'")
        return ast.Break(first)

    def _continue(self) -> ast.Statement:
        first = self._tokens.advance().span
        self._tokens.expect(";", "after 'continue'")
        return ast.Continue(first)

    def _switch(self) -> ast.Statement:
        first = self._tokens.advance().span
        self._tokens.expect("(", "after 'switch'")
        subject = self._expressions.bracketed()
        self._tokens.expect(")", "after what is switched on")
        self._tokens.expect("{", "before the cases of a switch")
        cases: list[ast.SwitchCase] = []
        while not self._tokens.accept("}"):
            cases.append(self._switch_case())
        return ast.Switch(subject, tuple(cases), first)

    def _switch_case(self) -> ast.SwitchCase:
        token = self._tokens.token
        label: ast.Expression
        if self._tokens.accept("default") or (token.text == "_" and self._tokens.accept(IDENTIFIER)):
            label = ast.DontCare(token.span)
        else:
            label = self._expressions.expression()
        self._tokens.expect(":", "after the label of a case")
        body = self.block() if self._tokens.token.kind == "{" else None
        return ast.SwitchCase(label, body, label.span)

    def _for(self) -> ast.Statement:
        first = self._tokens.advance().span
        self._tokens.expect("(", "after 'for'")
        self._tokens.push()
        annotations = self._annotations.annotations()
        if self._declares():
            type_ = self._expressions.type_ref()
            if self._tokens.peek().kind == "in":
                return self._for_in(first, type_)
            init: list[ast.Statement] = [self.variable(type_, annotations)]
        else:
            init = [] if self._tokens.token.kind == ";" else [self.assignment_or_call()]
        while self._tokens.accept(","):
            init.append(self._for_init())
        self._tokens.expect(";", "after the first part of 'for'")
        condition = self._expressions.expression()
        self._tokens.expect(";", "after the condition of 'for'")
        update: list[ast.Statement] = []
        while self._tokens.token.kind != ")":
            update.append(self.assignment_or_call())
            if not self._tokens.accept(","):
                break
        self._tokens.expect(")", "after the head of 'for'")
        body = self._nested_statement()
        self._tokens.pop()
        return ast.For(tuple(init), condition, tuple(update), body, first)

    def _for_init(self) -> ast.Statement:
        if self._declares():
            return self.variable(self._expressions.type_ref(), ())
        return self.assignment_or_call()

    def _for_in(self, first: Span, type_: ast.TypeRef) -> ast.Statement:
        name = self._tokens.name("of a variable")
        self._tokens.expect("in", "after the variable of 'for'")
        self._tokens.declare(name.text, False)
        collection = self._expressions.key_set()
        self._tokens.expect(")", "after the head of 'for'")
        body = self._nested_statement()
        self._tokens.pop()
        return ast.ForIn(type_, name.text, collection, body, first)
