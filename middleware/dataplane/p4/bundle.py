"""A program as one byte string, the device config that a controller sends to a switch. Pure.

It is either the P4 source itself (UTF-8), if it includes only core.p4 and v1model.p4, or JSON with every
file:

    {"format": "treecast-p4/1", "name": "router.p4", "files": {"router.p4": "...", "headers.p4": "..."},
     "defines": {"PORTS": "4"}}

`name` is the compiled file. A quoted or angled include is searched beside the including file, then by its
name alone. `treecast p4 check --device-config FILE` writes it.
"""

from __future__ import annotations

import posixpath
from typing import Final

import msgspec

from . import ir
from .frontend import load_program

FORMAT: Final = "treecast-p4/1"


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program's files by name, and its external definitions."""

    name: str
    files: dict[str, str]
    folders: tuple[str, ...] = ()
    defines: dict[str, str] = {}
    format: str = FORMAT

    def include(self, name: str, includer: str) -> tuple[str, str] | None:
        """Returns the file of that name, seen from another."""
        for folder in (posixpath.dirname(includer), *self.folders, ""):
            path = posixpath.normpath(posixpath.join(folder, name))
            if path in self.files:
                return path, self.files[path]
        return None

    def load(self) -> ir.Program:
        """Loads the program. Raises P4Error if it is refused."""
        return load_program(self.files[self.name], self.name, self.include, self.defines)

    def encode(self) -> bytes:
        """Returns JSON, the same bytes for the same program."""
        return msgspec.json.encode(self, order="deterministic")


def read(config: bytes) -> Bundle:
    """Parses a bundle. Raises ValueError if the bytes are neither form. Any JSON object must have our
    format.
    """
    if config.lstrip()[:1] == b"{":
        try:
            bundle = msgspec.json.decode(config, type=Bundle)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"this JSON is no {FORMAT} (bmv2's JSON cannot be run here): {error}") from error
        if bundle.format != FORMAT:
            raise ValueError(f"the format is {bundle.format!r}, not {FORMAT}")
        if bundle.name not in bundle.files:
            raise ValueError(f"the file {bundle.name!r} is not among those given")
        return bundle
    try:
        return Bundle("program.p4", {"program.p4": config.decode()})
    except UnicodeDecodeError as error:
        raise ValueError(f"it is neither P4 source in UTF-8 nor {FORMAT}: {error}") from error


def load(config: bytes) -> ir.Program:
    """Returns the program of a device config. Raises ValueError or P4Error for an invalid one."""
    if not config.strip():
        raise ValueError("it is empty")
    return read(config).load()
