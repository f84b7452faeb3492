"""Subscriptions, and the targets of a topic: each subscriber once, however many of its filters match.

`Routes` keeps them by topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from treecast.middleware.model.errors import Fault
from treecast.middleware.model.filter_tally import SubscriptionTally, Wishes, wishes_of
from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import ContentFilter, Schemas, Wish
from treecast.middleware.wire.mqtt_headers import headers_of

from ..contents import Contents, KeptFilters
from .message import Message, Subscriber, Waiter
from .trie import TopicTrie

if TYPE_CHECKING:
    from .shared import SharedGroup

_FOREIGN: Final = b"\0"  # before another host's pattern; none has it in itself


class Subscription:
    """One filter of one subscriber, with MQTT's options. `identifier` 0: none.

    `group` is set if it is a member's part of a shared subscription. `ended`: the client has unsubscribed.
    `content`: only the messages that pass it are wanted; None: all.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        filter: bytes,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifier: int = 0,
        retain_handling: int = 0,
        group: SharedGroup | None = None,
        content: ContentFilter | None = None,
    ) -> None:
        self.subscriber = subscriber
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier
        self.retain_handling = retain_handling
        self.group = group
        self.content = content
        self.ended = False

    @property
    def pattern(self) -> bytes:
        """Its filter, marked if it is another host's: those judge what is published here and not what hosts
        feed."""
        return (_FOREIGN if self.subscriber.foreign else b"") + self.filter

    def wants(self, message: Message, schemas: Schemas) -> bool:
        """Whether a message of its topics passes its filter."""
        if self.content is None:
            return True
        topic = message.topic.decode()
        return self.content.passes(topic, record_of(message), schemas.of(topic))


class Target:
    """A subscriber of a topic, with the combined options of its matching subscriptions.

    `parts`: these subscriptions, if one of them has a filter.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        qos: int,
        retain_as_published: bool,
        identifiers: tuple[int, ...],
        local: Target | None,
        no_local: bool,
    ) -> None:
        self.subscriber = subscriber
        self.qos = qos
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers
        self.no_local = no_local
        self.share = b""  # of a member of a shared subscription: `Owed.share`
        self.local = local  # with `no_local`: target of the subscriber's own messages, None: none
        self.plain = not identifiers and not no_local
        self.parts: list[Subscription] | None = None

    @property
    def contents(self) -> list[ContentFilter | None]:
        """Its filters: it wants what passes one of them, and all if None is among them."""
        return [None] if self.parts is None else [one.content for one in self.parts]

    def passing(self, passed: set[ContentFilter]) -> Target | None:
        """Returns the target of a message by the subscriptions whose filters it has passed; None if it has
        passed none."""
        if self.parts is None:
            return self
        kept = [one for one in self.parts if one.content is None or one.content in passed]
        if len(kept) == len(self.parts):
            return self
        return target_of(kept) if kept else None


class Targets:
    """All targets of a topic. Topics with the same subscriptions share one object.

    `apart`: the targets are independent; a target may get several messages before or after the others do.
    Other hosts come first: a run promised to one gets its number in the journal, and durable sessions refer
    to that. `filtered`: some targets have filters, so that each message has targets of its own (`passing`).
    """

    def __init__(self, direct: list[Target], groups: list[SharedGroup]) -> None:
        self.direct = direct
        self.groups = groups
        self.count = len(direct) + len(groups)
        self.filtered = False
        for target in direct:
            if target.parts is not None:
                self.filtered = True
        self.apart = not groups and not self.filtered
        self._contents: Contents | None = None  # of the direct targets, if some are filtered
        self._wishes: Wishes | None = None

    def judged(self, message: Message, schemas: Schemas, tally: SubscriptionTally | None) -> list[Target]:
        """Returns the targets whose filters a message passes, and counts what these did."""
        if tally is None:
            return self.passing(message, schemas)
        began = tally.filters.began()
        found = self.passing(message, schemas)
        wanted = bool(self.groups)
        for target in found:
            wanted = wanted or not target.subscriber.foreign
        tally.filters.judged(tally.origin, self.wishes, message.size, wanted, began)
        return found

    @property
    def wishes(self) -> Wishes:
        """The filters of this host's clients on the topic."""
        found = self._wishes
        if found is None:
            found = self._wishes = self._filters()
        return found

    def _filters(self) -> Wishes:
        listed: set[tuple[str, str]] = set()
        open = bool(self.groups)
        for target in self.direct:
            if target.subscriber.foreign:
                continue
            open = open or target.parts is None
            for one in target.parts or ():
                open = open or one.content is None
                if one.content is not None:
                    listed.add((one.filter.decode(), one.content.text))
        return wishes_of(listed, open)

    def share(self, kept: KeptFilters) -> None:
        """Evaluates the filters together, by what is kept of earlier ones with the same patterns."""
        if self.filtered:
            parts = [one for target in self.direct for one in target.parts or () if one.content is not None]
            patterns = {one.pattern for one in parts}
            self._contents = kept.of(patterns, [target.contents for target in self.direct])

    def passing(self, message: Message, schemas: Schemas) -> list[Target]:
        """Returns the direct targets of one message."""
        contents = self._contents
        if contents is None:
            return self.direct
        passed = contents.passed(message.topic.decode(), record_of(message), schemas)
        found: list[Target] = []
        for place in contents.places(passed):
            one = self.direct[place].passing(passed)
            if one is not None:
                found.append(one)
        if message.retain:
            return self._with_hosts(found)
        return found

    def _with_hosts(self, found: list[Target]) -> list[Target]:
        """Returns the targets with all other hosts: each keeps what its topics retain, for later clients."""
        hosts = [target for target in self.direct if target.subscriber.foreign]
        return hosts + [target for target in found if not target.subscriber.foreign]


