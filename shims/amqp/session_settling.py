"""The deliveries of a channel: their tags, and how they are settled."""

from __future__ import annotations

from typing import Final

from pamqp import commands

from treecast.middleware.broker.queues import (
    AnyQueue,
    Consumer,
    Part,
    QueueType,
    Run,
    text,
    unsupported,
)
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from . import codec
from .codec import AmqpError
from .session_state import ChannelContext, ConnectionState
from .session_unsettled import Given, Unsettled

_log = Log("treecast.amqp")

_RUN_BYTES: Final = 400  # of memory that a run takes beside its data, about
_SETTLE: Final = 0
_REJECT: Final = 1
_REQUEUE: Final = 2  # returned by its consumer
_FAIL: Final = 3  # returned because the delivery failed


class Transaction:
    """The publishes and settlements of a channel since its last commit. `open`: it is in transaction mode."""

    def __init__(self) -> None:
        self.open = False
        self.publishes: list[tuple[Run, bool]] = []  # (run, mandatory)
        self.bytes = 0  # of them
        self.settling: list[tuple[int, Given]] = []  # (how it is settled, deliveries)

    def publish(self, run: Run, mandatory: bool, connection: ConnectionState) -> None:
        """Keeps a run until the commit. Raises PRECONDITION_FAILED if those of the connection are too large:
        they are in memory, and a publisher that waits for memory could not commit."""
        most, size = connection.host.settings.max_transaction_bytes, len(run.data) + _RUN_BYTES
        # The first of the connection may be larger, not that of each channel: there may be two thousand.
        if connection.uncommitted + size > most and connection.uncommitted:
            detail = f"transactions of a connection hold at most {most} bytes: commit more often"
            raise AmqpError(codec.PRECONDITION_FAILED, detail, codec.PUBLISH)
        self.publishes.append((run, mandatory))
        self.bytes += size
        connection.uncommitted += size

    def take_publishes(self, connection: ConnectionState) -> list[tuple[Run, bool]]:
        """Removes and returns what was published."""
        connection.uncommitted -= self.bytes
        publishes, self.publishes, self.bytes = self.publishes, [], 0
        return publishes

    @property
    def uncommitted(self) -> tuple[int, int]:
        """The numbers of (published, settled) messages in the transaction."""
        published = sum(run.count for run, _ in self.publishes)
        return published, sum(given.count for _, given in self.settling)


class Settling:
    """Gives deliveries their tags and settles them, in a transaction at its end."""

    def __init__(self, context: ChannelContext, transaction: Transaction) -> None:
        self.unsettled = Unsettled()
        self._context = context
        self._connection = context.connection
        self._transaction = transaction
        self.next_tag = 1  # of the next delivery

    def given(self, part: Part, queue: AnyQueue, consumer: Consumer | None, no_ack: bool) -> int:
        """Assigns delivery tags to a part and returns the first. Tracks the part unless it is no-ack."""
        first = self.next_tag
        self.next_tag += part.count
        if not no_ack:
            self.unsettled.add(Given(first, part.count, 0, part, queue, consumer))
        return first

    def ack_method(self, method: commands.Basic.Ack, now: float) -> None:
        self._end(method.delivery_tag, method.multiple, _SETTLE, now)

    def ack_row(self, first: int, count: int, now: float) -> None:
        """Handles `count` single acknowledgements of the tags from `first` on."""
        taken = self.unsettled.take(first, count)
        if taken or count == 1:
            self._ended(taken, first, _SETTLE, now)
            return
        for tag in range(first, first + count):
            self._end(tag, False, _SETTLE, now)

    def nack(self, method: commands.Basic.Nack, now: float) -> None:
        self._end(method.delivery_tag, method.multiple, _REQUEUE if method.requeue else _REJECT, now)

    def reject(self, method: commands.Basic.Reject, now: float) -> None:
        """Handles a reject. With requeue it counts as a failed delivery in quorum queues (RabbitMQ 4.3)."""
        self._end(method.delivery_tag or 0, False, _FAIL if method.requeue else _REJECT, now)

    def _end(self, tag: int, multiple: bool, how: int, now: float) -> None:
        if multiple:
            taken = self.unsettled.take_up_to(tag)
            if tag == 0:
                self._settle_all(taken, how, now)
                return
        else:
            taken = self.unsettled.take(tag)
        self._ended(taken, tag, how, now)

    def _ended(self, taken: list[Given], tag: int, how: int, now: float) -> None:
        if not taken:
            raise AmqpError(codec.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        self._settle_all(taken, how, now)

    def _returnable(self, taken: list[Given], what: str) -> None:
        """Refuses to return or reject messages of streams. All stay unsettled then: those of other queues go
        back as the channel ends."""
        for given in taken:
            if given.queue.arguments.type is QueueType.STREAM:
                self.unsettled.put_back(taken)
                raise unsupported(what, "stream queues", given.queue, self._context.vhost.name)

    def _settle_all(self, taken: list[Given], how: int, now: float) -> None:
        if how != _SETTLE:
            self._returnable(taken, "basic.nack and basic.reject")
        if self._transaction.open:
            self._transaction.settling += [(how, given) for given in taken]
        else:
            self.settle_each([(how, given) for given in taken], now)

    def settle_each(self, settling: list[tuple[int, Given]], now: float) -> None:
        """Settles deliveries that were taken out. If one raises, it and those behind it are unsettled again:
        they go back with the channel, and would otherwise be nobody's."""
        done = 0
        try:
            for how, given in settling:
                self.settle(given, how, now)
                done += 1
        except Exception:
            self.unsettled.put_back([given for _, given in settling[done:]])
            raise

    def settle(self, given: Given, how: int, now: float) -> None:
        queue, part, consumer = given.queue, given.part, given.consumer
        if how == _SETTLE:
            queue.settle(part, given.offset, given.count, consumer)
        elif how == _REJECT:
            queue.reject(part, given.offset, given.count, consumer, now)
        else:
            failed = how == _FAIL
            queue.requeue(part, given.offset, given.count, consumer, now, failed=failed)
        self._connection.changed(queue)

    def recover(self, method: commands.Basic.Recover, now: float) -> None:
        self._recover(method.requeue, now)
        self._context.send(commands.Basic.RecoverOk())

    def recover_async(self, method: commands.Basic.RecoverAsync, now: float) -> None:
        self._recover(method.requeue, now)

    def _recover(self, requeue: bool, now: float) -> None:
        if not requeue:
            raise AmqpError(codec.NOT_IMPLEMENTED, "requeue=false")
        taken = self.unsettled.clear()
        self._returnable(taken, "basic.recover")
        self.settle_each([(_REQUEUE, given) for given in taken], now)

    def release(self, now: float) -> None:
        """Returns the unsettled messages as failed deliveries, and drops what is not committed. The caller
        pumps their queues."""
        self._transaction.take_publishes(self._connection)
        unsettled = [given for _, given in self._transaction.settling] + self.unsettled.clear()
        self._transaction.settling = []
        for given in unsettled:
            try:
                self.settle(given, _FAIL, now)
            except TreecastError as error:  # the disk does not read it: it is there after a restart
                _log.error("a message cannot be returned", queue=text(given.queue.name), error=error)
