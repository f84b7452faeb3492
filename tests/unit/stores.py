"""Stores written as the turn writes them."""

from __future__ import annotations

from typing import Protocol

from treecast.middleware.broker.turn import Store


class SizedStore(Store, Protocol):
    """A store that tells its size on disk in bytes."""

    @property
    def size(self) -> int: ...


def flushed(store: SizedStore) -> bool:
    """Flushes a store. The turn does not ask one with nothing pending; asked here, it must write nothing."""
    idle, before = not store.failing and not any(store.pending), store.size
    done = store.flush()
    assert not idle or store.size == before, "changes were written that were not pending"
    return done
