"""Secrets on the command line are taken out of what `ps` shows to every user of the host.

Linux shows `/proc/PID/cmdline` from the memory of the process: whoever overwrites its own arguments there, as
`setproctitle` does, changes what others see. The Python interpreter has copied them before. Until then, and
in the history of the shell, the secret could be read: files and variables are the better way.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TOKENS: Final = frozenset({"--join-token", "--token"})
_PASSWORD: Final = re.compile(r"://[^/@]*:([^/@]+)@|[?&]password=([^&]+)")
_ARGUMENTS: Final = (
    45  # index of arg_start among the fields of /proc/self/stat after the name; arg_end follows
)


def secrets_of(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the secrets among arguments, by the option that gives them."""
    found: dict[str, str] = {}
    option = ""
    for text in arguments:
        name, equals, value = text.partition("=")
        if not text.startswith("--") or not equals:
            name, value = (text, "") if text.startswith("--") else (option, text)
        option = name if text.startswith("--") and not equals else ""
        if name in TOKENS and value and not value.startswith("@"):
            found[name] = value
        elif password := _PASSWORD.search(value):
            found[name] = password[1] or password[2]
    return found


def hide(secrets: Sequence[str]) -> bool:
    """Overwrites secrets in what the system shows of this process. Returns whether that was possible."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        start, end = int(fields[_ARGUMENTS]), int(fields[_ARGUMENTS + 1])
        shown = ctypes.string_at(start, end - start)
    except (OSError, ValueError, IndexError):  # another system, or no /proc
        return False
    for secret in secrets:
        written = secret.encode(errors="surrogateescape")
        at = shown.find(written)
        while at >= 0:
            ctypes.memset(start + at, ord("x"), len(written))
            at = shown.find(written, at + len(written))
    return True


def warning(options: Sequence[str], hidden: bool) -> str:
    """Returns what to say of secrets that were given as text."""
    until = "until this process hid it" if hidden else "while this process runs"
    return (
        f"{', '.join(options)} gave a secret on the command line, where every user of this host can read it"
        f" {until}: name a file that holds it, as in {options[0]} @FILE, or set a TREECAST_ variable"
    )
