"""Which of Treecast's modules this process runs compiled."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES


def compiled_modules() -> list[str]:
    """The names of our loaded modules that came from a compiled file, in order."""
    suffixes = tuple(EXTENSION_SUFFIXES)
    return sorted(
        name
        for name, module in list(sys.modules.items())
        if name.startswith("treecast.") and (getattr(module, "__file__", None) or "").endswith(suffixes)
    )
