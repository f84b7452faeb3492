"""The management calls about connections, channels and consumers."""

from __future__ import annotations

from .management_call import CHANGED, Call, Problem, Response, not_found
from .management_definitions import Document, Rows
from .management_views import Views, connection_name
from .session import Session
from .users import ADMINISTRATOR


class ConnectionCalls:
    """The connections, their channels and their consumers."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def every(self, call: Call) -> Rows:
        return [self._views.connection(one, call.now) for one in self._views.seen(call.scope())]

    def of_user(self, call: Call) -> Rows:
        return [row for row in self.every(call) if row["user"] == call.arguments["user"]]

    def one(self, call: Call) -> Document:
        return self._views.connection(self._named(call), call.now)

    def close(self, call: Call) -> Response:
        session = self._named(call)
        if session.state.user != call.user:
            call.need(ADMINISTRATOR)
        session.close(call.now, call.request.reason or "Closed via management plugin")
        return CHANGED

    def close_of_user(self, call: Call) -> Response:
        """Closes the connections of a user at this host."""
        name = call.arguments["user"]
        if name != call.user:
            call.need(ADMINISTRATOR)
        for session in self._views.connections(call.visible()):
            if session.state.user == name:
                session.close(call.now, call.request.reason or "Closed via management plugin")
        return CHANGED

    def channels_of(self, call: Call) -> Rows:
        return self._views.channels([self._named(call)])

    def channels(self, call: Call) -> Rows:
        return self._views.channels(self._views.seen(call.scope()))

    def channel(self, call: Call) -> Document:
        for one in self.channels(call):
            if one["name"] == call.arguments["channel"]:
                return one
        raise not_found()

    def consumers(self, call: Call) -> Rows:
        return self._views.consumers(call.scope())

    def _named(self, call: Call) -> Session:
        for session in self._views.connections(call.visible()):
            if connection_name(session.state) == call.arguments["connection"]:
                if session.state.user == call.user or call.sees_all:
                    return session
                raise Problem(401, "not_authorised", "User not authorised to access object")
        raise not_found()
