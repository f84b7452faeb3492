"""Export and import of definitions in RabbitMQ's format: one JSON document of everything but messages.

`rabbitmqctl export_definitions` of 3.x and 4.x and the management calls use the parts users, vhosts,
permissions, topic_permissions, parameters, global_parameters, policies, queues, exchanges and bindings. A
document of a single virtual host has no users and no permissions, and its parts do not name the virtual
host. An import creates missing objects; users, permissions and policies replace existing ones. Unknown items
are skipped and listed in the report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from treecast.middleware.broker.queues import (
    DEFAULT_TYPE,
    LONGEST_NAME,
    TYPES,
    AnyQueue,
    Destination,
    Policy,
    Refusal,
    VirtualHost,
    knows_policy_key,
)
from treecast.middleware.model.regex_syntax import InvalidRegex

from .management_call import POLICYMAKER, Call, Response, bad_request
from .session_host import UNSET_TYPES, AmqpHost
from .session_messages import REPLY_TO
from .users import (
    ADMINISTRATOR,
    SHA256,
    Permission,
    TopicPermission,
    User,
    Users,
    hashed,
    knows_hashing,
    tags_of,
)

Document = dict[str, object]
Rows = list[Document]
Item = Mapping[str, object]
_PARTS: Final = (
    ("users", "_user"),
    ("vhosts", "_vhost"),
    ("permissions", "_permission"),
    ("exchanges", "_exchange"),
    ("topic_permissions", "_topic_permission"),
    ("global_parameters", "_global_parameter"),
    ("policies", "_policy"),
    ("parameters", "_parameter"),
    ("queues", "_queue"),
    ("bindings", "_binding"),
)  # in RabbitMQ's order: each part depends on those before it
_FACTS: Final = frozenset(
    {
        "rabbit_version",
        "rabbitmq_version",
        "product_name",
        "product_version",
        "rabbitmq_definition_format",
        "original_cluster_name",
        "original_vhost_name",
        "explanation",
        "metadata",
    }
)
_OPERATOR_POLICY: Final = "operator_policy"
_CLASSIC: Final = "classic"


class DefinitionCalls:
    """The management calls that export and import definitions."""

    def __init__(self, host: AmqpHost, users: Users) -> None:
        self._host = host
        self._users = users

    def export(self, call: Call) -> Document:
        if "vhost" in call.arguments:
            call.need(POLICYMAKER)
            return export_vhost(self._host, call.vhost().name)
        call.need(ADMINISTRATOR)
        return export(self._host, self._users)

    def load(self, call: Call) -> Response:
        """Imports definitions. Unlike RabbitMQ's empty answer, this one lists the skipped items."""
        only = None
        if "vhost" in call.arguments:
            only = call.vhost(used=True).name
        call.need(ADMINISTRATOR)
        try:
            report = Import(self._host, self._users, call.now, only).load(call.body())
        except BadDefinitions as error:
            raise bad_request(str(error)) from error
        body = {"imported": report.imported, "skipped": report.skipped}
        return Response(200, json.dumps(body).encode(), depends=True)


class BadDefinitions(Exception):
    """The document does not contain definitions. Nothing was imported."""


class Report(Struct):
    """The result of an import: the number of imported items by part, and the skipped items with reasons."""

    imported: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


