"""Messages, runs of messages, their subscribers, and what sessions are owed.

A run is a sequence of consecutive publishes with the same targets, kept as the bytes received
(`wire.mqtt_publish`). A run of QoS 0 is sent unchanged. A run of QoS 1 is sent with the receiver's packet ids
in place of the publisher's. If it is owed to an event stream, it has one entry in the journal, and its
messages have consecutive numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from treecast.middleware.wire.mqtt_publish import (
    PUBLISH_1,
    WITH_PROPERTIES,
    count_run,
    head_at,
    in_other_format,
    same,
    section,
    uint16_at,
    without_ids,
)

if TYPE_CHECKING:
    from treecast.middleware.storage.block_log import BlockSegment

    from .subscriptions import Routes, Target, Targets

NEVER = 0.0
_ANY_SIZE: Final = 1 << 40
AGENTS: Final = b"$agents/"  # what topics begin with that agents use among themselves, on no daemon


class Message:
    """One message. It is shared by all queues that hold it, and never changed once published.

    `properties` are opaque to the broker, in the spelling of `format`. `expires_at` is in seconds since the
    Unix epoch, NEVER if it does not expire. `stamp` orders retained messages of one topic. `number` is
    its number in the journal, 0 if it has none; `waiting` counts the references that keep it there.
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
        # The encoded forms that faces made of it, kept for the next subscriber: at most one per spelling.
        self.spelt: dict[int, bytes] | None = None

    @property
    def size(self) -> int:
        """The approximate number of bytes that it takes in a queue."""
        return len(self.topic) + len(self.payload) + len(self.properties)

    def copy(self) -> Message:
        """Returns the message without a number: the journal owes it apart from this one."""
        return Message(self.topic, self.payload, self.qos, self.retain, self.properties, self.expires_at)


@mypyc_attr(allow_interpreted_subclasses=True)
class Run:
    """Consecutive messages, all of QoS 0 or all of QoS 1, for the same targets, as the bytes received.

    Subscribers that use `format` may be sent `data` unchanged, those of the other format what `in_format`
    returns. `topics`: those of its messages in order, each once where it repeats, if they are known.
    """

    def __init__(self, format: int, data: bytes, count: int) -> None:
        self.format = format
        self.data = data
        self.count = count
        self.topics: list[bytes] = []
        self._other: Run | None = None  # in the other format

    def in_format(self, format: int) -> Run:
        """Returns the run in a format: itself, or a copy that is kept until `handed_over`."""
        if format == self.format:
            return self
        other = self._other
        if other is None:
            other = self._other = self._respelt(format)
        return other

    def _respelt(self, format: int) -> Run:
        raise NotImplementedError

    def messages(self) -> list[Message]:
        raise NotImplementedError

    def handed_over(self) -> None:
        """All targets have the run: drops the cached forms that were made for some of them."""
        self._other = None


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscriber:
    """An owner of subscriptions: a client's session, or another host that is interested (`foreign`).

    `serial` identifies the subscriber for the lifetime of the process. `durable`: messages of QoS 1 and 2
    that it is owed outlive the process.
    """

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.durable = False
        self.foreign = False
        self.name = ""  # a client's id

    def take(self, message: Message, target: Target) -> None:
        """Takes over one message."""
        raise NotImplementedError

    def take_run(self, run: Run, target: Target) -> None:
        """Takes over a run. Never called if `target` has to leave out the subscriber's own messages."""
        for message in run.messages():
            self.take(message, target)

    @property
    def ready(self) -> bool:
        """Whether it can send a message of a shared subscription now."""
        return True

    @property
    def online(self) -> bool:
        """Whether it may be given messages of shared subscriptions: its client is connected."""
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """A waiter for other hosts, or for the ends of partitions."""

    def confirmed(self) -> None:
        """All have answered, or have timed out. Called once."""
        raise NotImplementedError


class PublishRun(Run):
    """A run of QoS 0, as received."""

    def messages(self) -> list[Message]:
        """Returns the messages, decoded at each call."""
        return messages_in(self, 0, 0, len(self.data))

    def _respelt(self, format: int) -> Run:
        return PublishRun(format, in_other_format(self.data, self.format), self.count)


class PromisedRun(Run):
    """A run of QoS 1, as received, with the publisher's packet ids. `bodies`: bytes of all bodies; `size`:
    bytes of topics and payloads, which is what the messages take in a queue.

    `number`, `waiting` and `segment` as in `Message`. `number` is the first message's; the others have the
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
        """Returns the messages: the same objects for all callers until `handed_over`."""
        if self._messages is None:
            self._messages = numbered_messages(self)
        return self._messages

    @property
    def unread(self) -> bool:
        """Whether its messages have not been decoded."""
        return self._messages is None

    def as_qos_0(self) -> PublishRun:
        """Returns the run as QoS 0, for subscribers that were granted QoS 0."""
        if self._plain is None:
            self._plain = PublishRun(self.format, without_ids(self.data), self.count)
        return self._plain

    def _respelt(self, format: int) -> Run:
        data = in_other_format(self.data, self.format)
        return PromisedRun(format, data, self.count, self.size + _overhead(format) * self.count)

    def handed_over(self) -> None:
        super().handed_over()
        self._messages = None
        self._plain = None

    @property
    def overhead(self) -> int:
        """The bytes of a packet's body that are neither topic nor payload."""
        return _overhead(self.format)


