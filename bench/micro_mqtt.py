"""Routing time per publish with few and with very many wildcard subscriptions that don't match."""

from __future__ import annotations

import statistics
import time
from typing import Any

from treecast.middleware.broker.pubsub import PubSub, PubSubSettings, Subscriber, Subscription
from treecast.middleware.model.counters import PubSubCounters

FEW, MANY = 50, 50_000
_TOPICS = [b"site/%d/line/%d/temperature" % (number % 40, number) for number in range(2_000)]


def hub(subscriptions: int) -> PubSub:
    """A hub with as many wildcard subscriptions, ten of which match the topics that are routed."""
    made = PubSub(PubSubSettings(), PubSubCounters())
    for number in range(subscriptions):
        if number < 10:
            filter = (b"site/+/line/#", b"site/+/+/+/temperature")[number % 2]
        else:
            filter = (b"plant/%d/+/state", b"site/%d/door/#", b"+/%d/x")[number % 3] % (number + 1000)
        made.subscribe(Subscription(Subscriber(made.next_serial()), filter))
    return made


def routing_ns(found: PubSub, remembered: bool) -> float:
    """Nanoseconds per look-up: of topics that are remembered, or of new ones."""
    look_up = found.targets if remembered else found.look_up
    began = time.perf_counter()
    for topic in _TOPICS:
        look_up(topic)
    return 1e9 * (time.perf_counter() - began) / len(_TOPICS)


def rounds(count: int) -> dict[str, Any]:
    """Medians over `count` rounds, in which the two take turns."""
    hubs = {FEW: hub(FEW), MANY: hub(MANY)}
    taken: dict[tuple[int, bool], list[float]] = {}
    for _ in range(count):
        for size, found in hubs.items():
            for remembered in (False, True):
                taken.setdefault((size, remembered), []).append(routing_ns(found, remembered))
    medians = {key: statistics.median(values) for key, values in taken.items()}
    return {
        "few": FEW,
        "many": MANY,
        "new topic, ns": {str(size): medians[size, False] for size in hubs},
        "remembered topic, ns": {str(size): medians[size, True] for size in hubs},
        "ratio": medians[MANY, False] / medians[FEW, False],
    }
