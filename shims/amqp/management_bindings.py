"""The management calls about bindings."""

from __future__ import annotations

from treecast.middleware.broker.queues import Binding, Destination, VirtualHost, needs

from .management_call import CHANGED, Call, Response, bad_request, not_found, table_of, text_of
from .management_definitions import Document, Rows, shown_table
from .management_exchanges import exchange_of
from .management_views import Views, properties_key
from .session_messages import REPLY_TO


class BindingCalls:
    """The bindings."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def every(self, call: Call) -> Rows:
        return [one for vhost in call.vhosts() for one in self._views.bindings(vhost)]

    def from_exchange(self, call: Call) -> Rows:
        vhost = call.vhost()
        exchange_of(call, vhost)
        name = call.exchange_name().decode()
        return [one for one in self._views.bindings(vhost) if one["source"] == name]

    def to_exchange(self, call: Call) -> Rows:
        vhost = call.vhost()
        exchange_of(call, vhost)
        return self._to(vhost, "exchange", call.exchange_name().decode())

    def to_queue(self, call: Call) -> Rows:
        vhost = call.vhost()
        return self._to(vhost, "queue", call.queue(vhost).name.decode(errors="replace"))

    def _to(self, vhost: VirtualHost, kind: str, name: str) -> Rows:
        return [
            one
            for one in self._views.bindings(vhost)
            if (one["destination_type"], one["destination"]) == (kind, name)
        ]

    def between(self, call: Call) -> Rows:
        vhost, target = call.vhost(), _destination(call)
        source = call.exchange_name("source").decode()
        kind = "exchange" if target.is_exchange else "queue"
        found = self._to(vhost, kind, target.name.decode(errors="replace"))
        return [one for one in found if one["source"] == source]

    def one(self, call: Call) -> Document:
        vhost, source = call.vhost(), call.exchange_name("source")
        found = self._named(call, vhost, source, _destination(call))
        return self._views.binding(vhost, source, found)

    def bind(self, call: Call) -> Response:
        vhost, source, target = self._ends(call)
        body = call.body()
        key, arguments = text_of(body, "routing_key", ""), table_of(body)
        if not target.is_exchange and target.name.startswith(REPLY_TO):
            raise bad_request("cannot bind or unbind to a volatile (direct reply-to) queue")
        call.permit(vhost, needs.to_bind(vhost, source, target, key.encode()))
        vhost.bindings.bind(source, target, key.encode(), arguments)
        where = f"{target.name.decode()}/{properties_key(key, arguments)}"
        return Response(201, b"", (("Location", where),), depends=True)

    def unbind(self, call: Call) -> Response:
        vhost, source, target = self._ends(call)
        binding = self._named(call, vhost, source, target)
        call.permit(vhost, needs.to_bind(vhost, source, target, binding.key))
        vhost.bindings.unbind(source, target, binding.key, vhost.exchanges[source].bindings[binding])
        return CHANGED

    def _ends(self, call: Call) -> tuple[VirtualHost, bytes, Destination]:
        vhost = call.vhost(used=True)
        return vhost, call.exchange_name("source"), _destination(call)

    def _named(self, call: Call, vhost: VirtualHost, source: bytes, target: Destination) -> Binding:
        """Returns the binding that the path identifies by key and argument hash. Raises Problem."""
        exchange = vhost.exchanges.get(source)
        for binding, arguments in exchange.bindings.items() if exchange is not None else ():
            if binding.destination == target:
                key = properties_key(binding.key.decode(errors="replace"), shown_table(arguments))
                if key in call.properties_keys:
                    return binding
        raise not_found()


def _destination(call: Call) -> Destination:
    kind = call.arguments["kind"]
    if kind not in ("q", "e"):
        raise not_found()
    return Destination(call.exchange_name("target") if kind == "e" else call.name("target"), kind == "e")
