"""The rights that each operation on exchanges, queues and bindings needs, as in RabbitMQ (`model.rights`).

Channels and management calls both ask here. What a declaration needs beyond its own name counts for what is
new: who declares something again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treecast.middleware.model.rights import CONFIGURE, EXCHANGE, QUEUE, READ, TOPIC, WRITE, Need

from .exchange import Destination, ExchangeType
from .virtual_host import VirtualHost

Needs = tuple[Need, ...]
_ALTERNATE: Final = "alternate-exchange"
_DEAD_LETTERS: Final = "x-dead-letter-exchange"


def to_declare_exchange(vhost: VirtualHost, name: bytes, arguments: Mapping[str, object]) -> Needs:
    needs = (Need(CONFIGURE, EXCHANGE, name),)
    return needs if name in vhost.exchanges else (*needs, *_passing_on(EXCHANGE, name, arguments, _ALTERNATE))


def to_declare_queue(vhost: VirtualHost, name: bytes, arguments: Mapping[str, object]) -> Needs:
    """`name`: also one that the server has made up."""
    needs = (Need(CONFIGURE, QUEUE, name),)
    return needs if name in vhost.queues else (*needs, *_passing_on(QUEUE, name, arguments, _DEAD_LETTERS))


def _passing_on(kind: str, name: bytes, arguments: Mapping[str, object], argument: str) -> Needs:
    """An exchange or queue that passes messages on reads them, and writes them to the target."""
    target = arguments.get(argument)
    if not isinstance(target, str):
        return ()  # the declaration refuses other types
    return Need(READ, kind, name), Need(WRITE, EXCHANGE, target.encode())


def to_delete(kind: str, name: bytes) -> Needs:
    return (Need(CONFIGURE, kind, name),)


def to_bind(vhost: VirtualHost, source: bytes, target: Destination, key: bytes) -> Needs:
    """Also to unbind."""
    needs = Need(WRITE, EXCHANGE if target.is_exchange else QUEUE, target.name), Need(READ, EXCHANGE, source)
    return needs + of_topics(vhost, READ, source, (key,))


def to_publish(vhost: VirtualHost, exchange: bytes, keys: tuple[bytes, ...]) -> Needs:
    return (Need(WRITE, EXCHANGE, exchange), *of_topics(vhost, WRITE, exchange, keys))


def of_topics(vhost: VirtualHost, right: str, exchange: bytes, keys: tuple[bytes, ...]) -> Needs:
    """Returns what routing keys need: nothing, unless the exchange is one of topics."""
    found = vhost.exchanges.get(exchange)
    if found is None or found.type is not ExchangeType.TOPIC:
        return ()
    return tuple([Need(right, TOPIC, exchange, key) for key in keys])


def to_read(queue: bytes) -> Needs:
    """To consume, get or purge."""
    return (Need(READ, QUEUE, queue),)