def _overhead(format: int) -> int:
    return 5 if format == WITH_PROPERTIES else 4


def messages_in(run: Run, qos: int, begin: i64, end: i64) -> list[Message]:
    """Returns the messages between two positions of a run."""
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
    """Returns the messages of a run, with their numbers if the run is in the journal."""
    found = messages_in(run, 1, 0, len(run.data))
    number = run.number
    if number:
        for message in found:
            message.number = number
            message.segment = run.segment
            number += 1
    return found


def run_of(format: int, data: bytes) -> Run | None:
    """Returns `data` as a run, or None if it is not one."""
    count = count_run(data, format)
    if count <= 0:
        return None
    if data[0] != PUBLISH_1:
        return PublishRun(format, data, count)
    return PromisedRun(format, data, count, bodies_of(data))


def bodies_of(data: bytes) -> int:
    """Returns the number of bytes of all bodies of a run."""
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
    """A search for the run at some position of a chunk: `count` publishes, up to `stop`, for `targets`.

    `count` 0: the first packet is of another kind, incomplete, or breaks a rule, and has to be handled by
    itself. `size`: bytes of the bodies.
    """

    def __init__(self, routes: dict[bytes, Targets], format: int, largest: int) -> None:
        """`routes`: the targets of known topics. `largest`: the largest packet, in bytes."""
        self.targets: Targets | None = None
        self.count = 0
        self.stop = 0
        self.size = 0
        self._topics: list[bytes] = []
        self._routes = routes
        self._format = format
        self._largest = largest

    def find(self, topic: bytes) -> Targets | None:
        """Returns the targets of a topic that is not in the routes, or None if its name breaks a rule."""
        raise NotImplementedError

    def look(self, data: bytes, position: i64, end: i64) -> None:
        """Reads from `position` to the end of the run. Never raises."""
        self.targets = None
        self._topics = []
        first: i64 = data[position]
        numbered: i64 = 2 if first == PUBLISH_1 else 0
        newer: i64 = 1 if self._format == WITH_PROPERTIES else 0
        largest: i64 = self._largest
        at = position
        count: i64 = 0
        sizes: i64 = 0
        known_at: i64 = 0  # position of the previous packet's topic
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
        """Whether `topic` has the same targets as the run so far."""
        found = self._routes.get(topic)
        if found is None:
            found = self.find(topic)
            if found is None:
                return False
        if self.targets is None:
            self.targets = found
        if found is not self.targets:
            return False
        self._topics.append(topic)
        return True

    def run(self, data: bytes, position: int) -> Run:
        """Returns the run that was found. Only valid if `count` is not 0."""
        found = section(data, position, self.stop)
        run: Run
        if data[position] == PUBLISH_1:
            run = PromisedRun(self._format, found, self.count, self.size)
        else:
            run = PublishRun(self._format, found, self.count)
        run.topics = self._topics
        return run


class FeedScan(RunScan):
    """A search for runs in what another host has published."""

    def __init__(self, routes: Routes, format: int) -> None:
        super().__init__(routes.fed, format, _ANY_SIZE)
        self._all = routes

    def find(self, topic: bytes) -> Targets | None:
        return self._all.direct(topic) if is_name(topic) else None


def is_name(topic: bytes) -> bool:
    """Whether another host can have published to `topic`. Names that begin with `$` stay on their host,
    except those of agents."""
    if not topic or len(topic) > 0xFFFF or (topic.startswith(b"$") and not topic.startswith(AGENTS)):
        return False
    return not (b"+" in topic or b"#" in topic or b"\0" in topic)


class Owed:
    """A message that a session is owed and has not settled. `sent`: the client may have received it.

    `share`: the shared subscription that it is for, as `NAME/FILTER`; b"" for any other.
    """

    def __init__(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.sent = False
        self.share = b""


class WillRecord:
    """A client's will: the message published `delay` seconds after the client disconnects ungracefully.

    `lives`: the lifetime in seconds from then on, -1: no expiry. `properties`: as in a publish.
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
    """A subscription's options as one number, its identifier, and the text of its filter, "" for none."""

    def __init__(self, options: int, identifier: int, content: str = "") -> None:
        self.options = options
        self.identifier = identifier
        self.content = content


class Creditor:
    """The record of a receiver that is owed messages: a durable session, an event stream, a spool or a shared
    subscription. All but the first have client ids that begin with U+0000, which is not possible for clients.
    `number` is never reused. `user`: whose client id it is, "" if nobody's.
    `gone_at`: when the client disconnected, in seconds since the Unix epoch, 0.0 while it is connected.
    `will`: due `will.delay` after `gone_at`.

    `owed`: by message number. `runs`: by the number of the first message; only for event streams.
    `incoming`: packet ids of QoS 2 that the client has not released. `sent`: numbers of QoS 2 messages that
    were sent, by packet id. `released`: packet ids whose message the client has, and that are not completed.
    """

    def __init__(self, number: int, client_id: str) -> None:
        self.number = number
        self.client_id = client_id
        self.user = ""
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
        """The number of messages that are not settled."""
        return len(self.owed) + sum([run.count for run in self.runs.values()])

    @property
    def of_client(self) -> bool:
        return not self.client_id.startswith("\0")
