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

# By the name of the method that answers
NEEDED: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        (
            *("overview", "whoami", "auth", "cluster_name", "nothing", "healthy", "alarms", "local_alarms"),
            *("certificate_expiration", "port_listener", "protocol_listener"),
            *("vhosts", "vhost", "connections", "channels", "connections_of_user", "connection"),
            *("channels_of", "channel", "consumers", "exchanges", "exchange", "queues", "queue"),
            *("bindings", "binding", "bindings_from", "bindings_to_exchange", "bindings_to_queue"),
            "bindings_between",
        ),
        ANY,
    )
    | dict.fromkeys(
        (
            *("put_exchange", "delete_exchange", "put_queue", "delete_queue", "purge_queue"),
            *("publish", "get", "bind", "unbind"),
        ),
        PERMISSIONS,
    )
    | dict.fromkeys(("close_connection", "close_connections_of_user"), OWN)
    | dict.fromkeys(("nodes", "node"), MONITORING)
    | dict.fromkeys(
        (
            *("definitions", "global_parameters", "global_parameter"),  # definitions of all hosts: more
            *("policies", "policy", "put_policy", "delete_policy", "operator_policies", "operator_policy"),
        ),
        POLICYMAKER,
    )
    | dict.fromkeys(
        (
            *("put_cluster_name", "post_definitions", "put_vhost", "delete_vhost", "rebalance"),
            *("list_users", "users_without_permissions", "user", "put_user", "delete_user", "delete_users"),
            *("permissions", "permission", "put_permission", "delete_permission"),
            *("topic_permissions", "put_topic_permission", "delete_topic_permission"),
            *("put_operator_policy", "delete_operator_policy", "put_limit", "delete_limit"),
            *("put_global_parameter", "delete_global_parameter"),
        ),
        ADMINISTRATOR,
    )
)
TAGS: Final = frozenset({MONITORING, POLICYMAKER, ADMINISTRATOR})
