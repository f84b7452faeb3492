"""The right that each API needs, as in Kafka's KafkaApis: one table, and Kafka's codes of operations.

A right whose resource the request names once is checked for all handlers before they run (`check_whole`). A
right on each of several resources (`EACH`) is checked by the handler, which refuses them one by one. Produce
and Fetch look partitions up through `CheckedLeaders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from treecast.middleware.broker.access import CLUSTER, Granted, Operation, ResourceKind

from . import versions as v

CODES: Final[Mapping[Operation, int]] = MappingProxyType(
    {
        Operation.READ: 3,
        Operation.WRITE: 4,
        Operation.CREATE: 5,
        Operation.DELETE: 6,
        Operation.ALTER: 7,
        Operation.DESCRIBE: 8,
        Operation.CLUSTER_ACTION: 9,
        Operation.DESCRIBE_CONFIGS: 10,
        Operation.ALTER_CONFIGS: 11,
        Operation.IDEMPOTENT_WRITE: 12,
    }
)

# The operations that each kind of resource knows (KIP-430)
_O = Operation
KNOWN: Final[Mapping[ResourceKind, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceKind.TOPIC: (
            *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE),
            *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        ),
        ResourceKind.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        ResourceKind.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
        ResourceKind.CLUSTER: (
            *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION),
            *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE),
        ),
    }
)

EACH: Final = "*"  # as `Right.field`: the handler asks for each resource


class Right(Struct, frozen=True):
    """A right that an API needs. `field`: of the request, names the resource; EACH; or "" for the cluster."""

    operation: Operation
    kind: ResourceKind
    field: str = ""


def _each(operation: Operation, kind: ResourceKind) -> Right:
    return Right(operation, kind, EACH)


_TOPIC: Final = ResourceKind.TOPIC
_GROUP: Final = ResourceKind.GROUP
_ID: Final = ResourceKind.TRANSACTIONAL_ID
_CLUSTER: Final = ResourceKind.CLUSTER
_MEMBER: Final = (Right(_O.READ, _GROUP, "group_id"),)
_TRANSACTION: Final = Right(_O.WRITE, _ID, "transactional_id")

NEEDED: Final[Mapping[int, tuple[Right, ...]]] = MappingProxyType(
    {
        v.API_VERSIONS: (),
        v.SASL_HANDSHAKE: (),
        v.SASL_AUTHENTICATE: (),
        v.PRODUCE: (_each(_O.WRITE, _TOPIC), _each(_O.WRITE, _ID)),
        v.FETCH: (_each(_O.READ, _TOPIC),),
        v.LIST_OFFSETS: (_each(_O.DESCRIBE, _TOPIC),),
        v.METADATA: (_each(_O.DESCRIBE, _TOPIC), _each(_O.CREATE, _TOPIC)),
        v.OFFSET_COMMIT: (*_MEMBER, _each(_O.READ, _TOPIC)),
        v.OFFSET_FETCH: (_each(_O.DESCRIBE, _GROUP), _each(_O.DESCRIBE, _TOPIC)),
        v.FIND_COORDINATOR: (_each(_O.DESCRIBE, _GROUP), _each(_O.DESCRIBE, _ID)),
        v.JOIN_GROUP: _MEMBER,
        v.HEARTBEAT: _MEMBER,
        v.LEAVE_GROUP: _MEMBER,
        v.SYNC_GROUP: _MEMBER,
        v.DESCRIBE_GROUPS: (_each(_O.DESCRIBE, _GROUP),),
        v.LIST_GROUPS: (_each(_O.DESCRIBE, _GROUP),),
        v.CREATE_TOPICS: (_each(_O.CREATE, _TOPIC),),
        v.DELETE_TOPICS: (_each(_O.DELETE, _TOPIC),),
        v.DELETE_RECORDS: (_each(_O.DELETE, _TOPIC),),
        v.INIT_PRODUCER_ID: (_TRANSACTION, _each(_O.IDEMPOTENT_WRITE, _CLUSTER)),
        v.OFFSET_FOR_LEADER_EPOCH: (_each(_O.DESCRIBE, _TOPIC),),
        v.ADD_PARTITIONS_TO_TXN: (
            Right(_O.WRITE, _ID, "v3_and_below_transactional_id"),
            _each(_O.WRITE, _TOPIC),
        ),
        v.ADD_OFFSETS_TO_TXN: (_TRANSACTION, *_MEMBER),
        v.END_TXN: (_TRANSACTION,),
        v.TXN_OFFSET_COMMIT: (_TRANSACTION, *_MEMBER, _each(_O.READ, _TOPIC)),
        v.DESCRIBE_ACLS: (Right(_O.DESCRIBE, _CLUSTER),),
        v.CREATE_ACLS: (Right(_O.ALTER, _CLUSTER),),
        v.DELETE_ACLS: (Right(_O.ALTER, _CLUSTER),),
        v.DESCRIBE_CONFIGS: tuple([_each(_O.DESCRIBE_CONFIGS, kind) for kind in (_TOPIC, _GROUP, _CLUSTER)]),
        v.ALTER_CONFIGS: tuple([_each(_O.ALTER_CONFIGS, kind) for kind in (_TOPIC, _GROUP, _CLUSTER)]),
        v.INCREMENTAL_ALTER_CONFIGS: tuple(
            [_each(_O.ALTER_CONFIGS, kind) for kind in (_TOPIC, _GROUP, _CLUSTER)]
        ),
        v.DESCRIBE_LOG_DIRS: (Right(_O.DESCRIBE, _CLUSTER),),
        v.CREATE_PARTITIONS: (_each(_O.ALTER, _TOPIC),),
        v.DELETE_GROUPS: (_each(_O.DELETE, _GROUP),),
        v.ELECT_LEADERS: (Right(_O.ALTER, _CLUSTER),),
        v.LIST_PARTITION_REASSIGNMENTS: (Right(_O.DESCRIBE, _CLUSTER),),
        v.OFFSET_DELETE: (Right(_O.DELETE, _GROUP, "group_id"), _each(_O.READ, _TOPIC)),
        v.DESCRIBE_CLIENT_QUOTAS: (Right(_O.DESCRIBE_CONFIGS, _CLUSTER),),
        v.ALTER_CLIENT_QUOTAS: (Right(_O.ALTER_CONFIGS, _CLUSTER),),
        v.DESCRIBE_USER_SCRAM_CREDENTIALS: (Right(_O.DESCRIBE, _CLUSTER),),
        v.ALTER_USER_SCRAM_CREDENTIALS: (Right(_O.ALTER, _CLUSTER),),
        v.DESCRIBE_CLUSTER: (),
        v.DESCRIBE_PRODUCERS: (_each(_O.READ, _TOPIC),),
        v.DESCRIBE_TRANSACTIONS: (_each(_O.DESCRIBE, _ID),),
        v.LIST_TRANSACTIONS: (_each(_O.DESCRIBE, _ID),),
        v.CONSUMER_GROUP_HEARTBEAT: (*_MEMBER, _each(_O.DESCRIBE, _TOPIC)),
        v.CONSUMER_GROUP_DESCRIBE: (_each(_O.DESCRIBE, _GROUP),),
        v.LIST_CONFIG_RESOURCES: (Right(_O.DESCRIBE_CONFIGS, _CLUSTER),),
        v.SHARE_GROUP_HEARTBEAT: _MEMBER,
        v.SHARE_GROUP_DESCRIBE: (_each(_O.DESCRIBE, _GROUP),),
    }
)

# The rights that are checked before a handler runs
_WHOLE: Final[Mapping[int, tuple[Right, ...]]] = MappingProxyType(
    {key: tuple([one for one in rights if one.field != EACH]) for key, rights in NEEDED.items()}
)


def check_whole(granted: Granted, key: int, request: Any) -> None:
    """Raises FORBIDDEN_GROUP, or the like for other kinds, if the request as a whole is not allowed."""
    for right in _WHOLE[key]:
        name = CLUSTER if not right.field else getattr(request, right.field)
        if name is not None:
            granted.check(right.operation, right.kind, name)


def operations(granted: Granted, kind: ResourceKind, name: str = CLUSTER) -> int:
    """Returns what a client may do to a resource, a bit for the code of each operation (KIP-430)."""
    return sum(1 << CODES[one] for one in KNOWN[kind] if granted.would(one, kind, name))
