"""Shared subscriptions: each message goes to one member (MQTT 5, section 4.8.2).

On a standalone host the group is among the filters as long as it has members. On joined hosts it has one home
host. Only there it is among the filters (`rooted`), with members on other hosts besides local ones.
"""

from __future__ import annotations

from typing import Final

from .message import Message, Subscriber
from .subscriptions import Subscription, target_of

_NOBODY: Final = Subscriber(0)


class SharedGroup:
    """The members of one `$share/NAME/FILTER`, served in turn."""

    def __init__(self, name: bytes, filter: bytes, serial: int) -> None:
        self.name = name
        self.filter = filter
        self.serial = serial
        self.subscription = Subscription(_NOBODY, filter)  # represents it among the filters
        self.subscription.group = self
        self.rooted = False
        self._members: list[Subscription] = []
        self._turn = 0

    @property
    def empty(self) -> bool:
        return not self._members

    @property
    def local(self) -> int:
        """The number of members that are clients of this host."""
        return sum([not member.subscriber.foreign for member in self._members])

    def join(self, subscription: Subscription) -> bool:
        """Adds a member, or replaces its options. Returns whether it is new."""
        for number, member in enumerate(self._members):
            if member.subscriber is subscription.subscriber:
                self._members[number] = subscription
                return False
        self._members.append(subscription)
        return True

    def leave(self, subscriber: Subscriber) -> bool:
        """Removes a member. Returns whether it was one."""
        for number, member in enumerate(self._members):
            if member.subscriber is subscriber:
                del self._members[number]
                return True
        return False

    def take(self, message: Message) -> bool:
        """Hands the message to the member whose turn it is. Returns False if there are no members."""
        chosen = self._next()
        if chosen is None:
            return False
        chosen.subscriber.take(message, target_of([chosen]))
        return True

    def _next(self) -> Subscription | None:
        """Returns the next member that is ready; else the next durable one; else the next."""
        members = self._members
        count = len(members)
        kept = -1
        for step in range(count):
            number = (self._turn + step) % count
            member = members[number]
            if member.subscriber.ready:
                self._turn = number + 1
                return member
            if kept < 0 and member.subscriber.durable:
                kept = number
        if count == 0:
            return None
        number = kept if kept >= 0 else self._turn % count
        self._turn = number + 1
        return members[number]
