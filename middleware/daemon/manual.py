"""The part of docs/operating.md that is generated from code: the table of settings.

  .venv/bin/python -m treecast.middleware.daemon.manual docs/operating.md    writes it into the page

A test checks that the page equals the generated one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .settings import Key, keys

BEGIN = "<!-- settings: written by python -m treecast.middleware.daemon.manual -->\n"
END = "<!-- /settings -->\n"


def settings_table() -> str:
    """Returns a Markdown table of all settings: flag (and so key and variable), default, meaning."""
    lines = ["| flag | default | what it is |", "| --- | --- | --- |"]
    lines += [_row(key) for key in keys().values()]
    return "\n".join(lines) + "\n"


def _row(key: Key) -> str:
    default = f"`{key.default_text}`" if key.default_text else ""
    cells = (f"`{key.flag} {key.placeholder}`", default, key.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def updated(page: str) -> str:
    """Returns the page with the present table. Raises ValueError if the page has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{settings_table()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
