"""A coordinator waits for hosts after its start, before it gives out anything. Pure.

Its store may have come back old, and then hosts know of topics, homes and ids that it would give out again.
So it first hears from every host that was attached how far that host's view is; and while a host is about to
hand in a view that the store lacks, nothing is given out either. Both have a bound: a host may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .cluster_state import ClusterState
from .commands import (
    AdoptView,
    Attach,
    Command,
    Detach,
    Expire,
    GiveUp,
    PutEnds,
    PutEvents,
    PutInterest,
    Renew,
    SkipNumbers,
    TakeProducerIds,
)

# These give out nothing that a later state of the store can have given out as well. Producer ids begin above
# those of all earlier starts.
_FREE: Final = (
    Renew,
    Detach,
    Expire,
    GiveUp,
    PutEnds,
    PutEvents,
    PutInterest,
    TakeProducerIds,
    AdoptView,
    SkipNumbers,
)
COMING_SECONDS: Final = (
    4.0  # in which a host that runs, and was not attached, has called: it tries this often
)
HAND_IN_SECONDS: Final = 3.0  # without a page, after which another host may hand in its view


def waits(state: ClusterState, command: Command) -> bool:
    """Returns whether a command has to wait until the hosts were heard."""
    if isinstance(command, Attach):
        return state.host(command.name) is None
    return not isinstance(command, _FREE)


class Hearing:
    """The hosts that have yet to tell how far their views are. Times in seconds of any steady clock."""

    def __init__(self, hosts: Iterable[int], now: float, bound: float) -> None:
        """`hosts`: ids of those that were attached. `bound`: how long they, and a view, are waited for."""
        self.unheard = set(hosts)
        self._until = now + bound
        self.bound = bound
        self._coming: set[int] = set()
        self._coming_until = now
        self._view_until = now  # while a host says that it knows more than the store
        self._by = ""  # who hands in a view
        self._by_until = now

    def heard(self, host_id: int) -> bool:
        """Notes that a host has nothing that the store lacks. Returns whether it was the last one."""
        awaited = host_id in self.unheard or host_id in self._coming
        self.unheard.discard(host_id)
        if host_id in self._coming:
            self._coming.clear()
        return awaited and not self.unheard and not self._coming

    def hear_any(self, hosts: Iterable[int], now: float) -> None:
        """Waits for a first one of `hosts` as well, which may have come after the store's state."""
        self._coming, self._coming_until = set(hosts), now + min(COMING_SECONDS, self.bound)

    def wanted(self, name: str, now: float) -> bool:
        """Notes that host `name` knows more than the store. Returns whether it is its turn to hand in its
        view: one host does at a time.
        """
        self._view_until = now + self.bound
        if self._by not in ("", name) and now < self._by_until:
            return False
        self._by, self._by_until = name, now + HAND_IN_SECONDS
        return True

    def handed_in(self) -> None:
        """Notes that a view was adopted, or is not needed any longer."""
        self._coming.clear()
        self._by, self._view_until = "", 0.0

    def left(self, now: float) -> float:
        """Returns for how many seconds nothing is given out; 0 if everybody was heard."""
        for_hosts = self._until - now if self.unheard else 0.0
        for_any = self._coming_until - now if self._coming else 0.0
        return max(for_hosts, for_any, self._view_until - now, 0.0)
