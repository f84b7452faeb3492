"""The right that each management call needs, as in RabbitMQ: a tag, which is asked for before it runs.

Beyond its tag a call shows what the user may see, and changes what its permissions in the virtual host allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .management_call import MONITORING, POLICYMAKER
from .users import ADMINISTRATOR

ANY: Final = ""  # each tag: shows what the user may see, of itself and of its virtual hosts
PERMISSIONS: Final = "permissions"  # each tag, and permissions in the virtual host for what is done
OWN: Final = "own"  # each tag for the user's own connections, administrator for those of others

# By the part that answers and its method, as in `management.CALLS`
NEEDED: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        (
            *("cluster.overview", "cluster.whoami", "cluster.auth", "cluster.name"),
            *("absent.nothing",),
            *("vhosts.every", "vhosts.one"),
            *("connections.every", "connections.channels", "connections.of_user", "connections.one"),
            *("connections.channels_of", "connections.channel", "connections.consumers"),
            *("exchanges.every", "exchanges.one"),
            *("bindings.from_exchange", "bindings.to_exchange", "bindings.to_queue", "bindings.every"),
            *("bindings.between", "bindings.one"),
            *("queues.every", "queues.one"),
            *("health.healthy", "health.alarms", "health.local_alarms", "health.certificate_expiration"),
            *("health.port_listener", "health.protocol_listener"),
        ),
        ANY,
    )
    | dict.fromkeys(
        (
            *("exchanges.put", "exchanges.delete"),
            *("messages.publish", "messages.get"),
            *("queues.put", "queues.delete", "queues.purge"),
            *("bindings.bind", "bindings.unbind"),
        ),
        PERMISSIONS,
    )
    | dict.fromkeys(
        (*("connections.close_of_user", "connections.close"),),
        OWN,
    )
    | dict.fromkeys(
        (*("cluster.nodes", "cluster.node"),),
        MONITORING,
    )
    | dict.fromkeys(
        (
            *("definitions.export",),
            *("policies.every", "policies.one", "policies.put", "policies.delete"),
            *("operator_policies.every", "operator_policies.one"),
            *("cluster.parameters", "cluster.parameter"),
        ),
        POLICYMAKER,
    )
    | dict.fromkeys(
        (
            *("cluster.put_name", "cluster.put_parameter", "cluster.delete_parameter"),
            *("definitions.load",),
            *("users.every", "users.without_permissions", "users.delete_many", "users.one"),
            *("users.put", "users.delete"),
            *("permissions.every", "permissions.topics", "permissions.one", "permissions.put"),
            *("permissions.delete", "permissions.put_topic", "permissions.delete_topic"),
            *("vhosts.put", "vhosts.delete"),
            *("operator_policies.put", "operator_policies.delete"),
            *("absent.put_limit", "absent.delete_limit", "absent.rebalance"),
        ),
        ADMINISTRATOR,
    )
)
TAGS: Final = frozenset({MONITORING, POLICYMAKER, ADMINISTRATOR})