class Import:
    """One import into a host. `vhost` is the target of a document of a single virtual host, else None."""

    def __init__(self, host: AmqpHost, users: Users, now: float, vhost: str | None = None) -> None:
        self.report = Report()
        self._host = host
        self._users = users
        self._now = now
        self._only = vhost

    def load(self, document: object) -> Report:
        """Imports a document. Skips invalid items. Raises BadDefinitions if the document is unusable."""
        parts = _checked(document, self._only)
        for name in parts:
            if name not in _FACTS and name not in dict(_PARTS):
                self.report.skipped.append(f"{name}: this part is not known")
        for name, method in _PARTS:
            load: Callable[[Item], None] = getattr(self, method)
            for item in parts.get(name, ()):
                self._one(name, item, load)
        return self.report

    def _one(self, part: str, item: Item, load: Callable[[Item], None]) -> None:
        what = f"{part} {_shown(item)}"
        try:
            load(item)
        except Refusal as refusal:
            self.report.skipped.append(f"{what}: {' '.join(refusal.detail.split())}")
        except (_Skip, InvalidRegex) as error:
            self.report.skipped.append(f"{what}: {error}")
        except (KeyError, TypeError, ValueError) as error:
            self.report.skipped.append(f"{what}: it cannot be read ({error!r})")
        else:
            self.report.imported[part] = self.report.imported.get(part, 0) + 1

    def _note(self, text: str) -> None:
        self.report.skipped.append(text)

    # --- users and permissions

    def _user(self, item: Item) -> None:
        name = _text(item, "name")
        hashing = str(item.get("hashing_algorithm", User("").hashing))
        if item.get("limits"):
            self._note(f"users {name}: its limits are not kept")
        if item.get("password_hash") and not knows_hashing(hashing):
            raise _Skip(f"the hashing algorithm {hashing} is unknown, so the user could not log in")
        password = str(item.get("password_hash", ""))
        if "password" in item:
            if password:
                raise _Skip("it has both a password and the hash of one")
            password, hashing = self._hashed(_text(item, "password")), SHA256
        self._users.add(User(name, password, hashing, tags_of(item.get("tags"))))

    def _hashed(self, password: str) -> str:
        return hashed(password.encode(), self._host.random_bytes(4))

    def _known_user(self, item: Item) -> str:
        """Returns the user of permissions. Rights are not kept for who may come."""
        user = _text(item, "user")
        if user not in self._users.users:
            raise _Skip(f"there is no user {user!r}")
        return user

    def _permission(self, item: Item) -> None:
        user, vhost = self._known_user(item), self._named_vhost(item)
        permission = Permission(_text(item, "configure"), _text(item, "write"), _text(item, "read"))
        self._users.permit(user, vhost.name, permission)

    def _topic_permission(self, item: Item) -> None:
        user, vhost = self._known_user(item), self._named_vhost(item)
        permission = TopicPermission(_text(item, "write"), _text(item, "read"))
        self._users.permit_topics(user, vhost.name, _text(item, "exchange"), permission)

    # --- virtual hosts, parameters and policies

    def _vhost(self, item: Item) -> None:
        name = _text(item, "name")
        metadata = item.get("metadata")
        said = dict(metadata) if isinstance(metadata, dict) else {}
        said |= {key: item[key] for key in ("description", "tags", DEFAULT_TYPE) if key in item}
        if said.get(DEFAULT_TYPE) not in TYPES:
            wanted = said.pop(DEFAULT_TYPE, None)
            if wanted not in UNSET_TYPES:
                self._note(f"vhosts {name}: its default queue type {wanted} is not known here")
        if item.get("limits"):
            self._note(f"vhosts {name}: its limits are not kept")
        if len(name.encode()) > LONGEST_NAME:
            raise _Skip(f"its name is longer than {LONGEST_NAME} bytes")
        if name not in self._host.vhosts:
            self._host.queues.add_vhost(name)
        self._host.queues.describe(name, said)

    def _named_vhost(self, item: Item) -> VirtualHost:
        name = self._only if self._only is not None else _text(item, "vhost")
        if name not in self._host.vhosts:
            raise _Skip(f"there is no virtual host {name!r}")
        return self._host.vhosts[name]

    def _global_parameter(self, item: Item) -> None:
        name = _text(item, "name")
        if name == "cluster_name":
            self._host.queues.cluster_name = str(item["value"])
        elif not name.startswith("internal"):
            raise _Skip("global parameters are not known here")

    def _parameter(self, item: Item) -> None:
        component = _text(item, "component")
        if component != _OPERATOR_POLICY:
            raise _Skip(f"parameters of {component} are not known here")
        value = item["value"]
        if not isinstance(value, dict):
            raise TypeError("value")
        self._set_policy({**item, **value}, operator=True)

    def _policy(self, item: Item) -> None:
        self._set_policy(item, operator=False)

    def _set_policy(self, item: Item, *, operator: bool) -> None:
        name, given = _text(item, "name"), item["definition"]
        if not isinstance(given, dict):
            raise TypeError("definition")
        known = {key: value for key, value in given.items() if knows_policy_key(key, operator=operator)}
        for key in given:
            if key not in known:
                self._note(f"policies {name}: {key} is not known here")
        if not known:
            raise _Skip("nothing of it is known here")
        policy = Policy(
            name,
            str(item.get("pattern", "")),
            known,
            int(str(item.get("priority", 0))),
            str(item.get("apply-to", "all")),
        )
        self._named_vhost(item).policies.set(policy, self._now, operator=operator)

    # --- exchanges, queues and bindings

    def _exchange(self, item: Item) -> None:
        vhost, name = self._named_vhost(item), _text(item, "name").encode()
        if name in vhost.exchanges:
            return
        vhost.exchange_definitions.declare(
            name,
            _text(item, "type"),
            durable=item.get("durable", True) is True,
            auto_delete=item.get("auto_delete") is True,
            internal=item.get("internal") is True,
            arguments=_table(item),
        )

    def _queue(self, item: Item) -> None:
        vhost, name = self._named_vhost(item), _text(item, "name").encode()
        if name in vhost.queues:
            return
        arguments = _table(item)
        kind = item.get("type")
        if kind is not None and (kind, vhost.queue_definitions.default_type.value) != (_CLASSIC, _CLASSIC):
            arguments.setdefault("x-queue-type", kind)
        queue = vhost.queue_definitions.declare(
            name,
            durable=item.get("durable", True) is True,
            auto_delete=item.get("auto_delete") is True,
            arguments=arguments,
            now=self._now,
        )
        vhost.watch(queue)

    def _binding(self, item: Item) -> None:
        vhost, source = self._named_vhost(item), _text(item, "source").encode()
        is_exchange = item.get("destination_type", "queue") == "exchange"
        target = Destination(_text(item, "destination").encode(), is_exchange)
        vhost.bindings.bind(source, target, _text(item, "routing_key").encode(), _table(item))


