"""The durable state of a tree manager in a file, replaced atomically even at a power loss."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from treecast.middleware.routing.bits import mask_of, members

from .manager import Kept


class _File(msgspec.Struct):
    """As `Kept`, edges as lists."""

    version: int
    next: int
    held: dict[int, list[int]]
    usable: list[int]


class FileStore:
    """A store in JSON. `load` raises ValueError for a foreign file, whose content must not be lost."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Kept:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Kept()
        try:
            found = msgspec.json.decode(data, type=_File)
        except msgspec.DecodeError as error:
            raise ValueError(f"{self._path} is no store of trees: {error}; restore it") from error
        held = {number: mask_of(edges) for number, edges in found.held.items()}
        return Kept(found.version, found.next, held, frozenset(found.usable))

    def save(self, kept: Kept) -> None:
        held = {number: members(edges) for number, edges in kept.held.items()}
        data = msgspec.json.encode(_File(kept.version, kept.next, held, sorted(kept.usable)))
        written = self._path.with_suffix(".new")
        with written.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class MemoryStore:
    """A store for tests, and for networks that are programmed again at every start."""

    def __init__(self) -> None:
        self.kept = Kept()

    def load(self) -> Kept:
        return self.kept

    def save(self, kept: Kept) -> None:
        self.kept = kept
