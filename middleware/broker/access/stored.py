"""AMQP's rights of users in the store of identities: rules on exchanges and queues, and on topics.


A key of the exchange `amq.topic` is a topic of all faces: the rules on topics decide about it, and everybody
may use the exchange itself. Users of AMQP's own keep RabbitMQ's rights.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.principal import Principal
from treecast.middleware.model.topics import TopicName

from .authorizer import Authorizer, Decision, Operation, Resource, ResourceKind
from .filters import may_match
from .granted import Granted
from .identities import Identities

SHARED: Final = "amq.topic"  # in the virtual host `/`
ROOT: Final = "/"
DEFAULT: Final = "amq.default"  # the name of the exchange without one
_BY_KEY: Final = Decision(True, "the rules on topics decide, by the key")
_BY_EXCHANGE: Final = Decision(True, "the rules on the exchange decide")
_ELSEWHERE: Final = Decision(False, "rules are about the virtual host /")


class StoredRights:
    """Implements `Authorizer` for AMQP. `others` decides about users who are not in the store."""

    def __init__(self, identities: Identities, others: Authorizer) -> None:
        self._identities = identities
        self._others = others

    @property
    def version(self) -> int:
        return self._identities.version + self._others.version  # both only rise

    def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
        if not self._identities.knows(principal.name):
            return self._others.decide(principal, operation, resource)
        if resource.vhost != ROOT and not self._identities.is_admin(principal.name):
            return _ELSEWHERE
        if resource.kind is ResourceKind.ROUTING_KEY:
            return self._by_key(principal, operation, resource)
        if resource.name == SHARED and operation is not Operation.CONFIGURE:
            return _BY_KEY
        asked = Resource(resource.kind, resource.name or DEFAULT)
        return self._identities.decide(principal, operation, asked)

    def _by_key(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
        if resource.exchange != SHARED or resource.vhost != ROOT:
            return _BY_EXCHANGE
        try:
            levels = TopicName.from_amqp(resource.name).levels
        except TreecastError as error:
            return Decision(False, error.detail)
        granted = Granted(self._identities, principal)
        if operation is Operation.READ:
            allowed = may_match(granted, operation, levels, "*", "#")
        else:
            allowed = granted.may(operation, ResourceKind.TOPIC, TopicName(levels).spelled())
        return Decision(allowed, "the rules on topics")

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        return self._identities.decide_any(principal, operation, kind)

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        return self._identities.decide_all(principal, operation, kind, prefix)
