"""Users, permissions, descriptions of virtual hosts and the cluster's name, kept equal on all joined hosts.

Each is a definition at the coordinator (`queues.shared`), and the last change of it counts. A host keeps its
own copy, and logs users in by it while the coordinator is away. A host that joins a cluster with users takes
these instead of its own, so that a new host's `guest` does not come back to a cluster that has deleted it.
Users of a password file stay local to the host that has the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from treecast.middleware.broker.queues import (
    CLUSTER_NAME,
    Declared,
    LocalVirtualHosts,
    OutsideKind,
    SharedDefinitions,
    declared_key,
)
from treecast.middleware.model.logs import Log
from treecast.middleware.model.regex_syntax import InvalidRegex

from .access import KeptUsers
from .users import Permission, TopicPermission, User

_log = Log("treecast.amqp")
_BETWEEN: Final = "\0"  # a user and an exchange, in the name of a topic permission

S = TypeVar("S", User, Permission, TopicPermission)


class SharedAccess:
    """Implements `shared.Outside`."""

    def __init__(self, hosts: LocalVirtualHosts, users: KeptUsers, definitions: SharedDefinitions) -> None:
        self._hosts = hosts
        self._users = users
        self._definitions = definitions
        self._told: dict[str, Declared] = {}
        definitions.outside = self

    def look(self) -> None:
        """Announces what has changed on this host. Called after each management call."""
        found = {_key(one): one for one in self.own()}
        for key, one in found.items():
            if self._told.get(key) != one:
                self._definitions.announce(one)
        for key in self._told:
            if key not in found:
                self._definitions.withdraw(key)
        self._told = found

    # --- as `shared.Outside`

    def own(self) -> Iterator[Declared]:
        users, hosts = self._users, self._hosts
        for user in users.users.values():
            yield Declared("", OutsideKind.USER, user.name.encode(), 0, _said(user))
        if hosts.cluster_name != CLUSTER_NAME:
            yield Declared("", OutsideKind.CLUSTER, b"name", 0, {"name": hosts.cluster_name})
        for vhost, metadata in hosts.metadata.items():
            if metadata:
                yield Declared(vhost, OutsideKind.DESCRIPTION, b"", 0, dict(metadata))
        for (name, vhost), permission in users.permissions.items():
            yield Declared(vhost, OutsideKind.PERMISSION, name.encode(), 0, _said(permission))
        for (name, vhost, exchange), topic in users.topics.items():
            both = f"{name}{_BETWEEN}{exchange}".encode()
            yield Declared(vhost, OutsideKind.TOPIC_PERMISSION, both, 0, _said(topic))

    def joining(self, users: bool) -> None:
        own = self._users
        if users and not own.joined:
            others = [name for name in own.users if name not in own.local_only]
            if others:
                _log.warning("users of this host are replaced by those of the cluster", users=others)
            own.users, own.permissions, own.topics = {}, {}, {}
        own.joined = True
        own.changed()
        self._told = {_key(one): one for one in self.own()}

    def put(self, one: Declared) -> None:
        try:
            self._put(one)
        except (msgspec.ValidationError, InvalidRegex) as error:
            raise ValueError(f"{one.kind}: {error}") from error
        self._told[_key(one)] = one

    def _put(self, one: Declared) -> None:
        users, name = self._users, one.name.decode()
        if one.kind == OutsideKind.USER:
            users.put(_as(User, one.definition))
        elif one.kind == OutsideKind.PERMISSION:
            users.permit(name, one.vhost, _as(Permission, one.definition))
        elif one.kind == OutsideKind.TOPIC_PERMISSION:
            user, _, exchange = name.partition(_BETWEEN)
            users.permit_topics(user, one.vhost, exchange, _as(TopicPermission, one.definition))
        elif one.kind == OutsideKind.DESCRIPTION:
            self._hosts.describe(one.vhost, dict(one.definition))
            self._hosts.keep()
        else:
            self._hosts.cluster_name = str(one.definition["name"])
            self._hosts.keep()

    def remove(self, one: Declared) -> None:
        users, name = self._users, one.name.decode()
        if one.kind == OutsideKind.USER:
            users.delete(name)
        elif one.kind == OutsideKind.PERMISSION:
            users.forbid(name, one.vhost)
        elif one.kind == OutsideKind.TOPIC_PERMISSION:
            user, _, exchange = name.partition(_BETWEEN)
            users.forbid_topics(user, one.vhost, exchange)
        elif one.kind == OutsideKind.DESCRIPTION:
            self._hosts.describe(one.vhost, {})
            self._hosts.keep()
        else:
            self._hosts.cluster_name = CLUSTER_NAME
            self._hosts.keep()
        self._told.pop(_key(one), None)


def _key(one: Declared) -> str:
    return declared_key(one.vhost, one.kind, one.name)


def _said(value: S) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(value)
    if isinstance(value, User):
        found["tags"] = list(value.tags)  # as it is read back
    return found


def _as(kind: type[S], definition: Mapping[str, object]) -> S:
    return msgspec.convert(dict(definition), kind)
