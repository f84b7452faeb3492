"""The management calls about virtual hosts."""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.queues import DEFAULT_TYPE, TYPES

from .management_call import CHANGED, Call, Response, bad_request, not_found, put_response, text_of
from .management_definitions import Document, Rows
from .management_views import Views
from .session_host import UNSET_TYPES, AmqpHost
from .users import ADMINISTRATOR, Permission, Users
from .users import tags_of as read_tags

_EVERYTHING: Final = Permission(".*", ".*", ".*")


class VhostCalls:
    """The virtual hosts."""

    def __init__(self, host: AmqpHost, users: Users, views: Views) -> None:
        self._host = host
        self._users = users
        self._views = views

    def every(self, call: Call) -> Rows:
        return [self._views.vhost(name, call.now) for name in call.visible()]

    def one(self, call: Call) -> Document:
        return self._views.vhost(call.vhost().name, call.now)

    def put(self, call: Call) -> Response:
        """Creates or updates a virtual host. Its creator gets all permissions in it."""
        call.need(ADMINISTRATOR)
        body, name = call.body(), call.arguments["vhost"]
        wanted = body.get(DEFAULT_TYPE)
        if wanted not in UNSET_TYPES and wanted not in TYPES:
            raise bad_request(f"unsupported default queue type {wanted!r}; known are {', '.join(TYPES)}")
        new = name not in self._host.vhosts
        call.named("virtual host name", name)
        if new:
            self._host.queues.add_vhost(name)
            if call.user in self._users.users:
                self._users.permit(call.user, name, _EVERYTHING)
        said = dict(self._host.queues.metadata.get(name, {}))
        said["description"] = text_of(body, "description", str(said.get("description", "")))
        said["tags"] = list(read_tags(body.get("tags", said.get("tags", []))))
        if body.get(DEFAULT_TYPE) not in UNSET_TYPES:
            said[DEFAULT_TYPE] = body[DEFAULT_TYPE]
        elif DEFAULT_TYPE in body:
            said.pop(DEFAULT_TYPE, None)
        self._host.queues.describe(name, said)
        self._users.changed()
        return put_response(new)

    def delete(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        name = call.arguments["vhost"]
        if name not in self._host.vhosts:
            raise not_found()
        if name == "/":
            raise bad_request("the virtual host / is the one that all faces share, and stays")
        for session in self._views.connections([name]):
            session.close(call.now, f"vhost '{name}' is deleted")
        self._host.queues.remove_vhost(name)
        self._users.forget_vhost(name)
        return CHANGED
