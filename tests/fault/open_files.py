"""Programs that may open few files."""

from __future__ import annotations

import sys
from pathlib import Path


def with_open_files(folder: Path, most: int, python: str = sys.executable) -> Path:
    """Writes a program that runs the interpreter `python` with so many open files, and returns its path."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nulimit -n {most}\nexec {python} "$@"\n')
    program.chmod(0o755)
    return program
