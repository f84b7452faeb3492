"""Agent-Sub: messages of the server's clients go to the other sites that want them.

The agent's queue gives runs of deliveries. Each run is published on this host's hub, which owes it to the
other sites in its journal. The server gets its acknowledgement at the end of the turn that has stored the
run, so what the server has forgotten is stored here. While the spool is full nothing is acknowledged or read:
the server keeps its messages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from treecast.agents.common.bounds import Spool
from treecast.agents.common.status import AgentCounters
from treecast.middleware.broker.pubsub import PubSub, Subscriber, run_of
from treecast.middleware.broker.turn import Turn
from treecast.middleware.wire.mqtt_publish import WITH_PROPERTIES
from treecast.shims.amqp.codec import AmqpError

from . import hops
from .codec import names_of, packets_of
from .connection import AmqpConnection
from .session import Delivered
from .topics import topic_of

_MOST_TOPICS = 65_536  # whose names are remembered
_LARGEST = (256 << 20) - 4096  # bytes of a message: the longest publish of MQTT, less what is added


class Inbound:
    """Takes deliveries, as a speaker of the turn, from `open` to `close`. `lost` deliveries come again.

    `kinds`: the carried exchanges with their types.
    """

    def __init__(
        self,
        hub: PubSub,
        turn: Turn,
        own: Subscriber,
        vhost: str,
        hop: bytes,
        spool: Spool,
        counters: AgentCounters,
    ) -> None:
        """`own`: the subscriber that takes what comes from other sites. `hop`: this site's entry."""
        self.kinds: Mapping[str, str] = {}
        self.held = False
        self._hub = hub
        self._turn = turn
        self._own = own
        self._vhost = vhost
        self._hop = hop
        self._hop_field = hops.field(hop)
        self._spool = spool
        self._counters = counters
        self._names: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
        self._connection: AmqpConnection | None = None
        self._channel = 0
        self._last = 0  # the highest delivery tag that was taken
        self._gathered = 0  # that this turn stores
        self._acknowledged = 0

    def open(self) -> None:
        self._turn.add_speaker(self)

    def close(self) -> None:
        self._turn.remove_speaker(self)
        self.detach()

    def attach(self, connection: AmqpConnection, channel: int) -> None:
        """Begins with a new consumer: its delivery tags count from 1."""
        self._connection, self._channel = connection, channel
        self._last = self._gathered = self._acknowledged = 0
        self.held = False

    def detach(self) -> None:
        """The connection is over; the server gives out again what was not acknowledged."""
        self._connection = None

    def use_kinds(self, kinds: Mapping[str, str]) -> None:
        self.kinds = kinds
        self._names.clear()

    @property
    def full(self) -> bool:
        """Whether the spool takes no more for now."""
        return self._turn.congested or self._spool.full

    # --- deliveries

    def delivered(self, run: Delivered) -> None:
        """Takes a run. It is acknowledged once it is stored."""
        self._last = run.first + run.count - 1
        self._counters.taken += run.count
        self._turn.ask()
        if run.own:
            self._counters.looped += run.count
        elif run.exchange.decode("utf-8", "replace") not in self.kinds:
            self._counters.refuse_here("its exchange is not carried", run.count)
        elif len(run.data) > _LARGEST:
            self._counters.refuse_here("it is too large for the fabric", run.count)
        elif run.marked or run.further:
            for properties, body in parts_of(run.data):
                self._publish_special(run, properties, body)
        else:
            topic, names = self._names_of(run.exchange, run.key)
            self._publish(topic, packets_of(topic, names, run.data, self._hop_field), run.count)

    def _names_of(self, exchange: bytes, key: bytes) -> tuple[bytes, bytes]:
        """Returns the topic, and what each payload begins with."""
        found = self._names.get((exchange, key))
        if found is None:
            kind = self.kinds[exchange.decode()]
            if len(self._names) >= _MOST_TOPICS:
                self._names.clear()
            found = topic_of(self._vhost, exchange, kind, key), names_of(exchange, key)
            self._names[exchange, key] = found
        return found

    def _publish(self, topic: bytes, packets: bytes, count: int) -> None:
        hub = self._hub
        targets = hub.routes.targets(topic)
        run = run_of(WITH_PROPERTIES, packets)
        if not any(target.subscriber.foreign for target in targets.direct) or run is None:
            self._counters.unwanted += count
            return
        hub.clock.wall = time.time()
        run.topics = [topic]
        hub.publish_run(run, targets, self._own)
        run.handed_over()
        self._spool.add(len(packets))
        self._counters.sent += count

    def _publish_special(self, run: Delivered, properties: bytes, body: bytes) -> None:
        """Publishes a message that came from another cluster, or that has further keys. Of several
        keys it goes by each that reaches a site that the keys before do not reach."""
        try:
            added = hops.with_hop(properties, self._hop)
            keys = [run.key, *hops.further_keys(properties)]
        except AmqpError:
            self._counters.refuse_here("its headers cannot be read", 1)
            return
        layout = len(added).to_bytes(4, "big") + len(body).to_bytes(4, "big") + added + body
        names = names_of(run.exchange, run.key)
        reached: set[int] = set()
        for key in keys:
            topic, _ = self._names_of(run.exchange, key)
            hosts = {
                one.subscriber.serial
                for one in self._hub.routes.targets(topic).direct
                if one.subscriber.foreign
            }
            if hosts - reached:
                # A site that two keys reach gets the message twice, unless the keys reach the same sites.
                self._publish(topic, packets_of(topic, names, layout, b""), 1)
                reached |= hosts
        if not reached:
            self._counters.unwanted += 1

    # --- the turn

    def gather(self) -> None:
        """Implements `turn.Speaker`."""
        self._gathered = self._last

    def say(self) -> None:
        """Implements `turn.Speaker`: acknowledges what is stored, as far as the spool has room."""
        connection = self._connection
        if connection is None or connection.over:
            return
        if self.full:
            if not self.held:
                self.held = True
                self._counters.held += 1
                connection.pause()
            return
        if self.held:
            self.held = False
            connection.resume()
        if self._gathered > self._acknowledged:
            self._acknowledged = self._gathered
            connection.session.acknowledge(self._channel, self._gathered)
            connection.flush_later()

    def refuse(self) -> None:
        """Implements `turn.Speaker`: a later turn stores it, and acknowledges it then."""


def parts_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Returns properties and body of each message in the layout of a run."""
    found, at = [], 0
    while at < len(data):
        size, body = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
        middle = at + 8 + size
        found.append((data[at + 8 : middle], data[middle : middle + body]))
        at = middle + body
    return found
