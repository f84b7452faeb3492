"""Finds every reason that a client can be sent, and writes the tables of docs/reasons.md.

    python -m tests.house.reasons            writes the tables
    python -m tests.house.reasons --check    fails if the page differs

A reason is the text of an error that we raise, or of the end of a session. `…` stands for a value.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "reasons.md"
BEGIN = "<!-- reasons: written by python -m tests.house.reasons -->\n"

# The calls that carry reasons, the positions of code and text among their arguments, and their folders.
BROKER = (
    "middleware/model",
    "middleware/storage",
    "middleware/broker",
    "middleware/relay",
    "middleware/fabric",
)
HOST = (*BROKER, "middleware/control", "middleware/daemon", "middleware/api", "shims")
VALUE = "…"


@dataclass(frozen=True)
class Kind:
    """A call that carries a reason: its name, and the positions of code and text among its arguments."""

    call: str
    code: int
    text: int
    folders: tuple[str, ...]
    protocol: str


KINDS = (
    Kind("TreecastError", 0, 1, HOST, "broker"),
    Kind("InvalidRegex", 0, 1, ("middleware/model",), "broker"),
    Kind("MqttError", 1, 2, ("shims/mqtt",), "mqtt"),
    Kind("malformed", 0, 1, ("shims/mqtt",), "mqtt"),
    Kind("protocol_error", 0, 1, ("shims/mqtt",), "mqtt"),
    Kind("disconnect", 0, 1, ("shims/mqtt",), "mqtt"),
    Kind("AmqpError", 0, 1, ("shims/amqp",), "amqp"),
    Kind("refuse", 0, 1, ("shims/amqp",), "amqp"),
)

SECTIONS = {
    "broker": (
        "Kafka, and the control address",
        "A fault becomes Kafka's error code ([faults](#faults)); the text is the error message "
        "of answers that have one, and what the `treecast` command prints.",
    ),
    "mqtt": (
        "MQTT",
        "Version 5 clients get the text as reason string of CONNACK, DISCONNECT or SUBACK; "
        "the log has it for all clients.",
    ),
    "amqp": (
        "AMQP",
        "The reply text of channel.close and connection.close: `NAME - text`, cut at 255 bytes.",
    ),
}


@dataclass(frozen=True, order=True)
class Reason:
    """A text with its code, and the file that sends it."""

    protocol: str
    code: str
    text: str
    file: str


def reasons(root: Path = REPOSITORY) -> list[Reason]:
    """Returns everything that the sources raise, once per file."""
    found = set[Reason]()
    for kind in KINDS:
        for folder in kind.folders:
            for path in sorted((root / folder).rglob("*.py")):
                if "_pb2" not in path.name:
                    found.update(in_source(path.read_text("utf-8"), kind, str(path.relative_to(root))))
    return sorted(found)


def in_source(source: str, kind: Kind, file: str) -> Iterator[Reason]:
    """Yields the reasons of one kind in a module."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == kind.call and len(node.args) > kind.text:
            around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
            code = _code(node.args[kind.code])
            for text in texts(node.args[kind.text], around):
                yield Reason(kind.protocol, code, text, file)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _code(node: ast.expr) -> str:
    """`Fault.STORAGE` becomes STORAGE, a clause stays as it is, anything else is a value."""
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr.isupper() else VALUE
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.id if isinstance(node, ast.Name) and node.id.isupper() else VALUE


def texts(node: ast.expr, around: Sequence[ast.AST] = ()) -> list[str]:
    """Returns the possible texts of an argument; a name is looked up in the functions around it."""
    match node:
        case ast.Constant(value=str(text)):
            return [text] if text else []
        case ast.JoinedStr(values=parts):
            return ["".join(_part(part) for part in parts)]
        case ast.IfExp(body=body, orelse=other):
            return [*texts(body, around), *texts(other, around)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [a + b for a in texts(left, around) or [VALUE] for b in texts(right, around) or [VALUE]]
        case ast.Name(id=name):
            return _assigned(name, around)
    return []  # the text of another error, which is found at its own raise


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else VALUE


def _assigned(name: str, around: Sequence[ast.AST]) -> list[str]:
    found: list[str] = []
    for function in around:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and any(_name(target) == name for target in node.targets):
                found += texts(node.value) if not isinstance(node.value, ast.Name) else []
    return found


def faults() -> list[tuple[str, str, str]]:
    """Returns (fault, its default text, Kafka's code)."""
    from treecast.middleware.model.errors import Fault
    from treecast.shims.kafka import errors

    names = {code: name for name, code in vars(errors).items() if name.isupper() and isinstance(code, int)}
    return [(fault.name, str(fault.value), names[errors.CODES[fault]]) for fault in Fault]


def tables(found: Sequence[Reason]) -> str:
    """Returns the generated part of the page."""
    lines: list[str] = []
    for protocol, (title, said) in SECTIONS.items():
        lines += [f"## {title}", "", *_wrapped(said), "", "| code | text | from |", "| --- | --- | --- |"]
        merged: dict[tuple[str, str], list[str]] = {}
        for one in found:
            if one.protocol == protocol:
                merged.setdefault((one.code, one.text), []).append(f"`{one.file}`")
        lines += [
            f"| {code} | {_cell(text)} | {', '.join(files)} |" for (code, text), files in merged.items()
        ]
        lines.append("")
    lines += ["## Faults", "", "| fault | text without detail | Kafka's error |", "| --- | --- | --- |"]
    lines += [f"| {name} | {_cell(said)} | {code} |" for name, said, code in faults()]
    return "\n".join([*lines, ""])


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 108, break_long_words=False, break_on_hyphens=False)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


def updated(page: str) -> str:
    """Returns the page with current tables."""
    before, begin, _ = page.partition(BEGIN)
    if not begin:
        raise ValueError(f"the page lacks the line {BEGIN.strip()}")
    return f"{before}{BEGIN}\n{tables(reasons())}"


def main(words: Sequence[str]) -> int:
    page = PAGE.read_text(encoding="utf-8")
    fresh = updated(page)
    if "--check" in words:
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
