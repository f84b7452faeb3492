"""Reads an annotated header description (Camus, Fig. 4): P4 text, with a line for each annotation.

    header itch_order {
        bit<32> shares;
        bit<64> stock;
        bit<32> price;
    }
    @pragma query_field(itch_order.price)
    @pragma query_field_exact(itch_order.stock)
    @pragma query_counter(my_counter, 100, 1024)

`filters.compiler.schema` lists the annotations. The rest is P4: headers, in the order in which a packet has
them, constants and type names; then actions that rules may name. An action's parameters with a direction
are bound by their type, `headers_t` or `standard_metadata_t`; those without are the rule's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from msgspec import structs

from treecast.middleware.dataplane.p4 import Bits, Program, load_program
from treecast.middleware.filters.compiler.program import MAX_FIELDS, split_source
from treecast.middleware.filters.compiler.program_messages import MAX_MESSAGES
from treecast.middleware.filters.compiler.schema import (
    ARRIVAL,
    PORT_BITS,
    SPACE,
    Counter,
    CustomAction,
    Header,
    HeaderField,
    Messages,
    Next,
    QueryField,
    Schema,
)

_LINE = re.compile(r"[ \t]*@pragma[ \t]+(query_\w+)[ \t]*\(([^)\n]*)\)[ \t]*(?://.*)?$", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ACTION = re.compile(r"^action\s+(\w+)\s*\(([^)]*)\)", re.MULTILINE)
_PARAMETER = re.compile(r"(?:(in|out|inout)\s+)?(.+?)\s+(\w+)\Z", re.DOTALL)
_BOUND = {"headers_t": "hdr", "standard_metadata_t": "standard"}
_KINDS = {
    "query_field": "range",
    **{f"query_field_{kind}": kind for kind in ("exact", "lpm", "ternary", "low")},
}
_MOST_CELLS = 1 << 20
PRUNED = "pruned"  # the action that a copy without some of its messages needs

_SHELL = """
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { transition accept; }
}
control InShell(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    %s
    apply { %s }
}
control OutShell(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control Check(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) { apply { } }
V1Switch(Parse(), Check(), InShell(), OutShell(), Check(), Deparse()) main;
"""


class HeaderFileError(ValueError):
    """A fault of a description, with file, line and column."""

    def __init__(self, file: str, line: int, column: int, reason: str) -> None:
        self.file, self.line, self.column, self.reason = file, line, column, reason
        super().__init__(f"{file}:{line}:{column}: {reason}")


def read_header_file(text: str, name: str = "<header>") -> Schema:
    """Returns the description. Raises HeaderFileError, or P4Error for its P4."""
    source = _LINE.sub("", text)
    headers, actions = _declared(source, name)
    reader = _Reader(text, name, headers)
    for found in _LINE.finditer(text):
        reader.annotation(found)
    if not 0 < len(reader.fields) <= MAX_FIELDS:
        raise HeaderFileError(
            name,
            1,
            1,
            f"{len(reader.fields)} fields have @pragma query_field(header.field); 1 to {MAX_FIELDS} may",
        )
    return Schema(
        tuple(headers.values()),
        tuple(reader.nexts),
        tuple(reader.with_pads()),
        tuple(reader.counters),
        tuple(action for action in actions if reader.messages is None or action.name != PRUNED),
        source,
        reader.with_pruned(actions),
    )


# --- P4


def _declared(source: str, name: str) -> tuple[dict[str, Header], tuple[CustomAction, ...]]:
    """Returns the headers and actions of the P4 text, as the target's front end reads them."""
    types, actions = split_source(source)
    declared = re.findall(r"^\s*header\s+(\w+)", _bare(types), re.MULTILINE)
    if not declared:
        raise HeaderFileError(name, 1, 1, "there is no header")
    wrappers = [_Wrapper(found) for found in _ACTION.finditer(_bare(actions))]
    program = load_program(_shell(declared, wrappers), "<shell>", _files(types, actions, name))
    known = {header.name: header for header in program.headers}
    headers: dict[str, Header] = {}
    for header in declared:
        fields = []
        for field in known[header].fields:
            if not isinstance(field.type, Bits) or field.type.signed:
                raise HeaderFileError(
                    name, 1, 1, f"{header}.{field.name} is no bit<W>: headers have fixed widths"
                )
            fields.append(HeaderField(field.name, field.type.width))
        headers[header] = Header(header, tuple(fields))
    return headers, tuple(wrapper.action(program) for wrapper in wrappers)


def _bare(text: str) -> str:
    """Returns the text without comments, line by line as before."""
    return _COMMENT.sub(lambda found: "\n" * found[0].count("\n") or " ", text)


def _files(types: str, actions: str, name: str) -> Callable[[str, str], tuple[str, str] | None]:
    """Returns an `include` that gives both halves of the description, with their own line numbers."""
    after = "\n" * (types.count("\n") + 1) + actions
    texts = {"types": (name, types), "actions": (f"{name}", after)}

    def include(file: str, includer: str) -> tuple[str, str] | None:
        return texts.get(file)

    return include


def _shell(headers: list[str], wrappers: list[_Wrapper]) -> str:
    """Returns a program that consists of the description and nothing else of use."""
    struct = " ".join(f"{header} {header};" for header in headers)
    names = " ".join(f"run_{wrapper.name};" for wrapper in wrappers)
    table = (
        f"table t {{ actions = {{ {names} }} default_action = run_{wrappers[0].name}({wrappers[0].zeros}); }}"
        if wrappers
        else ""
    )
    locals_ = " ".join(wrapper.text for wrapper in wrappers) + table
    return (
        '#include <core.p4>\n#include <v1model.p4>\n#include "types"\n'
        f"struct headers_t {{ {struct} }}\nstruct metadata_t {{ }}\n"
        '#include "actions"\n' + _SHELL % (locals_, "t.apply();" if wrappers else "")
    )


class _Wrapper:
    """An action of the description, called by one that tables may have."""

    def __init__(self, found: re.Match[str]) -> None:
        self.name = found[1]
        parts = [_PARAMETER.match(part.strip()) for part in found[2].split(",") if part.strip()]
        parameters = [part for part in parts if part is not None]
        self.bound = tuple(_BOUND.get(part[2].strip(), part[3]) for part in parameters if part[1])
        data = [(part[2], part[3]) for part in parameters if not part[1]]
        written = ", ".join(f"{kind} {name}" for kind, name in data)
        self.zeros = ", ".join("0" for _ in data)
        arguments = ", ".join((*self.bound, *(name for _, name in data)))
        self.text = f"action run_{self.name}({written}) {{ {self.name}({arguments}); }} "

    def action(self, program: Program) -> CustomAction:
        """Returns it with the widths that the front end has found."""
        data = next(one.data for one in program.actions if one.name.endswith(f"run_{self.name}"))
        widths = ((one.name, one.type.width if isinstance(one.type, Bits) else 1) for one in data)
        return CustomAction(self.name, tuple(HeaderField(name, width) for name, width in widths), self.bound)


# --- annotations


class _Reader:
    """Annotation by annotation; what is wrong is told at its place."""

    def __init__(self, text: str, name: str, headers: dict[str, Header]) -> None:
        self._text = text
        self._name = name
        self._headers = headers
        self._at = 0
        self._pads: dict[tuple[str, str], int] = {}
        self.fields: list[QueryField] = []
        self.counters: list[Counter] = []
        self.nexts: list[Next] = []
        self.messages: Messages | None = None

    def annotation(self, found: re.Match[str]) -> None:
        self._at = found.start(1)
        words = [word.strip() for word in found[2].split(",")]
        match found[1], len(words):
            case "query_field_low", 2:
                self._field(words[0], "low", self._number(words[1], 1, 16))
            case kind, 1 if kind in _KINDS and kind != "query_field_low":
                self._field(words[0], _KINDS[kind], 0)
            case "query_counter", 3:
                self._counter(words)
            case "query_messages", 3:
                self._messages(words)
            case "query_next", 2 | 3:
                self._next(words)
            case "query_port", 1:
                self._port(words[0])
            case "query_pad", 2:
                self._pads[self._path(words[0])] = self._number(words[1], 0, 255)
            case kind, count:
                self._wrong(f"there is no annotation {kind} with {count} argument{'' if count == 1 else 's'}")

    def _wrong(self, reason: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        raise HeaderFileError(self._name, line, column, reason)

    def _number(self, word: str, low: int, high: int) -> int:
        try:
            number = int(word, 0)
        except ValueError:
            self._wrong(f"{word!r} is no number")
        if not low <= number <= high:
            self._wrong(f"{word} is not from {low} to {high}")
        return number

    def _path(self, word: str) -> tuple[str, str]:
        header, dot, field = word.partition(".")
        if not dot:
            self._wrong(f"{word!r} is no header.field")
        if header not in self._headers:
            self._wrong(f"there is no header {header}; there are {', '.join(self._headers)}")
        if field not in (one.name for one in self._headers[header].fields):
            names = ", ".join(one.name for one in self._headers[header].fields)
            self._wrong(f"{header} has no field {field}; it has {names}")
        return header, field

    def _field(self, word: str, kind: str, bits: int) -> None:
        header, name = self._path(word)
        if any(field.path == (header, name) for field in self.fields):
            self._wrong(f"{word} is a query field already")
        width = next(one.width for one in self._headers[header].fields if one.name == name)
        if width > 128:
            self._wrong(f"{word} has {width} bits; a query field has at most 128")
        self.fields.append(QueryField(header, name, width, kind, bits))

    def _port(self, word: str) -> None:
        header, dot, name = word.partition(".")
        if not dot or not header.isidentifier() or not name.isidentifier():
            self._wrong(f"{word!r} is no name.name for the port by which a packet came")
        if header in self._headers:
            self._wrong(f"{header} is a header: give the port by which a packet came another name")
        if any(field.source for field in self.fields):
            self._wrong("there is one query_port already")
        self.fields.append(QueryField(header, name, PORT_BITS, "range", source=ARRIVAL))

    def _counter(self, words: list[str]) -> None:
        name = words[0]
        if not name.isidentifier() or any(one.name == name for one in self.counters):
            self._wrong(f"{name!r} is no name for a counter, or another's")
        window, cells = self._number(words[1], 1, (1 << 48) - 1), self._number(words[2], 1, _MOST_CELLS)
        self.counters.append(Counter(name, window, cells))

    def _next(self, words: list[str]) -> None:
        after = words[-1]
        for header in (words[0].partition(".")[0], after):
            if header not in self._headers:
                self._wrong(f"there is no header {header}; there are {', '.join(self._headers)}")
        order = list(self._headers)
        if order.index(after) <= order.index(words[0].partition(".")[0]):
            self._wrong(
                f"{after} is declared before {words[0]}; headers come in the order of their declaration"
            )
        if len(words) == 2:
            self.nexts.append(Next(words[0], "", 0, after))
            return
        header, field = self._path(words[0])
        width = next(one.width for one in self._headers[header].fields if one.name == field)
        self.nexts.append(Next(header, field, self._number(words[1], 0, (1 << width) - 1), after))

    def _messages(self, words: list[str]) -> None:
        header, count = self._path(words[0])
        message, length = self._path(words[1])
        first = self._headers[message].fields[0]
        if self.messages is not None:
            self._wrong("there is one query_messages already")
        if list(self._headers).index(message) <= list(self._headers).index(header):
            self._wrong(f"{message} is declared before {header}; messages come behind the header that counts")
        if first.name != length or first.width % 8 or first.width > 16:
            self._wrong(f"{words[1]} is not the first field of {message}, of 8 or 16 bits")
        most = self._number(words[2], 1, MAX_MESSAGES)
        self.messages = Messages(header, count, message, length, first.width, most)

    def with_pruned(self, actions: tuple[CustomAction, ...]) -> Messages | None:
        """Returns the annotation of messages; it knows whether copies that lose some need an action."""
        found = self.messages
        if found is None:
            return None
        named = [action for action in actions if action.name == PRUNED]
        if named and (named[0].bound != ("hdr",) or [one.width for one in named[0].parameters] != [16]):
            self._wrong(f"write: action {PRUNED}(inout headers_t hdr, bit<16> bytes)")
        if any(one.header == found.header for one in self.nexts):
            self._wrong(f"behind {found.header} come messages: query_next may not name it")
        return structs.replace(found, pruned=bool(named))

    def with_pads(self) -> list[QueryField]:
        """Returns the query fields, each with what fills its short strings."""
        return [structs.replace(one, pad=self._pads.get(one.path, SPACE)) for one in self.fields]
