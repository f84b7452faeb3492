"""The `treecast` command."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0, 1 for a failure, 2 for wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    remarks = _hide_secrets(given) if arguments is None else ()
    if given[:1] in (
        ["up"],
        ["coordinator"],
    ):  # separate from the others, so that a daemon never loads their modules
        gc.disable()  # until it serves: collections during start-up take 10 ms
        try:
            return _serve(given[0], given[1:], remarks)
        finally:
            gc.enable()
    from .app import run

    for remark in remarks:
        print(f"treecast: {remark}", file=sys.stderr)
    return run(given)


def _hide_secrets(given: Sequence[str]) -> tuple[str, ...]:
    """Takes secrets out of the process list. Returns what to say of them."""
    if not any("token" in text or "://" in text for text in given):
        return ()
    from .command_line import hide, secrets_of, warning

    found = secrets_of(given)
    return (warning(list(found), hide(list(found.values()))),) if found else ()


def _serve(command: str, arguments: Sequence[str], remarks: Sequence[str]) -> int:
    if command == "up":
        from .up import up

        return up(arguments, remarks)
    from .up import coordinator

    return coordinator(arguments, remarks)
