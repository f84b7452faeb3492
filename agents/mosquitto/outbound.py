"""The way in: messages of other sites and daemons are published at this site's broker.

`Outbound` is the subscriber on the host's hub. It maps topics, adds this site's hop, and hands messages to a
session state as the face keeps for its clients: here the broker is the client. What is owed to it is in
the journal, from before the origin is told that it arrived until the broker has acknowledged it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from treecast.agents.common.bounds import Room
from treecast.agents.common.status import AgentCounters
from treecast.middleware.broker.pubsub import Message, PubSub, Run, Subscriber, Subscription, Target, Waiter
from treecast.shims.mqtt.session_state import SessionState

from .codec import LOCKS
from .topics import TopicMap

_AWAY = "it has QoS 0, and the broker was away"
_NO_RULE = "no rule has its topic"


class Outbound(Subscriber):
    """Hands to `state` what it is given as a subscriber of the hub."""

    def __init__(
        self,
        hub: PubSub,
        topics: TopicMap,
        state: SessionState,
        hop: bytes,
        counters: AgentCounters,
        room: Room,
    ) -> None:
        """`hop`: the encoded property of this site; empty: messages get none, and runs stay runs."""
        super().__init__(hub.routes.next_serial())
        self._hub = hub
        self._topics = topics
        self._state = state
        self._hop = hop
        self._counters = counters
        self._space = room
        # The stamps of what this host retained when it started, until `catch_up`; None: nothing to catch up.
        self._known: dict[bytes, int] | None = {one.topic: one.stamp for one in hub.retained.all()}
        self._backlog = len(state.unsettled())
        self.measure()

    def subscribe(self) -> None:
        """Subscribes to all topics that come in. Its site's own are left out: the broker has them."""
        for filter, qos in self._topics.filters.items():
            self._hub.subscribe(Subscription(self, filter, qos, True, True))

    @property
    def lag(self) -> int:
        """How many messages the broker has not acknowledged."""
        record = self._state.record
        return record.owes if record is not None else self._state.queued

    @property
    def published(self) -> int:
        """How many messages the broker has taken, or refused, since the agent's start."""
        counters = self._counters
        lost = counters.refused_there.get(_AWAY, 0) + counters.refused_there.get(_NO_RULE, 0)
        return self._backlog + counters.received - lost - self.lag

    def measure(self) -> None:
        """Brings the room up to date with what the broker has acknowledged."""
        size = sum(one.size for one in self._state.unsettled())
        if size > self._space.size:
            self._space.took(size - self._space.size)
        else:
            self._space.gave(self._space.size - size)

    # --- called by the hub

    def take(self, message: Message, target: Target) -> None:
        """Implements `Subscriber`."""
        self._counters.received += 1
        if message.retain and self._known is not None:
            self._known[message.topic] = message.stamp
        self._hand_over(message, target.qos)

    def take_run(self, run: Run, target: Target) -> None:
        """Implements `Subscriber`."""
        if self._hop or not self._topics.plain or not self._state.online:
            super().take_run(run, target)
            return
        self._counters.received += run.count
        self._space.took(len(run.data))
        self._state.take_run(run, target)

    def _hand_over(self, message: Message, most: int) -> None:
        """Hands a message to the broker's session, with a QoS of `most` at most."""
        topic, qos = self._topics.get(message.topic), min(message.qos, most)
        if not topic or message.topic.startswith(LOCKS):
            self._counters.refuse_there(_NO_RULE, 1)
        elif qos == 0 and not self._state.online and not message.retain:
            self._counters.refuse_there(_AWAY, 1)
        else:
            # A retained message is kept for a broker that is away whatever its QoS: it is the topic's state.
            qos = max(qos, 1) if message.retain and not self._state.online else qos
            properties = message.properties + self._hop
            made = Message(topic, message.payload, qos, message.retain, properties, message.expires_at)
            self._space.took(made.size)
            self._state.hand_over(made, qos, message.retain, ())

    # --- retained messages

    async def catch_up(self, *, all: bool) -> None:
        """Hands over the retained messages that have come to the cluster while this site was away; with
        `all`, every one, since the broker has lost its own."""
        known: Mapping[bytes, int] = {} if all or self._known is None else self._known
        if self._known is None and not all:
            return
        await collected(self._hub, list(self._topics.filters))
        self._known = None
        done: set[bytes] = set()
        for filter, qos in self._topics.filters.items():
            for message in self._hub.retained.match_all(filter, self._hub.clock.wall):
                if message.topic in done or message.stamp <= known.get(message.topic, 0):
                    continue
                done.add(message.topic)
                self._counters.received += 1
                self._hand_over(message, qos)


class _Collected(Waiter):
    def __init__(self) -> None:
        self.event = asyncio.Event()

    def confirmed(self) -> None:
        self.event.set()


async def collected(hub: PubSub, filters: list[bytes]) -> None:
    """Returns when the retained messages of all reachable hosts are here."""
    waiter = _Collected()
    if not hub.reach.collect(filters, waiter):
        await waiter.event.wait()
