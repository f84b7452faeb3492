"""`Reach`: what a hub asks of what lies beyond its host. `cluster.Cluster.events` is one.

What other hosts want is in the hub's own trie: a host that wants something is a `Subscriber` that is
`foreign`, and what it sent is handed on by `PubSub.feed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mypy_extensions import mypyc_attr

from .shared import SharedGroup

if TYPE_CHECKING:
    from .pubsub import PubSub


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Who waits for other hosts, or for the ends of partitions."""

    def confirmed(self) -> None:
        """All have answered, or their time is over. Called once."""
        raise NotImplementedError


class Reach(Protocol):
    """Interest, retained messages and shared subscriptions, over all hosts."""

    @property
    def host(self) -> int:
        """This one's id, in stamps of retained messages; 0 of a host alone."""

    @property
    def buries(self) -> bool:
        """Whether a topic that is emptied has a tombstone, as other hosts may keep what it had."""

    def wanted(self, filter: bytes) -> None:
        """This host has its first subscription to the filter, or is the home of its first shared one."""

    def unwanted(self, filter: bytes) -> None:
        """It has lost its last one."""

    def known(self, waiter: Waiter) -> bool:
        """Whether all hosts know all that is wanted. If not, `waiter` is told when they do."""

    def collect(self, filters: list[bytes], waiter: Waiter) -> bool:
        """Whether all that hosts have retained for `filters` is here. If not, `waiter` is told when it is."""

    def members_changed(self, group: SharedGroup) -> None:
        """Clients of this host have come or gone among the members of a shared subscription, which is to be
        rooted at one host (`PubSub.root_shared`)."""


class NoReach:
    """Implements `Reach` of a host alone: all is known, and every shared subscription is rooted here."""

    host = 0
    buries = False

    def __init__(self, hub: PubSub) -> None:
        self._hub = hub

    def wanted(self, filter: bytes) -> None: ...

    def unwanted(self, filter: bytes) -> None: ...

    def known(self, waiter: Waiter) -> bool:
        return True

    def collect(self, filters: list[bytes], waiter: Waiter) -> bool:
        return True

    def members_changed(self, group: SharedGroup) -> None:
        self._hub.root_shared(group.name, group.filter)
