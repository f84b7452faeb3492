"""Faults that last and are found again at each look: said when one begins or changes, and when it ends."""

from __future__ import annotations

from collections.abc import Collection, Hashable


class Standing:
    """The present faults, each with its reason. Threads may share it, each with keys of its own."""

    def __init__(self) -> None:
        self._reasons: dict[Hashable, str] = {}

    def begins(self, key: Hashable, reason: object) -> bool:
        """Notes that `key` is at fault. Returns whether it was not before, or for another reason."""
        said = str(reason)
        if self._reasons.get(key) == said:
            return False
        self._reasons[key] = said
        return True

    def ends(self, key: Hashable) -> bool:
        """Notes that `key` is well. Returns whether it was at fault."""
        return self._reasons.pop(key, None) is not None

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forgets all but `keys`: nobody looks at the others any more."""
        for key in self._reasons.keys() - set(keys):
            del self._reasons[key]
