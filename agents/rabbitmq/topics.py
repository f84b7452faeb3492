"""Exchanges, routing keys and bindings as topics and patterns of the fabric.

    $agents / rabbitmq / virtual host / exchange                      fanout and headers exchanges
    $agents / rabbitmq / virtual host / exchange / key                direct exchanges
    $agents / rabbitmq / virtual host / exchange / word / word ...    topic exchanges

Names are escaped as in URLs, so that no level holds a separator or a wildcard. A pattern may match more than
the binding that it stands for, never less: the RabbitMQ server at the other end routes exactly.

Pure. Sources: AMQP 0-9-1, section 3.1.3; MQTT 5.0, section 4.7.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from treecast.middleware.broker.pubsub import AGENTS
from treecast.middleware.model.wishes import ANY, REST, Pattern

KIND: Final = "rabbitmq"
DIRECT, TOPIC, FANOUT, HEADERS = "direct", "topic", "fanout", "headers"
TYPES: Final = (DIRECT, TOPIC, FANOUT, HEADERS)


_FIRST: Final = AGENTS.decode().rstrip("/")
_ROOT: Final = (_FIRST, KIND)


def root(vhost: str) -> Pattern:
    """Returns the levels that all topics of a virtual host begin with."""
    return (*_ROOT, _level(vhost.encode()))


def all_topics(vhost: str) -> bytes:
    """Returns the filter of all topics of a virtual host."""
    return "/".join((*root(vhost), REST)).encode()


def topic_of(vhost: str, exchange: bytes, kind: str, key: bytes) -> bytes:
    """Returns the topic of a message. `kind`: the exchange's type."""
    levels = [*root(vhost), _level(exchange), *_key_levels(kind, key)]
    return "/".join(levels).encode()


def pattern_of(vhost: str, exchange: bytes, kind: str, key: bytes) -> Pattern:
    """Returns the pattern of the topics of all messages that a binding with `key` may match."""
    before = (*root(vhost), _level(exchange))
    if kind != TOPIC:
        return (*before, *_key_levels(kind, key))
    levels: list[str] = []
    for word in _words(key):
        if word == b"#":  # any number of words: what follows it cannot be told from it
            return (*before, *levels, REST)
        levels.append(ANY if word == b"*" else _level(word))
    return (*before, *levels)


def binding_of(vhost: str, pattern: Pattern, kinds: dict[bytes, str]) -> tuple[bytes, bytes] | None:
    """Returns exchange and binding key for a pattern of another site; None if it is of no exchange of this
    virtual host. `kinds`: the types of the exchanges by name."""
    start = root(vhost)
    if len(pattern) <= len(start) or pattern[: len(start)] != start:
        return None
    exchange = unquote_to_bytes(pattern[len(start)])
    kind = kinds.get(exchange)
    if kind is None:
        return None
    levels = pattern[len(start) + 1 :]
    if kind == TOPIC:
        words = [_word(level) for level in levels]
        return exchange, b".".join(words)
    return exchange, unquote_to_bytes(levels[0]) if kind == DIRECT and levels else b""


def _word(level: str) -> bytes:
    if level == ANY:
        return b"*"
    return b"#" if level == REST else unquote_to_bytes(level)


def _key_levels(kind: str, key: bytes) -> list[str]:
    if kind == TOPIC:
        return [_level(word) for word in _words(key)]
    return [_level(key)] if kind == DIRECT else []


def _words(key: bytes) -> list[bytes]:
    """Returns the words of a key; an empty key has none."""
    return key.split(b".") if key else []


def _level(name: bytes) -> str:
    return quote(name, safe="")
