"""P4 programs from files: includes beside the file that includes, then in the folders given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.bundle import Bundle, bundle_of
from treecast.middleware.dataplane.p4.frontend import load_program


def load_file(
    path: Path, *, folders: Sequence[Path] = (), defines: Mapping[str, str] | None = None
) -> ir.Program:
    """OSError or UnicodeDecodeError where the file cannot be read, P4Error where the program is refused."""

    def include(name: str, includer: str) -> tuple[str, str] | None:
        for folder in (Path(includer).parent, *folders):
            found = folder / name
            if found.is_file():
                return str(found), found.read_text(encoding="utf-8")
        return None

    text = path.read_text(encoding="utf-8")
    return load_program(text, str(path), include, dict(defines or {}))


def bundle_file(path: Path, program: ir.Program, defines: Mapping[str, str] | None = None) -> Bundle:
    """A loaded file with all that it includes, for a switch."""
    return bundle_of(program, str(path), dict(defines or {}))
