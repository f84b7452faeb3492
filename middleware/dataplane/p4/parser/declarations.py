"""Declarations, and whole programs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .. import ast
from ..ir.annotations import Annotation
from ..lexer import END, IDENTIFIER, Token
from ..source import Diagnostic
from .stream import NAMES, Mistake
from .tables import Tables

_MOST_MISTAKES = 20


def parse(tokens: Sequence[Token]) -> tuple[list[ast.Declaration], list[Diagnostic]]:
    """Returns all declarations that could be parsed, and the errors of the others."""
    reader = Declarations(tokens)
    found: list[ast.Declaration] = []
    problems: list[Diagnostic] = []
    while reader.token.kind != END and len(problems) < _MOST_MISTAKES:
        depth = reader.depth()
        try:
            one = reader.declaration()
        except Mistake as mistake:
            problems.append(mistake.diagnostic)
            reader.recover(depth)
        else:
            if one is not None:
                found.append(one)
    return found, problems


class Declarations(Tables):
    """The whole parser."""

    def recover(self, depth: int) -> None:
        """Skips, after an error, to the next word that starts a declaration at the left margin."""
        self.unwind(depth)
        self._angles = self._nested = self._blocks = 0
        if self.token.kind != END:
            self.advance()
        while self.token.kind != END:
            if self.token.column == 1 and (self.token.kind in _DECLARATIONS or self.token.kind == "@"):
                return
            self.advance()

    def declaration(self) -> ast.Declaration | None:
        """Parses one declaration at the top level; returns None for a lone semicolon."""
        if self.accept(";"):
            return None
        annotations = self.annotations()
        kind = self.token.kind
        if kind in _DECLARATIONS and not (kind in ("error", "match_kind") and self.peek().kind != "{"):
            return _DECLARATIONS[kind](self, annotations)
        return self._function_or_instance(annotations)

    # --- things with types of their own

    def _const(self, annotations: tuple[Annotation, ...]) -> ast.Declaration:
        return self.constant(annotations)

    def _type_parameters(self) -> tuple[str, ...]:
        """Parses `<T, U>`, declared in the open scope."""
        names: list[str] = []
        if self.accept("<"):
            while self.token.kind != ">":
                token = self.name("of a type parameter")
                self.declare(token.text, True)
                names.append(token.text)
                if not self.accept(","):
                    break
            self.expect(">", "after type parameters")
        return tuple(names)

    def parameters(self) -> tuple[ast.Parameter, ...]:
        """Parses `(in bit<8> a, T b = 1)`."""
        self.expect("(", "before parameters")
        found: list[ast.Parameter] = []
        while self.token.kind != ")":
            annotations = self.annotations()
            direction = self.advance().kind if self.token.kind in ("in", "out", "inout") else ""
            type_ = self.type_ref(" of a parameter")
            name = self.name("of a parameter")
            type_ = self.dimensions(type_)
            default = self.expression() if self.accept("=") else None
            self.declare(name.text, False)
            found.append(ast.Parameter(direction, type_, name.text, default, annotations, name.span))
            if not self.accept(","):
                break
        self.expect(")", "after parameters")
        return tuple(found)

    def _record(self, annotations: tuple[Annotation, ...]) -> ast.Record:
        kind = self.advance().kind
        name = self.name(f"of a {kind}")
        self.declare(name.text, True)
        self.push()
        types = self._type_parameters()
        self.expect("{", f"before the fields of a {kind}")
        fields: list[ast.Field] = []
        while not self.accept("}"):
            marks = self.annotations()
            type_ = self.type_ref(" of a field")
            field = self.name("of a field")
            type_ = self.dimensions(type_)
            self.expect(";", "after a field")
            fields.append(ast.Field(type_, field.text, marks, field.span))
        self.pop()
        return ast.Record(kind, name.text, types, tuple(fields), annotations, name.span)

    def _enum(self, annotations: tuple[Annotation, ...]) -> ast.Enum:
        self.advance()
        representation = None
        if not (self.token.kind in NAMES and self.peek().kind == "{"):
            representation = self.type_ref(" under the enum")
        name = self.name("of an enum")
        self.declare(name.text, True)
        self.expect("{", "before the members of an enum")
        members: list[ast.EnumMember] = []
        while self.token.kind != "}":
            self.annotations()
            member = self.name("of a member")
            value = self.expression() if self.accept("=") else None
            members.append(ast.EnumMember(member.text, value, member.span))
            if not self.accept(","):
                break
        self.expect("}", "after the members of an enum")
        return ast.Enum(name.text, representation, tuple(members), annotations, name.span)

    def _identifiers(self, annotations: tuple[Annotation, ...]) -> ast.Identifiers:
        word = self.advance()
        self.expect("{", f"after '{word.kind}'")
        names: list[ast.Name] = []
        while self.token.kind != "}":
            token = self.name("of a member")
            names.append(ast.Name(token.text, False, token.span))
            if not self.accept(","):
                break
        self.expect("}", f"after the members of '{word.kind}'")
        return ast.Identifiers(word.kind, tuple(names), word.span)

    def _typedef(self, annotations: tuple[Annotation, ...]) -> ast.Typedef:
        new = self.advance().kind == "type"
        inner = self.annotations()
        type_: ast.TypeRef | ast.Record | ast.Enum
        if self.token.kind in ("struct", "header", "header_union"):
            type_ = self._record(inner)
        elif self.token.kind == "enum":
            type_ = self._enum(inner)
        else:
            type_ = self.type_ref(" to be named")
        name = self.name("of a type")
        if not isinstance(type_, ast.Record | ast.Enum):
            type_ = self.dimensions(type_)
        self.expect(";", "after a type's name")
        self.declare(name.text, True)
        return ast.Typedef(name.text, type_, new, annotations, name.span)

    def _extern(self, annotations: tuple[Annotation, ...]) -> ast.Declaration | None:
        self.advance()
        if self.token.kind in NAMES and self.peek().kind in ("{", "<", ";"):
            after = self._after_angles()
            if after in ("{", ";"):
                return self._extern_object(annotations)
        prototype = self._prototype(annotations)
        self.expect(";", "after an extern function")
        return ast.ExternFunction(prototype, prototype.span)

    def _after_angles(self) -> str:
        """Returns the kind of the token after `name<...>`."""
        distance, depth = 1, 0
        while self.peek(distance).kind in ("<", ">", ",", IDENTIFIER, *NAMES):
            depth += (self.peek(distance).kind == "<") - (self.peek(distance).kind == ">")
            distance += 1
            if depth == 0:
                break
        return self.peek(distance).kind if depth == 0 and distance > 1 else self.peek().kind

    def _extern_object(self, annotations: tuple[Annotation, ...]) -> ast.Declaration | None:
        name = self.name("of an extern")
        self.declare(name.text, True)
        if self.accept(";"):
            return None
        self.push()
        types = self._type_parameters()
        self.expect("{", "before the methods of an extern")
        methods: list[ast.Prototype] = []
        while not self.accept("}"):
            marks = self.annotations()
            abstract = self.accept("abstract") is not None
            methods.append(self._prototype(marks, name.text, abstract))
            self.expect(";", "after a method")
        self.pop()
        return ast.Extern(name.text, types, tuple(methods), annotations, name.span)

    def _prototype(
        self, annotations: tuple[Annotation, ...], owner: str = "", abstract: bool = False
    ) -> ast.Prototype:
        """Parses `result name<T>(parameters)`, or the constructor of `owner`."""
        self.push()
        result: ast.TypeRef | None = None
        if not (owner and self.token.text == owner and self.peek().kind == "("):
            if self.token.kind == IDENTIFIER and not self.is_type(self.token.text):
                self._declare_ahead()
            result = self.type_ref(" that is returned")
        name = self.name("of a function")
        types = self._type_parameters()
        parameters = self.parameters()
        self.pop()
        return ast.Prototype(result, name.text, types, parameters, annotations, abstract, name.span)

    def _declare_ahead(self) -> None:
        """Declares a result that may be one of the following type parameters: `T f<T>()`."""
        self.declare(self.token.text, True)

    def _action(self, annotations: tuple[Annotation, ...]) -> ast.Action:
        self.advance()
        name = self.name("of an action")
        self.declare(name.text, False)
        self.push()
        parameters = self.parameters()
        body = self.block()
        self.pop()
        return ast.Action(name.text, parameters, body, annotations, name.span)

    def _function_or_instance(self, annotations: tuple[Annotation, ...]) -> ast.Declaration:
        """Parses `type name(...) { }` or `type(arguments) name;`."""
        if not (self.starts_type() or self.token.kind in (IDENTIFIER, ".")):
            raise self.mistake("a declaration is expected")
        position = self.position()
        type_ = self.type_ref()
        if self.token.kind == "(":
            return self._instance(type_, annotations)
        if self.token.kind in NAMES and self.peek().kind in ("(", "<"):
            self.rewind(position)
            return self._function(annotations)
        if self.token.kind in NAMES and self.peek().kind in ("=", ";"):
            raise Mistake(self.token.span, "a variable can't be declared outside of controls and parsers")
        raise self.mistake("a declaration is expected")

    def _function(self, annotations: tuple[Annotation, ...]) -> ast.Function:
        prototype = self._prototype(annotations)
        self.declare(prototype.name, False)
        self.push()
        for name in prototype.types:
            self.declare(name, True)
        for one in prototype.parameters:
            self.declare(one.name, False)
        body = self.block()
        self.pop()
        return ast.Function(prototype, body, prototype.span)

    # --- controls, parsers, packages

    def _head(self, what: str) -> tuple[Token, tuple[str, ...], tuple[ast.Parameter, ...]]:
        """Parses `package name<T>(parameters)` and similar heads. Their names are in scope until `pop`."""
        self.advance()
        name = self.name(f"of a {what}")
        self.declare(name.text, True)
        self.push()
        return name, self._type_parameters(), self.parameters()

    def _package(self, annotations: tuple[Annotation, ...]) -> ast.Package:
        name, types, parameters = self._head("package")
        self.pop()
        self.expect(";", "after a package")
        return ast.Package(name.text, types, parameters, annotations, name.span)

    def _control(self, annotations: tuple[Annotation, ...]) -> ast.Control:
        name, types, parameters = self._head("control")
        constructor = self.parameters() if self.token.kind == "(" else ()
        if self.accept(";"):
            self.pop()
            return ast.Control(name.text, types, parameters, (), (), None, annotations, name.span)
        self.expect("{", "before the body of a control")
        found: list[ast.Local] = []
        while self.token.kind != "apply":
            found.append(self._control_local())
        self.advance()
        body = self.block(self.annotations())
        self.expect("}", "after the body of a control")
        self.pop()
        return ast.Control(
            name.text, types, parameters, constructor, tuple(found), body, annotations, name.span
        )

    def _control_local(self) -> ast.Local:
        annotations = self.annotations()
        kind = self.token.kind
        if kind == "const":
            return self.constant(annotations)
        if kind == "action":
            return self._action(annotations)
        if kind == "table":
            return self.table(annotations)
        return self._local(annotations, "'apply'")

    def _local(self, annotations: tuple[Annotation, ...], end: str) -> ast.Local:
        if not (self.starts_type() or self.token.kind in (IDENTIFIER, ".")):
            raise self.mistake(f"a declaration or {end} is expected")
        return self.variable_or_instance(annotations)

    def _parser(self, annotations: tuple[Annotation, ...]) -> ast.Parser:
        name, types, parameters = self._head("parser")
        constructor = self.parameters() if self.token.kind == "(" else ()
        if self.accept(";"):
            self.pop()
            return ast.Parser(name.text, types, parameters, (), (), None, annotations, name.span)
        self.expect("{", "before the body of a parser")
        found: list[ast.Local] = []
        states: list[ast.State] = []
        while not self.accept("}"):
            if self._at_state():
                states.append(self.state())
            else:
                found.append(self._parser_local())
        self.pop()
        return ast.Parser(
            name.text, types, parameters, constructor, tuple(found), tuple(states), annotations, name.span
        )

    def _at_state(self) -> bool:
        """Returns whether a state comes, past its annotations."""
        if self.token.kind != "@":
            return self.token.kind == "state"
        position = self.position()
        self.annotations()
        found = self.token.kind == "state"
        self.rewind(position)
        return found

    def _parser_local(self) -> ast.Local:
        annotations = self.annotations()
        if self.token.kind == "const":
            return self.constant(annotations)
        if self.token.kind == "value_set":
            return self._value_set(annotations)
        return self._local(annotations, "a state")

    def _value_set(self, annotations: tuple[Annotation, ...]) -> ast.ValueSet:
        first = self.advance().span
        self.expect("<", "after 'value_set'")
        type_ = self.type_ref(" of a value set's members")
        self.expect(">", "after the type of a value set's members")
        self.expect("(", "before the size of a value set")
        size = self._bracketed()
        self.expect(")", "after the size of a value set")
        name = self.name("of a value set")
        self.expect(";", "after a value set")
        self.declare(name.text, False)
        return ast.ValueSet(name.text, type_, size, annotations, first.to(name.span))


_DECLARATIONS = {
    "const": Declarations._const,
    "extern": Declarations._extern,
    "action": Declarations._action,
    "parser": Declarations._parser,
    "control": Declarations._control,
    "package": Declarations._package,
    "header": Declarations._record,
    "struct": Declarations._record,
    "header_union": Declarations._record,
    "enum": Declarations._enum,
    "typedef": Declarations._typedef,
    "type": Declarations._typedef,
    "error": Declarations._identifiers,
    "match_kind": Declarations._identifiers,
}
