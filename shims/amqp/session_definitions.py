"""The defining part of a channel: declares, binds and deletes exchanges and queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pamqp import commands

from treecast.middleware.broker.queues import (
    AnyQueue,
    Ask,
    Destination,
    QueueCall,
    RemoteQueue,
    StreamQueue,
    needs,
)
from treecast.middleware.model.rights import EXCHANGE, QUEUE

from . import codec
from .codec import AmqpError
from .codec_methods import queue_declared
from .session_messages import REPLY_TO
from .session_state import ChannelContext
from .session_waiting import Preparing, Suspended

_Exchange = commands.Exchange
_Queue = commands.Queue
_BREAKS: Final = str.maketrans("", "", "\r\n")  # RabbitMQ removes them from names


def _name(given: str) -> bytes:
    return given.translate(_BREAKS).encode()


class Defining:
    """The defining part of a channel."""

    def __init__(self, context: ChannelContext) -> None:
        self._context = context
        self._connection = context.connection
        self._host = context.host
        self._vhost = context.vhost

    # --- exchanges

    def declare_exchange(self, method: commands.Exchange.Declare, now: float) -> None:
        name = _name(method.exchange)
        if method.passive:
            if not name:
                raise AmqpError(codec.ACCESS_REFUSED, "operation not permitted on the default exchange")
            self._vhost.router.exchange(name)
        else:
            arguments = method.arguments or {}
            self._context.permit(needs.to_declare_exchange(self._vhost, name, arguments))
            self._vhost.exchange_definitions.declare(
                name,
                method.exchange_type,
                durable=method.durable,
                auto_delete=method.auto_delete,
                internal=method.internal,
                arguments=arguments,
            )
        if not method.nowait:
            self._context.send(_Exchange.DeclareOk())

    def delete_exchange(self, method: commands.Exchange.Delete, now: float) -> None:
        name = _name(method.exchange)
        self._context.permit(needs.to_delete(EXCHANGE, name))
        self._vhost.exchange_definitions.delete(name, if_unused=method.if_unused)
        if not method.nowait:
            self._context.send(_Exchange.DeleteOk())

    def bind_exchange(self, method: commands.Exchange.Bind, now: float) -> None:
        target = Destination(method.destination.encode(), True)
        self._bind(method.source.encode(), target, method.routing_key.encode(), method.arguments or {}, True)
        if not method.nowait:
            self._context.send(_Exchange.BindOk())

    def unbind_exchange(self, method: commands.Exchange.Unbind, now: float) -> None:
        target = Destination(method.destination.encode(), True)
        self._bind(method.source.encode(), target, method.routing_key.encode(), method.arguments or {}, False)
        if not method.nowait:
            self._context.send(_Exchange.UnbindOk())

    def _bind(
        self, source: bytes, target: Destination, key: bytes, arguments: Mapping[str, object], bind: bool
    ) -> None:
        if not target.is_exchange and target.name.startswith(REPLY_TO):
            detail = "cannot bind or unbind to a volatile (direct reply-to) queue"
            raise AmqpError(codec.ACCESS_REFUSED, detail)
        self._context.permit(needs.to_bind(self._vhost, source, target, key))
        change = self._vhost.bindings.bind if bind else self._vhost.bindings.unbind
        change(source, target, key, arguments, self._connection)

    # --- queues

    def declare_queue(self, method: commands.Queue.Declare, now: float) -> None:
        name = _name(method.queue)
        if name == REPLY_TO:  # always there for consumers: some clients look before they consume
            self._declared(name, 0, 1, method.nowait)
            return
        if method.passive or name.startswith(REPLY_TO):
            queue = self._context.owned(name)
            queue.used_at = now
        else:
            arguments = self._vhost.queue_definitions.typed(
                method.arguments or {}, method.durable, method.exclusive, method.auto_delete
            )
            generated = self._host.made_up(b"amq.gen") if not name else b""
            self._context.permit(needs.to_declare_queue(self._vhost, name or generated, arguments))
            self._prepare(name, arguments, method)
            queue = self._vhost.queue_definitions.declare(
                name,
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
                arguments=arguments,
                owner=self._connection,
                generated=generated,
                now=now,
            )
            self._vhost.watch(queue)
        messages, consumers = self._counts(queue)
        self._declared(queue.name, messages, consumers, method.nowait)

    def _declared(self, name: bytes, messages: int, consumers: int, nowait: bool) -> None:
        self._context.last_queue = name
        if not nowait:
            self._context.output.writer().write(
                queue_declared(self._context.number, name, messages, consumers)
            )

    def _prepare(self, name: bytes, arguments: Mapping[str, object], method: commands.Queue.Declare) -> None:
        """Waits until a new stream has a log."""
        streams = self._host.queues.streams
        if streams is None or arguments.get("x-queue-type") != "stream":
            return
        found = self._context.prepared()
        if found is not None and found.refusal is not None:
            raise found.refusal
        wrong = method.exclusive or method.auto_delete or not method.durable or not name
        if found is not None or wrong or isinstance(self._vhost.queues.get(name), RemoteQueue):
            return  # a wrong declaration is refused by the declaration itself
        parsed = self._vhost.queue_definitions.arguments_of(name, arguments)[0]
        streams.prepare(self._vhost.name, name, parsed, Preparing(self._context.output.edge, streams.now))
        raise Suspended

    def _counts(self, queue: AnyQueue) -> tuple[int, int]:
        """Returns the numbers of (ready messages, consumers)."""
        if not isinstance(queue, RemoteQueue):
            return queue.ready, len(queue.consumers)
        found = self._context.asked(queue, Ask.COUNT).answer
        return found.messages, found.consumers

    def delete_queue(self, method: commands.Queue.Delete, now: float) -> None:
        name = self._context.queue_name(method.queue)
        self._context.permit(needs.to_delete(QUEUE, name))
        queue = None if name.startswith(REPLY_TO) else self._vhost.queues.get(name)
        answered = self._context.answer()
        if answered is not None:  # also if the home's deletion was known here before its answer
            count = answered.answer.messages
        elif queue is None:
            count = 0  # as in RabbitMQ, deleting what is not there succeeds; direct replies go on
        elif isinstance(queue, RemoteQueue):
            call = QueueCall(
                Ask.DELETE,
                self._vhost.name,
                self._context.owned(name).name,
                if_unused=method.if_unused,
                if_empty=method.if_empty,
            )
            count = self._context.asked(queue, Ask.DELETE, call).answer.messages
        else:
            if isinstance(queue, StreamQueue) and (method.if_unused or method.if_empty):
                flag = "if-unused" if method.if_unused else "if-empty"
                detail = (
                    f"cannot delete queue '{method.queue}' in vhost '{self._vhost.name}'. queue.delete "
                    f"operations with {flag} flag set are not supported by stream queues"
                )
                raise AmqpError(codec.NOT_IMPLEMENTED, detail)
            count = self._vhost.queue_definitions.delete(
                name, self._connection, if_unused=method.if_unused, if_empty=method.if_empty
            )
        if not method.nowait:
            self._context.send(_Queue.DeleteOk(count))

    def bind_queue(self, method: commands.Queue.Bind, now: float) -> None:
        target = Destination(self._context.queue_name(method.queue), False)
        key = self._key(method.queue, method.routing_key)
        self._bind(method.exchange.encode(), target, key, method.arguments or {}, True)
        if not method.nowait:
            self._context.send(_Queue.BindOk())

    def unbind_queue(self, method: commands.Queue.Unbind, now: float) -> None:
        target = Destination(self._context.queue_name(method.queue), False)
        key = self._key(method.queue, method.routing_key)
        self._bind(method.exchange.encode(), target, key, method.arguments or {}, False)
        self._context.send(_Queue.UnbindOk())

    def _key(self, queue: str, key: str) -> bytes:
        """Returns the key, or the name of the last declared queue if queue and key are both empty."""
        return self._context.last_queue if not queue and not key else key.encode()

    def purge_queue(self, method: commands.Queue.Purge, now: float) -> None:
        name = self._context.queue_name(method.queue)
        self._context.permit(needs.to_read(name))
        queue = self._context.readable(name)
        if isinstance(queue, RemoteQueue):
            count = self._context.asked(queue, Ask.PURGE).answer.messages
        else:
            count = queue.purge()
        if not method.nowait:
            self._context.send(_Queue.PurgeOk(count))
