"""Lists Treecast's modules that this process runs compiled, or the reason why none is.

`setup.py` writes `treecast/built.json` into its build: `{"form": WORD, "detail": TEXT}`. WORD is `compiled`
or a key of `ADVICE`. An editable install has no such file, since its package is the source folder.
"""

from __future__ import annotations

import json
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import msgspec

import treecast

NOTE = "built.json"
COMPILED = "compiled"
EDITABLE = "editable"
AGAIN = "`pip install --force-reinstall --no-deps` of the same source compiles them"

# Advice by the reason why the hot modules are interpreted.
ADVICE = {
    EDITABLE: "`pip install .` without --editable compiles them",
    "pure": f"without TREECAST_PURE, {AGAIN}",
    "no-compiler": f"once gcc and Python's headers are installed (on Debian: gcc, python3-dev), {AGAIN}",
    "no-headers": f"once Python's headers are installed (on Debian: python3-dev), {AGAIN}",
    "no-mypyc": "install without --no-build-isolation, so that pip brings mypyc",
    "refused": "install without --no-build-isolation, so that pip brings the pinned mypy and types",
    "c-failed": "`pip install -v` of the same source shows what the C compiler said; please report it",
}


class Built(msgspec.Struct, frozen=True):
    """How the package was built: `compiled` or a key of `ADVICE`, and details from the build."""

    form: str
    detail: str = ""


def read_note(folder: Path) -> Built:
    """Returns the build's note in the package's folder."""
    try:
        found = msgspec.convert(json.loads((folder / NOTE).read_text()), Built)
    except FileNotFoundError:
        return Built(EDITABLE, "this is an editable install")
    except (OSError, ValueError) as error:
        return Built("unknown", f"{NOTE} cannot be read ({error})")
    return found


def compiled_modules() -> list[str]:
    """Returns the names of the package's modules that are installed compiled, sorted.

    It counts modules that are not loaded too: a daemon loads faces on demand, and all commands must agree.
    """
    return list(_compiled_in(treecast.__path__[0]))


@cache
def _compiled_in(folder: str) -> tuple[str, ...]:
    suffixes = tuple(EXTENSION_SUFFIXES)
    found: list[str] = []
    for place, _, names in os.walk(folder, followlinks=True):
        room = Path("treecast", Path(place).relative_to(folder)).parts
        found += (".".join((*room, name.split(".")[0])) for name in names if name.endswith(suffixes))
    return tuple(sorted(found))


def why_interpreted(built: Built | None = None) -> str:
    """Returns, in one line, why the hot modules are interpreted and what to do. For use when none is
    compiled.
    """
    built = read_note(Path(treecast.__path__[0])) if built is None else built
    if built.form == COMPILED:
        return f"they were compiled, and this Python does not load them; with it, {AGAIN}"
    return "; ".join(part for part in (built.detail, ADVICE.get(built.form, AGAIN)) if part)
