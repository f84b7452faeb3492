"""The management calls about the cluster as a whole, and about what this broker does not have."""

from __future__ import annotations

from typing import Final

from .management_call import (
    CHANGED,
    MONITORING,
    POLICYMAKER,
    Call,
    Problem,
    Response,
    bad_request,
    not_found,
    text_of,
)
from .management_definitions import Document, Rows
from .management_views import Views
from .session_host import AmqpHost
from .users import ADMINISTRATOR, Users

_CLUSTER_NAME: Final = "cluster_name"  # the one global parameter


class ClusterCalls:
    """The cluster, its nodes and its one global parameter."""

    def __init__(self, host: AmqpHost, users: Users, views: Views) -> None:
        self._host = host
        self._users = users
        self._views = views

    def overview(self, call: Call) -> Document:
        return self._views.overview(call.now, call.scope())

    def whoami(self, call: Call) -> Document:
        return {"name": call.user, "tags": sorted(self._users.tags(call.user)), "is_internal_user": True}

    def auth(self, call: Call) -> Document:
        return {"oauth_enabled": False}

    def name(self, call: Call) -> Document:
        return {"name": self._host.queues.cluster_name}

    def put_name(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        self._host.queues.cluster_name = text_of(call.body("name"), "name")
        self._users.changed()
        return CHANGED

    def nodes(self, call: Call) -> Rows:
        call.need(MONITORING)
        return [self._views.node(call.now)]

    def node(self, call: Call) -> Document:
        call.need(MONITORING)
        found = self._views.node(call.now)
        if found["name"] != call.arguments["node"]:
            raise not_found()
        return found

    def parameters(self, call: Call) -> Rows:
        call.need(POLICYMAKER)
        return [{"name": "cluster_name", "value": self._host.queues.cluster_name}]

    def parameter(self, call: Call) -> Document:
        return call.named_row(self.parameters(call))

    def put_parameter(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if call.arguments["name"] != _CLUSTER_NAME:
            raise bad_request(f"this broker knows no global parameter but {_CLUSTER_NAME}")
        self._host.queues.cluster_name = text_of(call.body("value"), "value")
        self._users.changed()
        return CHANGED

    def delete_parameter(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if call.arguments["name"] != _CLUSTER_NAME:
            raise not_found()
        raise bad_request(f"{_CLUSTER_NAME} can be changed only")


class AbsentCalls:
    """The calls about what this broker does not have: lists of other features, limits, leaders that move."""

    def nothing(self, call: Call) -> Rows:
        """Returns the empty list of a feature that this broker does not have."""
        return []

    def put_limit(self, call: Call) -> Response:
        """Refuses: a limit that is stored and not kept would be a promise."""
        call.need(ADMINISTRATOR)
        if "vhost" in call.arguments:
            call.vhost()
        raise Problem(
            400,
            "not_supported",
            f"the limit {call.arguments['name']} is not kept by this broker; see its Bounds",
        )

    def delete_limit(self, call: Call) -> Response:
        """Succeeds, as in RabbitMQ where there is none."""
        call.need(ADMINISTRATOR)
        return CHANGED

    def rebalance(self, call: Call) -> Response:
        """Moves nothing, as in a RabbitMQ whose leaders are spread: a queue stays at its home."""
        call.need(ADMINISTRATOR)
        return CHANGED
