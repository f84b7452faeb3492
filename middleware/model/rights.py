"""RabbitMQ's rights: to configure, write or read, by names.

An operation says what it needs: rights on resources. `broker.access.missing` decides, and answers with the
first need that the user's rights do not cover. What each operation needs is said in one place for all who
call it (`broker.queues.needs`), so that no way in can leave out a check. A topic that all faces share is the
routing key of the exchange `amq.topic` in the virtual host `/`.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

IMPERSONATOR: Final = "impersonator"  # tag: may send messages with the name of another user

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
TOPIC: Final = "topic"

_DEFAULT_EXCHANGE: Final = "amq.default"


class Need(Struct, frozen=True):
    """A right that an operation needs on the exchange or queue `name`. With kind TOPIC, `name` is a topic
    exchange, and the right is needed for the routing key `key`."""

    right: str
    kind: str
    name: bytes
    key: bytes = b""


class Rights(Protocol):
    """The rights of users. `version` rises whenever a decision may turn out otherwise than before."""

    version: int

    def tags(self, name: str) -> frozenset[str]: ...

    def may_open(self, user: str, vhost: str) -> bool: ...

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool: ...

    def may_use_topic(self, user: str, vhost: str, permission: str, exchange: bytes, key: bytes) -> bool:
        """Whether the user may write or read a routing key of a topic exchange."""


def named(need: Need) -> str:
    """Returns the resource of a need as RabbitMQ names it in a refusal."""
    name = need.name.decode(errors="replace") or _DEFAULT_EXCHANGE
    if need.kind == TOPIC:
        return f"topic '{need.key.decode(errors='replace')}' in exchange exchange '{name}'"
    return f"{need.kind} '{name}'"
