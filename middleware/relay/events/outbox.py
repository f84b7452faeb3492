"""What one turn of the event loop has for other hosts: messages in order, each once, with who wants it."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.broker.pubsub import Message, PubSub, Run, Subscriber, Target
from treecast.middleware.broker.turn import Turn
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import EventCounters

from .ports import EventSettings


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
            self._outbox.add(message, None, self.host)

    def take_run(self, run: Run, target: Target) -> None:
        if not self.deaf:
            self._outbox.add(None, run, self.host)


class Item:
    """A message, or a run of them, for `hosts`."""

    __slots__ = ("hosts", "message", "run")

    def __init__(self, message: Message | None, run: Run | None, host: int) -> None:
        self.message = message
        self.run = run
        self.hosts = [host]

    def messages(self) -> list[Message]:
        if self.run is not None:
            return self.run.messages()
        assert self.message is not None
        return [self.message]


class Outbox:
    """Hosts take a message one after the other, so that of a message the last item is asked for.

    What comes from another host goes to no other: its origin sees to all (`PubSub.feed`). A message that is
    promised gets its number in the journal here, so that numbers rise in the order in which messages are
    published; who empties the outbox lets go of it.
    """

    def __init__(self, hub: PubSub, turn: Turn) -> None:
        self._hub = hub
        self._turn = turn
        self._items: list[Item] = []

    def add(self, message: Message | None, run: Run | None, host: int) -> None:
        items = self._items
        if items:
            last = items[-1]
            if last.message is message and last.run is run:
                last.hosts.append(host)
                return
        self._append(message, run, host)

    def add_alone(self, message: Message, host: int) -> None:
        """Of a shared subscription: for this one host, from wherever it came."""
        self._append(message, None, host)

    def _append(self, message: Message | None, run: Run | None, host: int) -> None:
        if not self._items:
            self._turn.ask()
        journal = self._hub.journal
        if message is not None and message.qos and journal is not None:
            journal.hold(message)
        self._items.append(Item(message, run, host))

    def take(self) -> list[Item]:
        """All since the last call."""
        items, self._items = self._items, []
        return items

    def let_go(self, items: list[Item]) -> None:
        """They have their places."""
        journal = self._hub.journal
        for item in items:
            message = item.message
            if message is not None and message.qos and journal is not None:
                journal.let_go(message)


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
