"""Shared subscriptions: each message goes to one member (MQTT 5, section 4.8.2).

A message is given to a member whose client is connected. While there is none, it waits with the
subscription. On a standalone host the members are all here. On joined hosts one host is the home (`rooted`)
and has a member for each connected one on another host; any other host gives what is published there to the
home, and what it was given itself to its own members (`Elsewhere`).

The journal owes a waiting message of QoS 1 or 2 to the subscription's own record, and likewise one that was
given to a client whose session ends with its connection, if a kill of this host leaves members (`lasting`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.policies import QueuePolicy
from treecast.middleware.model.wishes import Wish

from .journal import Journal
from .message import NEVER, Creditor, Message, Owed, Subscriber
from .reach import NoReach, Reach
from .settings import PubSubSettings
from .stamps import Stamps
from .subscriptions import Routes, Subscription, Target, target_of

RECORD: Final = "\0share "
"""What the names of shared subscriptions' records begin with; `NAME/FILTER` follows."""

_NOBODY: Final = Subscriber(0)


@mypyc_attr(allow_interpreted_subclasses=True)
class Elsewhere:
    """The members of one shared subscription on other hosts, as seen at a host that is not the home."""

    @property
    def exists(self) -> bool:
        """Whether another host has members."""
        return False

    def take(self, message: Message, published: bool) -> bool:
        """Sends the message to a host that gives it to a member. Returns False if none can be told to now.

        `published`: here. If not, this host was to give it to a member, and only the home may be told to.
        """
        raise NotImplementedError


