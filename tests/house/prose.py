"""Draws docstrings and comments from the tree at random, so that the prose of two states can be compared.

    python -m tests.house.prose --seed 24 --count 40            of all Python files that git tracks
    python -m tests.house.prose --seed 24 --count 40 middleware/wire

Prints Markdown: one item per drawn text with its place. The same seed on another tree draws other texts.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import subprocess
import sys
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Prose:
    """One docstring, or one comment with the comment lines that follow it directly."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        item = f"- `{self.path}:{self.line}`: {' '.join(self.text.split())}"
        return textwrap.fill(
            item, 110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


def docstrings(path: str, source: str) -> Iterator[Prose]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield Prose(path, node.body[0].lineno, text)


def comments(path: str, source: str) -> Iterator[Prose]:
    """Yield comments; lines that hold only a comment and follow one another are one comment."""
    start, last, parts = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row, text = token.start[0], token.string.lstrip("#:").strip()
        alone = token.line.lstrip().startswith("#")
        if parts and alone and row == last + 1:
            parts.append(text)
            last = row
            continue
        if parts:
            yield Prose(path, start, " ".join(parts))
        start, parts = row, [text]
        last = row if alone else 0
    if parts:
        yield Prose(path, start, " ".join(parts))


def tracked(folders: Sequence[str] = (), root: Path = REPOSITORY) -> list[str]:
    """Return the tracked Python files below the folders (all files if none is given), without generated
    ones."""
    command = ["git", "ls-files", "--", *(folders or ["."])]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    return [
        path for path in listed if path.endswith(".py") and "_pb2" not in path and (root / path).is_file()
    ]


def prose(paths: Sequence[str], root: Path = REPOSITORY) -> list[Prose]:
    """Return all docstrings and comments of the files, in the order of the files."""
    found = list[Prose]()
    for path in paths:
        source = (root / path).read_text(encoding="utf-8")
        found += docstrings(path, source)
        found += comments(path, source)
    return found


def draw(found: Sequence[Prose], seed: int, count: int) -> list[Prose]:
    """Return `count` texts, drawn without repetition and sorted by place."""
    chosen = random.Random(seed).sample(list(found), min(count, len(found)))
    return sorted(chosen, key=lambda one: (one.path, one.line))


def main(words: Sequence[str] | None = None) -> int:
    """Print the drawn texts."""
    parser = argparse.ArgumentParser("python -m tests.house.prose", description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="draw only from files below these")
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--count", type=int, default=40)
    chosen = parser.parse_args(words)
    for one in draw(prose(tracked(chosen.folders)), chosen.seed, chosen.count):
        print(one)
    return 0


if __name__ == "__main__":
    sys.exit(main())
