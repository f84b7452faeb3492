"""Types the console blocks of a page into a shell, word for word, and compares what they print.

| on the page | here |
| --- | --- |
| a console block | its commands, behind `$ ` or `# `, are typed; lines below one are its output |
| `...` in a printed line | anything, even nothing; a line of `...` alone leaves lines out |
| a block with `title="shop.py"` | the file of that name, written before anything is typed |
| `<!-- not typed: WHY -->` before a block | it is left out |
| `<!-- typed outside -->` before a block | it is typed where the machine's network can be reached |
| `<!-- repeated -->` before a block | each command is repeated until it prints what the page says |
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0  # seconds until a command is given up; nothing is asserted about it
TRIES = 60  # of a repeated command; each takes most of a second
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}  # a namespace has no other address, whatever the host's name is
END = "--- the end of a command ---"

_BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<head>[^\n]*)\n(?P<text>.*?)^```", re.DOTALL | re.M
)
_TITLE = re.compile(r'title="([^"]+)"')
_PROMPTS = ("# ", "$ ")


@dataclass(slots=True)
class Step:
    """A command, its expected output, and the way to type it."""

    command: str
    printed: list[str] = field(default_factory=list)
    outside: bool = False
    repeated: bool = False


def files(page: str) -> dict[str, str]:
    """Returns the files that a page shows, by name."""
    found = ((_TITLE.search(match["head"]), match["text"]) for match in _BLOCK.finditer(page))
    return {title[1]: text for title, text in found if title}


def steps(page: str) -> list[Step]:
    """Returns the commands of the page's console blocks, each with its expected output."""
    found: list[Step] = []
    for match in _BLOCK.finditer(page):
        note = match["note"] or ""
        if match["head"].split(" ")[0] == "console" and not note.startswith("not typed"):
            found += _typed(match["text"], outside=note == "typed outside", repeated=note == "repeated")
    return found


def _typed(text: str, *, outside: bool, repeated: bool) -> list[Step]:
    found: list[Step] = []
    for line in text.splitlines():
        if line.startswith(_PROMPTS):
            found.append(Step(line[2:], outside=outside, repeated=repeated))
        elif found[-1].command.endswith("\\"):
            found[-1].command += f"\n{line}"
        else:
            found[-1].printed.append(line)
    return found


def shows(printed: str, expected: Sequence[str]) -> bool:
    """Returns whether the expected lines are printed in this order; `...` is anything, even nothing."""
    patterns = [re.escape(" ".join(line.split())).replace(r"\.\.\.", ".*") for line in expected]
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    wanted = [pattern for pattern in patterns if pattern not in ("", ".*")]  # lines may be left out
    return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in wanted)


def namespace() -> list[str]:
    """Returns the command prefix that gives a shell its own network, in which every port is free."""
    return ["unshare", *(["--map-root-user"] if os.geteuid() else []), "--net"]


def can_have_a_namespace() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*namespace(), "true"], capture_output=True, check=False).returncode == 0


class Shell:
    """One bash, as a reader has it open, with the terminal output of each command."""

    def __init__(self, folder: Path, *before: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._bash = subprocess.Popen(
            [*before, "bash"],
            cwd=folder,
            env={**os.environ, "PATH": path, "TREECAST_RUNTIME_DIR": str(folder / "run"), **LOOPBACK},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )

    def type(self, command: str) -> str:
        """Returns the output of a command. Raises AssertionError if it fails or does not end."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\nprintf '%s %s\\n' '{END}' $?\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        given_up = threading.Timer(PATIENCE, self._bash.kill)
        given_up.start()
        for line in self._bash.stdout:
            # a program may end its output without a newline, or with colours
            before, end, code = line.partition(END)
            if end:
                given_up.cancel()
                printed += [before] if before.strip() else []
                assert code.strip() == "0", f"{command}\n{''.join(printed)}"
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"did not end: {command}\n{''.join(printed)}")

    def end(self) -> None:
        """Also ends background processes: the jobs of this shell, and no others."""
        if self._bash.poll() is None:
            try:
                self.type("kill $(jobs -p) 2>/dev/null; wait")
            except (AssertionError, OSError):
                pass
        self._bash.kill()
        self._bash.communicate()


def run(page: Path, inside: Shell, outside: Shell, folder: Path) -> int:
    """Writes the page's files, types its commands, and compares the output; returns the number of
    commands."""
    text = page.read_text("utf-8")
    for name, content in files(text).items():
        (folder / name).write_text(content)
    found = steps(text)
    for step in found:
        shell = outside if step.outside else inside
        printed = shell.type(step.command)
        tries = 1
        while step.repeated and not shows(printed, step.printed) and tries < TRIES:
            printed = shell.type(step.command)
            tries += 1
        wanted = "\n".join(step.printed)
        assert shows(printed, step.printed), f"{step.command}\nprinted\n{printed}\ninstead of\n{wanted}"
    return len(found)
