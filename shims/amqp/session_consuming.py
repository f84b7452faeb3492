"""The consuming part of a channel: consumers and basic.get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pamqp import commands

from treecast.middleware.broker.queues import (
    AnyQueue,
    Ask,
    Consumer,
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
from .session_messages import REPLY_TO, shown
from .session_settling import Settling
from .session_state import ChannelContext

_Basic = commands.Basic
_ANY: Final = 1 << 30


class ChannelConsumer(Consumer):
    """One consumer of a channel. `prefetch` is 0 for no limit."""

    def __init__(
        self,
        consuming: Consuming,
        tag: bytes,
        queue: AnyQueue,
        prefetch: int,
        no_ack: bool,
        exclusive: bool,
        priority: int,
    ) -> None:
        context = consuming.context
        connection = context.connection
        super().__init__(tag, connection, no_ack, exclusive, priority)
        self.queue = queue
        self.prefetch = 0 if no_ack else prefetch
        self.arguments: Mapping[str, object] = {}
        self._consuming = consuming
        self._settling = consuming.settling
        self._output = context.output
        self._to = codec_deliver.Destination(context.number, tag, connection.frame_max)

    @property
    def room(self) -> int:
        if not self._output.writable:
            # A client that does not read gets nothing more: messages stay in their queues for other
            # consumers.
            return 0
        return self.prefetch - self.unsettled if self.prefetch else _ANY

    def take(self, part: Part) -> None:
        settling = self._settling
        first = settling.next_tag
        if self.no_ack:  # it takes tags, and nothing of it is ever settled
            settling.next_tag = first + part.count
        else:
            settling.given(part, self.queue, self, False)
        run = part.run
        assert run is not None
        codec_deliver.write_deliveries(
            self._output.writer(),
            self._to,
            shown_data(part, run),
            first,
            part.redelivered,
            run.exchange,
            run.key,
        )
        self._output.written()

    def cancelled(self) -> None:
        self._consuming.queue_gone(self)


def shown_data(part: Part, run: Run) -> bytes:
    """Returns the messages of a part with the properties that the server adds."""
    data = part.data()
    # Most messages need no added properties, and their bytes are sent as they were received.
    if not run.deaths and not part.deliveries:
        return data
    return b"".join(
        [message(shown(properties, run.deaths, part.deliveries), body) for properties, body in messages(data)]
    )


class Consuming:
    """The consuming part of a channel. `reply` is the queue for its direct replies, or b""."""

    def __init__(self, context: ChannelContext, settling: Settling) -> None:
        self.context = context
        self.settling = settling
        self.consumers: dict[bytes, ChannelConsumer] = {}
        self.reply = b""
        self.prefetch = 0  # for new consumers
        self._connection = context.connection
        self._host = context.host
        self._vhost = context.vhost

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
        self.context.send(_Basic.QosOk())
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
            known = self.context.queue_name(name)
            self.context.permit(needs.to_read(known))
            queue = self.context.readable(known)
        start = self._start(queue, method)
        # Checks of this host come before the call: the home keeps a consumer that it has accepted.
        number = self._at_home(queue, method, tag, start)
        consumer = ChannelConsumer(
            self,
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

    def _start(self, queue: AnyQueue, method: commands.Basic.Consume) -> StreamStart | None:
        """Returns where a consumer of a stream starts; None for other queues."""
        if queue.arguments.type is not QueueType.STREAM:
            return None
        if method.no_ack:
            raise unsupported("automatic acknowledgement", "stream", queue, self._vhost.name)
        if not self.prefetch:
            # Without a window, a stream would be sent from its start to its end as fast as the client reads.
            which = f"queue '{text(queue.name)}' in vhost '{self._vhost.name}'"
            detail = f"consumer prefetch count is not set for stream {which}"
            raise AmqpError(codec.PRECONDITION_FAILED, detail)
        return start_of(method.arguments or {}, self._vhost.wall)

    def _at_home(
        self, queue: AnyQueue, method: commands.Basic.Consume, tag: bytes, start: StreamStart | None
    ) -> int:
        """Returns the number under which the home of another host's queue has accepted the consumer."""
        if not isinstance(queue, RemoteQueue):
            return 0
        call = QueueCall(
            Ask.CONSUME,
            self._vhost.name,
            queue.name,
            self.context.new_number(),
            exclusive=method.exclusive,
            priority=_priority(method.arguments),
            tag=tag,
            start=start,
        )
        return self.context.asked(queue, Ask.CONSUME, call).call.consumer

    def _begin(self, consumer: ChannelConsumer, tag: bytes, nowait: bool, now: float) -> None:
        """Sends consume-ok before the first message. Sends nothing if the queue refuses."""
        self.consumers[tag] = consumer
        out = self.context.output.writer()
        # The consume-ok is written before the queue is asked, since that may deliver at once; a refusal takes
        # it back.
        before = len(out)
        if not nowait:
            self.context.send(_Basic.ConsumeOk(tag.decode()))
        try:
            self._vhost.consume(consumer.queue, consumer, now)
        except Exception:
            out.truncate(before)
            del self.consumers[tag]
            raise

    def _reply_queue(self, no_ack: bool, now: float) -> AnyQueue:
        """Creates the queue for this channel's direct replies, with a generated name."""
        if not no_ack:
            raise AmqpError(codec.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self.reply:
            raise AmqpError(codec.PRECONDITION_FAILED, "reply consumer already set")
        self.reply = self._host.made_up(REPLY_TO + b".g1")
        return self._vhost.queue_definitions.reply_queue(self.reply, now)

    def cancel(self, method: commands.Basic.Cancel, now: float) -> None:
        self._cancel((method.consumer_tag or "").encode(), now)
        if not method.nowait:
            self.context.send(_Basic.CancelOk(method.consumer_tag))

    def cancelled_by_us(self, method: commands.Basic.CancelOk, now: float) -> None:
        """Ignores the client's confirmation that a queue is gone."""

    def _cancel(self, tag: bytes, now: float, *, ends: bool = False) -> None:
        consumer = self.consumers.pop(tag, None)
        if consumer is None:
            return
        self._vhost.cancel(consumer.queue, consumer, now, ends=ends)
        # Replies are for this channel only: without their consumer, nobody could ever get them.
        if consumer.queue.name == self.reply:
            self.reply = b""
            self._vhost.queue_definitions.drop_reply_queue(consumer.queue)

    def queue_gone(self, consumer: ChannelConsumer) -> None:
        """Drops a consumer whose queue was deleted. Notifies clients with `consumer_cancel_notify`."""
        if self.consumers.pop(consumer.tag, None) is None:
            return
        capabilities = self._connection.capabilities
        if capabilities.get("consumer_cancel_notify") is True:
            self.context.send(_Basic.Cancel(consumer.tag.decode(), True))

    def review(self) -> None:
        """Raises ACCESS_REFUSED for a consumer whose user may no longer read its queue."""
        for consumer in self.consumers.values():
            if consumer.queue.name != self.reply:
                self.context.permit(needs.to_read(consumer.queue.name))

    def pump(self, now: float) -> None:
        """Resumes deliveries after the client reads again."""
        for consumer in list(self.consumers.values()):
            # A copy: delivering may delete a queue, which removes its consumers.
            consumer.queue.pump(now)
            self._vhost.touched(consumer.queue, now)

    # --- single messages

    def get(self, method: commands.Basic.Get, now: float) -> None:
        name = self.context.queue_name(method.queue)
        self.context.permit(needs.to_read(name))
        queue = self.context.readable(name)
        left = 0
        part: Part | None
        if isinstance(queue, RemoteQueue):
            part, left = self._get_at_home(queue, method.no_ack)
        else:
            part = queue.get(now, method.no_ack)
            self._vhost.touched(queue, now)
            # Messages that had expired are dead letters now, and the next time limit of the queue may be
            # another.
            left = queue.ready
        if part is None:
            self.context.send(_Basic.GetEmpty())
            return
        run = part.run
        assert run is not None
        tag = self.settling.given(part, queue, None, method.no_ack)
        out = self.context.output.writer()
        out.write(codec_deliver.got(self.context.number, tag, part.redelivered, run.exchange, run.key, left))
        ((properties, body),) = messages(shown_data(part, run))
        frame_max = self._connection.frame_max
        out.write(codec_deliver.content(self.context.number, frame_max, properties, body))
        self.context.output.written()

    def _get_at_home(self, queue: RemoteQueue, no_ack: bool) -> tuple[Part | None, int]:
        """Returns (the message or None, how many are left)."""
        call = QueueCall(Ask.GET, self._vhost.name, queue.name, self.context.new_number(), no_ack)
        found = self.context.asked(queue, Ask.GET, call)
        return (found.parts[0] if found.parts else None), found.answer.messages

    def flow(self, method: commands.Channel.Flow, now: float) -> None:
        if not method.active:
            raise AmqpError(codec.NOT_IMPLEMENTED, "active=false")
        self.context.send(commands.Channel.FlowOk(True))

    # --- closing

    def leave(self, now: float) -> None:
        """Cancels all consumers, as the channel ends. Nobody gets messages before it has released its own."""
        for consumer in list(self.consumers.values()):
            self._connection.changed(consumer.queue)
            self._cancel(consumer.tag, now, ends=True)


def _priority(arguments: Mapping[str, object] | None) -> int:
    value = (arguments or {}).get("x-priority", 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise AmqpError(codec.PRECONDITION_FAILED, "invalid arg 'x-priority': not an integer")
    return value
