"""What one turn of the event loop has for other hosts: messages and runs in order, each once, with who wants
it; and which streams each topic went by last, so that a topic that moves keeps its order.

The first message of a topic in another stream waits, at every host that receives both, for all that was
placed in the stream before. That is not always the last one: a topic that goes to hosts 2 and 3, then to 3
alone, then to 2 alone, has at host 2 to wait for the first of these streams. Of topics that were forgotten
every stream that was in use then counts.
"""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.broker.pubsub import Message, PromisedRun, PubSub, Run, Subscriber, Target
from treecast.middleware.broker.turn import Departures, Turn
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import EventCounters

from .ports import EventSettings
from .stream import EventStream


class RemoteHost(Subscriber):
    """Another host among the subscribers. `deaf`: it does not take event streams."""

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
    """A message, or a run of them, for `hosts`."""

    __slots__ = ("hosts", "part")

    def __init__(self, part: Message | Run, host: int) -> None:
        self.part = part
        self.hosts = [host]


class Outbox:
    """Hosts take a message one after the other, so that of a message the last item is asked for.

    What comes from another host goes to no other: its origin sees to all (`PubSub.feed`). A message that is
    promised gets its number in the journal here, so that numbers rise in the order in which messages are
    published; who empties the outbox lets go of it. A run stays a run, and its messages get numbers in a row.
    """

    def __init__(self, hub: PubSub, turn: Turn) -> None:
        self._hub = hub
        self._turn = turn
        self._items: list[Item] = []
        self.departures: Departures | None = None  # who empties it

    def add(self, part: Message | Run, host: int) -> None:
        items = self._items
        if items and items[-1].part is part:
            items[-1].hosts.append(host)
        else:
            self._append(part, host)

    def add_alone(self, message: Message, host: int) -> None:
        """Of a shared subscription: for this one host, from wherever it came."""
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
        """All since the last call."""
        items, self._items = self._items, []
        return items

    def let_go(self, items: list[Item]) -> None:
        """They have their places."""
        journal = self._hub.journal
        if journal is None:
            return
        for item in items:
            part = item.part
            if isinstance(part, PromisedRun):
                journal.let_go_run(part)
            elif isinstance(part, Message) and part.qos:
                journal.let_go(part)


class Common(Struct, frozen=True):
    """What sending and receiving of events both stand on. `remotes`: hosts that want anything; it changes
    as these come and go."""

    hub: PubSub
    turn: Turn
    outbox: Outbox
    remotes: dict[int, RemoteHost]
    methods: Methods
    fabric: Fabric
    settings: EventSettings
    counters: EventCounters


class _Way:
    """The streams of one topic: to each, the hosts whose last one it was."""

    __slots__ = ("hosts", "latest")

    def __init__(self) -> None:
        self.latest: EventStream | None = None
        self.hosts: dict[EventStream, set[int]] = {}

    def move(self, to: EventStream) -> list[EventStream]:
        """The streams that went before `to` at some host."""
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


class Places:
    """At most `most` topics are remembered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ways: dict[bytes, _Way] = {}
        self._floor: dict[EventStream, None] = {}  # what the forgotten topics went by

    def move(self, topic: bytes, to: EventStream) -> list[EventStream]:
        """The topic's next message is placed in `to`: the streams that it has to wait for."""
        way = self._ways.get(topic)
        if way is not None:
            return [] if way.latest is to else way.move(to)
        before = [one for one in self._floor if one is not to and not one.members.isdisjoint(to.members)]
        if len(self._ways) >= self._most:
            self._forget_topics()
        way = self._ways[topic] = _Way()
        way.move(to)
        return before

    def _forget_topics(self) -> None:
        for way in self._ways.values():
            self._floor.update(dict.fromkeys(way.hosts))
        self._ways.clear()

    def forget(self, stream: EventStream) -> None:
        """All of it is settled, and it is no more."""
        self._floor.pop(stream, None)
        for topic, way in list(self._ways.items()):
            way.hosts.pop(stream, None)
            if way.latest is stream:
                way.latest = None
            if not way.hosts:
                del self._ways[topic]
