"""At the origin: takes the messages and runs of a turn for other hosts, assigns them to event streams, and
manages these streams.

A stream serves a set of hosts. A message goes once into the stream of the hosts that want its topic. Hosts
are asked to receive a stream before it is used. The journal owes messages that were acknowledged to their
publishers to the stream until all its hosts have settled them. After a restart they are sent again, with
their lineage, by a stream of the new run; a host that already has them drops them.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from treecast.middleware.broker.pubsub import Message, PromisedRun, PubSub, Run, Subscriber, Target
from treecast.middleware.broker.turn import Departures, Turn
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER
from treecast.middleware.storage.tables import Tables
from treecast.middleware.wire.mqtt_publish import topics_of
from treecast.middleware.wire.segment import MAX_AFTER, After

from .accounts import EventAccounts
from .batches import BARRIER, batch_of
from .contents import Content, Contents
from .owing import Owed, Owing
from .ports import FIRST_STREAM, OPEN, Common, EventOpen, EventOpened
from .stream import Batch, EventStream, Parcel, Places, count_of, is_promised, name_of

_log = Log(__name__)
_HOLD_BACK = 4  # publishers are held back once a stream's queue is filled to 1 / _HOLD_BACK
_MOST_SETS = 4096  # lists of hosts with a cached stream


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


class Sending:
    """All event streams that this host originates. `run`: its run number. Implements `turn.Departures`."""

    def __init__(self, run: int, common: Common, tables: Tables | None) -> None:
        self.on_begun: Callable[[EventStream], None] | None = None  # called with each new stream
        self._run = run
        self._hub = common.hub
        self._turn = common.turn
        self._outbox = common.outbox
        self._outbox.departures = self
        self.waiting = False  # part of `turn.Departures`, like the next two
        self.placed = False
        self.congested = False
        self._remotes = common.remotes
        self._methods = common.methods
        self._fabric = common.fabric
        self._settings = common.settings
        self._counters = common.counters
        self._up: dict[int, int] = {}  # hosts with a channel -> number of the channel
        self._ups = 0
        self._count = 0
        self._streams: dict[frozenset[int], EventStream] = {}  # streams in use
        self._all: dict[int, EventStream] = {}  # by number, including streams that are ending
        self._sets: dict[tuple[int, ...], EventStream] = {}
        self._contents = Contents(common.hub, common.fabric, common.remotes)
        self._by_content: dict[tuple[bytes, frozenset[int]], EventStream] = {}
        self._places: Places[EventStream] = Places(common.settings.most_topics)
        self._owing = Owing(run, common.hub)
        self.accounts = EventAccounts(run, tables, common.settings.accounts_every)
        self._dirty: dict[EventStream, None] = {}
        self._heavy: dict[EventStream, None] = {}  # streams with long queues for the fabric
        self._tasks: set[Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[EventStream]:
        """Iterates over a copy of all streams."""
        return iter(list(self._all.values()))

    def _streams_now(self) -> Iterable[EventStream]:
        return list(self._all.values())

    def unsettled(self, host: int) -> list[Message]:
        """Returns the promised single messages in streams to `host` that are not known to be taken."""
        parts = [
            promise.part
            for stream in self
            if host in stream.members
            for promise in stream.promises
            if promise.end > stream.settled
        ]
        return [part for part in parts if isinstance(part, Message)]

    def hosts(self) -> set[int]:
        """Returns the hosts that are members of a stream."""
        return {host for stream in self for host in stream.members}

    # --- life

    def start(self) -> None:
        """Sends again what earlier runs owe, and begins streams to hosts with open accounts."""
        self._loop = asyncio.get_running_loop()
        self._stream_settings = replace(
            self._fabric.stream_settings, log_bytes=self._settings.log_bytes, log_age=self._settings.log_age
        )
        owed = self._owing.take_up()
        unsettled = self.accounts.start(self._streams_now, owed)
        for old in owed:
            self._send_again(old)
        for hosts in unsettled:  # a new stream asks them for the outcome of the earlier ones
            self._stream_of(sorted(hosts))
        self._timer = self._loop.call_later(self._settings.tick, self._tick)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.accounts.write()
        self.accounts.close()
        for stream in self._all.values():
            stream.settle(self._hub.journal)
            stream.origin.forget()
        self._all.clear()

    # --- the end of a turn

    def place(self) -> None:
        """Implements `turn.Departures`: places all items since the last turn in streams."""
        self.waiting, self.placed = False, True
        items = self._outbox.take()
        batches: dict[EventStream, Batch] = {}
        for item in items:
            content = self._contents.of(item.part, item.hosts) if self._contents.used else None
            stream = self._content_stream(item.part, content) if content is not None else None
            if stream is None:
                content, stream = None, self._stream_of(item.hosts)
            self._add(batches, stream, item.part, content)
        for batch in batches.values():
            self._seal(batch)
        self._outbox.let_go(items)

    def _add(
        self,
        batches: dict[EventStream, Batch],
        stream: EventStream,
        part: Message | Run,
        content: Content | None,
    ) -> None:
        promised = is_promised(part)
        if not promised and stream.waiting_bytes > self._settings.queue_bytes:
            self._counters.dropped += count_of(part)  # publishers of promised messages are held back instead
            return
        waits = self._moves(part, stream)
        batch = batches.get(stream)
        if batch is None or not batch.takes(part, self._settings.batch_bytes):
            if batch is not None:
                self._seal(batch)
            batch = batches[stream] = Batch(stream, promised, content)
        for other in waits:
            unfinished = batches.pop(other, None)
            if unfinished is not None:  # its batch must be placed before its end is known
                self._seal(unfinished)
            batch.after[other] = other.end
        batch.add(part)

    def _moves(self, part: Message | Run, stream: EventStream) -> list[EventStream]:
        """Returns the streams that the part has to wait for in `stream`."""
        if isinstance(part, Message):
            return self._places.move(part.topic, stream)
        waits: dict[EventStream, None] = {}
        for topic in part.topics or topics_of(part.data):
            waits.update(dict.fromkeys(self._places.move(topic, stream)))
        return list(waits)

    def _seal(self, batch: Batch, old: Owed | None = None) -> None:
        """Places the batch in its stream and records its promises in the journal.

        `old`: for messages sent again, the earlier stream, whose record continues to owe them.
        """
        stream, journal = batch.stream, self._hub.journal
        now_ms = int(self._hub.clock.wall * 1000)
        lineage = old.lineage if old is not None else None
        expires = NEVER if batch.promised else self._fabric.now() + self._settings.fleeting
        after = [
            After(other.number, self._run, end) for other, end in batch.after.items() if end > other.settled
        ]
        # A segment names at most so many streams. Barriers in front of it wait for the others.
        while len(after) > MAX_AFTER:
            stream.place(Parcel(BARRIER, 1, tuple(after[:MAX_AFTER]), expires))
            del after[:MAX_AFTER]
        payload = batch_of(batch.parts, now_ms, lineage, summed=not self._fabric.tags)
        stream.place(Parcel(payload, batch.count, tuple(after), expires, batch.content))
        if batch.promised and journal is not None:
            if old is None and stream.record is None:
                stream.record = self._owing.begin(stream)
            record = old.record if old is not None else stream.record
            assert record is not None
            for part in batch.parts:
                if isinstance(part, (Message, PromisedRun)):
                    stream.promise(journal, record, part)
        stream.used = self._loop.time()
        self._dirty[stream] = None
        self._counters.batches_sent += 1
        self._counters.messages_sent += batch.count

    def send(self) -> None:
        """Implements `turn.Departures`: sends what was placed, now that the turn is stored."""
        dirty, self._dirty = self._dirty, {}
        self.placed = False
        for stream in dirty:
            stream.send()
            if stream.waiting_bytes > self._settings.queue_bytes // _HOLD_BACK:
                self._heavy[stream] = None
                self.congested = True

    def _room(self, stream: EventStream) -> None:
        """Continues a stream when the fabric has room again."""
        stream.pump()
        self._lighten(stream)

    def _lighten(self, stream: EventStream) -> None:
        """Lets publishers continue once no stream has a long queue any more."""
        # Half of where publishers are held back, so that they are not stopped and let go with each parcel.
        light = stream.waiting_bytes <= self._settings.queue_bytes // (2 * _HOLD_BACK)
        if stream in self._heavy and (light or stream.number not in self._all):
            del self._heavy[stream]
            if not self._heavy:
                self.congested = False
                self._turn.ask()

    def _send_again(self, old: Owed) -> None:
        """Sends what a stream of an earlier run owed, in its order."""
        stream = self._stream_of(sorted(old.hosts))
        batch = Batch(stream, True)
        for message in [owed.message for _, owed in sorted(old.record.owed.items())]:
            if batch.parts and not batch.takes(message, self._settings.batch_bytes):
                self._seal(batch, old)
                batch = Batch(stream, True)
            for other in self._places.move(message.topic, stream):
                batch.after[other] = other.end
            batch.add(message)
        self._counters.sent_again += len(old.record.owed)
        self._seal(batch, old)
        self.placed = True
        self._turn.ask()

    # --- streams

    def _stream_of(self, hosts: list[int]) -> EventStream:
        key = tuple(hosts)
        stream = self._sets.get(key)
        if stream is None:
            if len(self._sets) >= _MOST_SETS:
                self._sets.clear()
            stream = self._sets[key] = self._find(frozenset(hosts))
        return stream

    def _find(self, hosts: frozenset[int]) -> EventStream:
        """Returns a stream for `hosts`, a new one if needed.

        If there are `most_streams` already, the stream also goes to all other hosts that want anything.
        """
        hosts = self._widened(hosts)
        stream = self._streams.get(hosts)
        return stream if stream is not None else self._begin(hosts)

    def _widened(self, hosts: frozenset[int]) -> frozenset[int]:
        """Returns the hosts of the stream for `hosts`."""
        if hosts in self._streams or len(self._streams) < self._settings.most_streams:
            return hosts
        return hosts.union([host for host, remote in self._remotes.items() if not remote.deaf])

    def stream_in_use(self, hosts: Iterable[int]) -> EventStream | None:
        """Returns the stream that messages to `hosts` would go by, if it exists."""
        return self._streams.get(self._widened(frozenset(hosts)))

    def _content_stream(self, part: Message | Run, content: Content) -> EventStream | None:
        """Returns the stream of a message's topic to all hosts with interest in it; None if there is no room
        for another one."""
        assert isinstance(part, Message)
        key = part.topic, self._contents.members(part.topic)
        stream = self._by_content.get(key)
        if stream is None and len(self._by_content) < self._settings.most_streams:
            stream = self._by_content[key] = self._begin(key[1], part.topic)
        return stream

    def _begin(self, hosts: frozenset[int], topic: bytes = b"") -> EventStream:
        """Begins a stream to these hosts. `topic`: of one by content."""
        self._count += 1
        origin = self._fabric.originate(
            FIRST_STREAM + self._count, self._run, name=name_of(hosts), settings=self._stream_settings
        )
        stream = EventStream(origin, hosts, self._loop.time(), topic)
        origin.on_room = partial(self._room, stream)
        self._all[stream.number] = stream
        if not topic:
            self._streams[hosts] = stream
        for host in sorted(hosts):
            origin.takes_filtered(host, takes=host in self._contents.aware)
            origin.add_receiver(host, 0)
        stream.asked = {host for host in hosts if host in self._up}
        for host in sorted(stream.asked):
            self._spawn(self._ask(stream, host), f"stream {stream.number} to {host}")
        if stream.asked:
            self._loop.call_later(self._settings.open_wait, self._opened, stream)
        else:
            stream.open = True
        self.accounts.begun(stream)
        self._counters.streams_opened += 1
        if self.on_begun is not None:
            self.on_begun(stream)
        return stream

    def _opened(self, stream: EventStream) -> None:
        """Opens a stream when its members have answered or `open_wait` is over."""
        if not stream.open:
            stream.open = True
            stream.pump()

    async def _ask(self, stream: EventStream, host: int) -> None:
        """Asks the host to receive the stream; retries while its channel lasts."""
        life, refused = self._up.get(host), 0
        while self._up.get(host) == life and host in stream.members and stream.number in self._all:
            request = self._request(stream, host)
            try:
                answer, _ = await self._methods.ask(host, OPEN, request, self._settings.call)
                self._answered(stream, host, request, answer)
                break
            except TreecastError as error:
                _log.info(
                    "host cannot be asked to receive a stream", host=host, stream=stream.number, error=error
                )
                refused += error.fault is Fault.NOT_SUPPORTED
            if refused >= self._settings.refusals:
                self._leave_out(host)
                break
            await asyncio.sleep(self._settings.retry)
        self._not_asked(stream, host)

    def _not_asked(self, stream: EventStream, host: int) -> None:
        if host in stream.asked:
            stream.asked.discard(host)
            if not stream.asked:
                self._opened(stream)

    def _request(self, stream: EventStream, host: int) -> EventOpen:
        peer = stream.origin.sender.peers.get(host)
        epoch, first = self._owing.oldest() or (self._run, min(self._all, default=stream.number))
        return EventOpen(
            stream=stream.number,
            epoch=self._run,
            first=peer.next if peer is not None else 0,
            settled_epoch=epoch,
            settled_stream=first,
            asks_ended=self.accounts.waits_for(host),
        )

    def _answered(self, stream: EventStream, host: int, request: EventOpen, answer: EventOpened) -> None:
        if request.asks_ended:
            self.accounts.heard(host, answer.ended)
        self._heard_of_filters(host, answer.filters)
        origin = stream.origin
        peer = origin.sender.peers.get(host)
        if answer.kept or (peer is not None and not peer.reported and answer.next == peer.first):
            return
        origin.sender.ledger.taken(host, answer.next)
        origin.add_receiver(host, min(answer.next, origin.end))
        self.accounts.changed(stream)

    def _heard_of_filters(self, host: int, takes: bool) -> None:
        """Takes a host's word whether it takes skips of what is not for it: its version may have changed."""
        aware = self._contents.aware
        if takes is not (host in aware):
            (aware.add if takes else aware.discard)(host)
            for stream in self:
                stream.origin.takes_filtered(host, takes=takes)

    def _leave_out(self, host: int) -> None:
        """Leaves out a host without an MQTT face: it is sent nothing until it reconnects."""
        if host in self._remotes:
            self._remotes[host].deaf = True
            self._contents.changed()
        self.accounts.left(host)
        for stream in self:
            self._remove(stream, host)

    def _remove(self, stream: EventStream, host: int) -> None:
        if host in stream.members:
            stream.members.discard(host)
            stream.origin.remove_receiver(host)
            self._not_asked(stream, host)
            self._retire(stream)

    def _retire(self, stream: EventStream) -> None:
        """Closes a stream to further messages."""
        for hosts in [hosts for hosts, one in self._streams.items() if one is stream]:
            del self._streams[hosts]
        for key in [key for key, one in self._sets.items() if one is stream]:
            del self._sets[key]
        self._by_content.pop((stream.topic, stream.whole), None)
        if not stream.closing:
            stream.close()

    # --- hosts come and go

    def host_up(self, host: int) -> None:
        """Asks a newly connected host to receive its streams: it may be a new run."""
        self._ups += 1
        self._up[host] = self._ups
        if host in self._remotes:
            self._remotes[host].deaf = False
            self._contents.changed()
        for stream in self:
            if host in stream.members:
                self._spawn(self._ask(stream, host), f"stream {stream.number} to {host}")

    def host_down(self, host: int) -> None:
        self._up.pop(host, None)
        for stream in self:
            self._not_asked(stream, host)

    def host_left(self, host: int) -> None:
        """Removes a host that has left the cluster from all streams."""
        self.host_down(host)
        self.accounts.left(host)
        for stream in self:
            self._remove(stream, host)

    # --- periodic checks

    def _tick(self) -> None:
        # Set first, so that an error with one stream does not end the checks of all.
        self._timer = self._loop.call_later(self._settings.tick, self._tick)
        now = self._loop.time()
        for stream in self:
            stream.pump()
            stream.settle(self._hub.journal)
            idle = stream.end <= stream.settled and not stream.pending
            if idle and not stream.closing and now - stream.used > self._settings.idle:
                self._retire(stream)
            if stream.finished:
                self._forget(stream)
        for stream in list(self._heavy):
            self._lighten(stream)
        self._owing.sweep()

    def _forget(self, stream: EventStream) -> None:
        self.accounts.over(stream)
        del self._all[stream.number]
        self._places.forget(stream)
        self._owing.end(stream)
        stream.origin.forget()

    def _spawn(self, work: Coroutine[object, None, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
