"""Interest in MQTT topics: announces what this host's clients want and subscribes for other hosts."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable

from treecast.middleware.broker.filtering import any_content
from treecast.middleware.broker.pubsub import AGENTS, PubSub, Subscription, Waiter
from treecast.middleware.model.wishes import ContentFilter, Pattern, Wish, filter_of
from treecast.middleware.relay.interest import Interest
from treecast.middleware.relay.narrowing import narrowed

from .sending import Outbox, RemoteHost
from .shares import Shares, share_of

_QOS = 2  # messages go to other hosts as they were published


class Wishes:
    """The part of `Events` that connects the hub's subscriptions with `Interest`, in both directions."""

    def __init__(
        self,
        hub: PubSub,
        interest: Interest,
        outbox: Outbox,
        remotes: dict[int, RemoteHost],
        shares: Shares,
        agent: bool = False,
    ) -> None:
        """`agent`: this host takes part in the topics that agents use among themselves."""
        self.on_others: Callable[[], None] | None = None  # called when the interest of another host changes
        self._agent = agent
        self._hub = hub
        self._shares = shares
        self._tasks: set[asyncio.Task[None]] = set()
        self._interest = interest
        self._outbox = outbox
        self._remotes = remotes
        self._filters: dict[tuple[int, Pattern], dict[str, None]] = {}  # that a host has announced

    def start(self) -> None:
        """Takes over the interest that exists already, here and at other hosts."""
        for wish in self._hub.wishes:
            self.wanted(wish)
        self._interest.on_change = self._changed
        for host in self._interest.hosts():
            self._changed(host, self._interest.told_by(host), ())

    async def close(self) -> None:
        """Stops. The announced interest stays: persistent sessions still want it."""
        self._interest.on_change = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what this host wants

    def wanted(self, wish: Wish) -> None:
        if not wish.local:
            self._interest.want(wish)

    def unwanted(self, wish: Wish) -> None:
        if not wish.local:
            self._interest.unwant(wish)

    def known(self, waiter: Waiter) -> bool:
        if self._shares.pending:
            task = asyncio.get_running_loop().create_task(self._wait(waiter), name="shared subscriptions")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return False
        if self._interest.known:
            return True

        def confirmed(_: Future[None]) -> None:
            waiter.confirmed()

        self._interest.confirmed(self._interest.version).add_done_callback(confirmed)
        return False

    async def _wait(self, waiter: Waiter) -> None:
        """Waits for homes of shared subscriptions, then for interest to be known.

        A home, be it this host or another one, announces its filter only once it is known as the home.
        """
        await self._shares.settled()
        if not self._interest.known:
            await self._interest.confirmed(self._interest.version)
        waiter.confirmed()

    # --- what others want

    def _changed(self, host: int, added: Iterable[Pattern], removed: Iterable[Pattern]) -> None:
        remote = self._remotes.get(host)
        if remote is None:
            remote = self._remotes[host] = RemoteHost(self._hub.routes.next_serial(), host, self._outbox)
        more, less = list(added), list(removed)
        narrower = self._note(host, more, less)
        for pattern in more:  # first, so that what a host has added takes the place of what it removed
            self._apply(remote, pattern, True)
        for pattern in less:
            self._apply(remote, pattern, False)
        for pattern in narrower.difference(more, less):
            if self._interest.wants(host, pattern):
                self._apply(remote, pattern, True)
        if self.on_others is not None:
            self.on_others()

    def _note(self, host: int, more: list[Pattern], less: list[Pattern]) -> set[Pattern]:
        """Takes note of filters among what a host has announced. Returns the patterns that they are for."""
        found: set[Pattern] = set()
        for pattern in less:
            if (only := narrowed(pattern)) is not None:
                self._filters.get((host, only[1]), {}).pop(only[0], None)
                found.add(only[1])
        for pattern in more:
            if (only := narrowed(pattern)) is not None:
                self._filters.setdefault((host, only[1]), {})[only[0]] = None
                found.add(only[1])
        for pattern in found:
            if not self._filters.get((host, pattern)):
                self._filters.pop((host, pattern), None)
        return found

    def _content(self, host: int, pattern: Pattern) -> ContentFilter | None:
        """Returns what a host wants of a pattern's messages; None if it wants all, or if one of its filters
        cannot be read here. An agent sends all: its messages have a form that only agents know."""
        texts = self._filters.get((host, pattern))
        return any_content(tuple(texts)) if texts and not self._agent else None

    def _apply(self, remote: RemoteHost, pattern: Pattern, wanted: bool) -> None:
        filter, share = filter_of(pattern), share_of(pattern)
        if share is not None and filter_of(pattern[2:]) is not None:
            self._shares.announced(remote.host, share, wanted)
        elif filter is not None and wanted:
            content = self._content(remote.host, pattern)
            self._hub.subscribe(Subscription(remote, filter, _QOS, False, True, content=content))
        elif filter is not None:
            self._hub.unsubscribe(remote, filter)
        elif self._agent:
            self._apply_agents(remote, pattern, wanted)

    def _apply_agents(self, remote: RemoteHost, pattern: Pattern, wanted: bool) -> None:
        """Applies a pattern of another agent. A daemon leaves them out: its MQTT clients may publish to any
        topic that begins with `$`, and no agent must get that."""
        filter = "/".join(pattern).encode()
        if not filter.startswith(AGENTS):
            return
        if wanted:
            self._hub.subscribe(Subscription(remote, filter, _QOS, False, True))
        else:
            self._hub.unsubscribe(remote, filter)
