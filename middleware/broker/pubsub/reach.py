"""`Reach`: a hub's interface to the other hosts. `cluster.Cluster.events` implements it.

The interest of other hosts is in the hub's own trie: an interested host is a `Subscriber` that is `foreign`.
`PubSub.feed` delivers what it sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from treecast.middleware.model.wishes import Wish

from .message import Waiter

if TYPE_CHECKING:
    from .shared import SharedGroup, SharedGroups


class Reach(Protocol):
    """Interest, retained messages and shared subscriptions across all hosts."""

    @property
    def host(self) -> int:
        """This host's id, used in stamps of retained messages; 0 for a standalone host."""

    @property
    def buries(self) -> bool:
        """Whether removed retained messages leave a tombstone, as other hosts may still hold them."""

    def wanted(self, wish: Wish) -> None:
        """This host now has its first subscription that is this wish."""

    def unwanted(self, wish: Wish) -> None:
        """This host has lost its last subscription that is this wish."""

    def known(self, waiter: Waiter) -> bool:
        """Whether all hosts know this host's whole interest. If not, `waiter` is told when they do."""

    def collect(self, filters: list[bytes], waiter: Waiter) -> bool:
        """Whether all retained messages for `filters` are here. If not, `waiter` is told when they are."""

    def begin(self) -> None:
        """Takes over the shared subscriptions of restored sessions. Called before anything is delivered."""

    def grouped(self, group: SharedGroup) -> None:
        """This host has begun to know a shared subscription, which has to be rooted at one host
        (`SharedGroups.root`)."""

    def members_changed(self, group: SharedGroup) -> None:
        """Clients of this host that are members have come, gone, connected or disconnected."""


class NoReach:
    """The `Reach` of a standalone host: all is known, and every shared subscription is rooted here."""

    host = 0
    buries = False

    def __init__(self, shares: SharedGroups) -> None:
        self._shares = shares

    def wanted(self, wish: Wish) -> None: ...

    def unwanted(self, wish: Wish) -> None: ...

    def known(self, waiter: Waiter) -> bool:
        return True

    def collect(self, filters: list[bytes], waiter: Waiter) -> bool:
        return True

    def begin(self) -> None:
        for group in self._shares.all():
            self._shares.root(group.name, group.filter)
            self._shares.changed(group)

    def grouped(self, group: SharedGroup) -> None:
        self._shares.root(group.name, group.filter)

    def members_changed(self, group: SharedGroup) -> None: ...


class Undecided(NoReach):
    """The `Reach` of a starting host: whether there are other hosts, and which shared subscriptions are
    rooted here, is not known yet."""

    def begin(self) -> None: ...

    def grouped(self, group: SharedGroup) -> None: ...
