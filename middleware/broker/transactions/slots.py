"""The transactions of this host's homes in memory, by id and by whole (`parts`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .parts import whole_of
from .state import Transaction


class Slot:
    """A transactional id, its lock, and its transaction (None until the first one is on disk).

    `epoch`: the epoch in which this host is its home; markers carry it. `confirmed`: the store holds the
    loaded state.
    """

    __slots__ = ("confirmed", "epoch", "lock", "transaction")

    def __init__(self, epoch: int, transaction: Transaction | None = None, *, confirmed: bool = True) -> None:
        self.transaction = transaction
        self.epoch = epoch
        self.confirmed = confirmed
        self.lock = asyncio.Lock()


class Slots:
    """All loaded transactional ids."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._homes: dict[str, dict[str, Slot]] = {}  # whole -> itself and its parts

    def get(self, transactional_id: str) -> Slot | None:
        return self._slots.get(transactional_id)

    def put(self, transactional_id: str, slot: Slot) -> Slot:
        self._slots[transactional_id] = slot
        self._homes.setdefault(whole_of(transactional_id), {})[transactional_id] = slot
        return slot

    def made(self, transactional_id: str, epoch: int) -> Slot:
        """Returns the slot, creating it if needed."""
        slot = self._slots.get(transactional_id)
        return self.put(transactional_id, Slot(epoch)) if slot is None else slot

    def pop(self, transactional_id: str) -> None:
        whole = whole_of(transactional_id)
        if self._slots.pop(transactional_id, None) is not None:
            home = self._homes[whole]
            del home[transactional_id]
            if not home:
                del self._homes[whole]

    def wholes(self) -> Sequence[str]:
        return list(self._homes)

    def at_home(self, whole: str) -> Sequence[tuple[str, Slot]]:
        """Returns `whole` and its loaded parts."""
        return list(self._homes.get(whole, {}).items())

    def parts(self, whole: str) -> Sequence[tuple[str, Slot]]:
        return [(name, slot) for name, slot in self.at_home(whole) if name != whole]

    def all(self) -> Sequence[tuple[str, Slot]]:
        return list(self._slots.items())
