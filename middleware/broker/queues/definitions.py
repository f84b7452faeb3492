"""Declaring, binding and deleting exchanges and queues, including the deletions that follow from others.

Refusals and their texts are RabbitMQ 4.3's. As there, deleting or unbinding something absent succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mypy_extensions import mypyc_attr

from treecast.middleware.wire.field_table import same

from . import arguments as queue_arguments
from .any_queue import AnyQueue
from .arguments import QueueArguments, QueueType, Table
from .consumers import Counts
from .exchange import BY_TURNS, Binding, Destination, Exchange, ExchangeType, binding_of
from .message import Part, Run
from .policed import Both, PolicedRouter
from .queue import MessageQueue
from .recorder import Recorder
from .refusals import LONGEST_NAME, Reason, Refusal, inequivalent, precondition, text, too_long
from .routing import DEFAULT
from .settings import QueueSettings
from .store import RunStore
from .streams import StreamQueue, Streams

_RESERVED: Final = b"amq."
_TYPE: Final = "x-queue-type"
_FEDERATED: Final = "x-federation-upstream"
_BUILT_IN: Final = (
    (b"amq.direct", ExchangeType.DIRECT, False),
    (b"amq.fanout", ExchangeType.FANOUT, False),
    (b"amq.topic", ExchangeType.TOPIC, False),
    (b"amq.headers", ExchangeType.HEADERS, False),
    (b"amq.match", ExchangeType.HEADERS, False),
    (b"amq.rabbitmq.trace", ExchangeType.TOPIC, True),
)


def _unknown_type(kind: str) -> Refusal:
    """RabbitMQ as the downstream of a federation declares its upstream's type first. It goes on with a fanout
    if the connection ends with COMMAND_INVALID, as older RabbitMQs end it, and gives up after all else."""
    detail = f"unknown exchange type '{kind}'"
    return Refusal(Reason.COMMAND_INVALID, detail) if kind == _FEDERATED else precondition(detail)


@mypyc_attr(allow_interpreted_subclasses=True)
class Definitions(PolicedRouter):
    """The definitions of one virtual host."""

    def __init__(self, name: str, store: RunStore, recorder: Recorder, settings: QueueSettings) -> None:
        super().__init__(name, recorder)
        self.settings = settings
        self.restoring = False  # what is declared existed before the restart
        self.default_type = QueueType.CLASSIC  # of queues declared without a type
        self.store = store
        self.counts = Counts()  # of deleted queues
        self.streams: Streams | None = None
        self._bound: dict[Destination, dict[tuple[bytes, Binding], None]] = {}
        for built_in, kind, internal in _BUILT_IN:
            self.exchanges[built_in] = Exchange(built_in, kind, internal=internal)

    def bury(self, queue: AnyQueue, run: Run, part: Part, reason: str, now: float) -> None:
        """Takes the messages of `part`, which a queue gives up."""
        raise NotImplementedError

    @property
    def recorder(self) -> Recorder:
        """The recorder of durable changes."""
        return self._recorder

    # --- exchanges

    def declare_exchange(
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
        self._not_default(name)
        asked = dict(arguments or {})
        found = self.exchanges.get(name)
        if found is not None:
            self._same_exchange(found, types[kind], durable, auto_delete, internal, asked)
            return found
        self._not_reserved("exchange", name)
        self._not_too_long("exchange name", name)
        exchange = Exchange(
            name,
            types[kind],
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=asked,
            alternate=self._alternate(name, asked),
        )
        self.exchanges[name] = exchange
        self._police_exchange(exchange)
        self.changed()
        if durable:
            self._recorder.declared("exchange", name, exchange.definition)
        self.sharing.declared("exchange", name, exchange.definition)
        return exchange

    def _alternate(self, name: bytes, asked: Table) -> bytes | None:
        value = asked.get("alternate-exchange")
        if value is not None and not isinstance(value, str):
            raise precondition(
                f"invalid type for arg 'alternate-exchange' in exchange '{text(name)}' in vhost '{self.name}'"
            )
        return value.encode() if isinstance(value, str) else None

    def _same_exchange(
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
                raise inequivalent(what, "exchange", found.name, self.name, received, current)

    def delete_exchange(self, name: bytes, *, if_unused: bool = False) -> None:
        self._not_default(name)
        if name.startswith(_RESERVED):
            raise Refusal(
                Reason.ACCESS_REFUSED,
                f"deletion of system exchange '{text(name)}' in vhost '{self.name}' not allowed",
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise precondition(f"exchange '{text(name)}' in vhost '{self.name}' in use")
        self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.name]
        self.changed()
        for binding in list(exchange.bindings):
            self._forget(exchange.name, binding)
            self._share_unbound(exchange.name, binding, exchange.bindings[binding])
        if exchange.durable:
            self._recorder.deleted("exchange", exchange.name)
        self.sharing.deleted("exchange", exchange.name)
        self._unbind_all(Destination(exchange.name, True))

    # --- queues

    def declare_queue(
        self,
        name: bytes,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        owner: object = None,
        generated: bytes = b"",
        now: float = 0.0,
    ) -> AnyQueue:
        """Returns the queue: a new one, or the existing one if it is equivalent. `generated`: the name if
        none is given.

        An exclusive queue is deleted with its connection `owner`, and is therefore never durable.
        """
        asked = dict(arguments or {})
        if not self.restoring:
            asked = self.typed(asked, durable, exclusive, auto_delete)
        durable = durable and not exclusive
        if not name:
            name = self._server_named(generated, asked)
        elif name not in self.queues:
            self._not_reserved("queue", name)
            self._not_too_long("queue name", name)
        found = self.queues.get(name)
        if found is not None:
            self._same_queue(found, durable, auto_delete, owner if exclusive else None, owner, asked)
            found.used_at = now
            return found
        parsed = queue_arguments.parse(asked, name, self.name)
        self._allowed(name, parsed, durable, exclusive, auto_delete)
        policies, effective = self._queue_policies(name, parsed.type, asked)
        if parsed.type is QueueType.STREAM:
            queue = self._stream(name, effective, now)
        else:
            queue = MessageQueue(
                name,
                effective,
                self.store,
                self,
                self._recorder,
                durable=durable,
                auto_delete=auto_delete,
                owner=owner if exclusive else None,
                settings=self.settings,
                now=now,
            )
        queue.asked = asked
        queue.policies = policies
        self.queues[name] = queue
        self.changed()
        if durable:
            self._recorder.declared("queue", name, {"auto_delete": auto_delete, "arguments": asked})
        self.sharing.declared("queue", name, queue.definition)
        return queue

    def typed(self, asked: Table, durable: bool, exclusive: bool, auto_delete: bool) -> dict[str, object]:
        """Returns the arguments of a declaration, with the default type if they have none.

        As in RabbitMQ, queues that cannot be of it are classic.
        """
        found = dict(asked)
        possible = durable and not exclusive and not auto_delete
        if self.default_type is not QueueType.CLASSIC and possible:
            found.setdefault(_TYPE, self.default_type.value)
        return found

    def _stream(self, name: bytes, arguments: QueueArguments, now: float) -> AnyQueue:
        if self.streams is None:
            which = f"queue '{text(name)}' in vhost '{self.name}'"
            raise Refusal(Reason.NOT_IMPLEMENTED, f"{which}: this host has no logs for streams")
        log = self.streams.log(self.name, name, arguments)
        return StreamQueue(name, arguments, log, self.name, now)

    def _server_named(self, generated: bytes, asked: Table) -> bytes:
        kind = asked.get(_TYPE, "classic")
        if kind != "classic":
            raise precondition(f"Cannot declare a server-named queue for type rabbit_{kind}_queue")
        return generated

    def _allowed(
        self, name: bytes, parsed: QueueArguments, durable: bool, exclusive: bool, auto_delete: bool
    ) -> None:
        which = f"queue '{text(name)}' in vhost '{self.name}'"
        if self.restoring:
            return
        self._not_too_long("x-dead-letter-exchange", parsed.dead_letter_exchange or b"")
        self._not_too_long("x-dead-letter-routing-key", parsed.dead_letter_key or b"")
        if parsed.type is not QueueType.CLASSIC:
            for wrong, what in (
                (auto_delete, "auto-delete"),
                (exclusive, "exclusive-owner"),
                (not durable, "non-durable"),
            ):
                if wrong:
                    raise precondition(f"invalid property '{what}' for {which}")
        if parsed.type is QueueType.QUORUM and not self.settings.quorum:
            raise precondition(
                f"{which}: quorum queues are refused here, as this host would keep the one copy"
            )
        if not durable and not exclusive and not self.settings.transient_queues:
            raise Refusal(
                Reason.INTERNAL_ERROR,
                "Feature `transient_nonexcl_queues` is deprecated.\n"
                "By default, this feature is not permitted anymore.",
            )

    def _same_queue(
        self,
        found: AnyQueue,
        durable: bool,
        auto_delete: bool,
        exclusive_to: object,
        connection: object,
        asked: Table,
    ) -> None:
        if found.owner is not exclusive_to or (found.owner is not None and found.owner is not connection):
            raise self.locked(found.name)
        for what, received, current in (
            ("durable", durable, found.durable),
            ("auto_delete", auto_delete, found.auto_delete),
        ):
            if received != current:
                raise inequivalent(what, "queue", found.name, self.name, received, current)
        kind = found.arguments.type
        for what, (_, types) in queue_arguments.KNOWN.items():
            received_value, current_value = asked.get(what), found.asked.get(what)
            if what == _TYPE:
                received_value, current_value = received_value or "classic", current_value or "classic"
            if kind in types and not same(received_value, current_value):
                raise inequivalent(what, "queue", found.name, self.name, received_value, current_value)

    def delete_queue(
        self, name: bytes, owner: object, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Deletes a queue. Returns how many messages were ready in it."""
        if name not in self.queues:
            return 0
        queue = self.owned(name, owner)
        if if_unused and len(queue.consumers):
            raise precondition(f"queue '{text(name)}' in vhost '{self.name}' in use")
        if if_empty and queue.ready:
            raise precondition(f"queue '{text(name)}' in vhost '{self.name}' not empty")
        return self.remove_queue(queue)

    def remove_queue(self, queue: AnyQueue) -> int:
        """Deletes a queue even if it has messages or consumers. Returns how many messages were ready in
        it."""
        del self.queues[queue.name]
        self.counts.add(queue.counts)
        self.changed()
        self._unbind_all(Destination(queue.name, False))
        count = queue.delete()
        if isinstance(queue, StreamQueue):
            queue.log.delete()
        if queue.durable:
            self._recorder.deleted("queue", queue.name)
        self.sharing.deleted("queue", queue.name)
        return count

    def reply_queue(self, name: bytes, now: float) -> AnyQueue:
        """Makes the queue of a client's direct replies: transient, and reachable only by its name."""
        arguments = QueueArguments()
        queue = MessageQueue(name, arguments, self.store, self, self._recorder, durable=False, now=now)
        self.queues[name] = queue
        self.changed()
        self.sharing.declared("queue", name, queue.definition)
        return queue

    def drop_reply_queue(self, queue: AnyQueue) -> None:
        """Removes a reply queue whose consumer is gone."""
        if self.queues.get(queue.name) is queue:
            self.remove_queue(queue)

    # --- bindings

    def bind(
        self,
        source: bytes,
        destination: Destination,
        key: bytes,
        arguments: Table | None = None,
        owner: object = None,
    ) -> None:
        self._not_too_long("routing key", key)
        exchange, durable = self._ends(source, destination, owner)
        if destination.is_exchange and exchange.type in BY_TURNS:
            raise precondition(
                f"exchange '{text(source)}' of type '{exchange.type.value}' in vhost '{self.name}' can be "
                "bound to queues only"
            )
        asked = dict(arguments or {})
        binding = binding_of(destination, key, asked)
        if not exchange.bind(binding, asked):
            return
        self._bound.setdefault(destination, {})[source, binding] = None
        self.changed()
        kind = "exchange" if destination.is_exchange else "queue"
        if durable:
            self._recorder.bound(source, kind, destination.name, key, asked)
        self.sharing.bound(source, kind, destination.name, key, asked)

    def _ends(self, source: bytes, destination: Destination, owner: object) -> tuple[Exchange, bool]:
        """Returns (the source exchange, whether both ends are durable). If both are missing, the refusal
        names the source, as in RabbitMQ.
        """
        self._none_is_default(source, destination)
        exchange = self.exchange(source)
        if destination.is_exchange:
            durable = self.exchange(destination.name).durable
        else:
            queue = self.owned(destination.name, owner)
            durable = queue.durable and queue.home == 0  # the binding is stored where the queue is
        return exchange, durable and exchange.durable

    def _none_is_default(self, source: bytes, destination: Destination) -> None:
        self._not_default(source)
        if destination.is_exchange:
            self._not_default(destination.name)

    def unbind(
        self,
        source: bytes,
        destination: Destination,
        key: bytes,
        arguments: Table | None = None,
        owner: object = None,
    ) -> None:
        self._none_is_default(source, destination)
        exchange = self.exchanges.get(source)
        if exchange is None:
            return
        if not destination.is_exchange and destination.name in self.queues:
            self.owned(destination.name, owner)
        asked = dict(arguments or {})
        binding = binding_of(destination, key, asked)
        if binding in exchange.bindings:
            self._unbind(exchange, binding, asked)

    def _unbind(self, exchange: Exchange, binding: Binding, arguments: Mapping[str, object]) -> None:
        exchange.unbind(binding)
        self._forget(exchange.name, binding)
        self.changed()
        destination, key, _ = binding
        if exchange.durable:
            kind = "exchange" if destination.is_exchange else "queue"
            self._recorder.unbound(exchange.name, kind, destination.name, key, arguments)
        self._share_unbound(exchange.name, binding, arguments)
        unused = exchange.auto_delete and not exchange.bindings and exchange.name in self.exchanges
        if unused and self.sharing.ends(exchange.name):
            self._remove_exchange(exchange)

    def _share_unbound(self, source: bytes, binding: Binding, arguments: Mapping[str, object]) -> None:
        destination, key, _ = binding
        kind = "exchange" if destination.is_exchange else "queue"
        self.sharing.unbound(source, kind, destination.name, key, arguments)

    def _forget(self, source: bytes, binding: Binding) -> None:
        bound = self._bound.get(binding.destination)
        if bound is not None:
            bound.pop((source, binding), None)
            if not bound:
                del self._bound[binding.destination]

    def _unbind_all(self, destination: Destination) -> None:
        """Removes all bindings to a deleted destination."""
        for source, binding in list(self._bound.get(destination, ())):
            exchange = self.exchanges.get(source)
            if exchange is not None and binding in exchange.bindings:
                self._unbind(exchange, binding, exchange.bindings[binding])

    def arguments_of(self, name: bytes, asked: Table) -> tuple[QueueArguments, Both]:
        """Returns the effective arguments of a queue that was declared elsewhere, and its policies."""
        kind = queue_arguments.parse(asked, name, self.name).type
        policies, effective = self._queue_policies(name, kind, asked)
        return effective, policies

    def put_queue(self, queue: AnyQueue) -> None:
        """Puts a queue of another host in its place, and removes the queue that was there without removing
        its bindings."""
        self.queues[queue.name] = queue
        self.changed()

    def bindings_of(self, destination: Destination) -> list[tuple[bytes, Binding]]:
        """Returns (source, binding) of all bindings to `destination`."""
        return list(self._bound.get(destination, ()))

    # --- names

    def _not_default(self, name: bytes) -> None:
        if name == DEFAULT:
            raise Refusal(Reason.ACCESS_REFUSED, "operation not permitted on the default exchange")

    def _not_too_long(self, what: str, name: bytes) -> None:
        """Refuses what AMQP cannot carry: the management calls could give it, and an older store has it."""
        if len(name) > LONGEST_NAME and not self.restoring:
            raise too_long(what, name)

    def _not_reserved(self, kind: str, name: bytes) -> None:
        if name.startswith(_RESERVED) and not self.restoring:
            raise Refusal(
                Reason.ACCESS_REFUSED, f"{kind} name '{text(name)}' contains reserved prefix 'amq.*'"
            )
