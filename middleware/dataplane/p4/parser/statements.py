"""Statements, and the declarations allowed among them. Pure."""

from __future__ import annotations

from .. import ast
from ..ir.annotations import Annotation
from ..lexer import IDENTIFIER
from ..source import Span
from .annotations import Annotations, known_value
from .stream import NAMES, Mistake

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


class Statements(Annotations):
    """The part of the parser that reads statements."""

    _blocks = 0

    def block(self, annotations: tuple[Annotation, ...] = ()) -> ast.Block:
        """Parses `{ ... }`, a separate scope."""
        self._blocks += 1
        if self._blocks > _MOST_BLOCKS:
            raise Mistake(self.token.span, f"blocks are nested more than {_MOST_BLOCKS} deep")
        first = self.expect("{", "before a block").span
        self.push()
        found: list[ast.Statement] = []
        while self.token.kind != "}":
            found.append(self.statement())
        self.pop()
        self.advance()
        self._blocks -= 1
        return ast.Block(tuple(found), annotations, first)

    def statement(self) -> ast.Statement:
        """Parses any statement or local declaration."""
        annotations = self.annotations()
        token = self.token
        kind = token.kind
        if kind == "{":
            return self.block(annotations)
        if kind in _KEYWORDS:
            return _KEYWORDS[kind](self)
        if kind == "const":
            return self.constant(annotations)
        if self._declares():
            return self.variable_or_instance(annotations)
        found = self.assignment_or_call()
        if isinstance(found, ast.CallStatement) and self.token.kind in NAMES:
            return self._instance_after_all(found.call, annotations)
        self.expect(";", "after a statement")
        return found

    def _declares(self) -> bool:
        """Returns whether a declaration of a variable or an instance is next."""
        token = self.token
        if token.kind == IDENTIFIER:
            after = self.peek()
            if after.kind in NAMES:
                return True
            return self.is_type(token.text) and after.kind != "."
        if token.kind == ".":
            return self.starts_type() and self.peek(2).kind != "."
        return self.starts_type()

    def _instance_after_all(self, call: ast.Call, annotations: tuple[Annotation, ...]) -> ast.Instantiation:
        """Parses `something(arguments) name;` with an unknown `something`, which the checker reports."""
        if not isinstance(call.target, ast.Name):
            raise self.mistake("';' is expected after a statement")
        name = self.name("of an instance")
        self.expect(";", "after an instance")
        type_ = ast.TypeName(call.target.name, call.target.absolute, call.target.span)
        return ast.Instantiation(type_, call.arguments, name.text, False, annotations, name.span)

    def assignment_or_call(self) -> ast.Statement:
        """Parses an assignment or call without its semicolon."""
        first = self.token.span
        target = self.postfix()
        operator = self.token.kind
        place = self.token.span
        if operator in _ASSIGNMENTS:
            self.advance()
            value = self.expression()
            return ast.Assign(target, _ASSIGNMENTS[operator], value, place)
        after = self.peek()
        if operator == ">" and after.kind == ">=" and after.column == self.token.end:
            self.advance()
            self.advance()
            return ast.Assign(target, ">>", self.expression(), place)
        if isinstance(target, ast.Call):
            return ast.CallStatement(target, self.since(first))
        raise self.mistake("an assignment or a call is expected")

    def constant(self, annotations: tuple[Annotation, ...]) -> ast.ConstantDeclaration:
        """Parses `const type name = value;`."""
        self.expect("const", "before a constant")
        type_ = self.type_ref(" of the constant")
        name = self.name("of a constant")
        type_ = self.dimensions(type_)
        self.expect("=", "after a constant's name")
        value = self.expression()
        self.expect(";", "after a constant")
        known = known_value(value, self.constants)
        if known is not None:
            self.constants[name.text] = known
        self.declare(name.text, False)
        return ast.ConstantDeclaration(type_, name.text, value, annotations, name.span)

    def dimensions(self, type_: ast.TypeRef) -> ast.TypeRef:
        """Returns the sizes behind a name: `H h[3]`."""
        while self.accept("["):
            size = self._bracketed()
            self.expect("]", "after the size of a stack")
            type_ = ast.ArrayRef(type_, size, type_.span)
        return type_

    def variable_or_instance(
        self, annotations: tuple[Annotation, ...]
    ) -> ast.VariableDeclaration | ast.Instantiation:
        """Parses `type name = value;` or `type(arguments) name;`."""
        type_ = self.type_ref()
        if self.token.kind == "(":
            return self._instance(type_, annotations)
        found = self.variable(type_, annotations)
        self.expect(";", "after a variable")
        return found

    def variable(self, type_: ast.TypeRef, annotations: tuple[Annotation, ...]) -> ast.VariableDeclaration:
        """Parses the rest of a variable's declaration after its type, without the semicolon."""
        name = self.name("of a variable")
        type_ = self.dimensions(type_)
        value = self.expression() if self.accept("=") else None
        self.declare(name.text, False)
        return ast.VariableDeclaration(type_, name.text, value, annotations, name.span)

    def _instance(self, type_: ast.TypeRef, annotations: tuple[Annotation, ...]) -> ast.Instantiation:
        arguments = self.arguments()
        name = self.name("of an instance")
        initializer = self.accept("=") is not None
        if initializer:
            self._skip_braces()
        self.expect(";", "after an instance")
        self.declare(name.text, False)
        return ast.Instantiation(type_, arguments, name.text, initializer, annotations, name.span)

    def _skip_braces(self) -> None:
        """Skips the initializer of an object with abstract methods, which are not supported."""
        self.expect("{", "before an object's initializer")
        depth = 1
        while depth:
            token = self.token
            if self.peek() is token:
                raise self.mistake("'}' is expected after an object's initializer")
            depth += (token.kind == "{") - (token.kind == "}")
            self.advance()

    # --- statements that begin with a keyword

    def _empty(self) -> ast.Statement:
        return ast.Empty(self.advance().span)

    def _if(self) -> ast.Statement:
        first = self.advance().span
        self.expect("(", "after 'if'")
        condition = self._bracketed()
        self.expect(")", "after a condition")
        yes = self._nested_statement()
        no = self._nested_statement() if self.accept("else") else None
        return ast.If(condition, yes, no, first)

    def _nested_statement(self) -> ast.Statement:
        self._blocks += 1
        if self._blocks > _MOST_BLOCKS * 2:
            raise Mistake(self.token.span, f"statements are nested more than {_MOST_BLOCKS * 2} deep")
        found = self.statement()
        self._blocks -= 1
        return found

    def _return(self) -> ast.Statement:
        first = self.advance().span
        value = None if self.token.kind == ";" else self.expression()
        self.expect(";", "after 'return'")
        return ast.Return(value, first)

    def _exit(self) -> ast.Statement:
        first = self.advance().span
        self.expect(";", "after 'exit'")
        return ast.Exit(first)

    def _break(self) -> ast.Statement:
        first = self.advance().span
        self.expect(";", "after 'break'")
        return ast.Break(first)

    def _continue(self) -> ast.Statement:
        first = self.advance().span
        self.expect(";", "after 'continue'")
        return ast.Continue(first)

    def _switch(self) -> ast.Statement:
        first = self.advance().span
        self.expect("(", "after 'switch'")
        subject = self._bracketed()
        self.expect(")", "after what is switched on")
        self.expect("{", "before the cases of a switch")
        cases: list[ast.SwitchCase] = []
        while not self.accept("}"):
            cases.append(self._switch_case())
        return ast.Switch(subject, tuple(cases), first)

    def _switch_case(self) -> ast.SwitchCase:
        token = self.token
        label: ast.Expression
        if self.accept("default") or (token.text == "_" and self.accept(IDENTIFIER)):
            label = ast.DontCare(token.span)
        else:
            label = self.expression()
        self.expect(":", "after the label of a case")
        body = self.block() if self.token.kind == "{" else None
        return ast.SwitchCase(label, body, label.span)

    def _for(self) -> ast.Statement:
        first = self.advance().span
        self.expect("(", "after 'for'")
        self.push()
        annotations = self.annotations()
        if self._declares():
            type_ = self.type_ref()
            if self.peek().kind == "in":
                return self._for_in(first, type_)
            init: list[ast.Statement] = [self.variable(type_, annotations)]
        else:
            init = [] if self.token.kind == ";" else [self.assignment_or_call()]
        while self.accept(","):
            init.append(self._for_init())
        self.expect(";", "after the first part of 'for'")
        condition = self.expression()
        self.expect(";", "after the condition of 'for'")
        update: list[ast.Statement] = []
        while self.token.kind != ")":
            update.append(self.assignment_or_call())
            if not self.accept(","):
                break
        self.expect(")", "after the head of 'for'")
        body = self._nested_statement()
        self.pop()
        return ast.For(tuple(init), condition, tuple(update), body, first)

    def _for_init(self) -> ast.Statement:
        if self._declares():
            return self.variable(self.type_ref(), ())
        return self.assignment_or_call()

    def _for_in(self, first: Span, type_: ast.TypeRef) -> ast.Statement:
        name = self.name("of a variable")
        self.expect("in", "after the variable of 'for'")
        self.declare(name.text, False)
        collection = self.key_set()
        self.expect(")", "after the head of 'for'")
        body = self._nested_statement()
        self.pop()
        return ast.ForIn(type_, name.text, collection, body, first)


_KEYWORDS = {
    ";": Statements._empty,
    "if": Statements._if,
    "return": Statements._return,
    "exit": Statements._exit,
    "break": Statements._break,
    "continue": Statements._continue,
    "switch": Statements._switch,
    "for": Statements._for,
}
