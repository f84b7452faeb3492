"""`PubSub`: who wants which topic on this host, what is retained, and the hand-over of messages.

Two seams are for what reaches beyond the host. A host that is interested is a `Subscriber` like any other,
with its filters in the trie; what it sent is published with it as publisher. And whoever announces this
host's interest hears of each filter's first and last subscription (`InterestListener`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from treecast.middleware.model.counters import PubSubCounters

from .message import NEVER, Message, Run, Subscriber
from .retained import RetainedStore
from .settings import PubSubSettings
from .shared import SharedGroup
from .subscriptions import Subscription, Targets, merge
from .trie import TopicTrie

if TYPE_CHECKING:
    from .journal import Journal


@mypyc_attr(allow_interpreted_subclasses=True)
class InterestListener:
    """Hears of filters that this host wants and wants no more. Those of shared subscriptions are marked."""

    def wanted(self, filter: bytes, shared: bool) -> None: ...

    def unwanted(self, filter: bytes, shared: bool) -> None: ...


class PubSub:
    """The publish/subscribe of one host. All calls come from one event loop."""

    def __init__(
        self, settings: PubSubSettings, counters: PubSubCounters, journal: Journal | None = None
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.journal = journal
        self.retained = RetainedStore(settings.max_retained)
        self.interest: InterestListener | None = None
        self.wall = 0.0  # seconds since the Unix epoch, kept by the edge
        self.published = 0  # since the last `fold`, as what follows
        self.unmatched = 0
        self.routes: dict[bytes, Targets] = {}  # by topic; every topic in it is a legal name
        self._same: dict[tuple[int, ...], Targets] = {}
        self._trie = TopicTrie()
        self._filters: dict[bytes, int] = {}
        self._shared: dict[tuple[bytes, bytes], SharedGroup] = {}
        self._serial = 0
        self._stamp = 0

    @property
    def subscriptions(self) -> int:
        return self._trie.count

    @property
    def shared_groups(self) -> int:
        return len(self._shared)

    def begin_serials(self, above: int) -> None:
        """The next serial is higher than `above`, which durable sessions have."""
        self._serial = max(self._serial, above)

    def next_serial(self) -> int:
        """For a new subscriber, or a new shared group."""
        self._serial += 1
        return self._serial

    # --- routing

    def targets(self, topic: bytes) -> Targets:
        """Who wants `topic`, which the caller knows to be a legal name. Remembered until filters change."""
        targets = self.routes.get(topic)
        if targets is not None:
            return targets
        targets = self.look_up(topic)
        if len(self.routes) >= self.settings.route_cache:
            self.routes.clear()
        self.routes[topic] = targets
        return targets

    def look_up(self, topic: bytes) -> Targets:
        """The same, and nothing is remembered of the topic."""
        found = self._trie.match(topic)
        key = tuple([id(subscription) for subscription in found])
        targets = self._same.get(key)
        if targets is None:
            targets = merge(found)
            self._same[key] = targets
        return targets

    def _forget_routes(self, filter: bytes) -> None:
        if b"+" in filter or b"#" in filter:
            self.routes.clear()
        else:
            self.routes.pop(filter, None)
        self._same.clear()

    # --- subscriptions

    def subscribe(self, subscription: Subscription) -> bool:
        """Adds a subscription, or replaces the subscriber's own on the same filter; whether it is new."""
        filter = subscription.filter
        new = self._trie.add(filter, subscription.subscriber.serial, subscription) is None
        self._forget_routes(filter)
        if new:
            self._want(filter, 1, False)
        return new

    def unsubscribe(self, subscriber: Subscriber, filter: bytes) -> bool:
        """Whether there was such a subscription."""
        if self._trie.remove(filter, subscriber.serial) is None:
            return False
        self._forget_routes(filter)
        self._want(filter, -1, False)
        return True

    def subscribe_shared(self, name: bytes, subscription: Subscription) -> bool:
        """The same for a member of a shared subscription."""
        filter = subscription.filter
        group = self._shared.get((name, filter))
        if group is None:
            group = SharedGroup(name, filter, self.next_serial())
            self._shared[name, filter] = group
            self._trie.add(filter, group.serial, group.subscription)
            self._forget_routes(filter)
            self._want(filter, 1, True)
        subscription.group = group
        return group.join(subscription)

    def unsubscribe_shared(self, name: bytes, subscriber: Subscriber, filter: bytes) -> bool:
        group = self._shared.get((name, filter))
        if group is None or not group.leave(subscriber):
            return False
        if group.empty:
            del self._shared[name, filter]
            self._trie.remove(filter, group.serial)
            self._forget_routes(filter)
            self._want(filter, -1, True)
        return True

    def _want(self, filter: bytes, change: int, shared: bool) -> None:
        count = self._filters.get(filter, 0) + change
        if count:
            self._filters[filter] = count
        else:
            del self._filters[filter]
        if self.interest is not None:
            if change > 0 and count == 1:
                self.interest.wanted(filter, shared)
            elif count == 0:
                self.interest.unwanted(filter, shared)

    # --- publishing

    def publish(self, message: Message, targets: Targets, publisher: Subscriber | None) -> int:
        """Hands one message to all targets, and to the journal where one of them is durable; how many."""
        count = 0
        for target in targets.direct:
            if target.no_local and target.subscriber is publisher:
                local = target.local
                if local is None:
                    continue
                target = local
            target.subscriber.take(message, target)
            count += 1
        for group in targets.groups:
            count += group.take(message)
        self.published += 1
        return count

    def publish_run(self, run: Run, targets: Targets, publisher: Subscriber | None) -> None:
        """The same for a run of messages of QoS 0."""
        for target in targets.direct:
            if target.no_local and target.subscriber is publisher:
                local = target.local
                if local is None:
                    continue
                target = local
            target.subscriber.take_run(run, target)
        if targets.groups:
            for message in run.messages():
                for group in targets.groups:
                    group.take(message)
        self.published += run.count

    def fold(self) -> None:
        """Adds what was counted on the hot path to the counters."""
        if self.published or self.unmatched:
            self.counters.published += self.published
            self.counters.unmatched += self.unmatched
            self.published = self.unmatched = 0

    # --- retained messages

    def retain(self, message: Message) -> bool:
        """Keeps a message in its topic, or, where it is empty, forgets what the topic has.

        False where no more topics can be kept.
        """
        self._stamp += 1
        message.stamp = self._stamp
        if not message.payload:
            self._forget_retained(message.topic)
            return True
        if self.retained.full(message.topic):
            self.counters.retained_refused += 1
            return False
        before = self.retained.put(message)
        if self.journal is not None:
            self.journal.retain(message, before)
        return True

    def _forget_retained(self, topic: bytes) -> None:
        before = self.retained.remove(topic)
        if before is not None and self.journal is not None:
            self.journal.unretain(before)

    def sweep(self) -> None:
        """Forgets retained messages that have expired."""
        for message in self.retained.all():
            if message.expires_at != NEVER and message.expires_at <= self.wall:
                self.counters.expired += 1
                self._forget_retained(message.topic)
