"""Pictures of the pages are the ones that their programs draw."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.house.prose import REPOSITORY


@pytest.mark.parametrize("program", ["rooms", "sequences"])
def test_pictures_are_drawn_from_their_program(program: str) -> None:
    command = [sys.executable, f"docs/{program}.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