class _Skip(Exception):
    """An item is skipped for the reason in the text."""


def _checked(document: object, vhost: str | None) -> dict[str, list[Item]]:
    if not isinstance(document, dict):
        raise BadDefinitions("definitions are a JSON object")
    found: dict[str, list[Item]] = {}
    for name, part in document.items():
        if name in _FACTS:
            continue
        if not isinstance(part, list) or not all(isinstance(one, dict) for one in part):
            raise BadDefinitions(f"{name} must be a list of objects")
        found[name] = part
    if vhost is None and any("vhost" not in one for one in found.get("queues", ())):
        raise BadDefinitions(
            "these definitions are of one virtual host: import them into it, by its name in the path"
        )
    return found


def _shown(item: Item) -> str:
    keys = ("vhost", "component", "user", "source", "destination", "exchange", "name", "routing_key")
    return " ".join(str(item[key]) for key in keys if key in item)


def _text(item: Item, key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def _table(item: Item) -> dict[str, object]:
    value = item.get("arguments") or {}
    if not isinstance(value, dict):
        raise TypeError("arguments")
    return dict(value)


# --- export


def export(host: AmqpHost, users: Users) -> Document:
    """Exports all definitions of a host in the format of RabbitMQ 4.3."""
    version = host.settings.version
    vhosts = list(host.vhosts.values())
    return {
        "rabbit_version": version,
        "rabbitmq_version": version,
        "product_name": "Treecast",
        "product_version": version,
        "rabbitmq_definition_format": "cluster",
        "original_cluster_name": host.queues.cluster_name,
        "users": [user_item(user) for user in users.users.values()],
        "vhosts": [_vhost_item(host, name) for name in host.vhosts],
        "permissions": [permission_item(*key, one) for key, one in users.of_known(users.permissions)],
        "topic_permissions": [topic_item(*key, one) for key, one in users.of_known(users.topics)],
        "parameters": [one for vhost in vhosts for one in _parameters(vhost)],
        "global_parameters": [{"name": "cluster_name", "value": host.queues.cluster_name}],
        "policies": [
            policy_item(vhost.name, one) for vhost in vhosts for one in vhost.policies.users.values()
        ],
        "queues": [one for vhost in vhosts for one in _queues(vhost)],
        "exchanges": [one for vhost in vhosts for one in _exchanges(vhost)],
        "bindings": [one for vhost in vhosts for one in _bindings(vhost)],
    }


def export_vhost(host: AmqpHost, name: str) -> Document:
    """Exports the definitions of one virtual host. The parts do not name it."""
    vhost = host.vhosts[name]
    parts: Mapping[str, list[Document]] = {
        "parameters": _parameters(vhost),
        "policies": [policy_item(name, one) for one in vhost.policies.users.values()],
        "queues": _queues(vhost),
        "exchanges": _exchanges(vhost),
        "bindings": _bindings(vhost),
    }
    version = host.settings.version
    found: Document = {"rabbit_version": version, "rabbitmq_version": version}
    found |= {"rabbitmq_definition_format": "single_virtual_host", "original_vhost_name": name}
    for part, items in parts.items():
        found[part] = [{key: value for key, value in one.items() if key != "vhost"} for one in items]
    return found


def user_item(user: User) -> Document:
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing,
        "tags": list(user.tags),
        "limits": {},
    }


