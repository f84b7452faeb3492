"""The way out: messages of the broker's clients go to the other sites and daemons that want them.

The face's `Publishing` hands messages to a hub of the agent's own, whose only subscriber is `Inbound`. It
maps topics, leaves out what has crossed the cluster before, and publishes the rest on the host's hub. The
broker gets its acknowledgements at the end of the turn that has stored the messages. Runs stay runs.
"""

from __future__ import annotations

from typing import Final

from treecast.agents.common.bounds import Spool
from treecast.agents.common.status import AgentCounters
from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    PubSubSettings,
    Run,
    RunScan,
    Subscriber,
    Subscription,
    Target,
    Targets,
    is_name,
)
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.wire.mqtt_publish import PUBLISH_1

from .codec import LOCKS, has_crossed, with_topics
from .topics import TopicMap

_ALL: Final = b"#"
_ANY_SIZE: Final = 1 << 40
_NO_RULE: Final = "no rule has its topic"


class _Scan(RunScan):
    """A search for runs with the same targets on the host's hub."""

    def __init__(self, hub: PubSub, format: int) -> None:
        super().__init__(hub.routes.known, format, _ANY_SIZE)
        self._hub = hub

    def find(self, topic: bytes) -> Targets | None:
        return self._hub.routes.targets(topic) if is_name(topic) else None


class Inbound(Subscriber):
    """Takes what the broker publishes. `front`: the hub that it subscribes to."""

    def __init__(
        self,
        hub: PubSub,
        own: Subscriber,
        topics: TopicMap,
        cluster: str,
        spool: Spool,
        counters: AgentCounters,
    ) -> None:
        """`own`: the subscriber that takes what comes from other sites."""
        super().__init__(1)
        # It retains nothing: the host's hub does, under the cluster's topics and its stamps.
        self.front = PubSub(PubSubSettings(max_retained=0), PubSubCounters())
        self.front.subscribe(Subscription(self, _ALL, 2, False, True))
        self._hub = hub
        self._own = own
        self._topics = topics
        self._cluster = cluster
        self._spool = spool
        self._counters = counters

    # --- runs: QoS 0 or 1, neither retained nor with properties

    def take_run(self, run: Run, target: Target) -> None:
        """Implements `Subscriber`."""
        self._counters.taken += run.count
        data = run.data if self._topics.plain else with_topics(run.data, self._topics)
        scan = _Scan(self._hub, run.format)
        at, end, count = 0, len(data), 0
        while at < end:
            scan.look(data, at, end)
            targets = scan.targets
            if scan.count == 0 or targets is None:
                break
            count += scan.count
            self._publish_run(scan, data, at, targets)
            at = scan.stop
        if count < run.count:
            self._counters.refuse_here(_NO_RULE, run.count - count)

    def _publish_run(self, scan: _Scan, data: bytes, at: int, targets: Targets) -> None:
        if not elsewhere(targets):
            self._counters.unwanted += scan.count
            return
        run = scan.run(data, at)
        self._spool.add(len(run.data))
        self._counters.sent += run.count
        if targets.apart or data[at] != PUBLISH_1:
            # its own subscriber is left out (no local), so nothing comes between the acknowledgements
            self._hub.publish_run(run, targets, self._own)
        else:
            for message in run.messages():
                self._hub.publish(message, targets, self._own)
        run.handed_over()

    # --- all others

    def take(self, message: Message, target: Target) -> None:
        """Implements `Subscriber`."""
        counters, hub = self._counters, self._hub
        if message.topic.startswith(LOCKS):
            return
        counters.taken += 1
        if has_crossed(message.properties, self._cluster):
            counters.looped += 1
            return
        topic = self._topics.get(message.topic)
        if not topic or not is_name(topic):
            counters.refuse_here(_NO_RULE, 1)
            return
        if message.retain and self._is_retained(topic, message):
            counters.looped += 1
            return
        sent = Message(
            topic, message.payload, message.qos, message.retain, message.properties, message.expires_at
        )
        targets = hub.routes.targets(topic)
        wanted = elsewhere(targets)
        if message.retain:
            hub.publish_retained(sent, targets, self._own)
        elif wanted:
            hub.publish(sent, targets, self._own)
        if wanted:
            self._spool.add(sent.size)
        counters.sent += wanted
        counters.unwanted += not wanted

    def _is_retained(self, topic: bytes, message: Message) -> bool:
        """Whether the cluster retains the very message: a broker that is subscribed to again gives out what
        it got from there, and one of 3.1.1 has no hop on it."""
        known = self._hub.retained.get(topic)
        return known is not None and known.payload == message.payload and known.qos == message.qos


def elsewhere(targets: Targets) -> bool:
    """Whether another host wants what has these targets."""
    return any(one.subscriber.foreign for one in targets.direct) or bool(targets.groups)
