"""The interest of a host as the content controller is told of it (`ListWishes`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.model.wishes import Wish

MOST: Final = 10_000
MOST_BYTES: Final = 1 << 20
EVERYTHING: Final = "#"


def told(wishes: Iterable[Wish]) -> list[pb.TopicWish]:
    """Returns the wishes for topics that MQTT can name and that cross hosts by content.

    Beyond `MOST`, or `MOST_BYTES` of topics and filters, one wish for everything: the host gets too much, and
    neither it nor the controller spends its time on rules.
    """
    found: list[pb.TopicWish] = []
    size = 0
    for wish in wishes:
        topics = wish.filter
        if topics is None or wish.local:  # shared subscriptions have streams to one host
            continue
        text = wish.content.text if wish.content is not None else ""
        size += len(topics) + len(text)
        if len(found) >= MOST or size > MOST_BYTES:
            return [pb.TopicWish(topics=EVERYTHING)]
        found.append(pb.TopicWish(topics=topics.decode(), filter=text))
    return found
