"""`JoinedQueues`: the queues of a joined host, towards its faces and towards other hosts.

    SharedDefinitions   what exists, on whichever host
    RemoteQueue         a queue of another host, as seen here
    Spools, Arrivals    messages to and from other hosts
    Serving             other hosts' consumers of queues here

The edge calls `send` after the store was written, and `tick` periodically. `wake` asks for the next `send`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from .any_queue import AnyQueue
from .arguments import QueueType
from .consumers import Consumer
from .elsewhere import WINDOW, RemotePart, RemoteQueue, Serving, home_down, read_deliveries
from .entries import Declared
from .message import Run
from .reach import Ask, Defined, QueueAnswer, QueueCall, QueueNotice, Reach, Say, Settling
from .refusals import text
from .shared import SharedDefinitions, VirtualHosts
from .spool import Arrivals, Spools
from .virtual_host import VirtualHost

_log = Log(__name__)

_FEW: Final = WINDOW // 4  # a window that is smaller by less is not worth a notice

# The host it goes to, the number of the call (0 for notices), and the content.
_Message = tuple[int, int, QueueCall | QueueNotice]


class Asker(Protocol):
    """A caller that waits for the answer of a home."""

    def answered(self, answer: QueueAnswer, parts: list[RemotePart], now: float) -> None: ...


class JoinedQueues:
    """The queues of one joined host, from `begin` on. `now` and `wall` are set by the edge before each
    call.
    """

    def __init__(
        self,
        hosts: VirtualHosts,
        spools: VirtualHost,
        taken: dict[int, tuple[int, int]],
        reach: Reach,
        wake: Callable[[], None],
    ) -> None:
        self.now = 0.0
        self.wall = 0.0
        self.reach = reach
        self.definitions = SharedDefinitions(hosts, reach, self)
        self.on_known: list[Callable[[], None]] = []  # called when `definitions.known` rises
        self.spools = Spools(reach, spools)
        self.arrivals = Arrivals(spools, taken)
        self.serving = Serving(hosts.vhosts, reach)
        self._hosts = hosts
        self._wake = wake
        self._remotes: dict[int, dict[RemoteQueue, None]] = {}  # by home
        self._by_number: dict[int, RemoteQueue] = {}  # of consumers and gets of this host
        self._numbers = 0
        self._askers: dict[int, tuple[Asker, RemoteQueue, QueueCall]] = {}
        self._room: dict[int, tuple[RemoteQueue, Consumer]] = {}
        self._out: list[_Message] = []  # in the order of what asked for them

    def begin(self, known: Sequence[Defined], removed: Collection[str]) -> None:
        self.definitions.begin(known, removed)

    # --- definitions, as `shared.QueueKeeper`

    def elsewhere(self, vhost: VirtualHost, declared: Declared, home: int) -> None:
        before = vhost.queues.get(declared.name)
        queue = self._stand_in(vhost, declared, home)
        vhost.queue_definitions.put(queue)
        self._remotes.setdefault(home, {})[queue] = None
        if isinstance(before, RemoteQueue):
            self._remotes.get(before.home, {}).pop(before, None)
            before.delete()
        elif before is not None:
            self._move(vhost, before, queue)

    def _stand_in(self, vhost: VirtualHost, declared: Declared, home: int) -> RemoteQueue:
        said = declared.definition
        given = said.get("arguments")
        asked = given if isinstance(given, dict) else {}
        arguments, policies = vhost.queue_definitions.arguments_of(declared.name, asked)
        queue = RemoteQueue(
            declared.name,
            arguments,
            self,
            vhost.name,
            home,
            durable=said.get("durable") is True,
            auto_delete=said.get("auto_delete") is True,
            exclusive=said.get("exclusive") is True,
        )
        queue.asked = asked
        queue.policies = policies
        return queue

    def _move(self, vhost: VirtualHost, before: AnyQueue, queue: RemoteQueue) -> None:
        """Moves the messages of a queue that another host had declared first."""
        _log.warning(
            "messages move to the host that declared their queue first",
            queue=text(before.name),
            vhost=vhost.name,
            host=self.reach.name(queue.home),
        )
        for run in vhost.displace(before, self.now):
            queue.publish(run, self.now)
            self.seal(vhost, run)
        self._wake()

    def gone(self, vhost: VirtualHost, name: bytes) -> None:
        queue = vhost.queues.get(name)
        if isinstance(queue, RemoteQueue):
            self._remotes.get(queue.home, {}).pop(queue, None)
            vhost.queue_definitions.remove(queue)

    # --- publishing, as `elsewhere.Away` and `virtual_host.Departures`

    def put(self, queue: RemoteQueue, run: Run) -> list[int]:
        refused = self._refused(queue, run) if queue.arguments.type is QueueType.STREAM else []
        if len(refused) < run.count:
            self.spools.add(queue.home, queue)
        return refused

    def _refused(self, queue: RemoteQueue, run: Run) -> list[int]:
        """Returns the indexes of messages that the log of a stream refuses at its home. They are refused
        here, before their publisher gets a confirm."""
        streams = self._hosts.vhosts[queue.vhost].queue_definitions.streams
        if queue.log is None and streams is not None:
            queue.log = streams.log(queue.vhost, queue.name, queue.arguments)
        return queue.log.refusals(run) if queue.log is not None else []

    def seal(self, vhost: VirtualHost, run: Run) -> bool:
        """Sends a run on that was put for queues of other hosts. Returns whether that promises something."""
        promised = self.spools.seal(vhost.name, run, vhost.wall, self.now)
        self._wake()
        return promised

    # --- consuming from other hosts

    def reaches(self, home: int) -> bool:
        return home in self.reach.up()

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def ask(self, queue: RemoteQueue, call: QueueCall, asker: Asker) -> None:
        """Calls the home of a queue, after what was settled before. Refuses with NOT_FOUND if the home
        cannot be reached.
        """
        if not self.reaches(queue.home):
            raise home_down(queue, self.reach.name(queue.home))
        number = self.new_number()
        self._askers[number] = asker, queue, call
        if call.ask is Ask.CONSUME:
            self._by_number[call.consumer] = queue
        self._out.append((queue.home, number, call))
        self._wake()

    def answered(self, number: int, answer: QueueAnswer | None, body: bytes) -> None:
        """Takes the answer of a home; None if it has not answered.

        A call waits for a connection. So a consumer may be accepted after the connection was lost in which it
        was asked for: it is cancelled, as are all of that connection. Without an answer, the home may have
        accepted a consumer all the same, or handed out a message: both are taken back at once.
        """
        asker, queue, call = self._askers.pop(number)
        consuming = call.ask is Ask.CONSUME
        parts: list[RemotePart] = []
        if answer is None or (consuming and not answer.reason and call.consumer not in self._by_number):
            refusal = home_down(queue, self.reach.name(queue.home))
            answer = QueueAnswer(refusal.reason.name, refusal.detail)
            if call.consumer:
                self._by_number.pop(call.consumer, None)
                self.cancel(queue, call.consumer, 0, ends=False)
        elif answer.reason:
            self._by_number.pop(call.consumer, None)
        elif body:
            parts = self._read(queue.home, call.consumer, body)
        asker.answered(answer, parts, self.now)
        self._wake()

    def _read(self, host: int, number: int, body: bytes) -> list[RemotePart]:
        try:
            return read_deliveries(number, body)
        except TreecastError as error:
            _log.error("deliveries of a host cannot be read", host=host, error=error)
            return []

    def grant(self, queue: RemoteQueue, consumer: Consumer) -> None:
        self._room[consumer.number] = queue, consumer
        self._wake()

    def cancel(self, queue: RemoteQueue, number: int, seen: int, *, ends: bool) -> None:
        self._room.pop(number, None)
        how = Settling.FAIL if ends else Settling.ACK
        self._tell(queue.home, QueueNotice(Say.CANCEL, number, how=how, seen=seen))

    def settle(self, queue: RemoteQueue, part: RemotePart, offset: int, count: int, how: Settling) -> None:
        first = part.position + offset
        if self._out:
            home, _, last = self._out[-1]
            if (
                isinstance(last, QueueNotice)
                and (home, last.say, last.consumer, last.how) == (queue.home, Say.SETTLE, part.number, how)
                and last.first + last.count == first
            ):
                count, first = last.count + count, last.first
                self._out.pop()
        self._tell(queue.home, QueueNotice(Say.SETTLE, part.number, count, first, how))

    def _tell(self, host: int, notice: QueueNotice) -> None:
        self._out.append((host, 0, notice))
        self._wake()

    # --- what other hosts say

    def heard(self, changes: Mapping[str, Defined | None]) -> None:
        self.definitions.heard(changes)
        self._wake()

    def released(self) -> None:
        self.definitions.released()
        for told in list(self.on_known):
            told()

    def decided(self) -> None:
        self.definitions.decided()

    def called(self, host: int, call: QueueCall) -> tuple[QueueAnswer, bytes, int]:
        """Returns the answer to a call, and the version of definitions that has to be known before it."""
        answer, body = self.serving.call(host, call, self.now)
        self._wake()
        return answer, body, self.definitions.version

    def told(self, host: int, notice: QueueNotice, body: bytes) -> None:
        if notice.say in (Say.GRANT, Say.CANCEL, Say.SETTLE):
            self.serving.told(host, notice, self.now)
        else:
            queue = self._by_number.get(notice.consumer)
            if queue is not None and queue.home == host:
                if notice.say is Say.DELIVER:
                    queue.deliver(notice.consumer, self._read(host, notice.consumer, body))
                else:
                    queue.lost(notice.consumer)
                    del self._by_number[notice.consumer]
        self._wake()

    def arrived(self, host: int, body: bytes) -> bool:
        """Takes messages from another host. Returns whether the answer has to wait until they are stored.
        Raises STORAGE if they are not readable."""
        try:
            return self.arrivals.take(host, body, self._hosts.vhosts, self.wall, self.now)
        finally:
            self._wake()

    def carried(self, host: int, number: int, stored: bool) -> None:
        self.spools.carried(host, number, stored, self.now)
        self._wake()

    def host_up(self, host: int) -> None:
        self.spools.host_up(host, self.now)
        self._wake()

    def host_down(self, host: int) -> None:
        """Another host cannot be reached: neither its queues nor its consumers of queues here."""
        self.spools.host_down(host, self.now)
        self.serving.host_down(host, self.now)
        for queue in list(self._remotes.get(host, ())):
            queue.lose_all()
        for number in [number for number, queue in self._by_number.items() if queue.home == host]:
            del self._by_number[number]
            self._room.pop(number, None)
        self._out = [one for one in self._out if one[0] != host or isinstance(one[2], QueueCall)]
        self._wake()

    # --- the edge

    def send(self) -> None:
        """Sends everything to other hosts that was gathered. Called after the store was written."""
        if self.definitions.writes:
            self.definitions.send()
        self.spools.send()
        self._grant_all()
        out, self._out = self._out, []
        _join(out)
        for host, number, what in out:
            if isinstance(what, QueueCall):
                self.reach.call(host, number, what)
            else:
                self.reach.tell(host, what)
        self.serving.send(self.now)

    def _grant_all(self) -> None:
        rooms, self._room = self._room, {}
        for number, (queue, consumer) in rooms.items():
            room = min(consumer.room, WINDOW)
            granted = consumer.received + room
            more = granted - consumer.granted
            if room > 0 and (more >= _FEW or (more > 0 and room < WINDOW)):
                consumer.granted = granted
                self._out.append((queue.home, 0, QueueNotice(Say.GRANT, number, granted)))

    def tick(self) -> None:
        if self.spools.tick(self.now):
            self._wake()


def _join(out: list[_Message]) -> None:
    """Marks the settlements that another one for the same host follows."""
    following: dict[int, QueueCall | QueueNotice] = {}
    for at in range(len(out) - 1, -1, -1):
        host, number, what = out[at]
        if _settles(what) and host in following and _settles(following[host]):
            assert isinstance(what, QueueNotice)
            out[at] = host, number, msgspec.structs.replace(what, more=True)
        following[host] = what


def _settles(what: QueueCall | QueueNotice) -> bool:
    return isinstance(what, QueueNotice) and what.say in (Say.SETTLE, Say.CANCEL)
