"""The messages and runs of one turn for other hosts, in order, each once with the hosts that want it.

Also the streams that each topic last went by, which preserve the order of a topic that changes streams. The
first message of a topic in another stream waits, at every host that receives both, for all that was placed in
the earlier stream. The earlier stream at a host is not always the topic's latest: a topic that goes to hosts
2 and 3, then to 3 alone, then to 2 alone, has to wait at host 2 for the first of these streams. For a
forgotten topic, every stream that was in use when it was forgotten counts.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from treecast.middleware.broker.pubsub import Message, PromisedRun, PubSub, Run, Subscriber, Target
from treecast.middleware.broker.turn import Departures, Turn
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import EventCounters

from .ports import EventSettings


class RemoteHost(Subscriber):
    """Another host as a subscriber. `deaf`: whether it does not take event streams."""

    def __init__(self, serial: int, host: int, outbox: Outbox) -> None:
        super().__init__(serial)
        self.foreign = True
        self.host = host
        self.deaf = False
        self._outbox = outbox

    def take(self, message: Message, target: Target) -> None:
        if not self.deaf:
            self._outbox.add(message, self.host)

    def take_run(self, run: Run, target: Target) -> None:
        if not self.deaf:
            self._outbox.add(run, self.host)


class Item:
    """A message or a run for `hosts`."""

    __slots__ = ("hosts", "part")

    def __init__(self, part: Message | Run, host: int) -> None:
        self.part = part
        self.hosts = [host]


class Outbox:
    """The items of the current turn.

    All hosts take a message before the next one, so only the last item can hold the same message. Messages
    from another host go to no other host: their origin serves all (`PubSub.feed`). A promised message gets
    its number in the journal here, so numbers increase in publishing order; whoever empties the outbox
    releases it in the journal. A run stays a run, and its messages get consecutive numbers.
    """

    def __init__(self, hub: PubSub, turn: Turn) -> None:
        self._hub = hub
        self._turn = turn
        self._items: list[Item] = []
        self.departures: Departures | None = None  # what empties it

    def add(self, part: Message | Run, host: int) -> None:
        items = self._items
        if items and items[-1].part is part:
            items[-1].hosts.append(host)
        else:
            self._append(part, host)

    def add_alone(self, message: Message, host: int) -> None:
        """Adds a message of a shared subscription for one host, whatever its origin."""
        self._append(message, host)

    def _append(self, part: Message | Run, host: int) -> None:
        if not self._items:
            if self.departures is not None:
                self.departures.waiting = True
            self._turn.ask()
        journal = self._hub.journal
        if journal is not None:
            if isinstance(part, PromisedRun):
                journal.hold_run(part)
            elif isinstance(part, Message) and part.qos:
                journal.hold(part)
        self._items.append(Item(part, host))

    def take(self) -> list[Item]:
        """Removes and returns all items since the last call."""
        items, self._items = self._items, []
        return items

    def let_go(self, items: list[Item]) -> None:
        """Releases items in the journal once they have their places in streams."""
        journal = self._hub.journal
        if journal is None:
            return
        for item in items:
            part = item.part
            if isinstance(part, PromisedRun):
                journal.let_go_run(part)
            elif isinstance(part, Message) and part.qos:
                journal.let_go(part)


class Common:
    """The state that sending and receiving share. `remotes`: the hosts with any interest so far; it is
    updated in place."""

    __slots__ = ("counters", "fabric", "hub", "methods", "outbox", "remotes", "settings", "turn")

    def __init__(
        self,
        hub: PubSub,
        turn: Turn,
        outbox: Outbox,
        remotes: dict[int, RemoteHost],
        methods: Methods,
        fabric: Fabric,
        settings: EventSettings,
        counters: EventCounters,
    ) -> None:
        self.hub = hub
        self.turn = turn
        self.outbox = outbox
        self.remotes = remotes
        self.methods = methods
        self.fabric = fabric
        self.settings = settings
        self.counters = counters


class Carrying(Protocol):
    """The part of a stream that `Places` uses."""

    members: set[int]


S = TypeVar("S", bound=Carrying)


class _Way(Generic[S]):
    """The streams of one topic, each with the hosts at which it was the topic's last stream."""

    __slots__ = ("hosts", "latest")

    def __init__(self) -> None:
        self.latest: S | None = None
        self.hosts: dict[S, set[int]] = {}

    def move(self, to: S) -> list[S]:
        """Moves the topic to `to`. Returns the streams that precede it at some host."""
        before = []
        for stream, hosts in list(self.hosts.items()):
            if stream is not to and not hosts.isdisjoint(to.members):
                before.append(stream)
                hosts -= to.members
                if not hosts:
                    del self.hosts[stream]
        self.latest = to
        self.hosts[to] = set(to.members)
        return before


class Places(Generic[S]):
    """The last streams of topics. At most `most` topics are remembered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ways: dict[bytes, _Way[S]] = {}
        self._floor: dict[S, None] = {}  # streams of the forgotten topics

    def move(self, topic: bytes, to: S) -> list[S]:
        """Notes that the topic's next message goes into `to`. Returns the streams it has to wait for."""
        way = self._ways.get(topic)
        if way is not None:
            return [] if way.latest is to else way.move(to)
        before = [one for one in self._floor if one is not to and not one.members.isdisjoint(to.members)]
        if len(self._ways) >= self._most:
            self._forget_topics()
        way = self._ways[topic] = _Way[S]()
        way.move(to)
        return before

    def _forget_topics(self) -> None:
        for way in self._ways.values():
            self._floor.update(dict.fromkeys(way.hosts))
        self._ways.clear()

    def forget(self, stream: S) -> None:
        """Forgets a finished stream, whose messages are all settled."""
        self._floor.pop(stream, None)
        for topic, way in list(self._ways.items()):
            way.hosts.pop(stream, None)
            if way.latest is stream:
                way.latest = None
            if not way.hosts:
                del self._ways[topic]
