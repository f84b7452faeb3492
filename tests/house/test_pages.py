"""The documentation pages: width, dates, links, code blocks, and the existence of the tests that they
name."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

_SPEC = spec_from_file_location("house_pages", Path(__file__).with_name("pages.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
pages = module_from_spec(_SPEC)
sys.modules["house_pages"] = pages
_SPEC.loader.exec_module(pages)

# Pages about an order or an invariant that the code relies on, and the minimum number of tests that each
# names.
PROVEN = {
    "docs/ordering.md": 15,
    "docs/streams.md": 10,
    "docs/ownership.md": 10,
    "docs/faces/kafka.md": 12,
    "docs/faces/mqtt.md": 8,
    "docs/faces/amqp.md": 12,
    "docs/faces/matrix.md": 20,
}
# The rows of each table of docs/faces/matrix.md after the first, and the number of ordered pairs of faces.
CELLS = [
    "key",
    "headers",
    "properties",
    "content type",
    "timestamp",
    "`traceparent`",
    "QoS and durability",
    "expiry",
    "retain",
    "ordering",
    "size limits",
    "name",
]
PAIRS = 6


def everywhere() -> list[tuple[Path, str]]:
    return [(path, (pages.REPOSITORY / path).read_text(encoding="utf-8")) for path in pages.pages()]


def test_no_line_is_wider_than_a_reader_likes() -> None:
    wide = [f"{path}:{number}" for path, text in everywhere() for number in pages.too_wide(text)]
    assert wide == []


def test_no_command_is_torn_off_its_block() -> None:
    assert [f"{path}:{number}" for path, text in everywhere() for number in pages.torn(text)] == []


def test_dated_runs_stand_in_the_results_alone() -> None:
    found = [f"{path}:{number}" for path, text in everywhere() for number in pages.dated(path, text)]
    assert found == []


def test_links_lead_somewhere() -> None:
    assert [dead for path, text in everywhere() for dead in pages.dead_links(path, text)] == []


def test_the_tests_that_pages_name_exist() -> None:
    problems = [
        f"{path}: {problem}"
        for path, text in everywhere()
        for file, test in pages.named_tests(text)
        if (problem := pages.missing_test(file, test))
    ]
    assert problems == []


def test_tables_of_what_holds_name_tests() -> None:
    assert [f"{path}:{number}" for path, text in everywhere() for number in pages.unproven_rows(text)] == []
    for path, least in PROVEN.items():
        text = (pages.REPOSITORY / path).read_text(encoding="utf-8")
        assert len(set(pages.named_tests(text))) >= least, path


def test_the_matrix_has_every_cell() -> None:
    text = (pages.REPOSITORY / "docs/faces/matrix.md").read_text(encoding="utf-8")
    tables = [part for part in text.split("\n## ") if "shown by" in part]
    assert len(tables) == PAIRS
    for table in tables:
        rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
        assert [row[0].removeprefix("| ") for row in rows[3:]] == CELLS, table.splitlines()[0]


def _python(text: str) -> None:
    ast.parse(text)


def _console(text: str) -> None:
    bash = shutil.which("bash")
    assert bash
    script = "\n".join(pages.commands(pages.Block(0, "console", text)))
    ran = subprocess.run([bash, "-n"], input=script, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


CHECKS: dict[str, Callable[[str], object]] = {
    "python": _python,
    "toml": tomllib.loads,
    "json": json.loads,
    "console": _console,
}


@pytest.mark.parametrize("language", CHECKS)
def test_code_blocks_are_of_their_language(language: str) -> None:
    problems: list[str] = []
    for path, text in everywhere():
        for block in pages.blocks(text):
            if block.language == language:
                try:
                    CHECKS[language](block.text)
                except (SyntaxError, ValueError, AssertionError) as error:
                    problems.append(f"{path}:{block.line}: {error}")
    assert problems == []


def test_the_checks_can_fail(tmp_path: Path) -> None:
    """Each check refuses a page that breaks its rule."""
    page = Path("docs/page.md")
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("def test_here() -> None: ...\n")
    (tmp_path / page).write_text("# One page\n")
    wide = "word " * 30
    assert pages.too_wide(f"{wide}\n| {wide}|\n```\n{wide}\n```\n") == [1]
    assert pages.torn("It runs:\n\n    run --fast\n--now\n\n    run \\\n        --now\n\nIt ends.\n") == [4]
    assert pages.dated(page, "On 2026-01-02 it ran.\n[run](results/2026-01-02-x.md)\n") == [1]
    assert pages.dated(Path("docs/results/x.md"), "On 2026-01-02 it ran.") == []
    links = "[a](gone.md) [b](page.md#one-page) [c](page.md#two) [d](https://example.org/x)"
    assert [dead.split()[-1] for dead in pages.dead_links(page, links, tmp_path)] == [
        "gone.md",
        "page.md#two",
    ]
    assert pages.missing_test("test_a.py", "test_here", tmp_path) == ""
    assert "has no test_gone" in pages.missing_test("test_a.py", "test_gone", tmp_path)
    assert pages.missing_test("test_b.py", "test_here", tmp_path) == "tests/ has no test_b.py"
    table = "| step | shown by |\n| --- | --- |\n| one | `test_a.py::test_here` |\n| two | a promise |\n"
    assert pages.unproven_rows(table) == [4]
    with pytest.raises(SyntaxError):
        _python("a b")
    with pytest.raises(AssertionError):
        _console("$ if then\n")
