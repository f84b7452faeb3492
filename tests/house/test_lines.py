"""The count of lines per room: on a small repository with known counts, and as printed for this one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("house_lines", Path(__file__).with_name("lines.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
lines = importlib.util.module_from_spec(_SPEC)
sys.modules["house_lines"] = lines
_SPEC.loader.exec_module(lines)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The first commit has three Python files that count; the working tree has one less."""
    for path, count in (
        ("middleware/wire/a.py", 3),
        ("middleware/wire/deep/b.py", 4),
        ("setup.py", 1),
        ("x_pb2.py", 9),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x\n" * count)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "middleware/wire/a.py").unlink()
    return tmp_path


def test_a_commit_and_the_working_tree_are_counted_alike(repository: Path) -> None:
    before, after = lines.sizes("HEAD", repository), lines.sizes(None, repository)
    assert before == {"middleware/wire/a.py": 3, "middleware/wire/deep/b.py": 4, "setup.py": 1}
    assert after == {"middleware/wire/deep/b.py": 4, "setup.py": 1}
    assert lines.totals(before) == {
        ".": (1, 1),
        "middleware/wire": (2, 7),
        lines.INSTALLED: (2, 7),
        lines.ALL: (3, 8),
    }
    assert "| middleware/wire | 2 | 7 | 1 | 4 | -3 |" in lines.table(before, after)


def test_the_command_prints_this_repository(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines.main([]) == 0
    printed = capsys.readouterr().out
    assert "| middleware/broker |" in printed
    assert "| all |" in printed
