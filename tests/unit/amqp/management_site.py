"""A host of the AMQP face with the management calls, for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.unit.amqp.face import Client, MemoryHost

from treecast.shims.amqp.management import Management
from treecast.shims.amqp.management_call import Request
from treecast.shims.amqp.management_views import NodeFacts
from treecast.shims.amqp.users import Permission, User, Users, guest, hashed

ALL = Permission(".*", ".*", ".*")


class Site:
    """A host, its users, its clients, and calls of the management API."""

    def __init__(self) -> None:
        self.users = Users()
        user, permissions = guest("/", b"salt")
        self.users.put(user)
        self.users.permissions.update(permissions)
        self.memory = MemoryHost(access=self.users)
        self.clients: list[Client] = []
        self.facts = NodeFacts(name="treecast@here", uptime=61.5, listeners=(("amqp", "127.0.0.1", 5672),))
        self.management = Management(
            self.memory.amqp, self.users, lambda: [one.session for one in self.clients], lambda: self.facts
        )

    def client(self, *channels: int) -> Client:
        found = self.memory.client(*channels)
        found.session.state.ends = ("127.0.0.1", 5000 + len(self.clients)), ("127.0.0.1", 5672)
        self.clients.append(found)
        return found

    def user(self, name: str, *tags: str, vhost: str | None = None) -> None:
        self.users.put(User(name, hashed(name.encode(), b"1234"), tags=tags))
        if vhost is not None:
            self.users.permit(name, vhost, ALL)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        user: str = "guest",
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Returns (status, JSON)."""
        given = base64.b64encode(f"{user}:{user}".encode()).decode()
        raw = b"" if body is None else json.dumps(body).encode()
        request = Request(method, f"/api/{path}", query or {}, f"Basic {given}", "", raw)
        found = self.management.answer(request, self.memory.now)
        return found.status, json.loads(found.body) if found.body else None

    def get(self, path: str, user: str = "guest", **query: str) -> Any:
        status, found = self.call("GET", path, None, user, query)
        assert status == 200, found
        return found

    def put(self, path: str, **body: object) -> None:
        status, found = self.call("PUT", path, body)
        assert status in (201, 204), found


def get(site: Site, ackmode: str, count: int = 10, encoding: str = "auto", **more: object) -> Any:
    body = {"count": count, "ackmode": ackmode, "encoding": encoding, **more}
    status, found = site.call("POST", "queues/%2F/q/get", body)
    assert status == 200, found
    return found


def publish(site: Site, payload: str, key: str = "q", encoding: str = "string", **properties: object) -> Any:
    body = {"routing_key": key, "payload": payload, "payload_encoding": encoding, "properties": properties}
    return site.call("POST", "exchanges/%2F/amq.default/publish", body)