def permission_item(user: str, vhost: str, permission: Permission) -> Document:
    return {
        "user": user,
        "vhost": vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def topic_item(user: str, vhost: str, exchange: str, permission: TopicPermission) -> Document:
    said = {"write": permission.write, "read": permission.read}
    return {"user": user, "vhost": vhost, "exchange": exchange, **said}


def policy_item(vhost: str, policy: Policy) -> Document:
    return {"vhost": vhost, "name": policy.name, **policy.said}


def _vhost_item(host: AmqpHost, name: str) -> Document:
    metadata = host.queues.metadata.get(name, {})
    return {"name": name, "limits": {}, "metadata": dict(metadata), **metadata}


def _parameters(vhost: VirtualHost) -> list[Document]:
    return [
        {"vhost": vhost.name, "component": _OPERATOR_POLICY, "name": one.name, "value": one.said}
        for one in vhost.policies.operators.values()
    ]


def _queues(vhost: VirtualHost) -> list[Document]:
    return [
        {
            "name": queue.name.decode(errors="replace"),
            "vhost": vhost.name,
            "type": queue.arguments.type.value,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "arguments": shown_table(queue.asked),
        }
        for queue in vhost.queues.values()
        if is_exported(queue)
    ]


def is_exported(queue: AnyQueue) -> bool:
    """Whether a queue is exported: it is neither exclusive nor for direct replies."""
    return queue.owner is None and not queue.name.startswith(REPLY_TO)


def _exchanges(vhost: VirtualHost) -> list[Document]:
    return [
        {
            "name": name.decode(errors="replace"),
            "vhost": vhost.name,
            "type": exchange.type.value,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": shown_table(exchange.arguments),
        }
        for name, exchange in vhost.exchanges.items()
        if not name.startswith(b"amq.")
    ]


def _bindings(vhost: VirtualHost) -> list[Document]:
    found: list[Document] = []
    for source, exchange in vhost.exchanges.items():
        for (target, key, _), arguments in exchange.bindings.items():
            queue = None if target.is_exchange else vhost.queues.get(target.name)
            if queue is not None and not is_exported(queue):
                continue
            found.append(
                {
                    "source": source.decode(errors="replace"),
                    "vhost": vhost.name,
                    "destination": target.name.decode(errors="replace"),
                    "destination_type": "exchange" if target.is_exchange else "queue",
                    "routing_key": key.decode(errors="replace"),
                    "arguments": shown_table(arguments),
                }
            )
    return found


def shown_table(table: Mapping[str, object]) -> Document:
    """Converts a table of the protocol to JSON."""
    return {key: shown_value(value) for key, value in table.items()}


def shown_value(value: object) -> object:
    if isinstance(value, dict):
        return shown_table(value)
    if isinstance(value, list):
        return [shown_value(one) for one in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return str(value)
