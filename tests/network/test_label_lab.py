"""The commands of docs/label-lab.md, as they stand there, and what the page says that they print."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "label-lab.md"
PATIENCE = 120.0  # seconds until a command is given up; nothing is asserted about it
END = "--- the end of a command ---"
LOOKS = re.compile(r"treecast lab run \S+ \S+ -- treecast streams")  # the page says to repeat these


@dataclass(slots=True)
class Step:
    command: str
    printed: list[str] = field(default_factory=list)


def steps(page: str) -> list[Step]:
    """What begins with `# ` in the page's console blocks, each with what follows it there."""
    found: list[Step] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            if line.startswith(("# ", "$ ")):
                found.append(Step(line))
            else:
                found[-1].printed.append(line)
    return [Step(step.command[2:], step.printed) for step in found if step.command.startswith("# ")]


def shows(printed: str, expected: list[str]) -> bool:
    """Whether the expected lines are there in this order; `...` is anything, even nothing."""
    patterns = [re.escape(" ".join(line.split())).replace(r"\.\.\.", ".*") for line in expected]
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    wanted = [pattern for pattern in patterns if pattern not in ("", ".*")]  # lines left out, or none
    return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in wanted)


class Shell:
    """One bash, as a reader has it open, with what a command prints to its terminal."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )

    def type(self, command: str) -> str:
        """What it printed. AssertionError where it fails, or does not end."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\nprintf '%s %s\\n' '{END}' $?\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        given_up = threading.Timer(PATIENCE, self._bash.kill)
        given_up.start()
        for line in self._bash.stdout:
            if line.startswith(END):
                given_up.cancel()
                assert line.split()[-1] == "0", f"{command}\n{''.join(printed)}"
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"did not end: {command}\n{''.join(printed)}")

    def close(self) -> None:
        self._bash.kill()
        self._bash.communicate()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """In a folder of its own, so that a lab of the same file elsewhere is another lab."""
    for name in ("examples/lab", "p4"):
        shutil.copytree(ROOT / name, tmp_path / name)
    opened = Shell(tmp_path)
    try:
        yield opened
    finally:
        with contextlib.suppress(AssertionError, OSError):
            opened.type("treecast lab down $LAB")  # where the page's own did not come
        opened.close()


def test_the_page_of_the_label_lab_is_true(shell: Shell, require: Callable[[object, str], None]) -> None:
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    found = steps(PAGE.read_text("utf-8"))
    assert sum("treecast " in step.command for step in found) > 10
    for step in found:
        printed = shell.type(step.command)
        tries = 1
        while not shows(printed, step.printed) and LOOKS.match(step.command) and tries < 60:
            printed = shell.type(step.command)  # each takes most of a second
            tries += 1
        assert shows(printed, step.printed), f"{step.command}\nprinted\n{printed}\nand not\n" + "\n".join(
            step.printed
        )
