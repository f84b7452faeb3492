"""Declarations, and whole programs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import ast
from ..ir.annotations import Annotation
from ..lexer import END, IDENTIFIER, Token
from ..source import Diagnostic
from .annotations import Annotations
from .expressions import Expressions
from .statements import Statements
from .stream import NAMES, Mistake, Stream
from .tables import Tables

_MOST_MISTAKES = 20


def parse(tokens: Sequence[Token]) -> tuple[list[ast.Declaration], list[Diagnostic]]:
    """Returns all declarations that could be parsed, and the errors of the others."""
    stream = Stream(tokens)
    reader = Declarations(stream)
    found: list[ast.Declaration] = []
    problems: list[Diagnostic] = []
    while stream.token.kind != END and len(problems) < _MOST_MISTAKES:
        depth = stream.depth()
        try:
            one = reader.declaration()
        except Mistake as mistake:
            problems.append(mistake.diagnostic)
            reader.recover(depth)
        else:
            if one is not None:
                found.append(one)
    return found, problems


class Declarations:
    """The whole parser."""

    def __init__(self, tokens: Stream) -> None:
        self._tokens = tokens
        self._expressions = Expressions(tokens)
        self._annotations = Annotations(tokens)
        self._statements = Statements(tokens, self._expressions, self._annotations)
        self._tables = Tables(tokens, self._expressions, self._annotations, self._statements)
        self._declarations: dict[str, Callable[[tuple[Annotation, ...]], ast.Declaration | None]] = {
            "const": self._const,
            "extern": self._extern,
            "action": self._action,
            "parser": self._parser,
            "control": self._control,
            "package": self._package,
            "header": self._record,
            "struct": self._record,
            "header_union": self._record,
            "enum": self._enum,
            "typedef": self._typedef,
            "type": self._typedef,
            "error": self._identifiers,
            "match_kind": self._identifiers,
        }

    def recover(self, depth: int) -> None:
        """Skips, after an error, to the next word that starts a declaration at the left margin."""
        self._tokens.unwind(depth)
        self._expressions.angles = self._expressions.nested = self._statements.blocks = 0
        if self._tokens.token.kind != END:
            self._tokens.advance()
        while self._tokens.token.kind != END:
            if self._tokens.token.column == 1 and (
                self._tokens.token.kind in self._declarations or self._tokens.token.kind == "@"
            ):
                return
            self._tokens.advance()

    def declaration(self) -> ast.Declaration | None:
        """Parses one declaration at the top level; returns None for a lone semicolon."""
        if self._tokens.accept(";"):
            return None
        annotations = self._annotations.annotations()
        kind = self._tokens.token.kind
        if kind in self._declarations and not (
            kind in ("error", "match_kind") and self._tokens.peek().kind != "{"
        ):
            return self._declarations[kind](annotations)
        return self._function_or_instance(annotations)

    # --- things with types of their own

    def _const(self, annotations: tuple[Annotation, ...]) -> ast.Declaration:
        return self._statements.constant(annotations)

    def _type_parameters(self) -> tuple[str, ...]:
        """Parses `<T, U>`, declared in the open scope."""
        names: list[str] = []
        if self._tokens.accept("<"):
            while self._tokens.token.kind != ">":
                token = self._tokens.name("of a type parameter")
                self._tokens.declare(token.text, True)
                names.append(token.text)
                if not self._tokens.accept(","):
                    break
            self._tokens.expect(">", "after type parameters")
        return tuple(names)

    def parameters(self) -> tuple[ast.Parameter, ...]:
        """Parses `(in bit<8> a, T b = 1)`."""
        self._tokens.expect("(", "before parameters")
        found: list[ast.Parameter] = []
        while self._tokens.token.kind != ")":
            annotations = self._annotations.annotations()
            direction = (
                self._tokens.advance().kind if self._tokens.token.kind in ("in", "out", "inout") else ""
            )
            type_ = self._expressions.type_ref(" of a parameter")
            name = self._tokens.name("of a parameter")
            type_ = self._statements.dimensions(type_)
            default = self._expressions.expression() if self._tokens.accept("=") else None
            self._tokens.declare(name.text, False)
            found.append(ast.Parameter(direction, type_, name.text, default, annotations, name.span))
            if not self._tokens.accept(","):
                break
        self._tokens.expect(")", "after parameters")
        return tuple(found)

    def _record(self, annotations: tuple[Annotation, ...]) -> ast.Record:
        kind = self._tokens.advance().kind
        name = self._tokens.name(f"of a {kind}")
        self._tokens.declare(name.text, True)
        self._tokens.push()
        types = self._type_parameters()
        self._tokens.expect("{", f"before the fields of a {kind}")
        fields: list[ast.Field] = []
        while not self._tokens.accept("}"):
            marks = self._annotations.annotations()
            type_ = self._expressions.type_ref(" of a field")
            field = self._tokens.name("of a field")
            type_ = self._statements.dimensions(type_)
            self._tokens.expect(";", "after a field")
            fields.append(ast.Field(type_, field.text, marks, field.span))
        self._tokens.pop()
        return ast.Record(kind, name.text, types, tuple(fields), annotations, name.span)

    def _enum(self, annotations: tuple[Annotation, ...]) -> ast.Enum:
        self._tokens.advance()
        representation = None
        if not (self._tokens.token.kind in NAMES and self._tokens.peek().kind == "{"):
            representation = self._expressions.type_ref(" under the enum")
        name = self._tokens.name("of an enum")
        self._tokens.declare(name.text, True)
        self._tokens.expect("{", "before the members of an enum")
        members: list[ast.EnumMember] = []
        while self._tokens.token.kind != "}":
            self._annotations.annotations()
            member = self._tokens.name("of a member")
            value = self._expressions.expression() if self._tokens.accept("=") else None
            members.append(ast.EnumMember(member.text, value, member.span))
            if not self._tokens.accept(","):
                break
        self._tokens.expect("}", "after the members of an enum")
        return ast.Enum(name.text, representation, tuple(members), annotations, name.span)

    def _identifiers(self, annotations: tuple[Annotation, ...]) -> ast.Identifiers:
        word = self._tokens.advance()
        self._tokens.expect("{", f"after '{word.kind}'")
        names: list[ast.Name] = []
        while self._tokens.token.kind != "}":
            token = self._tokens.name("of a member")
            names.append(ast.Name(token.text, False, token.span))
            if not self._tokens.accept(","):
                break
        self._tokens.expect("}", f"after the members of '{word.kind}'")
        return ast.Identifiers(word.kind, tuple(names), word.span)

    def _typedef(self, annotations: tuple[Annotation, ...]) -> ast.Typedef:
        new = self._tokens.advance().kind == "type"
        inner = self._annotations.annotations()
        type_: ast.TypeRef | ast.Record | ast.Enum
        if self._tokens.token.kind in ("struct", "header", "header_union"):
            type_ = self._record(inner)
        elif self._tokens.token.kind == "enum":
            type_ = self._enum(inner)
        else:
            type_ = self._expressions.type_ref(" to be named")
        name = self._tokens.name("of a type")
        if not isinstance(type_, ast.Record | ast.Enum):
            type_ = self._statements.dimensions(type_)
        self._tokens.expect(";", "after a type's name")
        self._tokens.declare(name.text, True)
        return ast.Typedef(name.text, type_, new, annotations, name.span)

    def _extern(self, annotations: tuple[Annotation, ...]) -> ast.Declaration | None:
        self._tokens.advance()
        if self._tokens.token.kind in NAMES and self._tokens.peek().kind in ("{", "<", ";"):
            after = self._after_angles()
            if after in ("{", ";"):
                return self._extern_object(annotations)
        prototype = self._prototype(annotations)
        self._tokens.expect(";", "after an extern function")
        return ast.ExternFunction(prototype, prototype.span)

    def _after_angles(self) -> str:
        """Returns the kind of the token after `name<...>`."""
        distance, depth = 1, 0
        while self._tokens.peek(distance).kind in ("<", ">", ",", IDENTIFIER, *NAMES):
            depth += (self._tokens.peek(distance).kind == "<") - (self._tokens.peek(distance).kind == ">")
            distance += 1
            if depth == 0:
                break
        return self._tokens.peek(distance).kind if depth == 0 and distance > 1 else self._tokens.peek().kind

    def _extern_object(self, annotations: tuple[Annotation, ...]) -> ast.Declaration | None:
        name = self._tokens.name("of an extern")
        self._tokens.declare(name.text, True)
        if self._tokens.accept(";"):
            return None
        self._tokens.push()
        types = self._type_parameters()
        self._tokens.expect("{", "before the methods of an extern")
        methods: list[ast.Prototype] = []
        while not self._tokens.accept("}"):
            marks = self._annotations.annotations()
            abstract = self._tokens.accept("abstract") is not None
            methods.append(self._prototype(marks, name.text, abstract))
            self._tokens.expect(";", "after a method")
        self._tokens.pop()
        return ast.Extern(name.text, types, tuple(methods), annotations, name.span)

    def _prototype(
        self, annotations: tuple[Annotation, ...], owner: str = "", abstract: bool = False
    ) -> ast.Prototype:
        """Parses `result name<T>(parameters)`, or the constructor of `owner`."""
        self._tokens.push()
        result: ast.TypeRef | None = None
        if not (owner and self._tokens.token.text == owner and self._tokens.peek().kind == "("):
            if self._tokens.token.kind == IDENTIFIER and not self._tokens.is_type(self._tokens.token.text):
                self._declare_ahead()
            result = self._expressions.type_ref(" that is returned")
        name = self._tokens.name("of a function")
        types = self._type_parameters()
        parameters = self.parameters()
        self._tokens.pop()
        return ast.Prototype(result, name.text, types, parameters, annotations, abstract, name.span)

    def _declare_ahead(self) -> None:
        """Declares a result that may be one of the following type parameters: `T f<T>()`."""
        self._tokens.declare(self._tokens.token.text, True)

    def _action(self, annotations: tuple[Annotation, ...]) -> ast.Action:
        self._tokens.advance()
        name = self._tokens.name("of an action")
        self._tokens.declare(name.text, False)
        self._tokens.push()
        parameters = self.parameters()
        body = self._statements.block()
        self._tokens.pop()
        return ast.Action(name.text, parameters, body, annotations, name.span)

    def _function_or_instance(self, annotations: tuple[Annotation, ...]) -> ast.Declaration:
        """Parses `type name(...) { }` or `type(arguments) name;`."""
        if not (self._tokens.starts_type() or self._tokens.token.kind in (IDENTIFIER, ".")):
            raise self._tokens.mistake("a declaration is expected")
        position = self._tokens.position()
        type_ = self._expressions.type_ref()
        if self._tokens.token.kind == "(":
            return self._statements.instance(type_, annotations)
        if self._tokens.token.kind in NAMES and self._tokens.peek().kind in ("(", "<"):
            self._tokens.rewind(position)
            return self._function(annotations)
        if self._tokens.token.kind in NAMES and self._tokens.peek().kind in ("=", ";"):
            raise Mistake(
                self._tokens.token.span, "a variable can't be declared outside of controls and parsers"
            )
        raise self._tokens.mistake("a declaration is expected")

    def _function(self, annotations: tuple[Annotation, ...]) -> ast.Function:
        prototype = self._prototype(annotations)
        self._tokens.declare(prototype.name, False)
        self._tokens.push()
        for name in prototype.types:
            self._tokens.declare(name, True)
        for one in prototype.parameters:
            self._tokens.declare(one.name, False)
        body = self._statements.block()
        self._tokens.pop()
        return ast.Function(prototype, body, prototype.span)

    # --- controls, parsers, packages

    def _head(self, what: str) -> tuple[Token, tuple[str, ...], tuple[ast.Parameter, ...]]:
        """Parses `package name<T>(parameters)` and similar heads. Their names are in scope until `pop`."""
        self._tokens.advance()
        name = self._tokens.name(f"of a {what}")
        self._tokens.declare(name.text, True)
        self._tokens.push()
        return name, self._type_parameters(), self.parameters()

    def _package(self, annotations: tuple[Annotation, ...]) -> ast.Package:
        name, types, parameters = self._head("package")
        self._tokens.pop()
        self._tokens.expect(";", "after a package")
        return ast.Package(name.text, types, parameters, annotations, name.span)

    def _control(self, annotations: tuple[Annotation, ...]) -> ast.Control:
        name, types, parameters = self._head("control")
        constructor = self.parameters() if self._tokens.token.kind == "(" else ()
        if self._tokens.accept(";"):
            self._tokens.pop()
            return ast.Control(name.text, types, parameters, (), (), None, annotations, name.span)
        self._tokens.expect("{", "before the body of a control")
        found: list[ast.Local] = []
        while self._tokens.token.kind != "apply":
            found.append(self._control_local())
        self._tokens.advance()
        body = self._statements.block(self._annotations.annotations())
        self._tokens.expect("}", "after the body of a control")
        self._tokens.pop()
        return ast.Control(
            name.text, types, parameters, constructor, tuple(found), body, annotations, name.span
        )

    def _control_local(self) -> ast.Local:
        annotations = self._annotations.annotations()
        kind = self._tokens.token.kind
        if kind == "const":
            return self._statements.constant(annotations)
        if kind == "action":
            return self._action(annotations)
        if kind == "table":
            return self._tables.table(annotations)
        return self._local(annotations, "'apply'")

    def _local(self, annotations: tuple[Annotation, ...], end: str) -> ast.Local:
        if not (self._tokens.starts_type() or self._tokens.token.kind in (IDENTIFIER, ".")):
            raise self._tokens.mistake(f"a declaration or {end} is expected")
        return self._statements.variable_or_instance(annotations)

    def _parser(self, annotations: tuple[Annotation, ...]) -> ast.Parser:
        name, types, parameters = self._head("parser")
        constructor = self.parameters() if self._tokens.token.kind == "(" else ()
        if self._tokens.accept(";"):
            self._tokens.pop()
            return ast.Parser(name.text, types, parameters, (), (), None, annotations, name.span)
        self._tokens.expect("{", "before the body of a parser")
        found: list[ast.Local] = []
        states: list[ast.State] = []
        while not self._tokens.accept("}"):
            if self._at_state():
                states.append(self._tables.state())
            else:
                found.append(self._parser_local())
        self._tokens.pop()
        return ast.Parser(
            name.text, types, parameters, constructor, tuple(found), tuple(states), annotations, name.span
        )

    def _at_state(self) -> bool:
        """Returns whether a state comes, past its annotations."""
        if self._tokens.token.kind != "@":
            return self._tokens.token.kind == "state"
        position = self._tokens.position()
        self._annotations.annotations()
        found = self._tokens.token.kind == "state"
        self._tokens.rewind(position)
        return found

    def _parser_local(self) -> ast.Local:
        annotations = self._annotations.annotations()
        if self._tokens.token.kind == "const":
            return self._statements.constant(annotations)
        if self._tokens.token.kind == "value_set":
            return self._value_set(annotations)
        return self._local(annotations, "a state")

    def _value_set(self, annotations: tuple[Annotation, ...]) -> ast.ValueSet:
        first = self._tokens.advance().span
        self._tokens.expect("<", "after 'value_set'")
        type_ = self._expressions.type_ref(" of a value set's members")
        self._tokens.expect(">", "after the type of a value set's members")
        self._tokens.expect("(", "before the size of a value set")
        size = self._expressions.bracketed()
        self._tokens.expect(")", "after the size of a value set")
        name = self._tokens.name("of a value set")
        self._tokens.expect(";", "after a value set")
        self._tokens.declare(name.text, False)
        return ast.ValueSet(name.text, type_, size, annotations, first.to(name.span))
