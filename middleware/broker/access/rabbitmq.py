"""RabbitMQ's rights as rules: configure, write and read by patterns, and topic permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from treecast.middleware.model.principal import Principal
from treecast.middleware.model.rights import CONFIGURE, EXCHANGE, QUEUE, READ, TOPIC, WRITE, Need, Rights

from .authorizer import Authorizer, Decision, Operation, Resource, ResourceKind

_OPERATIONS: Final = {
    CONFIGURE: Operation.CONFIGURE,
    WRITE: Operation.WRITE,
    READ: Operation.READ,
}
_RIGHTS: Final = {operation: right for right, operation in _OPERATIONS.items()}
_KINDS: Final = {
    EXCHANGE: ResourceKind.EXCHANGE,
    QUEUE: ResourceKind.QUEUE,
    TOPIC: ResourceKind.ROUTING_KEY,
}
_NO_SUCH: Final = Decision(False, "RabbitMQ's permissions know no such operation or resource")


class RabbitRights:
    """Implements `Authorizer` by the permissions of RabbitMQ's users."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    @property
    def version(self) -> int:
        return self._rights.version

    def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
        right, user, vhost = _RIGHTS.get(operation), principal.name, resource.vhost
        if right is None:
            return _NO_SUCH
        if resource.kind is ResourceKind.ROUTING_KEY:
            exchange, key = resource.exchange.encode(), resource.name.encode()
            allowed = self._rights.may_use_topic(user, vhost, right, exchange, key)
            return Decision(allowed, f"topic permission of '{user}' on '{resource.exchange}' in '{vhost}'")
        if resource.kind not in (ResourceKind.EXCHANGE, ResourceKind.QUEUE):
            return _NO_SUCH
        allowed = self._rights.may(user, vhost, right, resource.name.encode())
        return Decision(allowed, f"{right} permission of '{user}' in '{vhost}'")

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        return _NO_SUCH

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        return _NO_SUCH


def resource_of(need: Need, vhost: str) -> Resource:
    """Returns the resource of a need. Bytes that are no UTF-8 are as in RabbitMQ's patterns: replaced."""
    name = need.name.decode(errors="replace")
    kind = _KINDS[need.kind]
    if kind is ResourceKind.ROUTING_KEY:
        return Resource(kind, need.key.decode(errors="replace"), vhost, name)
    return Resource(kind, name, vhost)


def missing(authorizer: Authorizer, principal: Principal, vhost: str, needs: Iterable[Need]) -> Need | None:
    """Returns the first need that the principal lacks in a virtual host, None if it may do the operation."""
    for need in needs:
        if not authorizer.decide(principal, _OPERATIONS[need.right], resource_of(need, vhost)).allowed:
            return need
    return None
