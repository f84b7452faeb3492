"""Reads the Markdown pages of this repository: prose, links, code blocks, and the tests that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WIDEST = 110

_FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\S*)")
_LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")  # a link's text may start on the line before
_WHOLE_LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")
_DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_DATED = ("docs/results/", "docs/decisions/", "CHANGELOG.md")
_NO_PROSE = ("|", "<!--", "![")


@dataclass(frozen=True)
class Block:
    """A fenced block: its first line, its language and its text."""

    line: int
    language: str
    text: str


def pages(root: Path = REPOSITORY) -> list[Path]:
    """Returns README, CHANGELOG, everything under docs, and the examples' pages, relative to the
    repository."""
    found = [root / "README.md", root / "CHANGELOG.md"]
    found += [path for folder in ("docs", "examples") for path in sorted((root / folder).rglob("*.md"))]
    return [path.relative_to(root) for path in found if path.is_file()]


def blocks(text: str) -> list[Block]:
    """Returns the fenced blocks of a page."""
    found: list[Block] = []
    fence, start, language, lines = "", 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2]:
                found.append(Block(start, language, "\n".join(lines) + "\n"))
                fence = ""
            else:
                lines.append(line)
        elif match:
            fence, language, start, lines = match[1], match[2], number, []
    return found


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yields the numbered lines outside code: fenced blocks, and lines indented by four after an empty
    line."""
    fence, indented, above = "", False, ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        indented = line.startswith("    ") and (indented or not above.strip())
        above = line
        if fence:
            if match and match[1].startswith(fence) and not match[2]:
                fence = ""
        elif match:
            fence = match[1]
        elif not indented:
            yield number, line


def torn(text: str) -> list[int]:
    """Returns lines of prose that follow an indented code block with no empty line between: a command that
    lost its second half."""
    lines = text.splitlines()
    numbers = {number for number, _ in prose(text)}
    return [
        number
        for number in sorted(numbers)
        if number > 1 and number - 1 not in numbers and lines[number - 2].startswith("    ")
        if lines[number - 1].strip()
    ]


def too_wide(text: str) -> list[int]:
    """Returns lines of prose that are too wide; tables, comments, pictures and single words do not count."""
    return [
        number
        for number, line in prose(text)
        if len(line) > WIDEST and not line.lstrip().startswith(_NO_PROSE) and " " in line.strip("- >*")
    ]


def dated(path: Path, text: str) -> list[int]:
    """Returns lines that date a run. Links to results and decisions may contain dates, and so may code
    spans."""
    if path.as_posix().startswith(_DATED):
        return []
    bare = (
        (number, re.sub(r"`[^`]*`", "", _LINK.sub("", _WHOLE_LINK.sub("", line))))
        for number, line in prose(text)
    )
    return [number for number, line in bare if _DATE.search(line)]


def named_tests(text: str) -> list[tuple[str, str]]:
    """Returns (file, test) of every `file.py::test` in a page; files are relative to tests/ or
    tests/unit/."""
    return _TEST.findall(text)


def missing_test(file: str, test: str, root: Path = REPOSITORY) -> str:
    """Returns a sentence that names a missing file or test; empty if both exist."""
    for folder in ("tests", "tests/unit"):
        path = root / folder / file
        if path.is_file():
            return "" if f"def {test}(" in path.read_text(encoding="utf-8") else f"{path} has no {test}"
    return f"tests/ has no {file}"


def unproven_rows(text: str) -> list[int]:
    """Returns rows of tables with a column `shown by` whose cell there names no test."""
    found, column = list[int](), -1
    for number, line in prose(text):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            column = -1
        elif "shown by" in cells:
            column = cells.index("shown by")
        elif column >= 0 and not set(line) <= set("|-: ") and not named_tests(cells[column]):
            found.append(number)
    return found


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and the site make them."""
    found = set[str]()
    for _, line in prose(text):
        if match := _HEADING.match(line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).lower()
            found.add(re.sub(r"[^\w\- ]", "", words.replace("`", "")).replace(" ", "-"))
    return found


def dead_links(path: Path, text: str, root: Path = REPOSITORY) -> list[str]:
    """Returns relative links of a page whose file or heading does not exist."""
    return [
        f"{path}:{number}: {target}"
        for number, line in prose(text)
        for target in _LINK.findall(re.sub(r"`[^`]*`", "", line))
        if "://" not in target and not target.startswith("mailto:") and not _leads(path, target, root)
    ]


def _leads(path: Path, target: str, root: Path) -> bool:
    file, _, anchor = target.partition("#")
    there = (root / path).parent / file if file else root / path
    if not there.exists():
        return False
    return not anchor or there.suffix != ".md" or anchor in anchors(there.read_text(encoding="utf-8"))


def commands(block: Block) -> list[str]:
    """Returns the commands of a console block without their prompts: `$ `, `# ` or `host-1$ `."""
    return re.findall(r"^(?:[\w-]*[$#]) (.*(?:\\\n.*)*)", block.text, re.MULTILINE)
