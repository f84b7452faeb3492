"""Reads .proto files (proto2 and proto3) as far as values need it: messages, enums, numbers and types.

  file    = { syntax | package | import | option | message | enum | service | extend | ";" }
  message = "message" NAME "{" { field | oneof | message | enum | statement } "}"
  field   = [ label ] TYPE NAME "=" NUMBER [ "[" ... "]" ] ";"

Imported files are not read; a field of a type that the file does not define can't be declared.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<word>[A-Za-z_.][A-Za-z0-9_.]*)|(?P<number>-?(0x[0-9A-Fa-f]+|[0-9]+))"""
    r"""|(?P<string>"([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*')|(?P<sign>[{}\[\]()<>=;,:+-])""",
    re.DOTALL,
)
_LABELS: Final = ("optional", "required", "repeated")
_STATEMENTS: Final = ("option", "reserved", "extensions", "syntax", "package", "import", "edition")
_DEPTH: Final = 20


class Enum:
    """An enum's symbols by number."""

    def __init__(self) -> None:
        self.symbols: dict[int, str] = {}


class ProtoField:
    """`present`: whether its absence can be told from its default (optional, oneof, proto2)."""

    def __init__(self, name: str, number: int, type: str, repeated: bool, present: bool) -> None:
        self.name = name
        self.number = number
        self.type = type
        self.repeated = repeated
        self.present = present


class Message:
    """A message. `place`: the way to it through the file, as Confluent's wire format names it."""

    def __init__(self, name: str, place: tuple[int, ...]) -> None:
        self.name = name  # whole, without the package
        self.place = place
        self.fields: dict[str, ProtoField] = {}


class File:
    """The definitions of a .proto file, by whole name without the package."""

    def __init__(self) -> None:
        self.package = ""
        self.messages: dict[str, Message] = {}
        self.enums: dict[str, Enum] = {}

    def resolved(self, type: str, within: str) -> Message | Enum | None:
        """Returns what a type's name means inside the message `within`; None if it is not in this file."""
        name = type.lstrip(".")
        if self.package and name.startswith(f"{self.package}."):
            name = name[len(self.package) + 1 :]
        scope = within.split(".")
        while True:
            full = ".".join([*scope, name])
            found = self.messages.get(full) or self.enums.get(full)
            if found is not None or not scope:
                return found
            scope.pop()


def read_file(text: str) -> File:
    """Returns the definitions of a .proto file. Raises ValueError, which names the line."""
    return _Reader(text).file()


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._token = ""
        self._found = File()
        self._proto3 = False
        self._advance()

    def _advance(self) -> str:
        """Goes to the next token and returns the one before; "" is the end."""
        taken = self._token
        while True:
            if self._position == len(self._text):
                self._token = ""
                return taken
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                raise self._error(f"{self._text[self._position]!r} is not expected")
            self._position = match.end()
            if match.lastgroup is not None:
                self._token = match[0]
                return taken

    def _error(self, reason: str) -> ValueError:
        line = self._text.count("\n", 0, self._position) + 1
        return ValueError(f"the .proto file, line {line}: {reason}")

    def _want(self, sign: str) -> None:
        if self._token != sign:
            raise self._error(f"{sign!r} is wanted, not {self._token or 'the end'!r}")
        self._advance()

    def _took(self, word: str) -> bool:
        if self._token == word:
            self._advance()
            return True
        return False

    # --- the file

    def file(self) -> File:
        messages = 0
        while self._token:
            if self._token == "message":
                self._message("", (messages,))
                messages += 1
            elif self._token == "enum":
                self._enum("")
            elif self._token in ("service", "extend"):
                self._skip_block()
            else:
                self._statement()
        return self._found

    def _statement(self) -> None:
        """A statement without a body, up to its semicolon."""
        first = self._advance()
        if first not in (*_STATEMENTS, ";"):
            raise self._error(f"{first!r} is no statement of a .proto file")
        words = []
        while first != ";" and self._token != ";":
            if not self._token:
                raise self._error("';' is wanted, not the end")
            if self._token == "{":
                self._skip_braces()
            else:
                words.append(self._advance())
        if first != ";":
            self._want(";")
        if first == "package" and words:
            self._found.package = words[0]
        elif first == "syntax":
            self._proto3 = any("proto3" in word for word in words)

    def _skip_block(self) -> None:
        while self._token not in ("{", ""):
            self._advance()
        self._skip_braces()

    def _skip_braces(self) -> None:
        self._want("{")
        depth = 1
        while depth:
            if not self._token:
                raise self._error("'}' is wanted, not the end")
            depth += {"{": 1, "}": -1}.get(self._token, 0)
            self._advance()

    # --- messages and enums

    def _message(self, within: str, place: tuple[int, ...]) -> None:
        if len(place) > _DEPTH:
            raise self._error(f"more than {_DEPTH} messages inside one another")
        self._want("message")
        name = self._advance()
        message = Message(f"{within}.{name}" if within else name, place)
        self._found.messages[message.name] = message
        self._want("{")
        nested = 0
        while not self._took("}"):
            if self._token == "message":
                self._message(message.name, (*place, nested))
                nested += 1
            else:
                self._member(message)

    def _member(self, message: Message) -> None:
        if self._token == "enum":
            self._enum(message.name)
        elif self._token == "extend":
            self._skip_block()
        elif self._took("oneof"):
            self._advance()
            self._want("{")
            while not self._took("}"):
                if self._token == "option":
                    self._statement()
                else:
                    self._field(message, "", True)
        elif self._token in (*_STATEMENTS, ";"):
            self._statement()
        else:
            label = self._advance() if self._token in _LABELS else ""
            self._field(message, label, label == "optional" or not self._proto3)

    def _field(self, message: Message, label: str, present: bool) -> None:
        type = self._advance()
        if type == "map" and self._token == "<":
            while self._token and not self._took(">"):
                self._advance()
            label = "repeated"
        if type == "group" or not re.fullmatch(r"[A-Za-z_.][A-Za-z0-9_.]*", type):
            raise self._error(f"{type or 'the end'!r} is no type of a field")
        name = self._advance()
        self._want("=")
        number = self._number()
        if self._token == "[":
            self._skip_options()
        self._want(";")
        message.fields[name] = ProtoField(name, number, type, label == "repeated", present)

    def _skip_options(self) -> None:
        while not self._took("]"):
            if self._token == "{":
                self._skip_braces()
            elif not self._advance():
                raise self._error("']' is wanted, not the end")

    def _enum(self, within: str) -> None:
        self._want("enum")
        name = self._advance()
        enum = Enum()
        self._found.enums[f"{within}.{name}" if within else name] = enum
        self._want("{")
        while not self._took("}"):
            if self._token in ("option", "reserved", ";"):
                self._statement()
                continue
            symbol = self._advance()
            self._want("=")
            enum.symbols.setdefault(self._number(), symbol)
            if self._token == "[":
                self._skip_options()
            self._want(";")

    def _number(self) -> int:
        try:
            return int(self._advance(), 0)
        except ValueError:
            raise self._error("a number is wanted") from None
