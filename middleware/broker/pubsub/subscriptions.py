"""Subscriptions, and the targets of a topic: each subscriber once, however many of its filters match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import ContentFilter
from treecast.middleware.wire.mqtt_headers import headers_of

from .message import Message, Subscriber

if TYPE_CHECKING:
    from .shared import SharedGroup


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

    def wants(self, message: Message) -> bool:
        """Whether a message of its topics passes its filter."""
        return self.content is None or self.content.passes(message.topic.decode(), record_of(message))


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

    def passing(self, topic: str, record: Record) -> Target | None:
        """Returns the target of a message by the subscriptions whose filters it passes; None if it passes
        none."""
        if self.parts is None:
            return self
        kept = [one for one in self.parts if one.content is None or one.content.passes(topic, record)]
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

    def passing(self, message: Message) -> Targets:
        """Returns the targets of one message."""
        topic, record = message.topic.decode(), record_of(message)
        found: list[Target] = []
        for target in self.direct:
            one = target.passing(topic, record)
            if one is not None:
                found.append(one)
        return Targets(found, self.groups)


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
