"""Messages, runs of them, who takes them, and what sessions are owed.

A run is publishes that follow each other and go to the same targets, kept as the bytes in which they came
(`wire.publish_runs`). One of QoS 0 leaves as it is. One of QoS 1 leaves with the receiver's packet ids in
place of the publisher's; where it is owed to an event stream it has one entry in the journal, and its
messages have numbers in a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from treecast.middleware.wire.publish_runs import (
    PUBLISH_1,
    WITH_PROPERTIES,
    count_run,
    head_at,
    same,
    section,
    uint16_at,
    without_ids,
)

if TYPE_CHECKING:
    from treecast.middleware.storage.block_log import BlockSegment

    from .pubsub import PubSub
    from .subscriptions import Target, Targets

NEVER = 0.0
_ANY_SIZE: Final = 1 << 40


class Message:
    """One message. It is shared by all that have it queued, and never changed once it is published.

    `properties` are opaque to the broker, in the spelling of `format`. `expires_at` is in seconds since the
    Unix epoch, NEVER where it does not expire. `stamp` orders retained messages of one topic. `number` is
    its place in the journal, 0 where it has none; `waiting` counts who has still to settle it there.
    """

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        expires_at: float = NEVER,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires_at = expires_at
        self.stamp = 0
        self.number = 0
        self.waiting = 0
        self.segment: BlockSegment | None = None
        # What a face has made of it, kept for the next subscriber: at most one per spelling.
        self.spelt: dict[int, bytes] | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in a queue, roughly."""
        return len(self.topic) + len(self.payload) + len(self.properties)


@mypyc_attr(allow_interpreted_subclasses=True)
class Run:
    """Messages of QoS 0, or of QoS 1, one after the other, all to the same targets, as the bytes that came.

    Who speaks `format` may be sent `data` as it is; others ask for `messages()`.
    """

    def __init__(self, format: int, data: bytes, count: int) -> None:
        self.format = format
        self.data = data
        self.count = count

    def messages(self) -> list[Message]:
        raise NotImplementedError

    def handed_over(self) -> None:
        """All targets have it: what was made of it for some of them is theirs alone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscriber:
    """Who has subscriptions: a client's session, or another host that is interested (`foreign`).

    `serial` tells subscribers apart for as long as the process lives. `durable`: what it is owed of QoS 1
    and 2 outlives the process.
    """

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.durable = False
        self.foreign = False
        self.name = ""  # of a client, its id

    def take(self, message: Message, target: Target) -> None:
        """Takes over one message."""
        raise NotImplementedError

    def take_run(self, run: Run, target: Target) -> None:
        """Takes over a run. Never called where `target` has to leave out what the subscriber published."""
        for message in run.messages():
            self.take(message, target)

    @property
    def ready(self) -> bool:
        """Whether it can be handed a message of a shared subscription now."""
        return True


class PublishRun(Run):
    """Publishes of QoS 0 as they came."""

    def messages(self) -> list[Message]:
        """Each of them, read again."""
        return messages_in(self, 0, 0, len(self.data))


class PromisedRun(Run):
    """Publishes of QoS 1 as they came, with their publisher's packet ids. `bodies`: bytes of all bodies;
    `size`: of topics and payloads, which is what their messages take in a queue.

    `number`, `waiting` and `segment` as those of a `Message`: the first message's, and the others have the
    numbers after it.
    """

    def __init__(self, format: int, data: bytes, count: int, bodies: int) -> None:
        super().__init__(format, data, count)
        self.size = bodies - self.overhead * count
        self.number = 0
        self.waiting = 0
        self.segment: BlockSegment | None = None
        self._messages: list[Message] | None = None
        self._plain: PublishRun | None = None

    def messages(self) -> list[Message]:
        """Each of them, the same objects for all who ask until `handed_over`."""
        if self._messages is None:
            self._messages = numbered_messages(self)
        return self._messages

    @property
    def unread(self) -> bool:
        """Whether nobody has asked for its messages."""
        return self._messages is None

    def as_qos_0(self) -> PublishRun:
        """The same for who was granted QoS 0."""
        if self._plain is None:
            self._plain = PublishRun(self.format, without_ids(self.data), self.count)
        return self._plain

    def handed_over(self) -> None:
        self._messages = None
        self._plain = None

    @property
    def overhead(self) -> int:
        """Bytes of a packet's body that are neither topic nor payload."""
        return 5 if self.format == WITH_PROPERTIES else 4


def messages_in(run: Run, qos: int, begin: i64, end: i64) -> list[Message]:
    """The messages between two places of a run."""
    data = run.data
    between: i64 = (2 if qos else 0) + (1 if run.format == WITH_PROPERTIES else 0)
    found: list[Message] = []
    at = begin
    while at < end:
        size, body = head_at(data, at, end)
        named = body + 2 + uint16_at(data, body)
        at = body + size
        found.append(Message(data[body + 2 : named], data[named + between : at], qos))
    return found


def numbered_messages(run: PromisedRun) -> list[Message]:
    """The messages of a run, with their places in the journal where that has it."""
    found = messages_in(run, 1, 0, len(run.data))
    number = run.number
    if number:
        for message in found:
            message.number = number
            message.segment = run.segment
            number += 1
    return found


def run_of(format: int, data: bytes) -> Run | None:
    """The run that `data` is; None where it is none."""
    count = count_run(data, format)
    if count <= 0:
        return None
    if data[0] != PUBLISH_1:
        return PublishRun(format, data, count)
    return PromisedRun(format, data, count, bodies_of(data))


