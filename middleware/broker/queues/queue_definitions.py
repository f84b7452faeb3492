"""Declaring and deleting queues.

Refusals and their texts are RabbitMQ 4.3's. As there, deleting something absent succeeds.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.timers import Due
from treecast.middleware.wire.field_table import same

from . import arguments as queue_arguments
from .any_queue import AnyQueue
from .arguments import QueueArguments, QueueType, Table
from .bindings import Bindings
from .consumers import Counts
from .exchange import Destination
from .ledger import Ledger
from .policed import Both, Policies
from .queue import MessageQueue, Undertaker
from .refusals import Reason, Refusal, inequivalent, precondition, text
from .routing import Router
from .settings import QueueSettings
from .store import RunStore
from .streams import StreamQueue, Streams

_TYPE: Final = "x-queue-type"


class QueueDefinitions:
    """The queues that clients declare, and stand-ins for those of other hosts.

    `default_type`: of queues declared without a type. `counts`: of deleted queues. `streams`: None, streams
    are refused.
    """

    def __init__(
        self,
        router: Router,
        ledger: Ledger,
        policies: Policies,
        bindings: Bindings,
        store: RunStore,
        undertaker: Undertaker,
        due: Due[AnyQueue],
        settings: QueueSettings,
    ) -> None:
        """`due`: the time-outs of queues, which end with them."""
        self.default_type = QueueType.CLASSIC
        self.counts = Counts()
        self.streams: Streams | None = None
        self._vhost = router.name
        self._router = router
        self._ledger = ledger
        self._policies = policies
        self._bindings = bindings
        self._store = store
        self._undertaker = undertaker
        self._due = due
        self._settings = settings

    def declare(
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
        if not self._ledger.restoring:
            asked = self.typed(asked, durable, exclusive, auto_delete)
        durable = durable and not exclusive
        if not name:
            name = self._server_named(generated, asked)
        elif name not in self._router.queues:
            self._ledger.not_reserved("queue", name)
            self._ledger.not_too_long("queue name", name)
        found = self._router.queues.get(name)
        if found is not None:
            self._same(found, durable, auto_delete, owner if exclusive else None, owner, asked)
            found.used_at = now
            return found
        parsed = queue_arguments.parse(asked, name, self._vhost)
        self._allowed(name, parsed, durable, exclusive, auto_delete)
        policies, effective = self._policies.of_queue(name, parsed.type, asked)
        if parsed.type is QueueType.STREAM:
            queue = self._stream(name, effective, now)
        else:
            queue = MessageQueue(
                name,
                effective,
                self._store,
                self._undertaker,
                self._ledger.recorder,
                durable=durable,
                auto_delete=auto_delete,
                owner=owner if exclusive else None,
                settings=self._settings,
                now=now,
            )
        queue.asked = asked
        queue.policies = policies
        self._router.queues[name] = queue
        self._router.changed()
        if durable:
            self._ledger.recorder.declared("queue", name, {"auto_delete": auto_delete, "arguments": asked})
        self._ledger.sharing.declared("queue", name, queue.definition)
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
            which = f"queue '{text(name)}' in vhost '{self._vhost}'"
            raise Refusal(Reason.NOT_IMPLEMENTED, f"{which}: this host has no logs for streams")
        log = self.streams.log(self._vhost, name, arguments)
        return StreamQueue(name, arguments, log, self._vhost, now)

    def _server_named(self, generated: bytes, asked: Table) -> bytes:
        kind = asked.get(_TYPE, "classic")
        if kind != "classic":
            raise precondition(f"Cannot declare a server-named queue for type rabbit_{kind}_queue")
        return generated

    def _allowed(
        self, name: bytes, parsed: QueueArguments, durable: bool, exclusive: bool, auto_delete: bool
    ) -> None:
        which = f"queue '{text(name)}' in vhost '{self._vhost}'"
        if self._ledger.restoring:
            return
        self._ledger.not_too_long("x-dead-letter-exchange", parsed.dead_letter_exchange or b"")
        self._ledger.not_too_long("x-dead-letter-routing-key", parsed.dead_letter_key or b"")
        if parsed.type is not QueueType.CLASSIC:
            for wrong, what in (
                (auto_delete, "auto-delete"),
                (exclusive, "exclusive-owner"),
                (not durable, "non-durable"),
            ):
                if wrong:
                    raise precondition(f"invalid property '{what}' for {which}")
        if parsed.type is QueueType.QUORUM and not self._settings.quorum:
            raise precondition(
                f"{which}: quorum queues are refused here, as this host would keep the one copy"
            )
        if not durable and not exclusive and not self._settings.transient_queues:
            raise Refusal(
                Reason.INTERNAL_ERROR,
                "Feature `transient_nonexcl_queues` is deprecated.\n"
                "By default, this feature is not permitted anymore.",
            )

    def _same(
        self,
        found: AnyQueue,
        durable: bool,
        auto_delete: bool,
        exclusive_to: object,
        connection: object,
        asked: Table,
    ) -> None:
        if found.owner is not exclusive_to or (found.owner is not None and found.owner is not connection):
            raise self._router.locked(found.name)
        for what, received, current in (
            ("durable", durable, found.durable),
            ("auto_delete", auto_delete, found.auto_delete),
        ):
            if received != current:
                raise inequivalent(what, "queue", found.name, self._vhost, received, current)
        kind = found.arguments.type
        for what, (_, types) in queue_arguments.KNOWN.items():
            received_value, current_value = asked.get(what), found.asked.get(what)
            if what == _TYPE:
                received_value, current_value = received_value or "classic", current_value or "classic"
            if kind in types and not same(received_value, current_value):
                raise inequivalent(what, "queue", found.name, self._vhost, received_value, current_value)

    def delete(self, name: bytes, owner: object, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes a queue. Returns how many messages were ready in it."""
        if name not in self._router.queues:
            return 0
        queue = self._router.owned(name, owner)
        if if_unused and len(queue.consumers):
            raise precondition(f"queue '{text(name)}' in vhost '{self._vhost}' in use")
        if if_empty and queue.ready:
            raise precondition(f"queue '{text(name)}' in vhost '{self._vhost}' not empty")
        return self.remove(queue)

    def remove(self, queue: AnyQueue) -> int:
        """Deletes a queue even if it has messages or consumers. Returns how many messages were ready in
        it."""
        del self._router.queues[queue.name]
        self.counts.add(queue.counts)
        self._router.changed()
        self._bindings.end_all(Destination(queue.name, False))
        count = queue.delete()
        if isinstance(queue, StreamQueue):
            queue.log.delete()
        self._ledger.deleted("queue", queue.name, durable=queue.durable)
        self._due.discard(queue)
        return count

    def reply_queue(self, name: bytes, now: float) -> AnyQueue:
        """Makes the queue of a client's direct replies: transient, and reachable only by its name."""
        arguments = QueueArguments()
        queue = MessageQueue(
            name, arguments, self._store, self._undertaker, self._ledger.recorder, durable=False, now=now
        )
        self._router.queues[name] = queue
        self._router.changed()
        self._ledger.sharing.declared("queue", name, queue.definition)
        return queue

    def drop_reply_queue(self, queue: AnyQueue) -> None:
        """Removes a reply queue whose consumer is gone."""
        if self._router.queues.get(queue.name) is queue:
            self.remove(queue)

    def arguments_of(self, name: bytes, asked: Table) -> tuple[QueueArguments, Both]:
        """Returns the effective arguments of a queue that was declared elsewhere, and its policies."""
        kind = queue_arguments.parse(asked, name, self._vhost).type
        policies, effective = self._policies.of_queue(name, kind, asked)
        return effective, policies

    def put(self, queue: AnyQueue) -> None:
        """Puts a queue of another host in its place, and removes the queue that was there without removing
        its bindings."""
        self._router.queues[queue.name] = queue
        self._router.changed()