class SharedGroup:
    """One `$share/NAME/FILTER`: its members here, or all if it is `rooted` here, served in turn.

    `share`: `NAME/FILTER`. `listed`: it is among the filters, as there are members. `lasting`: a kill of this
    host leaves members. `elsewhere`: None on a standalone host. `record`: what the journal owes it, if any.
    """

    def __init__(self, name: bytes, filter: bytes, serial: int, shares: SharedGroups) -> None:
        self.name = name
        self.filter = filter
        self.share = name + b"/" + filter
        self.serial = serial
        self.subscription = Subscription(_NOBODY, filter)  # represents it among the filters
        self.subscription.group = self
        self.rooted = False
        self.listed = False
        self.lasting = False
        self.elsewhere: Elsewhere | None = None
        self.record: Creditor | None = None
        self._shares = shares
        self._members: list[Subscription] = []
        self._targets: list[Target] = []  # of the members
        self._turn = 0
        self._held: deque[Owed] = deque()
        self._bytes = 0

    # --- members

    @property
    def empty(self) -> bool:
        return not self._members

    @property
    def beyond(self) -> bool:
        """Whether another host has members."""
        return self.elsewhere is not None and self.elsewhere.exists

    @property
    def local(self) -> int:
        """The number of members that are clients of this host."""
        return sum([not member.subscriber.foreign for member in self._members])

    @property
    def online(self) -> int:
        """The number of these whose clients are connected."""
        return sum([member.subscriber.online and not member.subscriber.foreign for member in self._members])

    def join(self, subscription: Subscription) -> bool:
        """Adds a member, or replaces its options. Returns whether it is new."""
        target = target_of([subscription])
        target.share = self.share
        for number, member in enumerate(self._members):
            if member.subscriber is subscription.subscriber:
                self._members[number] = subscription
                self._targets[number] = target
                return False
        self._members.append(subscription)
        self._targets.append(target)
        return True

    def leave(self, subscriber: Subscriber) -> bool:
        """Removes a member. Returns whether it was one."""
        for number, member in enumerate(self._members):
            if member.subscriber is subscriber:
                del self._members[number]
                del self._targets[number]
                return True
        return False

    def refresh(self) -> None:
        """Members have changed, here or on other hosts."""
        kept = [member for member in self._members if member.subscriber.durable or member.subscriber.foreign]
        self.lasting = len(kept) > 0 or self.beyond

    def others_online(self, subscriber: Subscriber) -> bool:
        """Whether another member than `subscriber` can be given its messages."""
        for member in self._members:
            if member.subscriber is not subscriber and member.subscriber.online:
                return True
        return not self.rooted and self.beyond

    # --- messages

    def take(self, message: Message) -> bool:
        """Takes a message published on this host. Returns False if nobody can be given it, now or later."""
        elsewhere = self.elsewhere
        if elsewhere is not None and not self.rooted and elsewhere.take(message, True):
            return True
        return self._give(message) or self._hold(message)

    def hand_on(self, message: Message) -> bool:
        """Takes a message that another host, or a member that has gone, was to give to somebody."""
        return self._pass(message) or self._hold(message)

    def _pass(self, message: Message) -> bool:
        if self._give(message):
            return True
        elsewhere = self.elsewhere
        return elsewhere is not None and not self.rooted and elsewhere.take(message, False)

    def _give(self, message: Message) -> bool:
        """Gives the message to the member whose turn it is. Returns False if no member is connected."""
        number = self._next()
        if number < 0:
            return False
        self._turn = number + 1
        self._members[number].subscriber.take(message, self._targets[number])
        return True

    def _next(self) -> int:
        """Returns the number of the next member that is ready; else of the next connected one; else -1."""
        members = self._members
        count = len(members)
        waiting = -1
        for step in range(count):
            number = (self._turn + step) % count
            subscriber = members[number].subscriber
            if subscriber.ready:
                return number
            if waiting < 0 and subscriber.online:
                waiting = number
        return waiting

    # --- messages that wait for a member

    @property
    def waiting(self) -> int:
        """The number of messages that wait."""
        return len(self._held)

    def _hold(self, message: Message) -> bool:
        """Keeps a message until a member is connected. QoS 0 is not kept, as for a client that is away."""
        if message.qos == 0 or not self._room(message):
            return False
        owed = Owed(message, message.qos, False, ())
        owed.share = self.share
        journal, record = self._shares.journal, self.creditor()
        if journal is not None and record is not None:
            journal.owe(record, owed)
        self._append(owed)
        return True

    def _append(self, owed: Owed) -> None:
        self._held.append(owed)
        self._bytes += owed.message.size

    def _room(self, message: Message) -> bool:
        """Makes room as the policy of queues says. Returns False if there is none."""
        settings, held = self._shares.settings, self._held
        while len(held) >= settings.queue_messages or self._bytes + message.size > settings.queue_bytes:
            self._shares.counters.dropped_full += 1
            if not held or settings.queue_policy is not QueuePolicy.DROP_OLD:
                return False
            self._settle(self._take_first())
        return True

    def _take_first(self) -> Owed:
        owed = self._held.popleft()
        self._bytes -= owed.message.size
        return owed

    def pump(self) -> None:
        """Gives away what waits, as far as somebody can be given it."""
        while self._held:
            owed = self._take_first()  # before it is given, as that may call this function again
            message = owed.message
            if message.expires_at != NEVER and message.expires_at <= self._shares.clock.wall:
                self._shares.counters.expired += 1
            elif not self._pass(message):
                self._held.appendleft(owed)
                self._bytes += message.size
                return
            self._settle(owed)

    def drop(self) -> None:
        """Drops what waits, as there are no members left, and ends the record."""
        self._shares.counters.shares_gone += len(self._held)
        while self._held:
            self._settle(self._take_first())
        journal, record = self._shares.journal, self.record
        if journal is not None and record is not None:
            journal.end(record)
        self.record = None

    # --- the journal

    def creditor(self) -> Creditor | None:
        """Returns the record of what is owed to it, begun if needed; None without a journal."""
        journal = self._shares.journal
        if journal is None:
            return None
        if self.record is None:
            self.record = Creditor(self._shares.routes.next_serial(), RECORD + self.share.decode())
            journal.begin(self.record)
        return self.record

    def _settle(self, owed: Owed) -> None:
        """Settles what waited, unless the record now owes it in another form."""
        journal, record = self._shares.journal, self.record
        if journal is not None and record is not None and record.owed.get(owed.message.number) is owed:
            journal.settled(record, owed.message)

    def restore(self, record: Creditor) -> None:
        """Takes over a record of the journal. QoS 2 that a client may have received goes to nobody else."""
        self.record = record
        journal = self._shares.journal
        for _, owed in sorted(record.owed.items()):
            if owed.sent and owed.qos == 2 and journal is not None:
                journal.settled(record, owed.message)
            else:
                owed.sent = False
                self._append(owed)


