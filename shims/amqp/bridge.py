"""The bridge between `amq.topic` of the virtual host `/` and the topics of the other faces.

Messages published to that exchange reach the subscribers of the other faces, and messages published there
reach the queues bound to the exchange. The routing key `a.b.c` is the MQTT topic `a/b/c` and the Kafka topic
`a.b.c` (`model.topics`). Bindings express interest: each binding key becomes the narrowest MQTT filter that
covers all its matches, and the binding makes the final decision. While Kafka has the topic, its partitions
are the only path: queues receive such messages when they are recorded.

Routing keys without an equivalent MQTT topic stay within AMQP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from treecast.middleware.broker.pubsub import NEVER, Message, PubSub, Subscriber, Subscription, Target
from treecast.middleware.broker.queues import Binding, Run, VirtualHost, message, messages
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.topics import TopicName
from treecast.middleware.model.wishes import ANY, REST, Wish
from treecast.middleware.wire.mqtt_headers import headers_of, properties_of

from . import records
from .codec_publish import FORMAT

EXCHANGE: Final = b"amq.topic"
_REMEMBERED: Final = 10_000  # cached topic names
_ROUTED: Final = records.EXCHANGE.encode()


class TopicBridge(Subscriber):
    """Implements `queues.Outlet` and subscribes on behalf of the bound queues."""

    def __init__(self, hub: PubSub, vhost: VirtualHost, clock: Callable[[], float]) -> None:
        """`clock` returns the `now` of the queues."""
        super().__init__(hub.routes.next_serial())
        self.name = "amq.topic"
        self._hub = hub
        self._vhost = vhost
        self._clock = clock
        self._publishing = False
        self._wishes: dict[Wish, int] = {}  # number of bindings
        self._bindings: set[Binding] = set()  # those counted; queues of other hosts are interested there
        self._topics: dict[bytes, bytes] = {}  # MQTT topic by routing key, b"" for none
        exchange = vhost.exchanges[EXCHANGE]
        for binding in exchange.bindings:
            self.wanted(binding, True)
        exchange.watcher = self.wanted
        vhost.outlets[EXCHANGE] = self

    def close(self) -> None:
        self._vhost.exchanges[EXCHANGE].watcher = None
        del self._vhost.outlets[EXCHANGE]
        for wish in self._wishes:
            self._hub.unsubscribe(self, wish.filter or b"")
        self._wishes.clear()

    # --- interest

    def wanted(self, binding: Binding, wanted: bool) -> None:
        """Updates the subscriptions after a binding was added or removed."""
        wish = wish_of(binding.key)
        filter = wish.filter if wish is not None else None
        if wish is None or filter is None or (wanted and self._elsewhere(binding)):
            return
        if not wanted and binding not in self._bindings:
            return
        self._bindings ^= {binding}
        count = self._wishes.get(wish, 0) + (1 if wanted else -1)
        if count:
            self._wishes[wish] = count
            if wanted and count == 1:
                self._hub.subscribe(Subscription(self, filter, qos=2, retain_as_published=True))
        else:
            del self._wishes[wish]
            self._hub.unsubscribe(self, filter)

    def _elsewhere(self, binding: Binding) -> bool:
        """Whether a queue of another host is bound."""
        name, is_exchange = binding.destination
        queue = self._vhost.queues.get(name)
        return not is_exchange and queue is not None and queue.home != 0

    # --- from AMQP

    def direct(self, run: Run) -> tuple[bytes, ...]:
        """Implements `queues.Outlet`. Queues get what Kafka has a topic for when it is recorded."""
        recorder = self._hub.routes.recorder
        if recorder is None:
            return run.keys
        return tuple([key for key in run.keys if not recorder.records(self._topic_of(key))])

    def topics(self, run: Run) -> list[bytes]:
        """Returns the MQTT topics that `publish` would publish the run to."""
        found = dict.fromkeys([self._topic_of(key) for key in run.keys])
        return [topic for topic in found if topic]

    def publish(self, run: Run) -> tuple[bool, list[int]]:
        """Implements `queues.Outlet`: publishes to the subscribers of the other faces."""
        self._hub.clock.wall = max(self._hub.clock.wall, self._vhost.wall)
        recorder = self._hub.routes.recorder
        found = False
        refused: set[int] = set()
        if recorder is not None:
            recorder.lane = run.lane
        try:
            for key in run.keys:
                topic = self._topic_of(key)
                if topic:
                    found = self._publish(run, topic, refused) or found
        finally:
            if recorder is not None:
                recorder.lane = b""
        return found, sorted(refused)

    def _publish(self, run: Run, topic: bytes, refused: set[int]) -> bool:
        targets = self._hub.routes.targets(topic)
        others = [target for target in targets.direct if target.subscriber is not self]
        if not others and not targets.groups:
            return False
        expires = self._hub.clock.wall + run.expiration / 1000 if run.expiration >= 0 else NEVER
        self._publishing = True
        try:
            for index, (properties, body) in enumerate(messages(run.data)):
                told = properties_of(records.headers_of(properties))
                one = Message(topic, body, 1 if run.persistent else 0, False, told, expires)
                self._hub.publish(one, targets, self)
                if self._hub.refusal is not None:
                    refused.add(index)
        finally:
            self._publishing = False
        return True

    def _topic_of(self, key: bytes) -> bytes:
        found = self._topics.get(key)
        if found is None:
            if len(self._topics) >= _REMEMBERED:
                self._topics.clear()
            found = self._topics[key] = topic_of(key)
        return found

    # --- from other faces

    def take(self, message: Message, target: Target) -> None:
        """Implements `Subscriber`: delivers the message to the queues bound to its key."""
        if self._publishing:
            return  # published by this bridge: its queues already have it
        if _ROUTED in message.properties:
            return  # from a stream, into which AMQP has routed it
        try:
            key = TopicName.from_mqtt(message.topic.decode()).to_amqp().encode()
        except (TreecastError, UnicodeDecodeError):
            return  # no valid routing key, for example too long
        run = run_of(key, message)
        if message.expires_at != NEVER:
            run.expiration = max(int((message.expires_at - self._hub.clock.wall) * 1000), 0)
        self._vhost.deliver(run, self._clock(), here=True)


def topic_of(key: bytes) -> bytes:
    """Returns the MQTT topic of a routing key, or b"" if there is none."""
    try:
        topic = TopicName.from_amqp(key.decode()).to_mqtt().encode()
    except (TreecastError, UnicodeDecodeError):
        return b""
    return b"" if topic.startswith(b"$") else topic


def wish_of(key: bytes) -> Wish | None:
    """Returns the narrowest wish that includes all matches of a binding key, or None if nothing can match."""
    found: list[str] = []
    for level in key.split(b"."):
        if level == b"#":
            found.append(REST)
            break
        part = ANY if level == b"*" else topic_of(level).decode()
        if level and not part:
            return None
        found.append(part)
    wish = Wish(tuple(found))
    return wish if wish.filter is not None else None


def run_of(key: bytes, published: Message) -> Run:
    """Converts a message of another face to a run of one, persistent if its QoS is not 0."""
    headers = headers_of(published.properties) if published.properties else ()
    properties = records.properties_of(headers, persistent=published.qos > 0)
    data = message(properties, published.payload)
    run = Run(EXCHANGE, key, data, 1, len(published.payload), published.qos > 0)
    run.format = FORMAT
    return run