def merge(found: Sequence[Subscription]) -> Targets:
    """Returns the targets of the subscriptions that a topic matched."""
    by_subscriber: dict[int, list[Subscription]] = {}
    groups: list[SharedGroup] = []
    for subscription in found:
        if subscription.group is not None:
            groups.append(subscription.group)
        else:
            by_subscriber.setdefault(subscription.subscriber.serial, []).append(subscription)
    targets = [target_of(ones) for ones in by_subscriber.values()]
    foreign = [target for target in targets if target.subscriber.foreign]
    if foreign:
        targets = foreign + [target for target in targets if not target.subscriber.foreign]
    return Targets(targets, groups)


def target_of(ones: list[Subscription]) -> Target:
    """Returns the target of one subscriber's subscriptions: the highest QoS, all identifiers."""
    mine = [one for one in ones if not one.no_local]
    local = _joined(mine, None, False) if mine and len(mine) < len(ones) else None
    found = _joined(ones, local, len(mine) < len(ones))
    for one in ones:
        if one.content is not None:
            found.parts = ones
    return found


def _joined(ones: list[Subscription], local: Target | None, no_local: bool) -> Target:
    return Target(
        ones[0].subscriber,
        max([one.qos for one in ones]),
        max([one.retain_as_published for one in ones]),
        tuple([one.identifier for one in ones if one.identifier]),
        local,
        no_local,
    )


def record_of(message: Message) -> Record:
    """Returns what filters see of a message: payload and properties as those of a record."""
    headers = headers_of(message.properties) if message.properties else ()
    return Record(None, message.payload, headers)


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
        """Returns whether a topic is recorded. Each recorder has its own answer."""
        raise NotImplementedError

    def wanted(self, wish: Wish, wanted: bool) -> None:
        """This host has its first subscription that is this wish, or has lost its last."""

    def known(self, waiter: Waiter) -> bool:
        """Whether everything recorded from now on reaches its subscribers. If not, `waiter` is told when it
        does."""
        return True


