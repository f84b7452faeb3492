"""The table in docs/architecture.md from a feature to its file: each file and name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HEADING = "## From a feature to its file"
_ROW = re.compile(r"\| (?P<feature>[^|]+) \| `(?P<path>[^`]+)` \|(?: `(?P<name>[^`]+)` \|| \|)$")


def rows(text: str) -> list[tuple[str, str, str]]:
    """Returns (feature, path, name) of each row of the table; a row of another form is an error."""
    _, found, behind = text.partition(HEADING)
    assert found, f"docs/architecture.md has no {HEADING!r}"
    lines = [line for line in behind.partition("\n## ")[0].splitlines() if line.startswith("|")][2:]
    matches = [(line, _ROW.match(line)) for line in lines]
    assert [line for line, match in matches if match is None] == []
    return [(match["feature"], match["path"], match["name"] or "") for _, match in matches if match]


def missing(path: str, name: str, root: Path = REPOSITORY) -> str:
    """Returns a sentence that names a missing file or name; empty if both exist."""
    if not (root / path).is_file():
        return f"{path} is no file"
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return f"{path} defines no {name}" if name and name not in defined else ""


def test_each_feature_leads_to_a_file_that_has_the_name() -> None:
    table = rows((REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(table) >= 30
    assert len({feature for feature, _, _ in table}) == len(table)
    assert [problem for _, path, name in table if (problem := missing(path, name))] == []


def test_the_check_can_fail(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Here: ...\n")
    assert missing("a.py", "Here", tmp_path) == ""
    assert missing("a.py", "Gone", tmp_path) == "a.py defines no Gone"
    assert missing("b.py", "", tmp_path) == "b.py is no file"