class SharedGroups:
    """The shared subscriptions of one host. `journal`, `reach`: as the hub's, which sets them."""

    def __init__(
        self, settings: PubSubSettings, counters: PubSubCounters, routes: Routes, clock: Stamps
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.routes = routes
        self.clock = clock
        self.journal: Journal | None = None
        self.reach: Reach = NoReach(self)
        self._groups: dict[bytes, SharedGroup] = {}  # by `NAME/FILTER`
        self._handing: deque[tuple[Owed, Creditor | None]] = deque()
        self._hands = False

    def subscribe(self, name: bytes, subscription: Subscription) -> bool:
        """Adds a member, or replaces its options. Returns whether it is new."""
        group = self._group(name, subscription.filter)
        subscription.group = group
        new = group.join(subscription)
        self.changed(group)
        if new and not subscription.subscriber.foreign:
            self.reach.members_changed(group)
        return new

    def unsubscribe(self, name: bytes, subscriber: Subscriber, filter: bytes) -> bool:
        group = self._groups.get(name + b"/" + filter)
        if group is None or not group.leave(subscriber):
            return False
        self.changed(group)
        if not subscriber.foreign:
            self.reach.members_changed(group)
        return True

    def member_moved(self, group: SharedGroup) -> None:
        """The client of a member on this host has connected or disconnected."""
        self.changed(group)
        self.reach.members_changed(group)

    def all(self) -> list[SharedGroup]:
        """All shared subscriptions that this host knows of."""
        return list(self._groups.values())

    def used(self) -> list[SharedGroup]:
        """The shared subscriptions that have members or their home on this host."""
        return [group for group in self._groups.values() if not group.empty]

    def get(self, name: bytes, filter: bytes) -> SharedGroup | None:
        return self._groups.get(name + b"/" + filter)

    def _group(self, name: bytes, filter: bytes) -> SharedGroup:
        group = self._groups.get(name + b"/" + filter)
        if group is None:
            group = SharedGroup(name, filter, self.routes.next_serial(), self)
            self._groups[group.share] = group
            self.reach.grouped(group)
        return group

    def known(self, name: bytes, filter: bytes) -> None:
        """Other hosts have members of a shared subscription, or no longer have."""
        self.changed(self._group(name, filter))

    def changed(self, group: SharedGroup) -> None:
        """Members have changed: lists the group among the filters as long as there are any on any host, and
        gives away what waits. Forgets the group if there are none."""
        group.refresh()
        listed = not group.empty or group.beyond
        if listed:
            self._list(group)
            group.pump()
        else:
            self.unroot(group.name, group.filter)
            self._unlist(group)
            group.drop()
            self._groups.pop(group.share, None)

    def _list(self, group: SharedGroup) -> None:
        if not group.listed:
            group.listed = True
            self.routes.add(group.filter, group.serial, group.subscription)
            if group.rooted:
                self._tell_recorder(group.filter, True)

    def _unlist(self, group: SharedGroup) -> None:
        if group.listed:
            group.listed = False
            self.routes.remove(group.filter, group.serial)

    def root(self, name: bytes, filter: bytes) -> None:
        """Makes this host the home: it gives messages to the members of all hosts."""
        group = self._groups.get(name + b"/" + filter)
        if group is not None and not group.rooted:
            group.rooted = True
            self.routes.forget(filter)
            self._tell_recorder(filter, True)
            group.pump()

    def unroot(self, name: bytes, filter: bytes) -> None:
        """Records that another host is the home."""
        group = self._groups.get(name + b"/" + filter)
        if group is not None and group.rooted:
            group.rooted = False
            self.routes.forget(filter)
            self._tell_recorder(filter, False)

    def _tell_recorder(self, filter: bytes, wanted: bool) -> None:
        if self.routes.recorder is not None:
            self.routes.recorder.wanted(Wish.of_mqtt(filter), wanted)

    def hand_to(self, name: bytes, filter: bytes, message: Message) -> None:
        """Takes a message from another host for one member, here or, if there is none, elsewhere."""
        group = self._group(name, filter)
        group.hand_on(message)
        self._tidy(group)

    def pump(self, group: SharedGroup) -> None:
        """Gives away what waits for a shared subscription: more hosts may be reached now."""
        group.pump()
        self._tidy(group)

    def _tidy(self, group: SharedGroup) -> None:
        """Forgets a group without members whose messages have gone to other hosts."""
        if not group.listed and not group.waiting:
            group.drop()
            self._groups.pop(group.share, None)

    def creditor(self, share: bytes) -> Creditor | None:
        """Returns the record that owes a message given to a client whose session ends with its connection;
        None if a kill of this host leaves no member that could be given it instead."""
        group = self._groups.get(share)
        return group.creditor() if group is not None and group.lasting else None

    def others_online(self, share: bytes, subscriber: Subscriber) -> bool:
        """Whether another member of the shared subscription than `subscriber` can be given its messages."""
        group = self._groups.get(share)
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
        group = self._groups.get(owed.share)
        if group is None or not group.listed:
            self.counters.shares_gone += 1
        else:
            lapsed = message.number and not message.waiting  # the journal may have dropped it
            self.counters.handed_on += group.hand_on(message.copy() if lapsed else message)
        if creditor is not None and self.journal is not None and creditor.owed.get(message.number) is owed:
            self.journal.settled(creditor, message)

    def restore(self) -> None:
        """Takes over what the journal owes to shared subscriptions. Call it before sessions are restored."""
        if self.journal is None:
            return
        for record in list(self.journal.records.values()):
            if record.client_id.startswith(RECORD):
                name, _, filter = record.client_id[len(RECORD) :].encode().partition(b"/")
                self._group(name, filter).restore(record)
