"""Subscriptions, and the targets of a topic: each subscriber once, whatever number of its filters match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .message import Subscriber

if TYPE_CHECKING:
    from .shared import SharedGroup


class Subscription:
    """One filter of one subscriber, with MQTT's options. `identifier` 0: none.

    `group` is set where it is a member's share of a shared subscription; `ended`: its client took it back.
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
    ) -> None:
        self.subscriber = subscriber
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier
        self.retain_handling = retain_handling
        self.group = group
        self.ended = False


class Target:
    """A subscriber that wants a topic, with what its matching subscriptions say together."""

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
        self.local = local  # with `no_local`: what counts for the subscriber's own messages, None: nothing
        self.plain = not identifiers and not no_local


class Targets:
    """All who want a topic. Topics with the same subscriptions have the same object.

    `apart`: to each of them it is the same whether it is handed some messages before or after the others are.
    Other hosts come first: what is promised to one gets its place in the journal as a run, and sessions that
    last refer to that.
    """

    def __init__(self, direct: list[Target], groups: list[SharedGroup]) -> None:
        self.direct = direct
        self.groups = groups
        self.count = len(direct) + len(groups)
        self.apart = not groups


def merge(found: Sequence[Subscription]) -> Targets:
    """The targets of what a topic matched."""
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
    """What the subscriptions of one subscriber say together: the highest QoS, all identifiers."""
    mine = [one for one in ones if not one.no_local]
    local = _joined(mine, None, False) if mine and len(mine) < len(ones) else None
    return _joined(ones, local, len(mine) < len(ones))


def _joined(ones: list[Subscription], local: Target | None, no_local: bool) -> Target:
    return Target(
        ones[0].subscriber,
        max([one.qos for one in ones]),
        max([one.retain_as_published for one in ones]),
        tuple([one.identifier for one in ones if one.identifier]),
        local,
        no_local,
    )
