"""Declaring and deleting exchanges.

Refusals and their texts are RabbitMQ 4.3's. As there, deleting something absent succeeds.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.wire.field_table import same

from .arguments import Table
from .bindings import Bindings
from .exchange import Exchange, ExchangeType
from .ledger import RESERVED, Ledger, not_default
from .policed import Policies
from .refusals import Reason, Refusal, inequivalent, precondition, text
from .routing import Router

_FEDERATED: Final = "x-federation-upstream"
_BUILT_IN: Final = (
    (b"amq.direct", ExchangeType.DIRECT, False),
    (b"amq.fanout", ExchangeType.FANOUT, False),
    (b"amq.topic", ExchangeType.TOPIC, False),
    (b"amq.headers", ExchangeType.HEADERS, False),
    (b"amq.match", ExchangeType.HEADERS, False),
    (b"amq.rabbitmq.trace", ExchangeType.TOPIC, True),
)


class ExchangeDefinitions:
    """The exchanges that clients declare, beside those that are there from the start."""

    def __init__(self, router: Router, ledger: Ledger, policies: Policies, bindings: Bindings) -> None:
        self._vhost = router.name
        self._router = router
        self._ledger = ledger
        self._policies = policies
        self._bindings = bindings
        for name, kind, internal in _BUILT_IN:
            router.exchanges[name] = Exchange(name, kind, internal=internal)

    def declare(
        self,
        name: bytes,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> Exchange:
        """Returns the exchange: a new one, or the existing one if it is equivalent."""
        types = {one.value: one for one in ExchangeType}
        if kind not in types:
            raise _unknown_type(kind)
        not_default(name)
        asked = dict(arguments or {})
        found = self._router.exchanges.get(name)
        if found is not None:
            self._same(found, types[kind], durable, auto_delete, internal, asked)
            return found
        self._ledger.not_reserved("exchange", name)
        self._ledger.not_too_long("exchange name", name)
        exchange = Exchange(
            name,
            types[kind],
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=asked,
            alternate=self._alternate(name, asked),
        )
        self._router.exchanges[name] = exchange
        self._policies.apply_to(exchange)
        self._router.changed()
        self._ledger.declared("exchange", name, exchange.definition, durable=durable)
        return exchange

    def _alternate(self, name: bytes, asked: Table) -> bytes | None:
        value = asked.get("alternate-exchange")
        if value is not None and not isinstance(value, str):
            raise precondition(
                f"invalid type for arg 'alternate-exchange' in exchange '{text(name)}' in vhost"
                f" '{self._vhost}'"
            )
        return value.encode() if isinstance(value, str) else None

    def _same(
        self,
        found: Exchange,
        kind: ExchangeType,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        asked: Table,
    ) -> None:
        for what, received, current in (
            ("type", kind.value, found.type.value),
            ("durable", durable, found.durable),
            ("auto_delete", auto_delete, found.auto_delete),
            ("internal", internal, found.internal),
            (
                "alternate-exchange",
                asked.get("alternate-exchange"),
                found.arguments.get("alternate-exchange"),
            ),
        ):
            if not same(received, current):
                raise inequivalent(what, "exchange", found.name, self._vhost, received, current)

    def delete(self, name: bytes, *, if_unused: bool = False) -> None:
        not_default(name)
        if name.startswith(RESERVED):
            raise Refusal(
                Reason.ACCESS_REFUSED,
                f"deletion of system exchange '{text(name)}' in vhost '{self._vhost}' not allowed",
            )
        exchange = self._router.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise precondition(f"exchange '{text(name)}' in vhost '{self._vhost}' in use")
        self._bindings.end_exchange(exchange)


def _unknown_type(kind: str) -> Refusal:
    """RabbitMQ as the downstream of a federation declares its upstream's type first. It goes on with a fanout
    if the connection ends with COMMAND_INVALID, as older RabbitMQs end it, and gives up after all else."""
    detail = f"unknown exchange type '{kind}'"
    return Refusal(Reason.COMMAND_INVALID, detail) if kind == _FEDERATED else precondition(detail)
