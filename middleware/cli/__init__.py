"""The `treecast` command."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0, 1 for a failure, 2 for wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (
        ["up"],
        ["coordinator"],
    ):  # separate from the others, so that a daemon never loads their modules
        gc.disable()  # until it serves: collections during start-up take 10 ms
        try:
            return _serve(given[0], given[1:])
        finally:
            gc.enable()
    from .app import run

    return run(given)


def _serve(command: str, arguments: Sequence[str]) -> int:
    if command == "up":
        from .up import up

        return up(arguments)
    from .up import coordinator

    return coordinator(arguments)
