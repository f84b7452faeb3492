"""`PubSub`: the subscriptions and retained messages of this host, and the hand-over of messages.

It reaches other hosts only through `Reach`. An interested host is a `Subscriber` that is `foreign`, with its
filters in the trie; messages that it sent are fed with it as publisher. Messages for other hosts are stored
and sent with the turn in which they came (`broker.turn`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.wishes import ContentFilter, Wish

from .message import NEVER, Creditor, FeedScan, Message, Owed, Run, Subscriber
from .reach import NoReach, Reach, Waiter
from .retained import RetainedStore
from .settings import PubSubSettings
from .shared import RECORD, SharedGroup
from .stamps import Stamps, written_at
from .subscriptions import Subscription, Target, Targets, merge
from .trie import TopicTrie

if TYPE_CHECKING:
    from .journal import Journal


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder(Subscriber):
    """A subscriber that takes messages to recorded topics, in place of the topics' subscribers.

    Those get each message once it has been recorded (`PubSub.feed`). `publisher`: the publisher of what it
    takes. `lane`: the part of that publisher whose messages have to stay in order; b"" for all of it.
    `refusal`: why the last message was not taken; None if it was. `PubSub.publish` resets it.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self.publisher: Subscriber | None = None
        self.lane = b""
        self.refusal: Fault | None = None

    def records(self, topic: bytes) -> bool:
        raise NotImplementedError

    def wanted(self, wish: Wish, wanted: bool) -> None:
        """This host has its first subscription that is this wish, or has lost its last."""

    def known(self, waiter: Waiter) -> bool:
        """Whether everything recorded from now on reaches its subscribers. If not, `waiter` is told when it
        does."""
        return True


