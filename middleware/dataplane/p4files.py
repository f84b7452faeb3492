"""P4 programs from files: includes are searched beside the including file, then in the given folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from treecast.middleware.dataplane.p4 import Bundle, Program, load_program


def load_file(
    path: Path, *, folders: Sequence[Path] = (), defines: Mapping[str, str] | None = None
) -> Program:
    """Returns the program. Raises OSError or UnicodeDecodeError if the file cannot be read, P4Error if it is
    refused.
    """

    def include(name: str, includer: str) -> tuple[str, str] | None:
        for folder in (Path(includer).parent, *folders):
            found = folder / name
            if found.is_file():
                return str(found), found.read_text(encoding="utf-8")
        return None

    text = path.read_text(encoding="utf-8")
    return load_program(text, str(path), include, dict(defines or {}))


def bundle_file(
    path: Path,
    program: Program,
    *,
    folders: Sequence[Path] = (),
    defines: Mapping[str, str] | None = None,
) -> Bundle:
    """Returns a loaded file with all that it includes, for a switch. Names are those seen from the program's
    folder; folders elsewhere become `include0` and so on.
    """
    top = path.parent.resolve()
    places = {top: ""}
    for number, folder in enumerate(one.resolve() for one in folders):
        inside = folder.is_relative_to(top)
        places.setdefault(folder, folder.relative_to(top).as_posix() if inside else f"include{number}")
    files = {
        _name(Path(file).resolve(), places): "\n".join(lines)
        for file, lines in program.lines.items()
        if not file.startswith("<")  # core.p4 and v1model.p4, which every switch has
    }
    return Bundle(path.name, files, tuple(places.values())[1:], dict(defines or {}))


def _name(file: Path, places: Mapping[Path, str]) -> str:
    for folder, name in places.items():
        if file.is_relative_to(folder):
            return (PurePosixPath(name) / file.relative_to(folder).as_posix()).as_posix()
    return file.name
