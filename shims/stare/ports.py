"""The interface of the middleware behind the face."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from treecast.middleware.wire.stare_signals import Update


class Vnf(Protocol):
    """A receiver of updates."""

    def deliver(self, updates: list[Update]) -> None:
        """Receives updates of subscribed states, in order. Must not fail and not wait."""


class Middleware(Protocol):
    """STARE at this host. Refusals are TreecastErrors."""

    @property
    def largest(self) -> int:
        """Bytes of the largest state."""

    def open(self, vnf: Vnf) -> Awaitable[int]:
        """Returns the VNF's id."""

    def close_vnf(self, vnf: int) -> None: ...

    def state_of(self, levels: Sequence[str]) -> Awaitable[int]:
        """Returns the id of a state by its name."""

    def subscribe(self, vnf: int, state: int) -> Awaitable[bool]:
        """Returns whether a switch has acknowledged it; updates published from then on arrive in any case."""

    def unsubscribe(self, vnf: int, state: int) -> None: ...

    def publish(self, vnf: int, state: int, value: bytes) -> int:
        """Returns the update's number."""