class PubSub:
    """The publish/subscribe of one host. All calls come from one event loop."""

    def __init__(
        self, settings: PubSubSettings, counters: PubSubCounters, journal: Journal | None = None
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.journal = journal
        self.retained = RetainedStore(settings.max_retained)
        self._recorder: Recorder | None = None
        self._recorded = Targets([], [])
        self.wall = 0.0  # seconds since the Unix epoch, kept by the edge
        self.published = 0  # since the last `fold`, like `unmatched`
        self.unmatched = 0
        self.routes: dict[bytes, Targets] = {}  # by topic; all topics in it are legal names
        self.fed_routes: dict[bytes, Targets] = {}  # the same for `direct`
        self._recorded_routes: dict[bytes, Targets] = {}  # the same for `direct_recorded`
        self._same: dict[tuple[int, ...], Targets] = {}
        self._trie: TopicTrie[Subscription] = TopicTrie()
        self._wishes: dict[Wish, int] = {}  # number of subscriptions
        self._foreign = 0
        self._shared: dict[bytes, SharedGroup] = {}  # by `NAME/FILTER`
        self._handing: deque[tuple[Owed, Creditor | None]] = deque()
        self._hands = False
        self._serial = 0
        self.stamps = Stamps()
        self._reach: Reach = NoReach(self)

    @property
    def subscriptions(self) -> int:
        """The number of this host's own subscriptions."""
        return self._trie.count - self._foreign

    @property
    def recorder(self) -> Recorder | None:
        return self._recorder

    @property
    def reach(self) -> Reach:
        return self._reach

    def use_reach(self, reach: Reach | None) -> None:
        """Uses `reach` from now on; None: there are no longer other hosts. `reach` has to get the present
        interest itself (`wishes`, `groups`)."""
        self._reach = reach if reach is not None else NoReach(self)
        self.stamps.host = self._reach.host
        if reach is None:
            for group in self._shared.values():
                group.elsewhere = None

    @property
    def wishes(self) -> list[Wish]:
        """The subscriptions of this host as wishes, each once."""
        return list(self._wishes)

    @property
    def shared_groups(self) -> int:
        return len(self.shared())

    def begin_serials(self, above: int) -> None:
        """Makes serials start above `above`, the highest that durable sessions have."""
        self._serial = max(self._serial, above)

    def next_serial(self) -> int:
        """Returns a serial for a new subscriber or a new shared group."""
        self._serial += 1
        return self._serial

    # --- routing

    def targets(self, topic: bytes) -> Targets:
        """Returns the targets of `topic`, cached until filters change. `topic` has to be a legal name."""
        targets = self.routes.get(topic)
        if targets is not None:
            return targets
        targets = self.look_up(topic)
        if len(self.routes) >= self.settings.route_cache:
            self.routes.clear()
        self.routes[topic] = targets
        return targets

    def look_up(self, topic: bytes) -> Targets:
        """As `targets`, without caching."""
        if self._recorder is not None and self._recorder.records(topic):
            return self._recorded
        return self._targets_of(self._trie.match(topic))

    def _targets_of(self, found: Sequence[Subscription]) -> Targets:
        """Returns the targets of `found`: the same object for the same subscriptions."""
        key = tuple([id(subscription) for subscription in found])
        targets = self._same.get(key)
        if targets is None:
            targets = merge(found)
            self._same[key] = targets
        return targets

    def _forget_routes(self, filter: bytes) -> None:
        if b"+" in filter or b"#" in filter:
            self.forget_recorded()
        else:
            self.routes.pop(filter, None)
            self.fed_routes.pop(filter, None)
            self._recorded_routes.pop(filter, None)
        self._same.clear()

    # --- recorded topics

    def use_recorder(self, recorder: Recorder | None) -> None:
        """Sets the recorder. `forget_recorded` has to be called whenever the recorded topics change."""
        self._recorder = recorder
        target = None if recorder is None else Target(recorder, 2, True, (), None, False)
        self._recorded = Targets([], []) if target is None else Targets([target], [])
        self._recorded.apart = False
        self.forget_recorded()

    def forget_recorded(self) -> None:
        self.routes.clear()
        self.fed_routes.clear()
        self._recorded_routes.clear()

    def direct(self, topic: bytes) -> Targets:
        """Returns the targets on this host of what another host has published to `topic`. For each shared
        subscription that host has chosen a host itself."""
        targets = self.fed_routes.get(topic)
        if targets is None:
            found = [one for one in self._trie.match(topic) if one.group is None]
            targets = self._kept(self.fed_routes, topic, found)
        return targets

    def direct_recorded(self, topic: bytes) -> Targets:
        """Returns the targets on this host of what has been recorded: each host feeds the shared
        subscriptions that are rooted there."""
        targets = self._recorded_routes.get(topic)
        if targets is None:
            found = [one for one in self._trie.match(topic) if one.group is None or one.group.rooted]
            targets = self._kept(self._recorded_routes, topic, found)
        return targets

    def _kept(self, routes: dict[bytes, Targets], topic: bytes, found: list[Subscription]) -> Targets:
        targets = self._targets_of([one for one in found if not one.subscriber.foreign])
        if len(routes) >= self.settings.route_cache:
            routes.clear()
        routes[topic] = targets
        return targets

    def feed(self, message: Message, publisher: Subscriber | None) -> None:
        """Delivers a message that another host has published."""
        self._feed(message, self.direct(message.topic), publisher)

    def feed_recorded(self, message: Message, publisher: Subscriber | None) -> None:
        """Delivers a message that has been recorded."""
        self._feed(message, self.direct_recorded(message.topic), publisher)

    def _feed(self, message: Message, targets: Targets, publisher: Subscriber | None) -> None:
        if message.retain:
            self.retain(message)
        if message.expires_at != NEVER and message.expires_at <= self.wall:
            self.counters.expired += 1
        elif targets.count:
            self.published += 1
            self._hand_out(message, targets, publisher)

    def feed_run(self, run: Run, publisher: Subscriber | None) -> None:
        """As `feed`, for a run of messages, which may have different targets.

        Raises INVALID_TOPIC at the first invalid topic; the messages before it are delivered.
        """
        data, at, end = run.data, 0, len(run.data)
        scan = FeedScan(self, run.format)
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
        before = self._trie.add(filter, subscription.subscriber.serial, subscription)
        self._forget_routes(filter)
        new = before is None
        if subscription.subscriber.foreign:
            self._foreign += new
        elif before is None or before.content != subscription.content:
            self._want(filter, subscription.content, 1)
            if before is not None:
                self._want(filter, before.content, -1)
        return new

    def unsubscribe(self, subscriber: Subscriber, filter: bytes) -> bool:
        """Removes a subscription. Returns whether it existed."""
        before = self._trie.remove(filter, subscriber.serial)
        if before is None:
            return False
        self._forget_routes(filter)
        if subscriber.foreign:
            self._foreign -= 1
        else:
            self._want(filter, before.content, -1)
        return True

    # --- shared subscriptions

    def subscribe_shared(self, name: bytes, subscription: Subscription) -> bool:
        """As `subscribe`, for a member of a shared subscription."""
        group = self._group(name, subscription.filter)
        subscription.group = group
        new = group.join(subscription)
        self.share_changed(group)
        if new and not subscription.subscriber.foreign:
            self._reach.members_changed(group)
        return new

    def unsubscribe_shared(self, name: bytes, subscriber: Subscriber, filter: bytes) -> bool:
        group = self._shared.get(name + b"/" + filter)
        if group is None or not group.leave(subscriber):
            return False
        self.share_changed(group)
        if not subscriber.foreign:
            self._reach.members_changed(group)
        return True

    def member_moved(self, group: SharedGroup) -> None:
        """The client of a member on this host has connected or disconnected."""
        self.share_changed(group)
        self._reach.members_changed(group)

    def groups(self) -> list[SharedGroup]:
        """All shared subscriptions that this host knows of."""
        return list(self._shared.values())

    def shared(self) -> list[SharedGroup]:
        """The shared subscriptions that have members or their home on this host."""
        return [group for group in self._shared.values() if not group.empty]

    def group(self, name: bytes, filter: bytes) -> SharedGroup | None:
        return self._shared.get(name + b"/" + filter)

    def _group(self, name: bytes, filter: bytes) -> SharedGroup:
        group = self._shared.get(name + b"/" + filter)
        if group is None:
            group = SharedGroup(name, filter, self.next_serial(), self)
            self._shared[group.share] = group
            self._reach.grouped(group)
        return group

    def share_known(self, name: bytes, filter: bytes) -> None:
        """Other hosts have members of a shared subscription, or no longer have."""
        self.share_changed(self._group(name, filter))

    def share_changed(self, group: SharedGroup) -> None:
        """Members have changed: lists the group among the filters as long as there are any on any host, and
        gives away what waits. Forgets the group if there are none."""
        group.refresh()
        listed = not group.empty or group.beyond
        if listed:
            self._list(group)
            group.pump()
        else:
            self.unroot_shared(group.name, group.filter)
            self._unlist(group)
            group.drop()
            self._shared.pop(group.share, None)

    def _list(self, group: SharedGroup) -> None:
        if not group.listed:
            group.listed = True
            self._trie.add(group.filter, group.serial, group.subscription)
            self._forget_routes(group.filter)
            if group.rooted:
                self._tell_recorder(group.filter, True)

    def _unlist(self, group: SharedGroup) -> None:
        if group.listed:
            group.listed = False
            self._trie.remove(group.filter, group.serial)
            self._forget_routes(group.filter)

    def root_shared(self, name: bytes, filter: bytes) -> None:
        """Makes this host the home: it gives messages to the members of all hosts."""
        group = self._shared.get(name + b"/" + filter)
        if group is not None and not group.rooted:
            group.rooted = True
            self._forget_routes(filter)
            self._tell_recorder(filter, True)
            group.pump()

    def unroot_shared(self, name: bytes, filter: bytes) -> None:
        """Records that another host is the home."""
        group = self._shared.get(name + b"/" + filter)
        if group is not None and group.rooted:
            group.rooted = False
            self._forget_routes(filter)
            self._tell_recorder(filter, False)

    def _tell_recorder(self, filter: bytes, wanted: bool) -> None:
        if self._recorder is not None:
            self._recorder.wanted(Wish.of_mqtt(filter), wanted)

    def hand_to_shared(self, name: bytes, filter: bytes, message: Message) -> None:
        """Takes a message from another host for one member, here or, if there is none, elsewhere."""
        group = self._group(name, filter)
        group.hand_on(message)
        self._tidy(group)

    def pump_shared(self, group: SharedGroup) -> None:
        """Gives away what waits for a shared subscription: more hosts may be reached now."""
        group.pump()
        self._tidy(group)

    def _tidy(self, group: SharedGroup) -> None:
        """Forgets a group without members whose messages have gone to other hosts."""
        if not group.listed and not group.waiting:
            group.drop()
            self._shared.pop(group.share, None)

    def share_creditor(self, share: bytes) -> Creditor | None:
        """Returns the record that owes a message given to a client whose session ends with its connection;
        None if a kill of this host leaves no member that could be given it instead."""
        group = self._shared.get(share)
        return group.creditor() if group is not None and group.lasting else None

    def others_online(self, share: bytes, subscriber: Subscriber) -> bool:
        """Whether another member of the shared subscription than `subscriber` can be given its messages."""
        group = self._shared.get(share)
        return group is not None and group.others_online(subscriber)

    def hand_on(self, owed: Owed, creditor: Creditor | None) -> None:
        """Gives a message of a shared subscription to another member, as `owed.share` says.

        `creditor`: the record that owes it now, if it is settled there with that.
        """
        self._handing.append((owed, creditor))
        if self._hands:  # a member was disconnected while it was given a message
            return
        self._hands = True
        try:
            while self._handing:
                self._hand_on(*self._handing.popleft())
        finally:
            self._hands = False

    def _hand_on(self, owed: Owed, creditor: Creditor | None) -> None:
        message = owed.message
        group = self._shared.get(owed.share)
        if group is None or not group.listed:
            self.counters.shares_gone += 1
        else:
            lapsed = message.number and not message.waiting  # the journal may have dropped it
            self.counters.handed_on += group.hand_on(message.copy() if lapsed else message)
        if creditor is not None and self.journal is not None and creditor.owed.get(message.number) is owed:
            self.journal.settled(creditor, message)

    def restore_shared(self) -> None:
        """Takes over what the journal owes to shared subscriptions. Call it before sessions are restored."""
        if self.journal is None:
            return
        for record in list(self.journal.records.values()):
            if record.client_id.startswith(RECORD):
                name, _, filter = record.client_id[len(RECORD) :].encode().partition(b"/")
                self._group(name, filter).restore(record)

    def _want(self, filter: bytes, content: ContentFilter | None, change: int) -> None:
        wish = Wish.of_mqtt(filter, content)
        count = self._wishes.get(wish, 0) + change
        if count:
            self._wishes[wish] = count
        else:
            del self._wishes[wish]
        if count == (1 if change > 0 else 0) and self._recorder is not None:
            self._recorder.wanted(wish, change > 0)
        if change > 0 and count == 1:
            self._reach.wanted(wish)
        elif count == 0:
            self._reach.unwanted(wish)

    # --- publishing

    def publish(self, message: Message, targets: Targets, publisher: Subscriber | None) -> int:
        """Hands one message to all targets; durable ones record it in the journal. Returns the number of
        targets. `refusal` then says whether it is recorded."""
        if self._recorder is not None:
            self._recorder.publisher = publisher
            self._recorder.refusal = None
        self.published += 1
        return self._hand_out(message, targets, publisher)

    @property
    def refusal(self) -> Fault | None:
        """Why the message of the last `publish` was not recorded; None if it was, or needs no recording."""
        return self._recorder.refusal if self._recorder is not None else None

    def publish_retained(self, message: Message, targets: Targets, publisher: Subscriber | None) -> int:
        """As `publish`, for a message that its topic then retains, unless it is refused."""
        message.stamp = self.stamps.next(self.wall)  # other hosts and the record get it too
        count = self.publish(message, targets, publisher) if targets.count else 0
        if count == 0 or self.refusal is None:
            self.retain(message)
        return count

    def _hand_out(self, message: Message, targets: Targets, publisher: Subscriber | None) -> int:
        count = 0
        direct = targets.passing(message).direct if targets.filtered else targets.direct
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
        if self._recorder is not None:
            self._recorder.publisher = publisher
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
            message.stamp = self.stamps.next(self.wall)
        else:
            self.stamps.seen(message.stamp)
            known = self.retained.get(topic)
            if known is not None and known.stamp >= message.stamp:
                return False
        if not message.payload:
            self._forget_retained(topic)
            if self._reach.buries:
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
        ends = max(self.wall, written_at(stamp)) + self.settings.tombstone_seconds
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
            if message.expires_at != NEVER and message.expires_at <= self.wall:
                if message.payload:
                    self.counters.expired += 1
                self._forget_retained(message.topic)
