"""The one decision about rights: may this principal do this operation to this resource, and by which rule.

Faces translate: what a request of their protocol asks for into operations and resources, and a refusal into
the protocol's own error. `Rules` decides by rules that allow or deny, `RabbitRights` by RabbitMQ's patterns.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from msgspec import Struct

from treecast.middleware.model.principal import Principal


class Operation(enum.Enum):
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"
    CONFIGURE = "configure"  # RabbitMQ's: create, delete, alter


class ResourceKind(enum.Enum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"
    EXCHANGE = "exchange"
    QUEUE = "queue"
    ROUTING_KEY = "routing-key"


class Resource(Struct, frozen=True):
    """The object of an operation. `name`: of a topic as Kafka spells it; of the cluster `CLUSTER`.

    Exchanges, queues and routing keys are in the virtual host `vhost`, routing keys those of `exchange`.
    """

    kind: ResourceKind
    name: str
    vhost: str = ""
    exchange: str = ""


CLUSTER: Final = "kafka-cluster"  # the one name of a resource of kind CLUSTER, as in Kafka


class Decision(Struct, frozen=True):
    """`rule`: the words of the rule that decided."""

    allowed: bool
    rule: str


class Authorizer(Protocol):
    """Decides. `version` rises whenever a decision may turn out otherwise than before: who keeps decisions
    compares it before it uses one."""

    @property
    def version(self) -> int: ...

    def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision: ...

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        """Whether there may be a resource of a kind to which the principal may do it (KIP-679)."""

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        """Whether the principal may do it to every resource whose name begins with `prefix`."""


class AllowAll:
    """The authorizer of a host that asks nobody who it is."""

    version: Final = 0
    _allowed: Final = Decision(True, "everything is allowed")

    def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
        return self._allowed

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        return self._allowed

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        return self._allowed