def bodies_of(data: bytes) -> int:
    """The bytes of all bodies of a run."""
    end: i64 = len(data)
    sizes: i64 = 0
    at: i64 = 0
    while at < end:
        size, body = head_at(data, at, end)
        sizes += size
        at = body + size
    return sizes


@mypyc_attr(allow_interpreted_subclasses=True)
class RunScan:
    """The publishes at some place of a chunk that are one run: `count`, up to `stop`, for `targets`.

    `count` 0: the first is of another kind, not whole, or breaks a rule; it is to be looked at by itself.
    `size`: bytes of their bodies.
    """

    def __init__(self, routes: dict[bytes, Targets], format: int, largest: int) -> None:
        """`routes`: the targets of topics that are known. `largest`: bytes of a packet."""
        self.targets: Targets | None = None
        self.count = 0
        self.stop = 0
        self.size = 0
        self._routes = routes
        self._format = format
        self._largest = largest

    def find(self, topic: bytes) -> Targets | None:
        """The targets of a topic that is not among the routes; None where its name breaks a rule."""
        raise NotImplementedError

    def look(self, data: bytes, position: i64, end: i64) -> None:
        """Reads on from `position` as long as it is the same run. Never raises."""
        self.targets = None
        first: i64 = data[position]
        numbered: i64 = 2 if first == PUBLISH_1 else 0
        newer: i64 = 1 if self._format == WITH_PROPERTIES else 0
        largest: i64 = self._largest
        at = position
        count: i64 = 0
        sizes: i64 = 0
        known_at: i64 = 0  # the topic of the packet before
        known: i64 = -1
        while at < end and data[at] == first:
            size, body = head_at(data, at, end)
            stop = body + size
            if size < 2 or stop > end or stop - at > largest:
                break
            length = uint16_at(data, body)
            if size < 2 + length + numbered + newer:
                break
            after = body + 2 + length
            if numbered:
                if uint16_at(data, after) == 0:
                    break
                after += 2
            if newer and data[after] != 0:
                break
            if length != known or not same(data, known_at, body + 2, length):
                if not self._goes_on(data[body + 2 : body + 2 + length]):
                    break
                known_at = body + 2
                known = length
            count += 1
            sizes += size
            at = stop
        self.count = count
        self.stop = at
        self.size = sizes

    def _goes_on(self, topic: bytes) -> bool:
        """Whether who wants `topic` are the targets of the run so far."""
        found = self._routes.get(topic)
        if found is None:
            found = self.find(topic)
            if found is None:
                return False
        if self.targets is None:
            self.targets = found
        return found is self.targets

    def run(self, data: bytes, position: int) -> Run:
        """What was found, as a run. Only where `count` is not 0."""
        found = section(data, position, self.stop)
        if data[position] == PUBLISH_1:
            return PromisedRun(self._format, found, self.count, self.size)
        return PublishRun(self._format, found, self.count)


class FeedScan(RunScan):
    """Looks for runs among what another host has published."""

    def __init__(self, hub: PubSub, format: int) -> None:
        super().__init__(hub.fed_routes, format, _ANY_SIZE)
        self._hub = hub

    def find(self, topic: bytes) -> Targets | None:
        return self._hub.direct(topic) if is_name(topic) else None


def is_name(topic: bytes) -> bool:
    """Whether another host can have published to it. Names that begin with `$` never leave their host."""
    if not topic or len(topic) > 0xFFFF or topic.startswith(b"$"):
        return False
    return not (b"+" in topic or b"#" in topic or b"\0" in topic)


class Owed:
    """A message that a session has been handed and has not settled. `sent`: its client may have got it."""

    def __init__(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.sent = False


class WillRecord:
    """What is published for a client that goes without saying so, `delay` seconds later.

    `lives`: so many seconds from then on, -1: for ever. `properties`: as a publish has them.
    """

    def __init__(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, properties: bytes, delay: int, lives: int
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.delay = delay
        self.lives = lives


class SubscriptionRecord:
    """A subscription's options as one number, and its identifier."""

    def __init__(self, options: int, identifier: int) -> None:
        self.options = options
        self.identifier = identifier


class Creditor:
    """Who is owed messages: a durable session, and by a client id that begins with U+0000, which no client's
    can, an event stream or a spool. `number` is its own for ever. `gone_at`: when its client went, in seconds
    since the Unix epoch, 0.0 while it is connected. `will`: what is due `will.delay` after `gone_at`.

    `owed`: by the messages' numbers. `runs`: by those of their first messages; only of event streams.
    `incoming`: packet ids of QoS 2 that its client has not released. `sent`: message numbers of QoS 2 that it
    was sent, by packet id; `released`: packet ids of which it has the message, and which are not completed.
    """

    def __init__(self, number: int, client_id: str) -> None:
        self.number = number
        self.client_id = client_id
        self.expiry = 0
        self.gone_at = 0.0
        self.will: WillRecord | None = None
        self.subscriptions: dict[bytes, SubscriptionRecord] = {}
        self.owed: dict[int, Owed] = {}
        self.runs: dict[int, PromisedRun] = {}
        self.incoming: set[int] = set()
        self.sent: dict[int, int] = {}
        self.released: set[int] = set()

    @property
    def owes(self) -> int:
        """How many messages are not settled."""
        return len(self.owed) + sum([run.count for run in self.runs.values()])

    @property
    def of_client(self) -> bool:
        return not self.client_id.startswith("\0")
