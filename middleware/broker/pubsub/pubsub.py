"""`PubSub`: the subscriptions and retained messages of this host, and the hand-over of messages.

It reaches other hosts only through `Reach`. An interested host is a `Subscriber` that is `foreign`, with its
filters in the trie; messages that it sent are fed with it as publisher. Messages for other hosts are stored
and sent with the turn in which they came (`broker.turn`).
"""

from __future__ import annotations

from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.filter_tally import SubscriptionTally
from treecast.middleware.model.wishes import ContentFilter, NoSchemas, Schemas, Wish

from .journal import Journal
from .message import NEVER, FeedScan, Message, Run, Subscriber
from .reach import NoReach, Reach
from .retained import RetainedStore
from .settings import PubSubSettings
from .shared import SharedGroups
from .stamps import Stamps, written_at
from .subscriptions import Routes, Subscription, Targets


class PubSub:
    """The publish/subscribe of one host. All calls come from one event loop.

    `routes`: from topics to subscriptions. `shares`: the shared subscriptions. `clock.wall`: the time of day.
    """

    def __init__(self, settings: PubSubSettings, counters: PubSubCounters) -> None:
        self.settings = settings
        self.counters = counters
        self.journal: Journal | None = None
        self.retained = RetainedStore(settings.max_retained)
        self.published = 0  # since the last `fold`, like `unmatched`
        self.unmatched = 0
        self.routes = Routes(settings.route_cache)
        self.clock = Stamps()
        self.shares = SharedGroups(settings, counters, self.routes, self.clock)
        self.reach = self.shares.reach
        self.tally: SubscriptionTally | None = None  # of telemetry; None: off
        self._wishes: dict[Wish, int] = {}  # number of subscriptions
        self._foreign = 0
        self.schemas: Schemas = NoSchemas()  # by which filters read messages

    @property
    def subscriptions(self) -> int:
        """The number of this host's own subscriptions."""
        return self.routes.count - self._foreign

    def use_journal(self, journal: Journal | None) -> None:
        """Keeps in `journal` from now on what is owed; None: nothing is kept."""
        self.journal = self.shares.journal = journal

    def use_reach(self, reach: Reach | None) -> None:
        """Uses `reach` from now on; None: there are no longer other hosts. `reach` has to get the present
        interest itself (`wishes`, `shares`)."""
        self.reach = self.shares.reach = reach if reach is not None else NoReach(self.shares)
        self.clock.host = self.reach.host
        if reach is None:
            for group in self.shares.all():
                group.elsewhere = None

    @property
    def wishes(self) -> list[Wish]:
        """The subscriptions of this host as wishes, each once."""
        return list(self._wishes)

    # --- what other hosts have published, and what has been recorded

    def feed(self, message: Message, publisher: Subscriber | None) -> None:
        """Delivers a message that another host has published."""
        self._feed(message, self.routes.direct(message.topic), publisher)

    def feed_recorded(self, message: Message, publisher: Subscriber | None) -> None:
        """Delivers a message that has been recorded."""
        self._feed(message, self.routes.direct_recorded(message.topic), publisher)

    def _feed(self, message: Message, targets: Targets, publisher: Subscriber | None) -> None:
        if message.retain:
            self.retain(message)
        if message.expires_at != NEVER and message.expires_at <= self.clock.wall:
            self.counters.expired += 1
        elif targets.count:
            self.published += 1
            self._hand_out(message, targets, publisher)

    def feed_run(self, run: Run, publisher: Subscriber | None) -> None:
        """As `feed`, for a run of messages, which may have different targets.

        Raises INVALID_TOPIC at the first invalid topic; the messages before it are delivered.
        """
        data, at, end = run.data, 0, len(run.data)
        scan = FeedScan(self.routes, run.format)
        while at < end:
            scan.look(data, at, end)
            targets = scan.targets
            if scan.count == 0 or targets is None:
                raise TreecastError(Fault.INVALID_TOPIC, "a run has a topic that cannot be published to")
            if targets.count:
                part = scan.run(data, at)
                self.publish_run(part, targets, publisher)
                part.handed_over()
            at = scan.stop

    # --- subscriptions

    def subscribe(self, subscription: Subscription) -> bool:
        """Adds a subscription, or replaces the subscriber's own on the filter. Returns whether it is new."""
        filter = subscription.filter
        before = self.routes.add(filter, subscription.subscriber.serial, subscription)
        new = before is None
        if subscription.subscriber.foreign:
            self._foreign += new
        elif before is None or before.content != subscription.content:
            self._want(filter, subscription.content, 1, subscription.subscriber)
            if before is not None:
                self._want(filter, before.content, -1, subscription.subscriber)
        return new

    def unsubscribe(self, subscriber: Subscriber, filter: bytes) -> bool:
        """Removes a subscription. Returns whether it existed."""
        before = self.routes.remove(filter, subscriber.serial)
        if before is None:
            return False
        if subscriber.foreign:
            self._foreign -= 1
        else:
            self._want(filter, before.content, -1, subscriber)
        return True

    def _want(
        self, filter: bytes, content: ContentFilter | None, change: int, subscriber: Subscriber
    ) -> None:
        wish = Wish.of_mqtt(filter, content)
        if self.tally is not None:
            text = content.text if content is not None else ""
            self.tally.changes.add(subscriber.name, change > 0, filter.decode(), text)
        count = self._wishes.get(wish, 0) + change
        if count:
            self._wishes[wish] = count
        else:
            del self._wishes[wish]
        recorder = self.routes.recorder
        if count == (1 if change > 0 else 0) and recorder is not None:
            recorder.wanted(wish, change > 0)
        if change > 0 and count == 1:
            self.reach.wanted(wish)
        elif count == 0:
            self.reach.unwanted(wish)

    # --- publishing

    def publish(self, message: Message, targets: Targets, publisher: Subscriber | None) -> int:
        """Hands one message to all targets; durable ones record it in the journal. Returns the number of
        targets. `refusal` then says whether it is recorded."""
        recorder = self.routes.recorder
        if recorder is not None:
            recorder.publisher = publisher
            recorder.refusal = None
        self.published += 1
        return self._hand_out(message, targets, publisher)

    @property
    def refusal(self) -> Fault | None:
        """Why the message of the last `publish` was not recorded; None if it was, or needs no recording."""
        recorder = self.routes.recorder
        return recorder.refusal if recorder is not None else None

    def publish_retained(self, message: Message, targets: Targets, publisher: Subscriber | None) -> int:
        """As `publish`, for a message that its topic then retains, unless it is refused."""
        message.stamp = self.clock.next(self.clock.wall)  # other hosts and the record get it too
        count = self.publish(message, targets, publisher) if targets.count else 0
        if count == 0 or self.refusal is None:
            self.retain(message)
        return count

    def _hand_out(self, message: Message, targets: Targets, publisher: Subscriber | None) -> int:
        count = 0
        if targets.filtered:
            direct = targets.judged(message, self.schemas, self.tally)
        else:
            direct = targets.direct
        for target in direct:
            if target.no_local and target.subscriber is publisher:
                local = target.local
                if local is None:
                    continue
                target = local
            target.subscriber.take(message, target)
            count += 1
        apart = count + len(targets.groups) > 1  # each is settled by itself
        for group in targets.groups:
            count += group.take(message.copy() if apart else message)
        return count

    def takes_promised(self, targets: Targets, publisher: Subscriber | None) -> bool:
        """Whether `publish_run` accepts a run of QoS 1: its targets are independent, and not the publisher.

        Recorded topics and those with filters are taken message by message. Shared subscriptions look for a
        ready member for each message. A client's own messages have to be sent between its acknowledgements.
        """
        return targets.apart and publisher not in [target.subscriber for target in targets.direct]

    def publish_run(self, run: Run, targets: Targets, publisher: Subscriber | None) -> None:
        """As `publish`, for a run of QoS 0, or of QoS 1 if `takes_promised` allows it."""
        recorder = self.routes.recorder
        if recorder is not None:
            recorder.publisher = publisher
        if targets.filtered:
            for message in run.messages():
                self._hand_out(message, targets, publisher)
            self.published += run.count
            return
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
        """Adds the counts of the hot path to the counters."""
        if self.published or self.unmatched:
            self.counters.published += self.published
            self.counters.unmatched += self.unmatched
            self.published = self.unmatched = 0

    # --- retained messages

    def retain(self, message: Message) -> bool:
        """Retains a message for its topic, or removes the retained message if the payload is empty.

        A message without a stamp gets one. A message with a stamp comes from another host, and is used only
        if it is later than the one here. Returns False if it is not, or if no more topics can be kept.
        """
        topic = message.topic
        if message.stamp == 0:
            message.stamp = self.clock.next(self.clock.wall)
        else:
            self.clock.seen(message.stamp)
            known = self.retained.get(topic)
            if known is not None and known.stamp >= message.stamp:
                return False
        if not message.payload:
            self._forget_retained(topic)
            if self.reach.buries:
                self._bury(topic, message.stamp)
            return True
        if self.retained.full(topic):
            self.counters.retained_refused += 1
            return False
        self._keep(message)
        return True

    def _keep(self, message: Message) -> None:
        before = self.retained.put(message)
        if self.journal is not None:
            self.journal.retain(message, before)

    def _bury(self, topic: bytes, stamp: int) -> None:
        """Leaves a tombstone for `tombstone_seconds`, in which hosts that missed the removal may return."""
        if self.retained.tombstones >= self.retained.limit:
            self.counters.retained_refused += 1
            return
        ends = max(self.clock.wall, written_at(stamp)) + self.settings.tombstone_seconds
        stone = Message(topic, b"", 0, True, b"", ends)
        stone.stamp = stamp
        self._keep(stone)

    def _forget_retained(self, topic: bytes) -> None:
        before = self.retained.remove(topic)
        if before is not None and self.journal is not None:
            self.journal.unretain(before)

    def sweep(self) -> None:
        """Forgets retained messages that have expired."""
        for message in self.retained.all():
            if message.expires_at != NEVER and message.expires_at <= self.clock.wall:
                if message.payload:
                    self.counters.expired += 1
                self._forget_retained(message.topic)
