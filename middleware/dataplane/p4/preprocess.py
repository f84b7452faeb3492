"""The preprocessor: `#include`, `#define`, `#if` and similar directives, over tokens. Pure.

Every output token knows its place; tokens from a macro have the place of its use. The caller's `Include`
supplies files; `core.p4` and `v1model.p4` are built in. Includes nest at most MOST_INCLUDES deep, and a
program has at most MOST_TOKENS tokens, so that no input runs for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from . import include as standard
from .directives import Condition, Macro, evaluate
from .lexer import END, INTEGER, STRING, Token, tokens
from .source import NOWHERE, Diagnostic, Span

MOST_INCLUDES = 64
MOST_TOKENS = 500_000

# (name as written, including file) -> (name for messages, text), or None if the file does not exist
Include = Callable[[str, str], tuple[str, str] | None]

PREDEFINED = {"__TARGET_BMV2__": "1"}  # p4c's definitions for programs of this architecture


class Stop(Exception):
    """Nothing after this can be made sense of."""


class Preprocessor:
    """One run. `lines` holds the text of every file read, `problems` the errors."""

    def __init__(self, include: Include, defines: Mapping[str, str]) -> None:
        self._include = include
        self._macros: dict[str, Macro] = {}
        self._output: list[Token] = []
        self._depth = 0
        self._budget = MOST_TOKENS
        self.lines: dict[str, tuple[str, ...]] = {}
        self.problems: list[Diagnostic] = []
        for name, value in {**PREDEFINED, **defines}.items():
            self._macros[name] = Macro(None, tuple(tokens(value, "<command line>")))

    def run(self, text: str, file: str) -> list[Token]:
        """Returns all tokens of a program, with END."""
        try:
            self._file(text, file)
        except Stop:
            pass
        last = self._output[-1] if self._output else Token(END, "", file, 1, 1, 1, 1)
        self._output.append(Token(END, "", last.file, last.line, last.end, last.end + 1, last.row + 1))
        return self._output

    # --- files and lines

    def _file(self, text: str, file: str) -> None:
        self.lines[file] = tuple(text.split("\n"))
        conditions: list[Condition] = []
        pending: list[Token] = []
        for line in _logical_lines(tokens(text, file)):
            self._spend(len(line), line[0].span)
            if line[0].text == "#":
                self._flush(pending)
                self._directive(line, conditions)
            elif all(one.active for one in conditions):
                pending += line
        self._flush(pending)
        for one in conditions:
            self._problem(one.span, "this condition has no #endif")

    def _flush(self, pending: list[Token]) -> None:
        self._output += self._expand(pending)
        pending.clear()

    def _directive(self, line: list[Token], conditions: list[Condition]) -> None:
        name = line[1].text if len(line) > 1 else ""
        rest = line[2:]
        if name in ("if", "ifdef", "ifndef"):
            active = all(one.active for one in conditions)
            met = active and self._holds(name, line[1], rest)
            conditions.append(Condition(line[1].span, active=met, met=met or not active))
        elif name in ("elif", "else", "endif"):
            self._alternative(name, line[1], rest, conditions)
        elif all(one.active for one in conditions):
            self._command(name, line, rest)

    def _alternative(self, name: str, word: Token, rest: list[Token], conditions: list[Condition]) -> None:
        if not conditions:
            self._problem(word.span, f"#{name} without #if")
            return
        if name == "endif":
            conditions.pop()
            return
        one = conditions[-1]
        if one.closed:
            self._problem(word.span, f"#{name} after #else")
        one.active = not one.met and (name == "else" or self._holds("if", word, rest))
        one.met = one.met or one.active
        one.closed = one.closed or name == "else"

    def _holds(self, name: str, word: Token, rest: list[Token]) -> bool:
        if name != "if":
            if not rest:
                self._problem(word.span, f"#{name} needs a name")
                return False
            return (rest[0].text in self._macros) == (name == "ifdef")
        try:
            return evaluate(self._expand(self._resolve_defined(rest)), word) != 0
        except ValueError as error:
            self._problem(word.span, f"in this condition: {error}")
            return False

    def _resolve_defined(self, line: list[Token]) -> list[Token]:
        found: list[Token] = []
        position = 0
        while position < len(line):
            token = line[position]
            position += 1
            if token.text == "defined":
                bracket = position < len(line) and line[position].text == "("
                name = line[position + bracket] if position + bracket < len(line) else token
                value = "1" if name.text in self._macros else "0"
                token = Token(INTEGER, value, token.file, token.line, token.column, token.end, token.row)
                position += 3 if bracket else 1
            found.append(token)
        return found

    def _command(self, name: str, line: list[Token], rest: list[Token]) -> None:
        place = line[min(1, len(line) - 1)].span
        if name == "define":
            self._define(place, rest)
        elif name == "undef":
            if rest:
                self._macros.pop(rest[0].text, None)
        elif name == "include":
            self._included(place, rest)
        elif name == "error":
            self._problem(place, f"#error {self._text(line, 2)}".rstrip())
        elif name not in ("", "pragma", "line", "warning", "ident") and line[1].kind != INTEGER:
            self._problem(place, f"there is no preprocessor directive #{name}")

    def _text(self, line: list[Token], first: int) -> str:
        """Returns the line's text from its token `first` on, as written."""
        if len(line) <= first:
            return ""
        source = self.lines[line[first].file][line[first].line - 1]
        return source[line[first].column - 1 :].strip()

    def _included(self, place: Span, rest: list[Token]) -> None:
        if rest and rest[0].kind not in (STRING, "<"):
            rest = self._expand(rest)
        if not rest:
            self._problem(place, '#include needs a file, as <name> or "name"')
            return
        quoted = rest[0].kind == STRING
        name = rest[0].text[1:-1] if quoted else self._text(rest, 0).strip("<>").split(">")[0].strip()
        span = rest[0].span.to(rest[-1].span)
        found = self._find(name, place.file, quoted)
        if found is None:
            self._problem(span, f"there is no file '{name}' to include")
        elif self._depth >= MOST_INCLUDES:
            self._problem(span, f"files include each other more than {MOST_INCLUDES} deep")
            raise Stop
        else:
            self._depth += 1
            self._file(found[1], found[0])
            self._depth -= 1

    def _find(self, name: str, file: str, quoted: bool) -> tuple[str, str] | None:
        ours = standard.text(name)
        if ours is not None and not quoted:
            return f"<{name}>", ours
        found = self._include(name, file)
        if found is None and ours is not None:
            return f"<{name}>", ours
        return found

    # --- macros

    def _define(self, place: Span, rest: list[Token]) -> None:
        if not rest or not (rest[0].text[0].isalpha() or rest[0].text[0] == "_"):
            self._problem(place, "#define needs a name")
            return
        name, body = rest[0], rest[1:]
        if not (body and body[0].text == "(" and body[0].column == name.end and body[0].line == name.line):
            self._macros[name.text] = Macro(None, tuple(body))
            return
        names: list[str] = []
        position = 1
        while position < len(body) and body[position].text != ")":
            if body[position].text != ",":
                names.append(body[position].text)
            position += 1
        if position == len(body):
            self._problem(name.span, f"the parameters of macro '{name.text}' have no closing bracket")
            return
        self._macros[name.text] = Macro(tuple(names), tuple(body[position + 1 :]))

    def _expand(self, line: Iterable[Token]) -> list[Token]:
        """Replaces macros until none is left that may be replaced."""
        macros = self._macros
        work = list(line)
        if not any(token.text in macros or token.text in _BUILT_IN for token in work):
            return work
        work.reverse()
        found: list[Token] = []
        while work:
            token = work.pop()
            if token.text in _BUILT_IN:
                found.append(_built_in(token))
            elif token.text not in macros or token.text in token.hidden:
                found.append(token)
            else:
                self._replace(token, macros[token.text], work, found)
        return found

    def _replace(self, name: Token, macro: Macro, work: list[Token], found: list[Token]) -> None:
        arguments: dict[str, list[Token]] = {}
        if macro.parameters is not None:
            if not work or work[-1].text != "(":
                found.append(name)
                return
            given = _arguments(work)
            if given is None:
                self._problem(name.span, f"the arguments of macro '{name.text}' have no closing bracket")
                raise Stop
            if macro.parameters == () and given == [[]]:
                given = []
            if len(given) != len(macro.parameters):
                wants = f"macro '{name.text}' takes {len(macro.parameters)} arguments, not {len(given)}"
                self._problem(name.span, wants)
                return
            arguments = dict(zip(macro.parameters, given, strict=True))
        hidden = name.hidden | {name.text}
        body = self._substitute(macro, arguments)
        self._spend(len(body), name.span)
        work += [
            token.moved(name, hidden | token.hidden if token.hidden else hidden) for token in reversed(body)
        ]

    def _substitute(self, macro: Macro, arguments: dict[str, list[Token]]) -> list[Token]:
        """Returns the body with its parameters replaced; `#` and `##` as in C."""
        body: list[Token] = []
        position = 0
        while position < len(macro.body):
            token = macro.body[position]
            after = macro.body[position + 1] if position + 1 < len(macro.body) else None
            if token.text == "#" and after is not None and after.text in arguments:
                text = " ".join(one.text for one in arguments[after.text]).replace('"', '\\"')
                body.append(Token(STRING, f'"{text}"', "", 0, 0, 0, 0))
                position += 1
            elif token.text == "##" and body and after is not None:
                right = arguments.get(after.text, [after])
                left = body.pop()
                pasted = left.text + (right[0].text if right else "")
                body += [*tokens(pasted, left.file), *right[1:]]
                position += 1
            elif token.text in arguments:
                raw = after is not None and after.text == "##"
                given = arguments[token.text]
                body += given if raw else self._expand(given)
            else:
                body.append(token)
            position += 1
        return body

    def _spend(self, count: int, span: Span) -> None:
        self._budget -= count
        if self._budget < 0:
            self._problem(
                span, f"the program has more than {MOST_TOKENS} words after its macros are expanded"
            )
            raise Stop

    def _problem(self, span: Span, message: str) -> None:
        self.problems.append(Diagnostic(span or NOWHERE, message))


_BUILT_IN = frozenset({"__LINE__", "__FILE__"})


def _built_in(token: Token) -> Token:
    line = token.text == "__LINE__"
    text = str(token.line) if line else f'"{token.file}"'
    kind = INTEGER if line else STRING
    return Token(kind, text, token.file, token.line, token.column, token.end, token.row)


def _logical_lines(found: Iterable[Token]) -> Iterable[list[Token]]:
    """Tokens by logical line; never an empty one."""
    line: list[Token] = []
    for token in found:
        if line and line[0].row != token.row:
            yield line
            line = []
        line.append(token)
    if line:
        yield line


def _arguments(work: list[Token]) -> list[list[Token]] | None:
    """Takes `( a, b )` off the reversed list; None if it does not end."""
    work.pop()
    given: list[list[Token]] = [[]]
    depth = 0
    while work:
        token = work.pop()
        if token.text == ")" and depth == 0:
            return given
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            given.append([])
        else:
            given[-1].append(token)
    return None
