"""The P4 programs of `p4/`, wherever the package is installed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import treecast

from ...dataplane.p4 import Program
from ...dataplane.p4files import load_file

FOLDER = Path(treecast.__file__).parent / "p4"


@lru_cache(maxsize=16)
def program(name: str, **defines: str) -> Program:
    """Loads a program by its name without `.p4`."""
    return load_file(FOLDER / f"{name}.p4", defines=defines)
