"""The consuming part of a channel: consumers, basic.get, and the settling of deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pamqp import commands

from treecast.middleware.broker.queues import (
    Ask,
    Consumer,
    MessageQueue,
    Part,
    QueueCall,
    QueueType,
    RemoteQueue,
    Run,
    StreamStart,
    message,
    messages,
    needs,
    start_of,
    text,
    unsupported,
)

from . import codec, codec_deliver
from .codec import AmqpError
from .session_channel import Connection
from .session_definitions import DefiningChannel
from .session_messages import REPLY_TO, shown
from .session_unsettled import Given, Unsettled

_Basic = commands.Basic
_ANY: Final = 1 << 30
_SETTLE: Final = 0
_REJECT: Final = 1
_REQUEUE: Final = 2  # returned by its consumer
_FAIL: Final = 3  # returned because the delivery failed


class ChannelConsumer(Consumer):
    """One consumer of a channel. `prefetch` is 0 for no limit."""

    def __init__(
        self,
        channel: ConsumingChannel,
        connection: Connection,
        tag: bytes,
        queue: MessageQueue,
        prefetch: int,
        no_ack: bool,
        exclusive: bool,
        priority: int,
    ) -> None:
        super().__init__(tag, connection, no_ack, exclusive, priority)
        self.queue = queue
        self.prefetch = 0 if no_ack else prefetch
        self.arguments: Mapping[str, object] = {}
        self._channel = channel
        self._connection = connection
        self._to = codec_deliver.Destination(channel.number, tag, connection.frame_max)

    @property
    def room(self) -> int:
        if not self._connection.writable:
            return 0
        return self.prefetch - self.unsettled if self.prefetch else _ANY

    def take(self, part: Part) -> None:
        first = self._channel.given(part, self.queue, self)
        run = part.run
        assert run is not None
        codec_deliver.write_deliveries(
            self._connection.writer(),
            self._to,
            shown_data(part, run),
            first,
            part.redelivered,
            run.exchange,
            run.key,
        )
        self._connection.written()

    def cancelled(self) -> None:
        self._channel.queue_gone(self)


def shown_data(part: Part, run: Run) -> bytes:
    """Returns the messages of a part with the properties that the server adds."""
    data = part.data()
    if not run.deaths and not part.deliveries:
        return data
    return b"".join(
        [message(shown(properties, run.deaths, part.deliveries), body) for properties, body in messages(data)]
    )


class ConsumingChannel(DefiningChannel):
    """The consuming part of a channel. `reply` is the queue for its direct replies, or b""."""

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__(connection, number)
        self.consumers: dict[bytes, ChannelConsumer] = {}
        self.unsettled = Unsettled()
        self.reply = b""
        self.transactional = False
        self.prefetch = 0  # for new consumers
        self._settling: list[tuple[int, Given]] = []  # in a transaction: (how it is settled, deliveries)
        self._next_tag = 1

    # --- consumers

    def set_prefetch(self, method: commands.Basic.Qos, now: float) -> None:
        """Sets the prefetch of new consumers. `global` is ignored, as in RabbitMQ 4.3.

        For Celery's client it is that of all consumers of the channel: Celery raises it for each task that
        has to wait, and takes a broker of another name than RabbitMQ for one that does as the specification
        says.
        """
        if method.prefetch_size:
            raise AmqpError(codec.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
        self.prefetch = method.prefetch_count
        self.send(_Basic.QosOk())
        if self._connection.raises_prefetch:
            for consumer in self.consumers.values():
                consumer.prefetch = 0 if consumer.no_ack else self.prefetch
            self.pump(now)

    def consume(self, method: commands.Basic.Consume, now: float) -> None:
        tag = (method.consumer_tag or "").encode()
        name = method.queue or ""
        if tag in self.consumers:
            given = method.consumer_tag
            raise AmqpError(codec.NOT_ALLOWED, f"attempt to reuse consumer tag '{given}'")
        most = self._host.settings.max_consumers
        if len(self.consumers) >= most:
            raise AmqpError(codec.NOT_ALLOWED, f"reached maximum ({most}) of consumers per channel")
        tag = tag or self._host.made_up(b"amq.ctag")
        if name.encode() == REPLY_TO:
            queue = self._reply_queue(method.no_ack, now)
        else:
            known = self.queue_name(name)
            self.permit(needs.to_read(known))
            queue = self.readable(known)
        start = self._start(queue, method)
        number = self._at_home(queue, method, tag, start)
        consumer = ChannelConsumer(
            self,
            self._connection,
            tag,
            queue,
            self.prefetch,
            method.no_ack,
            method.exclusive,
            _priority(method.arguments),
        )
        consumer.arguments = method.arguments or {}
        consumer.number = number
        consumer.start = start
        self._begin(consumer, tag, method.nowait, now)

    def _start(self, queue: MessageQueue, method: commands.Basic.Consume) -> StreamStart | None:
        """Returns where a consumer of a stream starts; None for other queues."""
        if queue.arguments.type is not QueueType.STREAM:
            return None
        if method.no_ack:
            raise unsupported("automatic acknowledgement", "stream", queue, self._vhost.name)
        if not self.prefetch:
            which = f"queue '{text(queue.name)}' in vhost '{self._vhost.name}'"
            detail = f"consumer prefetch count is not set for stream {which}"
            raise AmqpError(codec.PRECONDITION_FAILED, detail)
        return start_of(method.arguments or {}, self._vhost.wall)

    def _at_home(
        self, queue: MessageQueue, method: commands.Basic.Consume, tag: bytes, start: StreamStart | None
    ) -> int:
        """Returns the number under which the home of another host's queue has accepted the consumer."""
        if not isinstance(queue, RemoteQueue):
            return 0
        call = QueueCall(
            Ask.CONSUME,
            self._vhost.name,
            queue.name,
            self._new_number(),
            exclusive=method.exclusive,
            priority=_priority(method.arguments),
            tag=tag,
            start=start,
        )
        return self.asked(queue, Ask.CONSUME, call).call.consumer

    def _new_number(self) -> int:
        joined = self._host.joined
        assert joined is not None
        return joined.new_number()

    def _begin(self, consumer: ChannelConsumer, tag: bytes, nowait: bool, now: float) -> None:
        """Sends consume-ok before the first message. Sends nothing if the queue refuses."""
        self.consumers[tag] = consumer
        out = self._connection.writer()
        before = len(out)
        if not nowait:
            self.send(_Basic.ConsumeOk(tag.decode()))
        try:
            self._vhost.consume(consumer.queue, consumer, now)
        except Exception:
            out.truncate(before)
            del self.consumers[tag]
            raise

    def _reply_queue(self, no_ack: bool, now: float) -> MessageQueue:
        """Creates the queue for this channel's direct replies, with a generated name."""
        if not no_ack:
            raise AmqpError(codec.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self.reply:
            raise AmqpError(codec.PRECONDITION_FAILED, "reply consumer already set")
        self.reply = self._host.made_up(REPLY_TO + b".g1")
        return self._vhost.reply_queue(self.reply, now)

    def cancel(self, method: commands.Basic.Cancel, now: float) -> None:
        self._cancel((method.consumer_tag or "").encode(), now)
        if not method.nowait:
            self.send(_Basic.CancelOk(method.consumer_tag))

    def cancelled_by_us(self, method: commands.Basic.CancelOk, now: float) -> None:
        """Ignores the client's confirmation that a queue is gone."""

    def _cancel(self, tag: bytes, now: float, *, ends: bool = False) -> None:
        consumer = self.consumers.pop(tag, None)
        if consumer is None:
            return
        self._vhost.cancel(consumer.queue, consumer, now, ends=ends)
        if consumer.queue.name == self.reply:
            self.reply = b""
            self._vhost.drop_reply_queue(consumer.queue)

    def queue_gone(self, consumer: ChannelConsumer) -> None:
        """Drops a consumer whose queue was deleted. Notifies clients with `consumer_cancel_notify`."""
        if self.consumers.pop(consumer.tag, None) is None:
            return
        capabilities = self._connection.capabilities
        if capabilities.get("consumer_cancel_notify") is True:
            self.send(_Basic.Cancel(consumer.tag.decode(), True))

    def review(self) -> None:
        """Also for consumers: who may no longer read a queue gets no more of it."""
        for consumer in self.consumers.values():
            if consumer.queue.name != self.reply:
                self.permit(needs.to_read(consumer.queue.name))

    def pump(self, now: float) -> None:
        """Resumes deliveries after the client reads again."""
        for consumer in list(self.consumers.values()):
            consumer.queue.pump(now)
            self._vhost.touched(consumer.queue, now)

    # --- delivering

    def given(self, part: Part, queue: MessageQueue, consumer: Consumer | None) -> int:
        """Assigns delivery tags to a part and returns the first. Tracks the part unless it is no-ack."""
        first = self._next_tag
        self._next_tag += part.count
        if consumer is None or not consumer.no_ack:
            self.unsettled.add(Given(first, part.count, 0, part, queue, consumer))
        return first

    def get(self, method: commands.Basic.Get, now: float) -> None:
        name = self.queue_name(method.queue)
        self.permit(needs.to_read(name))
        queue = self.readable(name)
        left = 0
        part: Part | None
        if isinstance(queue, RemoteQueue):
            part, left = self._get_at_home(queue, method.no_ack)
        else:
            part = queue.get(now, method.no_ack)
            self._vhost.touched(queue, now)
            left = queue.ready
        if part is None:
            self.send(_Basic.GetEmpty())
            return
        run = part.run
        assert run is not None
        tag = self._next_tag
        if method.no_ack:
            self._next_tag += 1
        else:
            self.given(part, queue, None)
        out = self._connection.writer()
        out.write(codec_deliver.got(self.number, tag, part.redelivered, run.exchange, run.key, left))
        ((properties, body),) = messages(shown_data(part, run))
        frame_max = self._connection.frame_max
        out.write(codec_deliver.content(self.number, frame_max, properties, body))
        self._connection.written()

    def _get_at_home(self, queue: RemoteQueue, no_ack: bool) -> tuple[Part | None, int]:
        """Returns (the message or None, how many are left)."""
        call = QueueCall(Ask.GET, self._vhost.name, queue.name, self._new_number(), no_ack)
        found = self.asked(queue, Ask.GET, call)
        return (found.parts[0] if found.parts else None), found.answer.messages

    # --- settling

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
        """Refuses to return or reject messages of streams."""
        for given in taken:
            if given.queue.arguments.type is QueueType.STREAM:
                raise unsupported(what, "stream queues", given.queue, self._vhost.name)

    def _settle_all(self, taken: list[Given], how: int, now: float) -> None:
        if how != _SETTLE:
            self._returnable(taken, "basic.nack and basic.reject")
        if self.transactional:
            self._settling += [(how, given) for given in taken]
        else:
            for given in taken:
                self._settle(given, how, now)

    def _settle(self, given: Given, how: int, now: float) -> None:
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
        self.send(_Basic.RecoverOk())

    def recover_async(self, method: commands.Basic.RecoverAsync, now: float) -> None:
        self._recover(method.requeue, now)

    def _recover(self, requeue: bool, now: float) -> None:
        if not requeue:
            raise AmqpError(codec.NOT_IMPLEMENTED, "requeue=false")
        taken = self.unsettled.clear()
        self._returnable(taken, "basic.recover")
        for given in taken:
            self._settle(given, _REQUEUE, now)

    # --- closing

    def leave(self, now: float) -> None:
        """Cancels all consumers, as the channel ends. Nobody gets messages before it has released its own."""
        for consumer in list(self.consumers.values()):
            self._connection.changed(consumer.queue)
            self._cancel(consumer.tag, now, ends=True)

    def release(self, now: float) -> None:
        """Ends the channel: returns its unsettled messages as failed deliveries. The caller pumps their
        queues."""
        self.leave(now)
        unsettled = [given for _, given in self._settling] + self.unsettled.clear()
        self._settling = []
        for given in unsettled:
            self._settle(given, _FAIL, now)


def _priority(arguments: Mapping[str, object] | None) -> int:
    value = (arguments or {}).get("x-priority", 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise AmqpError(codec.PRECONDITION_FAILED, "invalid arg 'x-priority': not an integer")
    return value
