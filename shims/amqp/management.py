"""The management HTTP API, as far as RabbitMQ's tools use it: from a request to its response.

Nothing here does I/O. The owner of the socket creates a `Request`, calls `Management.answer` and sends the
response; a response with `depends` is sent after the changes are stored. The table below lists all calls.
Paths, below `/api`, and JSON shapes (`management_views`) are those of RabbitMQ 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from treecast.middleware.broker.queues import Exchange, Reason, Refusal, VirtualHost
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.regex_syntax import InvalidRegex
from treecast.middleware.model.rights import Rights

from .management_call import (
    MONITORING,
    POLICYMAKER,
    Call,
    Problem,
    Request,
    Response,
    authenticate,
    bad_request,
    listed,
    not_authorised,
    not_found,
    number_of,
)
from .management_changes import destination
from .management_definitions import (
    Document,
    export,
    export_vhost,
    permission_item,
    policy_item,
    topic_item,
    user_item,
)
from .management_messages import Messages
from .users import ADMINISTRATOR

_log = Log("treecast.amqp")

Rows = list[dict[str, object]]
_JSON: Final = (("Content-Type", "application/json"),)

# HTTP method, path below /api (a segment with `:` is a parameter), and the method that answers it.
CALLS: Final = (
    ("GET", "overview", "overview"),
    ("GET", "whoami", "whoami"),
    ("GET", "auth", "auth"),
    ("GET", "cluster-name", "cluster_name"),
    ("PUT", "cluster-name", "put_cluster_name"),
    ("GET", "extensions", "nothing"),
    ("GET", "feature-flags", "nothing"),
    ("GET", "deprecated-features", "nothing"),
    ("GET", "nodes", "nodes"),
    ("GET", "nodes/:node", "node"),
    ("GET", "definitions", "definitions"),
    ("POST", "definitions", "post_definitions"),
    ("GET", "definitions/:vhost", "definitions"),
    ("POST", "definitions/:vhost", "post_definitions"),
    ("GET", "users", "list_users"),
    ("GET", "users/without-permissions", "users_without_permissions"),
    ("POST", "users/bulk-delete", "delete_users"),
    ("GET", "users/:user", "user"),
    ("PUT", "users/:user", "put_user"),
    ("DELETE", "users/:user", "delete_user"),
    ("GET", "users/:user/permissions", "permissions"),
    ("GET", "users/:user/topic-permissions", "topic_permissions"),
    ("GET", "permissions", "permissions"),
    ("GET", "permissions/:vhost/:user", "permission"),
    ("PUT", "permissions/:vhost/:user", "put_permission"),
    ("DELETE", "permissions/:vhost/:user", "delete_permission"),
    ("GET", "topic-permissions", "topic_permissions"),
    ("GET", "topic-permissions/:vhost/:user", "topic_permissions"),
    ("PUT", "topic-permissions/:vhost/:user", "put_topic_permission"),
    ("DELETE", "topic-permissions/:vhost/:user", "delete_topic_permission"),
    ("DELETE", "topic-permissions/:vhost/:user/:exchange", "delete_topic_permission"),
    ("GET", "vhosts", "vhosts"),
    ("GET", "vhosts/:vhost", "vhost"),
    ("PUT", "vhosts/:vhost", "put_vhost"),
    ("DELETE", "vhosts/:vhost", "delete_vhost"),
    ("GET", "vhosts/:vhost/permissions", "permissions"),
    ("GET", "vhosts/:vhost/topic-permissions", "topic_permissions"),
    ("GET", "vhosts/:vhost/connections", "connections"),
    ("GET", "vhosts/:vhost/channels", "channels"),
    ("GET", "policies", "policies"),
    ("GET", "policies/:vhost", "policies"),
    ("GET", "policies/:vhost/:name", "policy"),
    ("PUT", "policies/:vhost/:name", "put_policy"),
    ("DELETE", "policies/:vhost/:name", "delete_policy"),
    ("GET", "operator-policies", "operator_policies"),
    ("GET", "operator-policies/:vhost", "operator_policies"),
    ("GET", "operator-policies/:vhost/:name", "operator_policy"),
    ("PUT", "operator-policies/:vhost/:name", "put_operator_policy"),
    ("DELETE", "operator-policies/:vhost/:name", "delete_operator_policy"),
    ("GET", "parameters", "nothing"),
    ("GET", "parameters/:component", "nothing"),
    ("GET", "parameters/:component/:vhost", "nothing"),
    ("GET", "global-parameters", "global_parameters"),
    ("GET", "global-parameters/:name", "global_parameter"),
    ("PUT", "global-parameters/:name", "put_global_parameter"),
    ("DELETE", "global-parameters/:name", "delete_global_parameter"),
    ("GET", "vhost-limits", "nothing"),
    ("GET", "vhost-limits/:vhost", "nothing"),
    ("PUT", "vhost-limits/:vhost/:name", "put_limit"),
    ("DELETE", "vhost-limits/:vhost/:name", "delete_limit"),
    ("GET", "user-limits", "nothing"),
    ("GET", "user-limits/:user", "nothing"),
    ("PUT", "user-limits/:user/:name", "put_limit"),
    ("DELETE", "user-limits/:user/:name", "delete_limit"),
    ("POST", "rebalance/queues", "rebalance"),
    ("GET", "exchanges", "exchanges"),
    ("GET", "exchanges/:vhost", "exchanges"),
    ("GET", "exchanges/:vhost/:exchange", "exchange"),
    ("PUT", "exchanges/:vhost/:exchange", "put_exchange"),
    ("DELETE", "exchanges/:vhost/:exchange", "delete_exchange"),
    ("POST", "exchanges/:vhost/:exchange/publish", "publish"),
    ("GET", "exchanges/:vhost/:exchange/bindings/source", "bindings_from"),
    ("GET", "exchanges/:vhost/:exchange/bindings/destination", "bindings_to_exchange"),
    ("GET", "queues", "queues"),
    ("GET", "queues/detailed", "queues"),
    ("GET", "queues/:vhost", "queues"),
    ("GET", "queues/:vhost/:queue", "queue"),
    ("PUT", "queues/:vhost/:queue", "put_queue"),
    ("DELETE", "queues/:vhost/:queue", "delete_queue"),
    ("GET", "queues/:vhost/:queue/bindings", "bindings_to_queue"),
    ("DELETE", "queues/:vhost/:queue/contents", "purge_queue"),
    ("POST", "queues/:vhost/:queue/get", "get"),
    ("GET", "bindings", "bindings"),
    ("GET", "bindings/:vhost", "bindings"),
    ("GET", "bindings/:vhost/e/:source/:kind/:target", "bindings_between"),
    ("POST", "bindings/:vhost/e/:source/:kind/:target", "bind"),
    ("GET", "bindings/:vhost/e/:source/:kind/:target/:properties", "binding"),
    ("DELETE", "bindings/:vhost/e/:source/:kind/:target/:properties", "unbind"),
    ("GET", "connections", "connections"),
    ("GET", "connections/username/:user", "connections_of_user"),
    ("DELETE", "connections/username/:user", "close_connections_of_user"),
    ("GET", "connections/:connection", "connection"),
    ("DELETE", "connections/:connection", "close_connection"),
    ("GET", "connections/:connection/channels", "channels_of"),
    ("GET", "channels", "channels"),
    ("GET", "channels/:channel", "channel"),
    ("GET", "consumers", "consumers"),
    ("GET", "consumers/:vhost", "consumers"),
    ("GET", "aliveness-test/:vhost", "healthy"),
    ("GET", "health/checks/alarms", "alarms"),
    ("GET", "health/checks/local-alarms", "local_alarms"),
    ("GET", "health/checks/certificate-expiration/:within/:unit", "certificate_expiration"),
    ("GET", "health/checks/virtual-hosts", "healthy"),
    ("GET", "health/checks/node-is-quorum-critical", "healthy"),
    ("GET", "health/checks/is-in-service", "healthy"),
    ("GET", "health/checks/ready-to-serve-clients", "healthy"),
    ("GET", "health/checks/below-node-connection-limit", "healthy"),
    ("GET", "health/checks/port-listener/:port", "port_listener"),
    ("GET", "health/checks/protocol-listener/:protocol", "protocol_listener"),
)
_ROUTES: Final = tuple((method, tuple(path.split("/")), name) for method, path, name in CALLS)


class Management(Messages):
    """All management calls for one host. The methods defined here are read-only."""

    def answer(self, request: Request, now: float) -> Response:
        """Answers a request with what this host knows. Errors of the client become responses."""
        try:
            call = self.begin(request, now, authenticate(request, self.users), self.users)
            return shown(call, self.run(call))
        except FAILURES as error:
            return failed(request, error)

    def begin(self, request: Request, now: float, user: str, rights: Rights) -> Call:
        """Returns the call of a request. Raises Problem if there is no such call."""
        call = Call(self.host, rights, user, request, now)
        call.method = self._find(call, request)
        return call

    def run(self, call: Call) -> object:
        """Returns a response, or the content of one. Raises one of `FAILURES`."""
        method: Callable[[Call], object] = getattr(self, call.method)
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

    # --- overview, nodes and definitions

    def overview(self, call: Call) -> Document:
        return self.views.overview(call.now, call.scope())

    def whoami(self, call: Call) -> Document:
        return {"name": call.user, "tags": sorted(self.users.tags(call.user)), "is_internal_user": True}

    def auth(self, call: Call) -> Document:
        return {"oauth_enabled": False}

    def cluster_name(self, call: Call) -> Document:
        return {"name": self.host.queues.cluster_name}

    def nothing(self, call: Call) -> Rows:
        """Returns the empty list of a feature that this broker does not have."""
        return []

    def nodes(self, call: Call) -> Rows:
        call.need(MONITORING)
        return [self.views.node(call.now)]

    def node(self, call: Call) -> Document:
        call.need(MONITORING)
        found = self.views.node(call.now)
        if found["name"] != call.arguments["node"]:
            raise not_found()
        return found

    def definitions(self, call: Call) -> Document:
        if "vhost" in call.arguments:
            call.need(POLICYMAKER)
            return export_vhost(self.host, call.vhost().name)
        call.need(ADMINISTRATOR)
        return export(self.host, self.users)

    def global_parameters(self, call: Call) -> Rows:
        call.need(POLICYMAKER)
        return [{"name": "cluster_name", "value": self.host.queues.cluster_name}]

    def global_parameter(self, call: Call) -> Document:
        return self._named(call, self.global_parameters(call))

    # --- users

    def list_users(self, call: Call) -> Rows:
        call.need(ADMINISTRATOR)
        return [user_item(user) for user in self.users.users.values()]

    def users_without_permissions(self, call: Call) -> Rows:
        call.need(ADMINISTRATOR)
        known = {user for user, _ in self.users.permissions}
        return [user_item(user) for user in self.users.users.values() if user.name not in known]

    def user(self, call: Call) -> Document:
        call.need(ADMINISTRATOR)
        found = self.users.users.get(call.arguments["user"])
        if found is None:
            raise not_found()
        return user_item(found)

    def permissions(self, call: Call) -> Rows:
        self._may_see_permissions(call)
        return [
            permission_item(user, vhost, one)
            for (user, vhost), one in self.users.of_known(self.users.permissions)
            if _asked(call, "user", user) and _asked(call, "vhost", vhost)
        ]

    def permission(self, call: Call) -> Document:
        found = self.permissions(call)
        if not found:
            raise not_found()
        return found[0]

    def topic_permissions(self, call: Call) -> Rows:
        self._may_see_permissions(call)
        return [
            topic_item(user, vhost, exchange, one)
            for (user, vhost, exchange), one in self.users.of_known(self.users.topics)
            if _asked(call, "user", user) and _asked(call, "vhost", vhost)
        ]

    def _may_see_permissions(self, call: Call) -> None:
        call.need(ADMINISTRATOR)
        if "vhost" in call.arguments:
            call.vhost()

    # --- virtual hosts and policies

    def vhosts(self, call: Call) -> Rows:
        return [self.views.vhost(name, call.now) for name in call.visible()]

    def vhost(self, call: Call) -> Document:
        return self.views.vhost(call.vhost().name, call.now)

    def policies(self, call: Call) -> Rows:
        call.need(POLICYMAKER)
        return [policy_item(vhost.name, one) for vhost in call.vhosts() for one in vhost.policies.values()]

    def policy(self, call: Call) -> Document:
        return self._named(call, self.policies(call))

    def operator_policies(self, call: Call) -> Rows:
        call.need(POLICYMAKER)
        return [
            policy_item(vhost.name, one)
            for vhost in call.vhosts()
            for one in vhost.operator_policies.values()
        ]

    def operator_policy(self, call: Call) -> Document:
        return self._named(call, self.operator_policies(call))

    def _named(self, call: Call, rows: Rows) -> Document:
        for row in rows:
            if row["name"] == call.arguments["name"]:
                return row
        raise not_found()

    # --- exchanges, queues and bindings

    def exchanges(self, call: Call) -> Rows:
        found: Rows = []
        for vhost in call.vhosts():
            found.append(self.views.default_exchange(vhost))
            found += [self.views.exchange(vhost, one) for one in vhost.exchanges.values()]
        return found

    def exchange(self, call: Call) -> Document:
        vhost = call.vhost()
        found = self._exchange(call, vhost)
        return self.views.exchange(vhost, found) if found else self.views.default_exchange(vhost)

    def _exchange(self, call: Call, vhost: VirtualHost) -> Exchange | None:
        """Returns the exchange of the path, None for the default exchange. Raises Problem."""
        name = call.exchange_name()
        if name and name not in vhost.exchanges:
            raise not_found()
        return vhost.exchanges[name] if name else None

    def queues(self, call: Call) -> Rows:
        return [
            self.views.queue(vhost, queue, call.now)
            for vhost in call.vhosts()
            for queue in vhost.queues.values()
            if not (call.request.far and queue.home)
        ]

    def queue(self, call: Call) -> Document:
        vhost = call.vhost()
        return self.views.queue_detail(vhost, call.queue(vhost), call.now, call.scope())

    def bindings(self, call: Call) -> Rows:
        return [one for vhost in call.vhosts() for one in self.views.bindings(vhost)]

    def bindings_from(self, call: Call) -> Rows:
        vhost = call.vhost()
        self._exchange(call, vhost)
        name = call.exchange_name().decode()
        return [one for one in self.views.bindings(vhost) if one["source"] == name]

    def bindings_to_exchange(self, call: Call) -> Rows:
        vhost = call.vhost()
        self._exchange(call, vhost)
        return self._to(vhost, "exchange", call.exchange_name().decode())

    def bindings_to_queue(self, call: Call) -> Rows:
        vhost = call.vhost()
        return self._to(vhost, "queue", call.queue(vhost).name.decode(errors="replace"))

    def _to(self, vhost: VirtualHost, kind: str, name: str) -> Rows:
        return [
            one
            for one in self.views.bindings(vhost)
            if (one["destination_type"], one["destination"]) == (kind, name)
        ]

    def bindings_between(self, call: Call) -> Rows:
        vhost, target = call.vhost(), destination(call)
        source = call.exchange_name("source").decode()
        kind = "exchange" if target.is_exchange else "queue"
        found = self._to(vhost, kind, target.name.decode(errors="replace"))
        return [one for one in found if one["source"] == source]

    def binding(self, call: Call) -> Document:
        vhost, source = call.vhost(), call.exchange_name("source")
        found = self.named_binding(call, vhost, source, destination(call))
        return self.views.binding(vhost, source, found)

    # --- connections

    def connections(self, call: Call) -> Rows:
        return [self.views.connection(one, call.now) for one in self.views.seen(call.scope())]

    def connections_of_user(self, call: Call) -> Rows:
        return [row for row in self.connections(call) if row["user"] == call.arguments["user"]]

    def connection(self, call: Call) -> Document:
        return self.views.connection(self.named_connection(call), call.now)

    def channels_of(self, call: Call) -> Rows:
        return self.views.channels([self.named_connection(call)])

    def channels(self, call: Call) -> Rows:
        return self.views.channels(self.views.seen(call.scope()))

    def channel(self, call: Call) -> Document:
        for one in self.channels(call):
            if one["name"] == call.arguments["channel"]:
                return one
        raise not_found()

    def consumers(self, call: Call) -> Rows:
        return self.views.consumers(call.scope())

    # --- health

    def healthy(self, call: Call) -> Document:
        if "vhost" in call.arguments:
            call.vhost()
        return {"status": "ok"}

    def alarms(self, call: Call) -> Document | Response:
        if not self.host.alarm:
            return {"status": "ok"}
        reason = f"There are alarms in effect: {self.host.alarm}"
        body = {"status": "failed", "reason": reason, "alarms": [self.host.alarm]}
        return Response(503, json.dumps(body).encode())

    def local_alarms(self, call: Call) -> Document | Response:
        return self.alarms(call)

    def certificate_expiration(self, call: Call) -> Document | Response:
        """Fails if the certificate of a listener ends within the time of the path."""
        unit = _UNITS.get(call.arguments["unit"].removesuffix("s"))
        if unit is None:
            raise bad_request(f"time unit not recognised: one of {', '.join(f'{one}s' for one in _UNITS)}")
        within = number_of(call.arguments, "within") * unit
        ending = [
            {"protocol": protocol, "seconds": int(left)}
            for protocol, left in self.views.certificates()
            if left < within
        ]
        if not ending:
            return {"status": "ok"}
        return _unhealthy("Certificates expiring", expired=ending)

    def port_listener(self, call: Call) -> Document | Response:
        ports = {str(port): port for _, _, port in self.views.listeners()}
        asked = call.arguments["port"]
        if asked in ports:
            return {"status": "ok", "port": ports[asked]}
        return _unhealthy("No active listener", missing=asked, ports=sorted(ports.values()))

    def protocol_listener(self, call: Call) -> Document | Response:
        protocols = {protocol for protocol, _, _ in self.views.listeners()}
        asked = call.arguments["protocol"]
        if asked in protocols or (asked in ("amqp091", "amqp0-9-1") and "amqp" in protocols):
            return {"status": "ok", "protocol": asked}
        return _unhealthy("No active listener", missing=[asked], protocols=sorted(protocols))


_DAY: Final = 86_400
_UNITS: Final = {"day": _DAY, "week": 7 * _DAY, "month": 30 * _DAY, "year": 365 * _DAY}  # seconds
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


def _asked(call: Call, argument: str, value: str) -> bool:
    return call.arguments.get(argument, value) == value


def _unhealthy(reason: str, **facts: object) -> Response:
    return Response(503, json.dumps({"status": "failed", "reason": reason, **facts}).encode())


def _with_json(response: Response) -> Response:
    return Response(response.status, response.body, (*response.headers, *_JSON), response.depends)


def _refused(refusal: Refusal) -> Problem:
    """Converts a refusal: as in RabbitMQ, 401 for missing permissions, else 400 with the detail."""
    if refusal.reason is Reason.ACCESS_REFUSED:
        return not_authorised(f"{refusal.reason.value} - {refusal.detail}")
    return bad_request(refusal.detail)
