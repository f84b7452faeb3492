"""At the receiving hosts: event streams are received and their messages are published here.

Each message is published once. Promised messages have numbers that increase along each stream of their
origin. The journal keeps the highest number of each stream together with the local outcome of the message, so
that messages sent again after a kill at either end are recognised and dropped.

Arrivals are part of the host's turn (`broker.turn`): they are acknowledged to the origin at the end of the
turn, when the journal has them and, with fsync per batch, the disk. If the disk fails, the host leaves the
stream. It joins again, at the position taken, once a turn has been stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from treecast.middleware.broker.pubsub import is_name
from treecast.middleware.fabric.core.reorder import Delivery, Progress
from treecast.middleware.fabric.core.states import ReceiverState
from treecast.middleware.fabric.origin import JoinedStream
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.complaints import Complaints
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .batches import Event, Lineage, RunEvent, events_of
from .ports import FIRST_STREAM, OPEN, Common, EventOpen, EventOpened
from .shares import PREFIX, Shares
from .words import Words

_log = Log(__name__)


class Received:
    """One received stream. Implements `fabric.origin.Sink`."""

    def __init__(self, receiving: Receiving, host: int, lineage: Lineage) -> None:
        self.host = host
        self.lineage = lineage
        self.joined: JoinedStream
        self.over_at = 0.0  # when it was first seen at its end
        self.number = 0  # the highest message number that it has brought
        self._receiving = receiving

    def deliver(self, deliveries: list[Delivery]) -> None:
        self._receiving.take(self, deliveries)

    def failed(self, error: Exception) -> None:
        self._receiving.failed(self)


class Receiving:
    """All event streams that this host receives, by origin and number."""

    def __init__(self, common: Common, clock: Callable[[], float], shares: Shares) -> None:
        """`clock` returns seconds since the Unix epoch."""
        self._clock = clock
        self._shares = shares
        self._hub = common.hub
        self._turn = common.turn
        self._remotes = common.remotes
        self._methods = common.methods
        self._fabric = common.fabric
        self._settings = common.settings
        self._counters = common.counters
        self._complaints = Complaints({}, _log, "batch cannot be read", level=logging.ERROR)
        self._streams: dict[tuple[int, int], Received] = {}
        self._passed: dict[tuple[int, int, int], int] = {}  # host, epoch, stream -> the highest number taken
        # by host: it had said that nothing first sent before will be sent again. Not so an older state of its
        # data directory, which owes what all hosts have long taken
        self._floors: dict[int, Lineage] = {}
        self._words = Words()
        self._taken: dict[Received, None] = {}  # streams with deliveries in this turn
        self._gathered: list[tuple[JoinedStream, Progress]] = []  # to acknowledge when the turn is stored
        self._left: list[Received] = []  # to join again when a turn is stored
        self._held = False  # no stream is received: this host has no room for more
        self._timer: asyncio.TimerHandle | None = None

    # --- life

    def start(self) -> None:
        """Starts accepting streams."""
        self._loop = asyncio.get_running_loop()
        if self._hub.journal is not None:
            self._passed = self._hub.journal.passed
        self._methods.register(OPEN, self._open)
        self._timer = self._loop.call_later(self._settings.over, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._streams.values()):
            self._leave(stream)
        self._left.clear()
        self._turn.remove_speaker(self)

    def hold(self) -> None:
        """Leaves all streams at the end of the turn, until `release`: their origins keep what they owe."""
        self._held = True
        self._turn.ask(self)

    def release(self) -> None:
        """Receives again, from where it was taken to."""
        if self._held:
            self._held = False
            self._turn.ask(self)

    def _put_aside(self, stream: Received) -> None:
        stream.joined.leave()
        del self._streams[stream.host, stream.lineage[1]]
        self._left.append(stream)

    def _open(self, host: int, request: EventOpen, body: memoryview) -> tuple[EventOpened, Buffer]:
        if request.stream < FIRST_STREAM:
            raise TreecastError(Fault.INVALID_REQUEST, f"{request.stream} is not an event stream")
        for stream in [one for one in self._streams.values() if one.host == host]:
            if stream.lineage[0] != request.epoch:  # of an earlier run
                self._leave(stream)
        words = self._words.say(host, request.epoch, self._passed)
        ended = words if request.asks_ended else []
        self._forget_settled(host, (request.settled_epoch, request.settled_stream))
        known = self._streams.get((host, request.stream))
        lineage = (request.epoch, request.stream)
        if known is not None and known.lineage == lineage:
            return EventOpened(kept=True, next=known.joined.next, ended=ended, filters=True), b""
        # what was left takes up no earlier run, and no place before the one that the origin names now
        self._left = [one for one in self._left if one.host != host or _goes_on(one.lineage, lineage)]
        self._join(Received(self, host, lineage), request.first)
        if self._held:
            self._put_aside(self._streams[host, request.stream])
        return EventOpened(kept=False, next=request.first, ended=ended, filters=True), b""

    def _join(self, stream: Received, first: int) -> None:
        self._receive(stream, Progress(first, first))
        self._counters.streams_received += 1

    def _receive(self, stream: Received, progress: Progress) -> None:
        epoch, number = stream.lineage
        stream.joined = self._fabric.join(
            stream.host,
            number,
            epoch,
            stream,
            progress=progress,
            settings=self._fabric.waiting_settings,  # the origin owes what is missing
            keeps=True,
        )
        self._streams[stream.host, number] = stream

    def _leave(self, stream: Received) -> None:
        passed = self._passed.get((stream.host, *stream.lineage), 0)
        self._words.ended(stream.host, stream.joined, stream.number, passed)
        stream.joined.leave()
        self._streams.pop((stream.host, stream.lineage[1]), None)

    # --- arrivals

    def take(self, stream: Received, deliveries: list[Delivery]) -> None:
        """Publishes deliveries. They are stored, and acknowledged, with the turn."""
        self._hub.clock.wall = self._clock()
        self._taken[stream] = None
        self._turn.ask(self)
        tally = self._hub.tally
        if tally is not None:
            tally.origin = stream.host
        try:
            for delivery in deliveries:
                self._publish_all(stream, delivery.message.payload)
        finally:
            if tally is not None:
                tally.origin = 0

    def _publish_all(self, stream: Received, payload: bytes) -> None:
        try:
            for event in events_of(payload):
                if isinstance(event, RunEvent):
                    self._publish_run(stream, event)
                else:
                    self._publish(stream, event)
        except TreecastError as error:
            self._counters.bad_batches += 1
            self._complaints.count(error.fault.name, f"of host {stream.host}: {error}")

    def _publish(self, stream: Received, event: Event) -> None:
        hub, message = self._hub, event.message
        if event.number and not self._takes(stream, event, 1):
            self._counters.repeated += 1
            return
        self._counters.messages_received += 1
        if message.topic.startswith(PREFIX):
            self._shares.take(message)
            return
        if not is_name(message.topic):
            raise TreecastError(Fault.INVALID_TOPIC, f"{message.topic!r} cannot be published to")
        hub.feed(message, self._remotes.get(stream.host))

    def _publish_run(self, stream: Received, event: RunEvent) -> None:
        run = event.run
        if event.number:
            taken = self._passed.get(_line(stream, event), 0) - event.number + 1
            if 0 < taken < run.count:  # partly taken: another run of the origin sent it in other parts
                for single in event.singly():
                    self._publish(stream, single)
                return
            if not self._takes(stream, event, run.count):
                self._counters.repeated += run.count
                return
        self._counters.messages_received += run.count
        self._hub.feed_run(run, self._remotes.get(stream.host))

    def _takes(self, stream: Received, event: Event | RunEvent, count: int) -> bool:
        """Whether an event with `count` numbers is new. If so, marks it as taken."""
        key, last = _line(stream, event), event.number + count - 1
        stream.number = last
        if self._passed.get(key, 0) >= last or key[1:] < self._floors.get(stream.host, (0, 0)):
            return False
        if self._hub.journal is not None:
            self._hub.journal.pass_by(key, last)
        else:
            self._passed[key] = last
        return True

    # --- the turn

    def gather(self) -> None:
        """Implements `turn.Speaker`."""
        taken, self._taken = self._taken, {}
        self._gathered.extend([(stream.joined, stream.joined.progress) for stream in taken])

    def say(self) -> None:
        """Implements `turn.Speaker`: acknowledges the stored deliveries to their origins."""
        gathered, self._gathered = self._gathered, []
        for joined, progress in gathered:
            joined.keep(progress)
        if self._held:
            for stream in list(self._streams.values()):
                self._put_aside(stream)
        elif self._left:
            self._join_again()

    def refuse(self) -> None:
        """Implements `turn.Speaker`: leaves the streams whose deliveries the disk refused.

        The journal keeps what was taken and stores it when it can.
        """
        refused = {joined for joined, _ in self._gathered}
        self._gathered.clear()
        # These wait for a turn that is stored: another one is tried.
        if self._left:
            self._loop.call_later(self._settings.retry, self._turn.ask, self)
        for stream in [one for one in self._streams.values() if one.joined in refused]:
            stream.joined.leave()
            self.failed(stream)

    def failed(self, stream: Received) -> None:
        """Schedules a left stream to be joined again, after the next stored turn.

        Its deliveries must not be acknowledged before.
        """
        self._streams.pop((stream.host, stream.lineage[1]), None)
        self._loop.call_later(self._settings.retry, self._again, stream)

    def _again(self, stream: Received) -> None:
        if self._timer is not None and not self._timer.cancelled():
            self._left.append(stream)
            self._turn.ask(self)

    def _join_again(self) -> None:
        left, self._left = self._left, []
        for stream in left:
            if (stream.host, stream.lineage[1]) not in self._streams:  # else it was opened again
                self._receive(stream, stream.joined.progress)

    # --- ended streams

    def _forget_settled(self, host: int, floor: Lineage) -> None:
        """Forgets streams before `floor`: their origin will send none of their messages again."""
        floor = self._floors[host] = max(floor, self._floors.get(host, floor))
        for stream in [one for one in self._streams.values() if one.host == host and one.lineage < floor]:
            self._leave(stream)
        for key in [key for key in self._passed if key[0] == host and key[1:] < floor]:
            if self._hub.journal is not None:
                self._hub.journal.pass_by(key, 0)
            else:
                del self._passed[key]

    def _tick(self) -> None:
        """Leaves ended streams, at the second tick after their end so that their origin has been told."""
        self._timer = self._loop.call_later(self._settings.over, self._tick)
        for stream in list(self._streams.values()):
            if stream.joined.state is not ReceiverState.DONE:
                continue
            if stream.over_at:
                self._leave(stream)
            else:
                stream.over_at = self._loop.time()

    def host_left(self, host: int) -> None:
        """Leaves the streams of a host that has left the cluster."""
        for stream in list(self._streams.values()):
            if stream.host == host:
                self._leave(stream)
        self._words.forget(host)


def _goes_on(left: Lineage, opened: Lineage) -> bool:
    """Whether a stream that was left is another one of the run of `opened`."""
    return left[0] == opened[0] and left[1] != opened[1]


def _line(stream: Received, event: Event | RunEvent) -> tuple[int, int, int]:
    """Returns (host, epoch, number) of the stream that first sent the event."""
    epoch, number = event.lineage or stream.lineage
    return stream.host, epoch, number
