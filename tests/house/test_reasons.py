"""Every reason that a client can be sent is in docs/reasons.md, and is found in the sources."""

from __future__ import annotations

import ast
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

_SPEC = spec_from_file_location("house_reasons", Path(__file__).with_name("reasons.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
reasons = module_from_spec(_SPEC)
sys.modules["house_reasons"] = reasons
_SPEC.loader.exec_module(reasons)

SOURCE = """
def refuse(name: str, error: Exception) -> None:
    if not name:
        raise TreecastError(Fault.INVALID_TOPIC, "a topic name cannot be empty")
    said = f"{name!r} is long" if len(name) > 9 else "it " + f"has {len(name)} letters"
    raise TreecastError(Fault.INVALID_TOPIC, said)
    raise TreecastError(Fault.STORAGE, str(error))
"""


def test_the_page_has_them_all() -> None:
    page = reasons.PAGE.read_text(encoding="utf-8")
    assert reasons.updated(page) == page, "stale: run python -m tests.house.reasons"
    with pytest.raises(ValueError, match="lacks the line"):
        reasons.updated("no tables here")


def test_each_protocol_has_some() -> None:
    found = reasons.reasons()
    for protocol in reasons.SECTIONS:
        assert sum(1 for one in found if one.protocol == protocol) > 30
    assert len(reasons.faults()) > 50


def test_what_is_found_in_a_source() -> None:
    found = {(one.code, one.text) for one in reasons.in_source(SOURCE, reasons.KINDS[0], "a.py")}
    assert found == {
        ("INVALID_TOPIC", "a topic name cannot be empty"),
        ("INVALID_TOPIC", "… is long"),
        ("INVALID_TOPIC", "it has … letters"),
    }


def test_a_text_that_is_not_found_comes_from_another_error() -> None:
    """Other arguments are texts of another refusal, or parameters."""
    unknown = set[str]()
    for kind in reasons.KINDS:
        for folder in kind.folders:
            for path in (reasons.REPOSITORY / folder).rglob("*.py"):
                unknown |= _unknown(path.read_text(encoding="utf-8"), kind)
    known = (
        "error",
        "detail",
        "reason",
        "problem",
        "refus",
        "said",
        "message",
        "text",
        "why",
        "str(",
        "fail",
        "late",
    )
    assert [text for text in sorted(unknown) if not any(word in text.lower() for word in known)] == []


def _unknown(source: str, kind: object) -> set[str]:
    """Returns the arguments of a kind of call in which `texts` finds no text."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = set[str]()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and reasons._name(node.func) == kind.call
            and len(node.args) > kind.text
        ):  # type: ignore[attr-defined]
            argument = node.args[kind.text]  # type: ignore[attr-defined]
            around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
            if not reasons.texts(argument, around) and ast.unparse(argument) != "''":
                found.add(ast.unparse(argument))
    return found
