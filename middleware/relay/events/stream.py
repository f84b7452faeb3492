"""One event stream of this host: its queued parcels, its promises and its members.

    opening --all members answered, or time is over--> open --nobody needs it--> closed

A parcel gets its sequence when it is placed. It is sent once the journal has stored its promises. While the
stream is opening, or the fabric has no room, it waits here.

`Places` knows the streams that each topic last went by, which preserves the order of a topic that changes
streams. The first message of a topic in another stream waits, at every host that receives both, for all that
was placed in the earlier stream. The earlier stream at a host is not always the topic's latest: a topic that
goes to hosts 2 and 3, then to 3 alone, then to 2 alone, has to wait at host 2 for the first of these streams.
For a forgotten topic, every stream that was in use when it was forgotten counts.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Generic, Protocol, TypeVar

from treecast.middleware.broker.pubsub import Creditor, Journal, Message, Owed, PromisedRun, Run
from treecast.middleware.fabric.core.states import PeerState
from treecast.middleware.fabric.origin import Origin
from treecast.middleware.wire.segment import After

from .contents import Content

CONTENT = "content"
"""The second level where the group is for streams by content."""
HOSTS = "$hosts"
"""The first level of what the groups of event streams stand for; no topic that crosses hosts begins so."""
_MOST_SHOWN = 6


class Parcel:
    """One record batch with `records` messages.

    `expires`: by the fabric's clock; NEVER for promised messages. `content`, `hosts`: see `Content`.
    """

    __slots__ = ("after", "content", "expires", "hosts", "payload", "records")

    def __init__(
        self,
        payload: bytes,
        records: int,
        after: tuple[After, ...],
        expires: float,
        content: Content | None = None,
    ) -> None:
        self.content = content.header if content is not None else b""
        self.hosts = content.hosts if content is not None else None
        self.payload = payload
        self.records = records
        self.after = after
        self.expires = expires


class Promise:
    """A message of QoS 1 or 2, or a run of QoS 1, that the journal owes until all before `end` is settled at
    all members.

    `number`: of the last message, in the journal. `total`: how many messages the stream has promised so far,
    including this promise.
    """

    __slots__ = ("count", "end", "number", "part", "record", "total")

    def __init__(self, end: int, record: Creditor, part: Message | PromisedRun, before: int) -> None:
        self.end = end
        self.record = record
        self.part = part
        self.count = part.count if isinstance(part, PromisedRun) else 1
        self.number = part.number + self.count - 1
        self.total = before + self.count

    def settle(self, journal: Journal) -> None:
        """Releases the promise in the journal."""
        if isinstance(self.part, PromisedRun):
            journal.settled_run(self.record, self.part)
        else:
            journal.settled(self.record, self.part)


class EventStream:
    """One event stream.

    `number`: its id. `whole`: the hosts that it was made for, of which `members` are left. `record`: its
    record in the journal, from its first promise on. `levels`: the levels of its group.

    `end`: the sequence after all placed parcels. `used`: the loop's time of the last placing. `accounted`:
    the sequence before which settled messages are also settled in a stored account, so that their promises
    can be released.
    """

    def __init__(self, origin: Origin, members: frozenset[int], now: float, topic: bytes = b"") -> None:
        """`topic`: of a stream by content, which serves it alone."""
        self.origin = origin
        self.topic = topic
        origin.by_content = bool(topic)
        self.number = origin.key[1]
        self.members = set(members)
        self.whole = members
        self.levels = (HOSTS, *([CONTENT] if topic else ()), *map(str, sorted(members)))
        self.record: Creditor | None = None
        self.end = 0
        self.used = now
        self.asked: set[int] = set()  # members that have not answered yet
        self.open = False
        self.closing = False
        self.promises: deque[Promise] = deque()
        self.promised = 0  # number of messages promised so far
        self.number_settled = 0  # the highest number of a released promise
        # Without stored accounts, no promise waits for one.
        self.accounted = sys.maxsize
        self._placed: list[Parcel] = []  # waiting for the journal
        self._waiting: deque[Parcel] = deque()  # waiting for members or the fabric
        self._waiting_bytes = 0

    def hosts(self) -> list[int]:
        """Returns the receivers of what is placed now."""
        return [] if self.closing else list(self.members)

    # --- placing

    def place(self, parcel: Parcel) -> None:
        """Places a parcel, which `send` sends after the journal has been written."""
        self._placed.append(parcel)
        self.end += parcel.records

    def promise(self, journal: Journal, record: Creditor, part: Message | PromisedRun) -> None:
        """Makes `record` owe `part`, a part of the last parcel placed, until this stream has settled it."""
        if isinstance(part, PromisedRun):
            journal.owe_run(record, part)
        elif part.number not in record.owed:
            journal.owe(record, Owed(part, part.qos, part.retain, ()))
        promise = Promise(self.end, record, part, self.promised)
        self.promised = promise.total
        self.promises.append(promise)

    # --- sending

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    @property
    def pending(self) -> bool:
        """Whether some parcels have not been handed to the fabric."""
        return bool(self._placed or self._waiting)

    def send(self) -> None:
        """Sends the placed parcels; the journal has stored their promises."""
        for parcel in self._placed:
            self._waiting.append(parcel)
            self._waiting_bytes += len(parcel.payload)
        self._placed.clear()
        self.pump()

    def pump(self) -> None:
        """Hands waiting parcels to the fabric as far as it has room."""
        waiting = self._waiting
        while self.open and waiting:
            parcel = waiting[0]
            taken = self.origin.publish(
                parcel.payload,
                parcel.records,
                after=parcel.after,
                expires=parcel.expires,
                content=parcel.content,
                hosts=parcel.hosts,
            )
            if taken is None:
                return
            waiting.popleft()
            self._waiting_bytes -= len(parcel.payload)
        if self.closing and not self.pending and not self.origin.sender.closed:
            self.origin.close()

    def close(self) -> None:
        """Closes the stream to further parcels. It ends when all members have everything."""
        self.closing = True
        # Parcels that wait for members' answers are sent all the same: the stream ends with them.
        self.open = True
        self.pump()

    # --- settling

    @property
    def settled(self) -> int:
        """The sequence before which everything is settled at all members or given up."""
        return self.origin.sender.log.oldest if self.members else self.end

    @property
    def finished(self) -> bool:
        """Whether it is closed and all members, except silent ones, know that."""
        if not self.members:
            return True
        if not (self.closing and self.origin.finished) or self.pending or self.promises:
            return False
        return all(peer.done or peer.state is PeerState.SILENT for peer in self.origin.sender.peers)

    def settle(self, journal: Journal | None) -> int:
        """Releases settled promises in the journal. Returns the number of their messages."""
        settled, count = min(self.settled, self.accounted) if self.members else self.end, 0
        promises = self.promises
        while promises and promises[0].end <= settled:
            promise = promises.popleft()
            self.number_settled = promise.number
            if journal is not None:
                promise.settle(journal)
            count += promise.count
        return count


class Batch:
    """Messages and runs for one parcel of a stream, either all promised or all not.

    `count`: number of messages, including those in runs. `content`: of its only message, in a stream by
    content.
    """

    def __init__(self, stream: EventStream, promised: bool, content: Content | None = None) -> None:
        self.content = content
        self.stream = stream
        self.promised = promised
        self.parts: list[Message | Run] = []
        self.after: dict[EventStream, int] = {}
        self.count = 0
        self.size = 0

    def takes(self, part: Message | Run, limit: int) -> bool:
        if self.content is not None:
            return False  # packets with one message each: the header is about this one
        return self.promised is is_promised(part) and self.size + size_of(part) <= limit

    def add(self, part: Message | Run) -> None:
        self.parts.append(part)
        self.count += count_of(part)
        self.size += size_of(part)


def is_promised(part: Message | Run) -> bool:
    return part.qos > 0 if isinstance(part, Message) else isinstance(part, PromisedRun)


def count_of(part: Message | Run) -> int:
    return 1 if isinstance(part, Message) else part.count


def size_of(part: Message | Run) -> int:
    return part.size if isinstance(part, Message) else len(part.data)


def name_of(hosts: frozenset[int]) -> str:
    """Returns the name of a stream in listings."""
    some = ",".join(map(str, sorted(hosts)[:_MOST_SHOWN]))
    return (
        f"mqtt to {some}" if len(hosts) <= _MOST_SHOWN else f"mqtt to {some} and {len(hosts) - _MOST_SHOWN}"
    )


# --- the order of topics


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
