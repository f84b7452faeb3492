"""The management calls about users and their permissions."""

from __future__ import annotations

from .management_call import CHANGED, Call, Response, bad_request, not_found, put_response, text_of
from .management_definitions import Document, Rows, permission_item, topic_item, user_item
from .session_host import AmqpHost
from .users import ADMINISTRATOR, SHA256, Permission, TopicPermission, User, Users, hashed, knows_hashing
from .users import tags_of as read_tags


class UserCalls:
    """The users."""

    def __init__(self, host: AmqpHost, users: Users) -> None:
        self._host = host
        self._users = users

    def every(self, call: Call) -> Rows:
        call.need(ADMINISTRATOR)
        return [user_item(user) for user in self._users.users.values()]

    def without_permissions(self, call: Call) -> Rows:
        call.need(ADMINISTRATOR)
        known = {user for user, _ in self._users.permissions}
        return [user_item(user) for user in self._users.users.values() if user.name not in known]

    def one(self, call: Call) -> Document:
        call.need(ADMINISTRATOR)
        found = self._users.users.get(call.arguments["user"])
        if found is None:
            raise not_found()
        return user_item(found)

    def put(self, call: Call) -> Response:
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
            password_hash, hashing = hashed(password, self._host.random_bytes(4)), SHA256
        elif (known := self._users.users.get(name)) is not None:  # only its tags are given
            password_hash, hashing = known.password_hash, known.hashing
        else:
            raise bad_request("[{key_missing,password}]")
        tags = read_tags(body.get("tags", body.get("tag", "")))
        return put_response(self._users.add(User(name, password_hash, hashing, tags)))

    def delete(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if not self._users.delete(call.arguments["user"]):
            raise not_found()
        return CHANGED

    def delete_many(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        names = call.body("users")["users"]
        if not isinstance(names, list):
            raise bad_request("users should be a list")
        for name in names:
            self._users.delete(str(name))
        return CHANGED


class PermissionCalls:
    """The permissions of users in virtual hosts and for topics."""

    def __init__(self, host: AmqpHost, users: Users) -> None:
        self._host = host
        self._users = users

    def every(self, call: Call) -> Rows:
        self._may_see(call)
        return [
            permission_item(user, vhost, one)
            for (user, vhost), one in self._users.of_known(self._users.permissions)
            if _asked(call, "user", user) and _asked(call, "vhost", vhost)
        ]

    def one(self, call: Call) -> Document:
        found = self.every(call)
        if not found:
            raise not_found()
        return found[0]

    def put(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        user, vhost = self._user_in_vhost(call)
        body = call.body("configure", "write", "read")
        permission = Permission(text_of(body, "configure"), text_of(body, "write"), text_of(body, "read"))
        return put_response(self._users.permit(user, vhost, permission))

    def delete(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        if not self._users.forbid(call.arguments["user"], call.arguments["vhost"]):
            raise not_found()
        return CHANGED

    def topics(self, call: Call) -> Rows:
        self._may_see(call)
        return [
            topic_item(user, vhost, exchange, one)
            for (user, vhost, exchange), one in self._users.of_known(self._users.topics)
            if _asked(call, "user", user) and _asked(call, "vhost", vhost)
        ]

    def put_topic(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        user, vhost = self._user_in_vhost(call)
        body = call.body("exchange", "write", "read")
        permission = TopicPermission(text_of(body, "write"), text_of(body, "read"))
        return put_response(self._users.permit_topics(user, vhost, text_of(body, "exchange"), permission))

    def delete_topic(self, call: Call) -> Response:
        call.need(ADMINISTRATOR)
        user, vhost = call.arguments["user"], call.arguments["vhost"]
        if not self._users.forbid_topics(user, vhost, call.arguments.get("exchange")):
            raise not_found()
        return CHANGED

    def _may_see(self, call: Call) -> None:
        call.need(ADMINISTRATOR)
        if "vhost" in call.arguments:
            call.vhost()

    def _user_in_vhost(self, call: Call) -> tuple[str, str]:
        user, vhost = call.arguments["user"], call.arguments["vhost"]
        if vhost not in self._host.vhosts:
            raise bad_request("vhost_not_found")
        if user not in self._users.users:
            raise bad_request("user_not_found")
        return user, vhost


def _asked(call: Call, argument: str, value: str) -> bool:
    return call.arguments.get(argument, value) == value
