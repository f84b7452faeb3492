"""Tests of what commands print: a name chosen by others cannot reach the terminal as more than text."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from treecast.middleware.cli import app, consume, events
from treecast.middleware.cli.output import json_line, plain, print_json, print_pairs, print_table, say
from treecast.middleware.model.errors import Fault, TreecastError

NASTY = "\x1b]0;owned\x07\x1b[2Jred\x9b31m\r\u202etxt\u2066\u2028\ud800\x7f"
OBEYED = {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066, 0x2028, 0xD800)}
CLI = Path(app.__file__).parent
# Modules that show only what the operator's own files and flags say.
OWN = {"bench", "evaluate", "fanout", "lab", "p4", "route", "up", "output", "__init__"}


def harmless(text: str) -> bool:
    return not OBEYED & set(text)


def test_a_name_stays_on_its_line_and_a_text_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert plain(NASTY + "\n") == (
        "\\x1b]0;owned\\x07\\x1b[2Jred\\x9b31m\\r\\u202etxt\\u2066\\u2028\\ud800\\x7f\\n"
    )
    assert plain("Müller 東京 🦉") == "Müller 東京 🦉"
    say(f"one\ntwo\t{NASTY}")
    out = capsys.readouterr().out
    assert harmless(out)
    assert out.startswith("one\ntwo\t\\x1b")


@pytest.mark.parametrize("tty", [True, False])
def test_tables_and_pairs(tty: bool, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: tty)
    monkeypatch.setenv("TERM", "dumb")
    print_table(("name", "n"), [(NASTY, 1), ("a\nforged row", 2)], empty="")
    print_pairs([("group", NASTY + "\nlag  0")])
    out = capsys.readouterr().out
    assert harmless(out)
    assert "forged row" in out.replace("a\\n", "")
    assert not [line for line in out.splitlines() if line.startswith(("forged", "lag"))]


def test_json_is_harmless_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": NASTY, "list": [NASTY, "é"]}
    print_json(value)
    text = capsys.readouterr().out
    assert harmless(text)
    assert json.loads(text) == json.loads(json_line(value)) == value
    assert "é" in text


def test_a_refusal_that_quotes_a_name(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise TreecastError(Fault.GROUP_NOT_FOUND, f"there is no group {NASTY}")

    monkeypatch.setattr(app, "app", refuses)
    assert app.run([]) == 1
    assert harmless(capsys.readouterr().err)


def test_a_line_of_events(capsys: pytest.CaptureFixture[str]) -> None:
    event = SimpleNamespace(number=1, time_ms=0, host=NASTY, kind="k", face="", who=NASTY, what="a\nb")
    events._show_line(event, False)  # type: ignore[arg-type]
    out = capsys.readouterr().out
    assert harmless(out)
    assert out.count("\n") == 1


@pytest.mark.parametrize("tty", [True, False])
def test_records_are_shown_to_people_and_handed_to_programs(
    tty: bool, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: Any
) -> None:
    record = SimpleNamespace(value=b"\x1b[2Jx\xff\ty", key=None, topic="t", partition=0, offset=0)
    monkeypatch.setattr(consume, "_polls", lambda *_: iter([[record]]))
    written: list[bytes] = []
    out = SimpleNamespace(
        buffer=SimpleNamespace(write=written.append, flush=lambda: None), isatty=lambda: tty
    )
    monkeypatch.setattr("sys.stdout", out)
    consume._print_all(None, None, 1, 0, consume._as_value)
    assert written == [b"\\x1b[2Jx\xef\xbf\xbd\ty\n" if tty else b"\x1b[2Jx\xff\ty\n"]


def printed() -> Iterator[str]:
    """The places where a command prints something that it has not written itself."""
    for path in sorted(CLI.glob("*.py")):
        if path.stem in OWN:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            prints = isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo")
            if prints and not all(isinstance(one, ast.Constant) for one in node.args):
                yield f"{path.stem}: {ast.unparse(node)}"


def test_commands_print_through_this_module() -> None:
    known = ("print('would set'", "__version__", "json_line(as_dict(one))")
    assert [one for one in printed() if not any(part in one for part in known)] == []
