"""The management HTTP API, as far as RabbitMQ's tools use it: from a request to its response.

Nothing here does I/O. The owner of the socket creates a `Request`, calls `Management.answer` and sends the
response; a response with `depends` is sent after the changes are stored. The table below lists all calls; the
calls about users stand in `management_users`, and so on. Paths, below `/api`, and JSON shapes
(`management_views`) are those of RabbitMQ 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote

from treecast.middleware.broker.queues import Reason, Refusal
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.regex_syntax import InvalidRegex
from treecast.middleware.model.rights import Rights

from .management_bindings import BindingCalls
from .management_call import (
    Call,
    Problem,
    Request,
    Response,
    authenticate,
    bad_request,
    listed,
    not_authorised,
    not_found,
)
from .management_connections import ConnectionCalls
from .management_definitions import DefinitionCalls
from .management_exchanges import ExchangeCalls
from .management_health import HealthCalls
from .management_messages import MessageCalls
from .management_needed import NEEDED, TAGS
from .management_overview import AbsentCalls, ClusterCalls
from .management_policies import PolicyCalls
from .management_queues import QueueCalls
from .management_users import PermissionCalls, UserCalls
from .management_vhosts import VhostCalls
from .management_views import NodeFacts, Views
from .session import Session
from .session_host import AmqpHost
from .users import Users

_log = Log("treecast.amqp")

_JSON: Final = (("Content-Type", "application/json"),)

# HTTP method, path below /api (a segment with `:` is a parameter), and what answers it: an object of
# `Management.parts` and its method.
CALLS: Final = (
    ("GET", "overview", "cluster.overview"),
    ("GET", "whoami", "cluster.whoami"),
    ("GET", "auth", "cluster.auth"),
    ("GET", "cluster-name", "cluster.name"),
    ("PUT", "cluster-name", "cluster.put_name"),
    ("GET", "extensions", "absent.nothing"),
    ("GET", "feature-flags", "absent.nothing"),
    ("GET", "deprecated-features", "absent.nothing"),
    ("GET", "nodes", "cluster.nodes"),
    ("GET", "nodes/:node", "cluster.node"),
    ("GET", "definitions", "definitions.export"),
    ("POST", "definitions", "definitions.load"),
    ("GET", "definitions/:vhost", "definitions.export"),
    ("POST", "definitions/:vhost", "definitions.load"),
    ("GET", "users", "users.every"),
    ("GET", "users/without-permissions", "users.without_permissions"),
    ("POST", "users/bulk-delete", "users.delete_many"),
    ("GET", "users/:user", "users.one"),
    ("PUT", "users/:user", "users.put"),
    ("DELETE", "users/:user", "users.delete"),
    ("GET", "users/:user/permissions", "permissions.every"),
    ("GET", "users/:user/topic-permissions", "permissions.topics"),
    ("GET", "permissions", "permissions.every"),
    ("GET", "permissions/:vhost/:user", "permissions.one"),
    ("PUT", "permissions/:vhost/:user", "permissions.put"),
    ("DELETE", "permissions/:vhost/:user", "permissions.delete"),
    ("GET", "topic-permissions", "permissions.topics"),
    ("GET", "topic-permissions/:vhost/:user", "permissions.topics"),
    ("PUT", "topic-permissions/:vhost/:user", "permissions.put_topic"),
    ("DELETE", "topic-permissions/:vhost/:user", "permissions.delete_topic"),
    ("DELETE", "topic-permissions/:vhost/:user/:exchange", "permissions.delete_topic"),
    ("GET", "vhosts", "vhosts.every"),
    ("GET", "vhosts/:vhost", "vhosts.one"),
    ("PUT", "vhosts/:vhost", "vhosts.put"),
    ("DELETE", "vhosts/:vhost", "vhosts.delete"),
    ("GET", "vhosts/:vhost/permissions", "permissions.every"),
    ("GET", "vhosts/:vhost/topic-permissions", "permissions.topics"),
    ("GET", "vhosts/:vhost/connections", "connections.every"),
    ("GET", "vhosts/:vhost/channels", "connections.channels"),
    ("GET", "policies", "policies.every"),
    ("GET", "policies/:vhost", "policies.every"),
    ("GET", "policies/:vhost/:name", "policies.one"),
    ("PUT", "policies/:vhost/:name", "policies.put"),
    ("DELETE", "policies/:vhost/:name", "policies.delete"),
    ("GET", "operator-policies", "operator_policies.every"),
    ("GET", "operator-policies/:vhost", "operator_policies.every"),
    ("GET", "operator-policies/:vhost/:name", "operator_policies.one"),
    ("PUT", "operator-policies/:vhost/:name", "operator_policies.put"),
    ("DELETE", "operator-policies/:vhost/:name", "operator_policies.delete"),
    ("GET", "parameters", "absent.nothing"),
    ("GET", "parameters/:component", "absent.nothing"),
    ("GET", "parameters/:component/:vhost", "absent.nothing"),
    ("GET", "global-parameters", "cluster.parameters"),
    ("GET", "global-parameters/:name", "cluster.parameter"),
    ("PUT", "global-parameters/:name", "cluster.put_parameter"),
    ("DELETE", "global-parameters/:name", "cluster.delete_parameter"),
    ("GET", "vhost-limits", "absent.nothing"),
    ("GET", "vhost-limits/:vhost", "absent.nothing"),
    ("PUT", "vhost-limits/:vhost/:name", "absent.put_limit"),
    ("DELETE", "vhost-limits/:vhost/:name", "absent.delete_limit"),
    ("GET", "user-limits", "absent.nothing"),
    ("GET", "user-limits/:user", "absent.nothing"),
    ("PUT", "user-limits/:user/:name", "absent.put_limit"),
    ("DELETE", "user-limits/:user/:name", "absent.delete_limit"),
    ("POST", "rebalance/queues", "absent.rebalance"),
    ("GET", "exchanges", "exchanges.every"),
    ("GET", "exchanges/:vhost", "exchanges.every"),
    ("GET", "exchanges/:vhost/:exchange", "exchanges.one"),
    ("PUT", "exchanges/:vhost/:exchange", "exchanges.put"),
    ("DELETE", "exchanges/:vhost/:exchange", "exchanges.delete"),
    ("POST", "exchanges/:vhost/:exchange/publish", "messages.publish"),
    ("GET", "exchanges/:vhost/:exchange/bindings/source", "bindings.from_exchange"),
    ("GET", "exchanges/:vhost/:exchange/bindings/destination", "bindings.to_exchange"),
    ("GET", "queues", "queues.every"),
    ("GET", "queues/detailed", "queues.every"),
    ("GET", "queues/:vhost", "queues.every"),
    ("GET", "queues/:vhost/:queue", "queues.one"),
    ("PUT", "queues/:vhost/:queue", "queues.put"),
    ("DELETE", "queues/:vhost/:queue", "queues.delete"),
    ("GET", "queues/:vhost/:queue/bindings", "bindings.to_queue"),
    ("DELETE", "queues/:vhost/:queue/contents", "queues.purge"),
    ("POST", "queues/:vhost/:queue/get", "messages.get"),
    ("GET", "bindings", "bindings.every"),
    ("GET", "bindings/:vhost", "bindings.every"),
    ("GET", "bindings/:vhost/e/:source/:kind/:target", "bindings.between"),
    ("POST", "bindings/:vhost/e/:source/:kind/:target", "bindings.bind"),
    ("GET", "bindings/:vhost/e/:source/:kind/:target/:properties", "bindings.one"),
    ("DELETE", "bindings/:vhost/e/:source/:kind/:target/:properties", "bindings.unbind"),
    ("GET", "connections", "connections.every"),
    ("GET", "connections/username/:user", "connections.of_user"),
    ("DELETE", "connections/username/:user", "connections.close_of_user"),
    ("GET", "connections/:connection", "connections.one"),
    ("DELETE", "connections/:connection", "connections.close"),
    ("GET", "connections/:connection/channels", "connections.channels_of"),
    ("GET", "channels", "connections.channels"),
    ("GET", "channels/:channel", "connections.channel"),
    ("GET", "consumers", "connections.consumers"),
    ("GET", "consumers/:vhost", "connections.consumers"),
    ("GET", "aliveness-test/:vhost", "health.healthy"),
    ("GET", "health/checks/alarms", "health.alarms"),
    ("GET", "health/checks/local-alarms", "health.local_alarms"),
    ("GET", "health/checks/certificate-expiration/:within/:unit", "health.certificate_expiration"),
    ("GET", "health/checks/virtual-hosts", "health.healthy"),
    ("GET", "health/checks/node-is-quorum-critical", "health.healthy"),
    ("GET", "health/checks/is-in-service", "health.healthy"),
    ("GET", "health/checks/ready-to-serve-clients", "health.healthy"),
    ("GET", "health/checks/below-node-connection-limit", "health.healthy"),
    ("GET", "health/checks/port-listener/:port", "health.port_listener"),
    ("GET", "health/checks/protocol-listener/:protocol", "health.protocol_listener"),
)
_ROUTES: Final = tuple((method, tuple(path.split("/")), name) for method, path, name in CALLS)


class Management:
    """All management calls for one host: `parts` has an object for each subject."""

    def __init__(
        self,
        host: AmqpHost,
        users: Users,
        sessions: Callable[[], Iterable[Session]],
        facts: Callable[[], NodeFacts],
    ) -> None:
        self.users = users
        self._host = host
        views = Views(host, sessions, facts)
        self.connections = ConnectionCalls(views)
        self.parts: dict[str, object] = {
            "absent": AbsentCalls(),
            "bindings": BindingCalls(views),
            "cluster": ClusterCalls(host, users, views),
            "connections": self.connections,
            "definitions": DefinitionCalls(host, users),
            "exchanges": ExchangeCalls(views),
            "health": HealthCalls(host, views),
            "messages": MessageCalls(host),
            "permissions": PermissionCalls(host, users),
            "operator_policies": PolicyCalls(operator=True),
            "policies": PolicyCalls(operator=False),
            "queues": QueueCalls(views),
            "users": UserCalls(host, users),
            "vhosts": VhostCalls(host, users, views),
        }

    def answer(self, request: Request, now: float) -> Response:
        """Answers a request with what this host knows. Errors of the client become responses."""
        try:
            call = self.begin(request, now, authenticate(request, self.users), self.users)
            return shown(call, self.run(call))
        except FAILURES as error:
            return failed(request, error)

    def begin(self, request: Request, now: float, user: str, rights: Rights) -> Call:
        """Returns the call of a request. Raises Problem if there is none, or the user lacks its tag."""
        call = Call(self._host, rights, user, request, now)
        call.method = self._find(call, request)
        needed = NEEDED[call.method]
        if needed in TAGS:
            call.need(needed)
        return call

    def run(self, call: Call) -> object:
        """Returns a response, or the content of one. Raises one of `FAILURES`."""
        part, _, name = call.method.partition(".")
        method: Callable[[Call], object] = getattr(self.parts[part], name)
        return method(call)

    def _find(self, call: Call, request: Request) -> str:
        """Returns the name of the method for the path and sets the arguments of the call.

        Raises Problem if there is none.
        """
        path = [unquote(one) for one in request.path.strip("/").split("/")[1:]]
        known = False
        asked = "GET" if request.method == "HEAD" else request.method
        for method, route, name in _ROUTES:
            found = _match(route, path)
            if found is None:
                continue
            known = True
            if method == asked:
                call.arguments = found
                return name
        raise Problem(405, "method_not_allowed", "Method Not Allowed") if known else not_found()


FAILURES: Final = (Problem, Refusal, TreecastError)


def shown(call: Call, found: object) -> Response:
    """Makes the response with the result of a call, to which the query is applied."""
    if isinstance(found, Response):
        return found if not found.body else _with_json(found)
    if isinstance(found, list):
        found = listed(found, call.request.query)
    return Response(200, json.dumps(found).encode(), _JSON)


def failed(request: Request, error: Exception) -> Response:
    """Returns the response to a request that failed with one of `FAILURES`."""
    if isinstance(error, Problem):
        return error.response()
    if isinstance(error, Refusal):
        return _refused(error).response()
    if isinstance(error, InvalidRegex):
        return bad_request(error.detail).response()
    _log.error("management call failed", method=request.method, path=request.path, error=error)
    return Problem(503, "service_unavailable", str(error)).response()


def _match(route: tuple[str, ...], path: list[str]) -> dict[str, str] | None:
    if len(route) != len(path):
        return None
    found: dict[str, str] = {}
    for wanted, given in zip(route, path, strict=True):
        if wanted.startswith(":"):
            found[wanted[1:]] = given
        elif wanted != given:
            return None
    return found


def _with_json(response: Response) -> Response:
    return Response(response.status, response.body, (*response.headers, *_JSON), response.depends)


def _refused(refusal: Refusal) -> Problem:
    """Converts a refusal: as in RabbitMQ, 401 for missing permissions, else 400 with the detail."""
    if refusal.reason is Reason.ACCESS_REFUSED:
        return not_authorised(f"{refusal.reason.value} - {refusal.detail}")
    return bad_request(refusal.detail)
