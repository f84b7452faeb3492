"""Counts the lines of Python of each room, in the working tree or at a commit.

    python -m tests.house.lines                  of the working tree, without ignored files
    python -m tests.house.lines 74e823e HEAD     of one commit beside another

All lines count: code, docstrings and empty ones. Generated code (`*_pb2*`) is excluded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHORT, LONG = 40, 600  # fewer lines than this, more than this
INSTALLED, ALL = "all that is installed", "all"
_INSTALLED = ("middleware/", "shims/", "agents/", "spark_connectors/", "src/")
_PACKAGES = ("middleware", "shims", "tests")  # their folders are rooms of their own


def room_of(path: str) -> str:
    """`middleware/wire/varint.py` is in `middleware/wire`, `bench/core/x.py` in `bench`, `setup.py` in the
    root."""
    parts = path.split("/")
    depth = 2 if parts[0] in _PACKAGES and len(parts) > 2 else 1
    return "/".join(parts[:depth]) if len(parts) > 1 else "."


def sizes(commit: str | None, repository: Path = REPOSITORY) -> dict[str, int]:
    """Returns the number of lines of each Python file."""
    paths = [path for path in _paths(commit, repository) if path.endswith(".py") and "_pb2" not in path]
    texts = _texts(commit, paths, repository)
    return {path: text.count(b"\n") for path, text in zip(paths, texts, strict=True)}


def _paths(commit: str | None, repository: Path) -> list[str]:
    if commit:
        return _git(repository, "ls-tree", "-r", "--name-only", commit).decode().splitlines()
    found = _git(repository, "ls-files", "-co", "--exclude-standard").decode().splitlines()
    return [path for path in found if (repository / path).is_file() and not (repository / path).is_symlink()]


def _texts(commit: str | None, paths: Sequence[str], repository: Path) -> Iterator[bytes]:
    if not commit:
        yield from ((repository / path).read_bytes() for path in paths)
        return
    asked = "".join(f"{commit}:{path}\n" for path in paths).encode()
    answers = _git(repository, "cat-file", "--batch", asked=asked)
    at = 0
    for _ in paths:
        head = answers.index(b"\n", at)
        size = int(answers[at:head].split()[2])
        yield answers[head + 1 : head + 1 + size]
        at = head + size + 2


def _git(repository: Path, *words: str, asked: bytes | None = None) -> bytes:
    return subprocess.run(
        ["git", *words], cwd=repository, input=asked, capture_output=True, check=True
    ).stdout


def totals(files: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Returns (files, lines) of each room, of the installed code, and of everything."""
    number, lines = Counter[str](), Counter[str]()
    for path, size in files.items():
        installed = (INSTALLED,) if path.startswith(_INSTALLED) else ()
        for room in (room_of(path), *installed, ALL):
            number[room] += 1
            lines[room] += size
    return {room: (number[room], lines[room]) for room in number}


def _order(room: str) -> tuple[int, str]:
    return (room == INSTALLED) + 2 * (room == ALL), room


def table(before: dict[str, int], after: dict[str, int] | None = None) -> str:
    """Returns Markdown: a row for each room; with a second commit also its numbers and the difference."""
    first, second = totals(before), totals(after) if after is not None else None
    head = "| room | files | lines |" + (" files | lines | more lines |" if second else "")
    rule = "| --- | ---: | ---: |" + (" ---: | ---: | ---: |" if second else "")
    rows = [head, rule]
    for room in sorted({**first, **(second or {})}, key=_order):
        files, lines = first.get(room, (0, 0))
        row = f"| {room} | {files} | {lines:,} |"
        if second is not None:
            then_files, then_lines = second.get(room, (0, 0))
            row += f" {then_files} | {then_lines:,} | {then_lines - lines:+,} |"
        rows.append(row)
    return "\n".join(rows)


def extremes(files: dict[str, int]) -> str:
    """Returns the number of short files, and the list of long ones."""
    short = sum(1 for path, size in files.items() if size < SHORT and not path.endswith("__init__.py"))
    long = sorted(((size, path) for path, size in files.items() if size > LONG), reverse=True)
    named = ", ".join(f"{path} {size}" for size, path in long) or "none"
    return f"{short} files of under {SHORT} lines, `__init__.py` not counted; of over {LONG}: {named}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.house.lines", description=__doc__.partition("\n")[0])
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="one commit, or two to compare")
    chosen = parser.parse_args(words)
    if len(chosen.commits) > 2:
        parser.error("two commits at the most")
    found = [sizes(commit) for commit in chosen.commits or [None]]
    print(table(*found))
    for files in found:
        print(f"\n{extremes(files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
