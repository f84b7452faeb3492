"""VNF ids: 14 bits, each given to one VNF at a time, in turn, so that a released one is reused late.

The next VNF of an id must start its update numbers above all that were ever used with the id, because
subscribers may still follow them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from treecast.middleware.wire.stare import LAST_VNF
from treecast.middleware.wire.stare_signals import Opened

FIRST_VNF: Final = 1  # 0 means that a Treecast segment follows
_ITEM: Final = struct.Struct(">QIQI?")  # first, host, run, token, held
_KEY: Final = struct.Struct(">cH")


class _Vnf(Struct):
    host: int
    run: int  # of the host
    token: int
    first: int  # its first update number
    held: bool


class VnfIds:
    """The owners of ids. `changes` are (key, value) items for a durable store; None removes an item."""

    def __init__(self, items: Mapping[bytes, bytes] = {}) -> None:
        """`items`: the stored items."""
        self._vnfs: dict[int, _Vnf] = {}
        self._asked: dict[tuple[int, int, int], int] = {}  # (host, run, token): id
        self._next = FIRST_VNF
        self.changes: dict[bytes, bytes | None] = {}
        for key, value in items.items():
            self._load(key, value)

    def _load(self, key: bytes, value: bytes) -> None:
        if len(key) != _KEY.size or len(value) != _ITEM.size:
            return
        vnf = _KEY.unpack(key)[1]
        first, host, run, token, held = _ITEM.unpack(value)
        self._vnfs[vnf] = _Vnf(host, run, token, first, held)
        if held:
            self._asked[host, run, token] = vnf
            self._next = max(self._next, vnf + 1)

    def _changed(self, vnf: int) -> None:
        entry = self._vnfs[vnf]
        item = _ITEM.pack(entry.first, entry.host, entry.run, entry.token, entry.held)
        self.changes[_KEY.pack(b"v", vnf)] = item

    def __len__(self) -> int:
        """Returns the number of ids held."""
        return len(self._asked)

    def host(self, vnf: int) -> int | None:
        """Returns the host of the VNF; None if the id is not held."""
        entry = self._vnfs.get(vnf)
        return entry.host if entry is not None and entry.held else None

    def of_host(self, host: int, but: int | None = None) -> list[int]:
        """Returns the ids of a host, except those of its run `but`."""
        return [vnf for (owner, run, _), vnf in self._asked.items() if owner == host and run != but]

    def open(self, host: int, token: int, run: int = 0) -> Opened:
        """Returns an id for a VNF of a host's run, always the same for the same token. Id 0 if none
        is left.
        """
        known = self._asked.get((host, run, token))
        if known is not None:
            return Opened(token, known, self._vnfs[known].first)
        vnf = self._free()
        if vnf is None:
            return Opened(token, 0, 0)
        before = self._vnfs.get(vnf)
        first = before.first if before is not None else 0
        self._vnfs[vnf] = _Vnf(host, run, token, first, True)
        self._asked[host, run, token] = vnf
        self._next = vnf + 1
        self._changed(vnf)
        return Opened(token, vnf, first)

    def _free(self) -> int | None:
        if len(self._asked) >= LAST_VNF:
            return None
        vnf = self._next
        while True:
            if vnf > LAST_VNF:
                vnf = FIRST_VNF
            entry = self._vnfs.get(vnf)
            if entry is None or not entry.held:
                return vnf
            vnf += 1

    def close(self, vnf: int, end: int) -> bool:
        """Releases the id; its next VNF starts at `end` or above. Returns whether it was held."""
        entry = self._vnfs.get(vnf)
        if entry is None or not entry.held:
            return False
        self._asked.pop((entry.host, entry.run, entry.token), None)
        entry.held = False
        entry.first = max(entry.first, end)
        self._changed(vnf)
        return True

    def check_invariants(self) -> None:
        """Checks consistency, for tests."""
        held = {vnf for vnf, entry in self._vnfs.items() if entry.held}
        assert held == set(self._asked.values())
        assert len(held) == len(self._asked)
        assert all(FIRST_VNF <= vnf <= LAST_VNF for vnf in self._vnfs)