class Routes:
    """The subscriptions by filter, and the targets of topics, kept until filters change. At most `limit`
    topics are kept of each kind.

    `known`: targets by topic; all topics in it are legal names. `fed`: the same for `direct`.
    """

    def __init__(self, limit: int) -> None:
        self.known: dict[bytes, Targets] = {}
        self.fed: dict[bytes, Targets] = {}
        self.recorder: Recorder | None = None
        self._recorded = Targets([], [])
        self._recorded_known: dict[bytes, Targets] = {}  # as `known`, for `direct_recorded`
        self._same: dict[tuple[int, ...], Targets] = {}
        self._trie: TopicTrie[Subscription] = TopicTrie()
        self._filters = KeptFilters()
        self._limit = limit
        self._serial = 0

    @property
    def count(self) -> int:
        """The number of subscriptions."""
        return self._trie.count

    def begin_serials(self, above: int) -> None:
        """Makes serials start above `above`, the highest that durable sessions have."""
        self._serial = max(self._serial, above)

    def next_serial(self) -> int:
        """Returns a serial for a new subscriber or a new shared group."""
        self._serial += 1
        return self._serial

    def add(self, filter: bytes, serial: int, subscription: Subscription) -> Subscription | None:
        """Adds the subscription of a subscriber, or of a shared group. Returns what it replaces."""
        before = self._trie.add(filter, serial, subscription)
        if subscription.content is not None:
            self._filters.begin(subscription.pattern)
        if before is not None and before.content is not None:
            self._filters.end(before.pattern)
        self.forget(filter)
        return before

    def remove(self, filter: bytes, serial: int) -> Subscription | None:
        """Removes and returns a subscription."""
        before = self._trie.remove(filter, serial)
        if before is not None:
            if before.content is not None:
                self._filters.end(before.pattern)
            self.forget(filter)
        return before

    def targets(self, topic: bytes) -> Targets:
        """Returns the targets of `topic`, cached until filters change. `topic` has to be a legal name."""
        targets = self.known.get(topic)
        if targets is not None:
            return targets
        targets = self.look_up(topic)
        if len(self.known) >= self._limit:
            self.known.clear()
        self.known[topic] = targets
        return targets

    def look_up(self, topic: bytes) -> Targets:
        """As `targets`, without caching."""
        if self.recorder is not None and self.recorder.records(topic):
            return self._recorded
        return self._targets_of(self._trie.match(topic))

    def _targets_of(self, found: Sequence[Subscription]) -> Targets:
        """Returns the targets of `found`: the same object for the same subscriptions."""
        key = tuple([id(subscription) for subscription in found])
        targets = self._same.get(key)
        if targets is None:
            targets = merge(found)
            targets.share(self._filters)
            self._same[key] = targets
        return targets

    def forget(self, filter: bytes) -> None:
        """Forgets the targets of all topics that `filter` matches."""
        if b"+" in filter or b"#" in filter:
            self.forget_all()
        else:
            self.known.pop(filter, None)
            self.fed.pop(filter, None)
            self._recorded_known.pop(filter, None)
        self._same.clear()

    def use_recorder(self, recorder: Recorder | None) -> None:
        """Sets the recorder. `forget_all` has to be called whenever the recorded topics change."""
        self.recorder = recorder
        target = None if recorder is None else Target(recorder, 2, True, (), None, False)
        self._recorded = Targets([], []) if target is None else Targets([target], [])
        self._recorded.apart = False
        self.forget_all()

    def forget_all(self) -> None:
        """Forgets the targets of all topics."""
        self.known.clear()
        self.fed.clear()
        self._recorded_known.clear()

    def direct(self, topic: bytes) -> Targets:
        """Returns the targets on this host of what another host has published to `topic`. For each shared
        subscription that host has chosen a host itself."""
        targets = self.fed.get(topic)
        if targets is None:
            found = [one for one in self._trie.match(topic) if one.group is None]
            targets = self._kept(self.fed, topic, found)
        return targets

    def direct_recorded(self, topic: bytes) -> Targets:
        """Returns the targets on this host of what has been recorded: each host feeds the shared
        subscriptions that are rooted there."""
        targets = self._recorded_known.get(topic)
        if targets is None:
            found = [one for one in self._trie.match(topic) if one.group is None or one.group.rooted]
            targets = self._kept(self._recorded_known, topic, found)
        return targets

    def _kept(self, routes: dict[bytes, Targets], topic: bytes, found: list[Subscription]) -> Targets:
        targets = self._targets_of([one for one in found if not one.subscriber.foreign])
        if len(routes) >= self._limit:
            routes.clear()
        routes[topic] = targets
        return targets
