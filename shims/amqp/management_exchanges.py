"""The management calls about exchanges."""

from __future__ import annotations

from treecast.middleware.broker.queues import Exchange, VirtualHost, needs
from treecast.middleware.model.rights import EXCHANGE

from .management_call import CHANGED, Call, Response, not_found, put_response, table_of, text_of, truth_of
from .management_definitions import Document, Rows
from .management_views import Views


class ExchangeCalls:
    """The exchanges."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def every(self, call: Call) -> Rows:
        found: Rows = []
        for vhost in call.vhosts():
            found.append(self._views.default_exchange(vhost))
            found += [self._views.exchange(vhost, one) for one in vhost.exchanges.values()]
        return found

    def one(self, call: Call) -> Document:
        vhost = call.vhost()
        found = exchange_of(call, vhost)
        return self._views.exchange(vhost, found) if found else self._views.default_exchange(vhost)

    def put(self, call: Call) -> Response:
        vhost, name = call.vhost(used=True), call.name("exchange")
        body = call.body("type")
        arguments = table_of(body)
        call.permit(vhost, needs.to_declare_exchange(vhost, name, arguments))
        new = name not in vhost.exchanges
        vhost.exchange_definitions.declare(
            name,
            text_of(body, "type"),
            durable=truth_of(body, "durable", True),
            auto_delete=truth_of(body, "auto_delete", False),
            internal=truth_of(body, "internal", False),
            arguments=arguments,
        )
        return put_response(new)

    def delete(self, call: Call) -> Response:
        vhost, name = call.vhost(used=True), call.exchange_name()
        if name and name not in vhost.exchanges:
            raise not_found()
        call.permit(vhost, needs.to_delete(EXCHANGE, name))
        vhost.exchange_definitions.delete(name, if_unused=call.flag("if-unused"))
        return CHANGED


def exchange_of(call: Call, vhost: VirtualHost) -> Exchange | None:
    """Returns the exchange of the path, None for the default exchange. Raises Problem."""
    name = call.exchange_name()
    if name and name not in vhost.exchanges:
        raise not_found()
    return vhost.exchanges[name] if name else None
