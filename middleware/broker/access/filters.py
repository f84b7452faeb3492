"""Whether all topics that a filter matches are allowed, for MQTT and AMQP alike."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.model.topics import TopicName

from .authorizer import Operation, ResourceKind
from .granted import Granted


def may_match(granted: Granted, operation: Operation, levels: Sequence[str], one: str, rest: str) -> bool:
    """Whether the operation is allowed for every topic that a filter matches.

    `levels`: the filter's; `one` stands for any level, `rest` for any number of levels. The levels before the
    first of them have to be the prefix of a rule. One that ends in `rest` matches these levels alone, too.
    """
    fixed = next((at for at, level in enumerate(levels) if level in (one, rest)), len(levels))
    name = TopicName(tuple(levels[:fixed])).spelled()
    if fixed == len(levels):
        return granted.may(operation, ResourceKind.TOPIC, name)
    if not granted.may_all(operation, ResourceKind.TOPIC, f"{name}." if fixed else ""):
        return False
    return levels[fixed] != rest or not fixed or granted.may(operation, ResourceKind.TOPIC, name)
