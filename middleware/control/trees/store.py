"""The durable state of a tree manager in a file, replaced atomically even at a power loss.

    {"version": 4, "next": 8, "usable": [7],
     "links": {"0": ["alpha", "s1", 1, 1], ...},        by number, with the ports at both ends
     "trees": {"7": [["alpha", "s1"], ["s1", "s2"]]}}   that switches may hold, by id

A link is its two names, so a tree means the same links after any change of the description. A file of an
earlier version has trees by places of links in a description that may have changed since. Its version and ids
are gone on with, its trees are not used: what switches hold of them stays until publishers were told others.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.storage.whole_file import write_whole

from .manager import Kept
from .wires import Wire


class _File(msgspec.Struct):
    """As `Kept`, edges as names."""

    version: int
    next: int
    links: dict[int, tuple[str, str, int, int]]
    trees: dict[int, list[tuple[str, str]]]
    usable: list[int]


class _ByPlaces(msgspec.Struct):
    """A file of an earlier version."""

    version: int
    next: int
    held: dict[int, list[int]]
    usable: list[int]


class FileStore:
    """A store in JSON. `load` raises ValueError for a foreign file, whose content must not be lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.remark = ""  # for the operator, after `load`

    def load(self) -> Kept:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Kept()
        try:
            return self._read(data)
        except (msgspec.DecodeError, ValueError) as error:
            raise ValueError(f"{self._path} is no store of trees: {error}; restore it") from error

    def _read(self, data: bytes) -> Kept:
        if b'"held"' in data:
            old = msgspec.json.decode(data, type=_ByPlaces)
            self.remark = (
                f"{self._path} names links by their places in a file as it was then: its"
                f" {len(old.held)} trees are replaced by new ones"
            )
            return Kept(old.version, old.next)
        found = msgspec.json.decode(data, type=_File)
        links = {number: Wire((a, b), (one, other)) for number, (a, b, one, other) in found.links.items()}
        numbers = {wire.name: number for number, wire in links.items()}
        held = {}
        for number, names in found.trees.items():
            missing = [pair for pair in names if frozenset(pair) not in numbers]
            if missing:
                raise ValueError(
                    f"tree {number} has a link {'-'.join(missing[0])}, which is not among the links"
                )
            held[number] = mask_of([numbers[frozenset(pair)] for pair in names])
        return Kept(found.version, found.next, held, frozenset(found.usable) & held.keys(), links)

    def save(self, kept: Kept) -> None:
        links = {number: (*wire.ends, *wire.ports) for number, wire in kept.links.items()}
        trees = {
            number: [kept.links[edge].ends for edge in members(edges)] for number, edges in kept.held.items()
        }
        data = msgspec.json.encode(_File(kept.version, kept.next, links, trees, sorted(kept.usable)))
        write_whole(self._path, data)


class MemoryStore:
    """A store for tests, and for networks that are programmed again at every start."""

    def __init__(self) -> None:
        self.kept = Kept()

    def load(self) -> Kept:
        return self.kept

    def save(self, kept: Kept) -> None:
        self.kept = kept
