"""Binding and unbinding exchanges and queues, including the deletions that follow from others.

Refusals and their texts are RabbitMQ 4.3's. As there, unbinding something absent succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.wishes import Schemas

from .arguments import Table
from .exchange import BY_TURNS, Binding, Destination, Exchange, ExchangeType, binding_of
from .headers import FILTER
from .ledger import Ledger, not_default
from .refusals import precondition, text
from .routing import Router

_KEYED: Final = (ExchangeType.DIRECT, ExchangeType.TOPIC)  # their binding keys can name a topic


def _check_fields(exchange: Exchange, topic: str, arguments: Table, schemas: Schemas) -> None:
    """Refuses a filter that does not fit the schema of the one topic that a binding's key names."""
    content = exchange.content_of(arguments) if exchange.type in _KEYED else None
    if content is None:
        return
    try:
        schemas.check(tuple(topic.split("/")), content)
    except TreecastError as error:
        raise precondition(f"invalid arg '{FILTER}' for binding: {error.detail}") from error


class Bindings:
    """The bindings of one virtual host."""

    def __init__(self, router: Router, ledger: Ledger) -> None:
        self._vhost = router.name
        self._router = router
        self._ledger = ledger
        self._bound: dict[Destination, dict[tuple[bytes, Binding], None]] = {}

    def bind(
        self,
        source: bytes,
        destination: Destination,
        key: bytes,
        arguments: Table | None = None,
        owner: object = None,
    ) -> None:
        self._ledger.not_too_long("routing key", key)
        exchange, durable = self._ends(source, destination, owner)
        if destination.is_exchange and exchange.type in BY_TURNS:
            raise precondition(
                f"exchange '{text(source)}' of type '{exchange.type.value}' in vhost '{self._vhost}' can be "
                "bound to queues only"
            )
        asked = dict(arguments or {})
        binding = binding_of(destination, key, asked)
        if not self._ledger.restoring and self._router.reader is not None:
            _check_fields(exchange, self._router.reader.topic(key), asked, self._router.schemas)
        if not exchange.bind(binding, asked):
            return
        self._bound.setdefault(destination, {})[source, binding] = None
        self._router.changed()
        kind = "exchange" if destination.is_exchange else "queue"
        if durable:
            self._ledger.recorder.bound(source, kind, destination.name, key, asked)
        self._ledger.sharing.bound(source, kind, destination.name, key, asked)

    def _ends(self, source: bytes, destination: Destination, owner: object) -> tuple[Exchange, bool]:
        """Returns (the source exchange, whether both ends are durable). If both are missing, the refusal
        names the source, as in RabbitMQ.
        """
        _none_is_default(source, destination)
        exchange = self._router.exchange(source)
        if destination.is_exchange:
            durable = self._router.exchange(destination.name).durable
        else:
            queue = self._router.owned(destination.name, owner)
            durable = queue.durable and queue.home == 0  # the binding is stored where the queue is
        return exchange, durable and exchange.durable

    def unbind(
        self,
        source: bytes,
        destination: Destination,
        key: bytes,
        arguments: Table | None = None,
        owner: object = None,
    ) -> None:
        _none_is_default(source, destination)
        exchange = self._router.exchanges.get(source)
        if exchange is None:
            return
        if not destination.is_exchange and destination.name in self._router.queues:
            self._router.owned(destination.name, owner)
        asked = dict(arguments or {})
        binding = binding_of(destination, key, asked)
        if binding in exchange.bindings:
            self._unbind(exchange, binding, asked)

    def _unbind(self, exchange: Exchange, binding: Binding, arguments: Mapping[str, object]) -> None:
        exchange.unbind(binding)
        self._forget(exchange.name, binding)
        self._router.changed()
        self._record_unbound(exchange, binding, arguments)
        self._share_unbound(exchange.name, binding, arguments)
        unused = exchange.auto_delete and not exchange.bindings and exchange.name in self._router.exchanges
        if unused and self._ledger.sharing.ends(exchange.name):
            self.end_exchange(exchange)

    def _record_unbound(self, exchange: Exchange, binding: Binding, arguments: Mapping[str, object]) -> None:
        destination, key, _ = binding
        if exchange.durable:
            kind = "exchange" if destination.is_exchange else "queue"
            self._ledger.recorder.unbound(exchange.name, kind, destination.name, key, arguments)

    def _share_unbound(self, source: bytes, binding: Binding, arguments: Mapping[str, object]) -> None:
        destination, key, _ = binding
        kind = "exchange" if destination.is_exchange else "queue"
        self._ledger.sharing.unbound(source, kind, destination.name, key, arguments)

    def _forget(self, source: bytes, binding: Binding) -> None:
        bound = self._bound.get(binding.destination)
        if bound is not None:
            bound.pop((source, binding), None)
            if not bound:
                del self._bound[binding.destination]

    def end_all(self, destination: Destination) -> None:
        """Removes all bindings to a deleted destination."""
        for source, binding in list(self._bound.get(destination, ())):
            exchange = self._router.exchanges.get(source)
            if exchange is not None and binding in exchange.bindings:
                self._unbind(exchange, binding, exchange.bindings[binding])

    def end_exchange(self, exchange: Exchange) -> None:
        """Deletes an exchange, with the bindings from it and to it."""
        del self._router.exchanges[exchange.name]
        self._router.changed()
        for binding in list(exchange.bindings):
            arguments = exchange.bindings[binding]
            self._forget(exchange.name, binding)
            self._record_unbound(exchange, binding, arguments)  # or an exchange of that name would get it
            self._share_unbound(exchange.name, binding, arguments)
        self._ledger.deleted("exchange", exchange.name, durable=exchange.durable)
        self.end_all(Destination(exchange.name, True))

    def stored_elsewhere(self, destination: Destination) -> None:
        """The queue is another host's from now on, which stores its bindings; they stay as they are here."""
        for source, binding in self.of(destination):
            exchange = self._router.exchanges.get(source)
            if exchange is not None and binding in exchange.bindings:
                self._record_unbound(exchange, binding, exchange.bindings[binding])

    def of(self, destination: Destination) -> list[tuple[bytes, Binding]]:
        """Returns (source, binding) of all bindings to `destination`."""
        return list(self._bound.get(destination, ()))


def _none_is_default(source: bytes, destination: Destination) -> None:
    not_default(source)
    if destination.is_exchange:
        not_default(destination.name)
