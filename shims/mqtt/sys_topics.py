"""The server's status topics, `$SYS/broker/...`, under the names that Mosquitto uses."""

from __future__ import annotations

from collections.abc import Iterator

import treecast
from treecast.middleware.broker.pubsub import Message, PubSub
from treecast.middleware.model.counters import FaceCounters

from .sessions import Sessions

PREFIX = "$SYS/broker/"


def values(sessions: Sessions, counters: FaceCounters, uptime: float) -> Iterator[tuple[str, str | int]]:
    """Yields (name below the prefix, value). `uptime` is in seconds."""
    hub = sessions.hub
    counted = hub.counters
    yield "version", f"treecast version {treecast.__version__}"
    yield "uptime", f"{int(uptime)} seconds"
    yield "clients/connected", sessions.connected
    yield "clients/disconnected", len(sessions) - sessions.connected
    yield "clients/maximum", sessions.maximum
    yield "clients/total", len(sessions)
    yield "clients/expired", counted.sessions_expired
    yield "bytes/received", counters.bytes_in
    yield "bytes/sent", counters.bytes_out
    yield "messages/received", sum(counters.requests.values())
    yield "publish/messages/received", counters.requests.get("PUBLISH", 0)
    yield "publish/messages/dropped", counted.dropped_full + counted.dropped_large + counted.expired
    yield "retained messages/count", hub.retained.count
    yield "subscriptions/count", hub.subscriptions
    yield "shared_subscriptions/count", len(hub.shares.used())


def publish(hub: PubSub, found: Iterator[tuple[str, str | int]]) -> None:
    """Publishes the values and retains them in memory only."""
    for name, value in found:
        message = Message((PREFIX + name).encode(), str(value).encode(), retain=True)
        hub.retained.put(message)
        targets = hub.routes.look_up(
            message.topic
        )  # `targets` would cache it, and clients may publish to cached topics
        if targets.count:
            hub.publish(message, targets, None)
