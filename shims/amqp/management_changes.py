"""The management calls that modify: users, permissions, virtual hosts, policies, exchanges, queues."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from treecast.middleware.broker.queues import (
    DEFAULT_TYPE,
    TYPES,
    Binding,
    Destination,
    Policy,
    VirtualHost,
    needs,
)
from treecast.middleware.model.rights import EXCHANGE, QUEUE

from .management_call import (
    POLICYMAKER,
    Call,
    Problem,
    Response,
    bad_request,
    not_found,
    number_of,
    table_of,
    text_of,
    truth_of,
)
from .management_definitions import BadDefinitions, Import, shown_table
from .management_views import NodeFacts, Views, connection_name, properties_key
from .session import Session
from .session_host import UNSET_TYPES, AmqpHost
from .session_messages import REPLY_TO
from .users import ADMINISTRATOR, SHA256, Permission, TopicPermission, User, Users, hashed, knows_hashing
from .users import tags_of as read_tags

CREATED = Response(201, depends=True)
CHANGED = Response(204, depends=True)
_EVERYTHING = Permission(".*", ".*", ".*")
_CLUSTER_NAME = "cluster_name"  # the one global parameter


def _put(new: bool) -> Response:
    return CREATED if new else CHANGED


class Changes:
    """The modifying calls. Each public method is one call in the table of `management`."""

    def __init__(
        self,
        host: AmqpHost,
        users: Users,
        sessions: Callable[[], Iterable[Session]],
        facts: Callable[[], NodeFacts],
    ) -> None:
        self.host = host
        self.users = users
        self.views = Views(host, sessions, facts)

    # --- users

    def put_user(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        body, name = call.body(), call.arguments["user"]
        call.named("user name", name)
        hashing = text_of(body, "hashing_algorithm", SHA256)
        if "password_hash" in body:
            password_hash = text_of(body, "password_hash")
            if password_hash and not knows_hashing(hashing):
                raise bad_request(f"hashing algorithm {hashing} is not known")
        elif "password" in body:
            password = text_of(body, "password").encode()
            password_hash, hashing = hashed(password, self.host.random_bytes(4)), SHA256
        elif (known := self.users.users.get(name)) is not None:  # only its tags are given
            password_hash, hashing = known.password_hash, known.hashing
        else:
            raise bad_request("[{key_missing,password}]")
        tags = read_tags(body.get("tags", body.get("tag", "")))
        return _put(self.users.add(User(name, password_hash, hashing, tags)))

    def delete_user(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if not self.users.delete(call.arguments["user"]):
            raise not_found()
        return CHANGED

    def delete_users(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        names = call.body("users")["users"]
        if not isinstance(names, list):
            raise bad_request("users should be a list")
        for name in names:
            self.users.delete(str(name))
        return CHANGED

    def put_permission(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        user, vhost = self._user_in_vhost(call)
        body = call.body("configure", "write", "read")
        permission = Permission(text_of(body, "configure"), text_of(body, "write"), text_of(body, "read"))
        return _put(self.users.permit(user, vhost, permission))

    def delete_permission(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if not self.users.forbid(call.arguments["user"], call.arguments["vhost"]):
            raise not_found()
        return CHANGED

    def put_topic_permission(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        user, vhost = self._user_in_vhost(call)
        body = call.body("exchange", "write", "read")
        permission = TopicPermission(text_of(body, "write"), text_of(body, "read"))
        return _put(self.users.permit_topics(user, vhost, text_of(body, "exchange"), permission))

    def delete_topic_permission(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        user, vhost = call.arguments["user"], call.arguments["vhost"]
        if not self.users.forbid_topics(user, vhost, call.arguments.get("exchange")):
            raise not_found()
        return CHANGED

    def _user_in_vhost(self, call: Call) -> tuple[str, str]:
        user, vhost = call.arguments["user"], call.arguments["vhost"]
        if vhost not in self.host.vhosts:
            raise bad_request("vhost_not_found")
        if user not in self.users.users:
            raise bad_request("user_not_found")
        return user, vhost

    # --- virtual hosts

    def put_vhost(self, call: Call) -> Response:
        """Creates or updates a virtual host. Its creator gets all permissions in it."""
        call.need(ADMINISTRATOR)
        body, name = call.body(), call.arguments["vhost"]
        wanted = body.get(DEFAULT_TYPE)
        if wanted not in UNSET_TYPES and wanted not in TYPES:
            raise bad_request(f"unsupported default queue type {wanted!r}; known are {', '.join(TYPES)}")
        new = name not in self.host.vhosts
        call.named("virtual host name", name)
        if new:
            self.host.queues.add_vhost(name)
            if call.user in self.users.users:
                self.users.permit(call.user, name, _EVERYTHING)
        said = dict(self.host.queues.metadata.get(name, {}))
        said["description"] = text_of(body, "description", str(said.get("description", "")))
        said["tags"] = list(read_tags(body.get("tags", said.get("tags", []))))
        if body.get(DEFAULT_TYPE) not in UNSET_TYPES:
            said[DEFAULT_TYPE] = body[DEFAULT_TYPE]
        elif DEFAULT_TYPE in body:
            said.pop(DEFAULT_TYPE, None)
        self.host.queues.describe(name, said)
        self.users.changed()
        return _put(new)

    def delete_vhost(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        name = call.arguments["vhost"]
        if name not in self.host.vhosts:
            raise not_found()
        if name == "/":
            raise bad_request("the virtual host / is the one that all faces share, and stays")
        for session in self.views.connections([name]):
            session.close(call.now, f"vhost '{name}' is deleted")
        self.host.queues.remove_vhost(name)
        self.users.forget_vhost(name)
        return CHANGED

    def put_cluster_name(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        self.host.queues.cluster_name = text_of(call.body("name"), "name")
        self.users.changed()
        return CHANGED

    def put_global_parameter(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if call.arguments["name"] != _CLUSTER_NAME:
            raise bad_request(f"this broker knows no global parameter but {_CLUSTER_NAME}")
        self.host.queues.cluster_name = text_of(call.body("value"), "value")
        self.users.changed()
        return CHANGED

    def delete_global_parameter(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if call.arguments["name"] != _CLUSTER_NAME:
            raise not_found()
        raise bad_request(f"{_CLUSTER_NAME} can be changed only")

    # --- limits, and what does not move

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

    # --- policies

    def put_policy(self, call: Call) -> Response:
        return self._put_policy(call, operator=False)

    def put_operator_policy(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        return self._put_policy(call, operator=True)

    def _put_policy(self, call: Call, *, operator: bool) -> Response:
        call.need(POLICYMAKER)
        vhost, name = call.vhost(used=not operator), call.arguments["name"]
        body = call.body("pattern", "definition")
        policy = Policy(
            name,
            text_of(body, "pattern"),
            table_of(body, "definition"),
            number_of(body, "priority", 0),
            text_of(body, "apply-to", "queues" if operator else "all"),
        )
        known = vhost.operator_policies if operator else vhost.policies
        new = name not in known
        vhost.set_policy(policy, call.now, operator=operator)
        return _put(new)

    def delete_policy(self, call: Call) -> Response:
        return self._delete_policy(call, operator=False)

    def delete_operator_policy(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        return self._delete_policy(call, operator=True)

    def _delete_policy(self, call: Call, *, operator: bool) -> Response:
        call.need(POLICYMAKER)
        vhost = call.vhost(used=not operator)
        if not vhost.delete_policy(call.arguments["name"], call.now, operator=operator):
            raise not_found()
        return CHANGED

    # --- exchanges and queues

    def put_exchange(self, call: Call) -> Response:
        vhost, name = call.vhost(used=True), call.name("exchange")
        body = call.body("type")
        arguments = table_of(body)
        call.permit(vhost, needs.to_declare_exchange(vhost, name, arguments))
        new = name not in vhost.exchanges
        vhost.declare_exchange(
            name,
            text_of(body, "type"),
            durable=truth_of(body, "durable", True),
            auto_delete=truth_of(body, "auto_delete", False),
            internal=truth_of(body, "internal", False),
            arguments=arguments,
        )
        return _put(new)

    def delete_exchange(self, call: Call) -> Response:
        vhost, name = call.vhost(used=True), call.exchange_name()
        if name and name not in vhost.exchanges:
            raise not_found()
        call.permit(vhost, needs.to_delete(EXCHANGE, name))
        vhost.delete_exchange(name, if_unused=call.flag("if-unused"))
        return CHANGED

    def put_queue(self, call: Call) -> Response:
        vhost, name = call.vhost(used=True), call.name("queue")
        body = call.body()
        arguments = table_of(body)
        call.permit(vhost, needs.to_declare_queue(vhost, name, arguments))
        new = name not in vhost.queues
        queue = vhost.declare_queue(
            name,
            durable=truth_of(body, "durable", True),
            auto_delete=truth_of(body, "auto_delete", False),
            arguments=arguments,
            now=call.now,
        )
        vhost.watch(queue)
        return _put(new)

    def delete_queue(self, call: Call) -> Response:
        vhost = call.vhost(used=True)
        queue = call.queue(vhost)
        call.permit(vhost, needs.to_delete(QUEUE, queue.name))
        unused, empty = call.flag("if-unused"), call.flag("if-empty")
        vhost.delete_queue(queue.name, None, if_unused=unused, if_empty=empty)
        return CHANGED

    def purge_queue(self, call: Call) -> Response:
        vhost = call.vhost(used=True)
        queue = call.queue(vhost)
        call.permit(vhost, needs.to_read(queue.name))
        vhost.owned(queue.name, None).purge()
        return CHANGED

    # --- bindings

    def bind(self, call: Call) -> Response:
        vhost, source, target = self._binding_ends(call)
        body = call.body()
        key, arguments = text_of(body, "routing_key", ""), table_of(body)
        if not target.is_exchange and target.name.startswith(REPLY_TO):
            raise bad_request("cannot bind or unbind to a volatile (direct reply-to) queue")
        call.permit(vhost, needs.to_bind(vhost, source, target, key.encode()))
        vhost.bind(source, target, key.encode(), arguments)
        where = f"{target.name.decode()}/{properties_key(key, arguments)}"
        return Response(201, b"", (("Location", where),), depends=True)

    def unbind(self, call: Call) -> Response:
        vhost, source, target = self._binding_ends(call)
        binding = self.named_binding(call, vhost, source, target)
        call.permit(vhost, needs.to_bind(vhost, source, target, binding.key))
        vhost.unbind(source, target, binding.key, vhost.exchanges[source].bindings[binding])
        return CHANGED

    def _binding_ends(self, call: Call) -> tuple[VirtualHost, bytes, Destination]:
        vhost = call.vhost(used=True)
        return vhost, call.exchange_name("source"), destination(call)

    def named_binding(self, call: Call, vhost: VirtualHost, source: bytes, target: Destination) -> Binding:
        """Returns the binding that the path identifies by key and argument hash. Raises Problem."""
        exchange = vhost.exchanges.get(source)
        for binding, arguments in exchange.bindings.items() if exchange is not None else ():
            if binding.destination == target:
                key = properties_key(binding.key.decode(errors="replace"), shown_table(arguments))
                if key in call.properties_keys:
                    return binding
        raise not_found()

    # --- definitions

    def post_definitions(self, call: Call) -> Response:
        """Imports definitions. Unlike RabbitMQ's empty answer, this one lists the skipped items."""
        only = None
        if "vhost" in call.arguments:
            only = call.vhost(used=True).name
        call.need(ADMINISTRATOR)
        try:
            report = Import(self.host, self.users, call.now, only).load(call.body())
        except BadDefinitions as error:
            raise bad_request(str(error)) from error
        body = {"imported": report.imported, "skipped": report.skipped}
        return Response(200, json.dumps(body).encode(), depends=True)

    # --- connections

    def close_connection(self, call: Call) -> Response:
        session = self.named_connection(call)
        if session.state.user != call.user:
            call.need(ADMINISTRATOR)
        session.close(call.now, call.request.reason or "Closed via management plugin")
        return CHANGED

    def close_connections_of_user(self, call: Call) -> Response:
        """Closes the connections of a user at this host."""
        name = call.arguments["user"]
        if name != call.user:
            call.need(ADMINISTRATOR)
        for session in self.views.connections(call.visible()):
            if session.state.user == name:
                session.close(call.now, call.request.reason or "Closed via management plugin")
        return CHANGED

    def named_connection(self, call: Call) -> Session:
        for session in self.views.connections(call.visible()):
            if connection_name(session.state) == call.arguments["connection"]:
                if session.state.user == call.user or call.sees_all:
                    return session
                raise Problem(401, "not_authorised", "User not authorised to access object")
        raise not_found()


def destination(call: Call) -> Destination:
    kind = call.arguments["kind"]
    if kind not in ("q", "e"):
        raise not_found()
    return Destination(call.exchange_name("target") if kind == "e" else call.name("target"), kind == "e")
