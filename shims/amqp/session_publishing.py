"""The publishing part of a channel: runs, returns, single messages frame by frame, and transactions."""

from __future__ import annotations

from typing import Final

from pamqp import commands

from treecast.middleware.broker.queues import Run, by_content, messages, needs
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.rights import IMPERSONATOR, WRITE

from . import codec, codec_deliver
from .codec import AmqpError
from .codec_publish import publish_fields
from .session_consuming import Consuming
from .session_messages import single
from .session_output import Confirms
from .session_settling import Settling, Transaction
from .session_state import ChannelContext

_MANDATORY: Final = 1
_IMMEDIATE: Final = 2
_NO_METHOD: Final = 0
_NO_HEADER: Final = 1
_NO_BODY: Final = 2


class Publishing:
    """The publishing part of a channel, after its permissions."""

    def __init__(self, context: ChannelContext, transaction: Transaction) -> None:
        self.confirms = Confirms(context.output, context.number)
        self._context = context
        self._connection = context.connection
        self._output = context.output
        self._vhost = context.vhost
        self._transaction = transaction
        self._lane = b""  # see `Run.lane`

    def select_confirms(self, method: commands.Confirm.Select, now: float) -> None:
        if self._transaction.open:
            raise AmqpError(codec.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self.confirms.on = True
        if not method.nowait:
            self._context.send(commands.Confirm.SelectOk())

    def looks_at_headers(self, exchange: bytes) -> bool:
        """Whether the messages of a run must have the same headers."""
        return exchange != b"" and self._vhost.router.looks_at_headers(exchange)

    def may_publish(self, exchange: bytes, flags: int) -> None:
        """Raises an error if the user lacks the permission or clients cannot publish to the exchange."""
        if flags & _IMMEDIATE:
            raise AmqpError(codec.NOT_IMPLEMENTED, "immediate=true", codec.PUBLISH)
        # Looked up once per exchange, until rights change: `permit` forgets all with a new version of them.
        context = self._context
        if context.decided != context.host.access.version or (WRITE, exchange) not in context.granted:
            context.permit(needs.to_publish(self._vhost, exchange, ()))
        if exchange:  # clients always may publish to the default exchange
            self._vhost.router.may_publish(exchange)

    def publish(self, run: Run, flags: int, now: float) -> None:
        """Publishes a run after `may_publish`. Raises ACCESS_REFUSED if a routing key is not permitted."""
        if run.exchange:  # the default exchange has no topics
            topics = needs.of_topics(self._vhost, WRITE, run.exchange, run.keys)
            if topics:
                self._context.permit(topics)
        mandatory = flags & _MANDATORY != 0
        if self._transaction.open:
            # Rights were checked when it was published. Whether it can be routed is decided at the commit.
            self._transaction.publish(run, mandatory, self._connection)
            return
        refused = self.hand_over(run, mandatory, now)
        confirms = self.confirms
        if confirms.on:
            if not confirms.gathered:
                self._connection.unconfirmed[self._context.number] = confirms
            confirms.add(refused, run.count)

    def hand_over(self, run: Run, mandatory: bool, now: float) -> list[int]:
        """Publishes a run and returns unroutable mandatory messages to the client.

        The result is the indexes of the refused messages.
        """
        if run.count > 1 and by_content(self._vhost.exchanges, run.exchange):
            singles = enumerate(run.singles())
            return [number for number, one in singles if self.hand_over(one, mandatory, now)]
        if run.exchange in self._vhost.outlets:
            run.lane = self._lane_of()
        try:
            routed, refused = self._vhost.publish(run, now)
        except TreecastError as error:
            if error.fault is not Fault.STORAGE:
                # A full or failing disk refuses these messages, as a full queue does; the channel goes on.
                raise
            return list(range(run.count))
        if run.persistent and (run.place or run.exchange in self._vhost.outlets):
            self._output.depends = True
        # Messages went to another host or a log in this turn: nothing may be confirmed before they are
        # placed.
        if self._vhost.departed:
            self._vhost.departed = False
            self._output.depends = True
        if mandatory and not routed:
            self._return(run)
        return refused

    def _lane_of(self) -> bytes:
        if not self._lane:
            self._lane = b"/%s/%d" % (self._connection.lane.encode(errors="replace"), self._context.number)
        return self._lane

    def _return(self, run: Run) -> None:
        out, frame_max = self._output.writer(), self._connection.frame_max
        for properties, body in messages(run.data):
            out.write(codec_deliver.returned(self._context.number, run.exchange, run.key))
            out.write(codec_deliver.content(self._context.number, frame_max, properties, body))
        self._output.written()


class Content:
    """A message that arrives frame by frame. `reply` of `consuming` is the queue for its direct replies."""

    def __init__(self, context: ChannelContext, publishing: Publishing, consuming: Consuming) -> None:
        self._context = context
        self._connection = context.connection
        self._publishing = publishing
        self._consuming = consuming
        self._awaits = _NO_METHOD
        self._to = b""
        self._to_key = b""
        self._flags = 0
        self._properties = b""
        self._pieces: list[bytes] = []
        self._left = 0

    @property
    def amid(self) -> bool:
        """Whether the channel awaits a content header or a body frame."""
        return self._awaits != _NO_METHOD

    def begin(self, payload: bytes) -> None:
        self._to, self._to_key, self._flags = publish_fields(payload)
        self._awaits = _NO_HEADER

    def take_header(self, payload: bytes, now: float) -> None:
        if self._awaits != _NO_HEADER:
            raise self.unexpected()
        if len(payload) < 14:
            raise AmqpError(codec.FRAME_ERROR, "the content header is too short")
        kind, weight = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
        if kind != codec.BASIC or weight:
            detail = f"expected content header for class 60, got one for class {kind} instead"
            raise AmqpError(codec.UNEXPECTED_FRAME, detail, codec.PUBLISH)
        size = int.from_bytes(payload[4:12], "big")
        most = self._context.host.settings.max_message_bytes
        if size > most:
            # Only the channel ends; its state is reset because the body frames of this message may follow.
            self._awaits = _NO_METHOD
            detail = f"message size {size} is larger than configured max size {most}"
            raise AmqpError(codec.PRECONDITION_FAILED, detail, codec.PUBLISH)
        self._properties = payload[12:]
        self._left = size
        self._pieces = []
        self._awaits = _NO_BODY
        if size == 0:
            # An empty message has no body frame, so it is whole with its header.
            self._whole(now)

    def take_body(self, payload: bytes, now: float) -> None:
        if self._awaits != _NO_BODY:
            raise self.unexpected()
        if len(payload) > self._left:
            raise AmqpError(
                codec.FRAME_ERROR, "content body frame exceeds remaining content size", codec.PUBLISH
            )
        self._pieces.append(payload)
        # Counted for the memory limit: the announced size allocates nothing, only what has come does.
        self._connection.collected += len(payload)
        self._left -= len(payload)
        if self._left == 0:
            self._whole(now)

    def forget(self) -> None:
        """Drops the message that has arrived in part: the channel ends."""
        for piece in self._pieces:
            self._connection.collected -= len(piece)
        self._pieces = []

    def unexpected(self) -> AmqpError:
        """Returns the error for a frame that is not allowed now."""
        detail = {
            _NO_METHOD: "expected method frame, got non method frame instead",
            _NO_HEADER: "expected content header for class 60, got non content header frame instead",
            _NO_BODY: "expected content body, got non content body frame instead",
        }[self._awaits]
        return AmqpError(codec.UNEXPECTED_FRAME, detail, codec.PUBLISH if self._awaits else 0)

    def _whole(self, now: float) -> None:
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._connection.collected -= len(body)
        # Reset before publishing: a refusal raises from there, and the channel must not await more of this
        # message.
        self._awaits = _NO_METHOD
        self._pieces = []
        self._publishing.may_publish(self._to, self._flags)
        # Only now, when the message is whole: RabbitMQ also closes the channel after the content, not amid
        # it.
        run = single(self._to, self._to_key, self._properties, body, self._sender(), self._consuming.reply)
        self._publishing.publish(run, self._flags, now)

    def _sender(self) -> str | None:
        """Returns the one user that messages may name as theirs, None for any."""
        user = self._connection.user
        return None if IMPERSONATOR in self._context.host.access.tags(user) else user


class Transactions:
    """Opens, commits and rolls back the transactions of a channel."""

    def __init__(
        self, context: ChannelContext, transaction: Transaction, publishing: Publishing, settling: Settling
    ) -> None:
        self._context = context
        self._transaction = transaction
        self._publishing = publishing
        self._settling = settling

    def select_tx(self, method: commands.Tx.Select, now: float) -> None:
        if self._publishing.confirms.on:
            raise AmqpError(codec.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        self._transaction.open = True
        self._context.send(commands.Tx.SelectOk())

    def commit(self, method: commands.Tx.Commit, now: float) -> None:
        """Commits the publishes, then the settlements. Raises PRECONDITION_FAILED if a queue refused any."""
        self._need_tx()
        transaction = self._transaction
        # Taken out first: an error in the middle must not leave a transaction that a second commit would
        # publish again.
        publishes = transaction.take_publishes(self._context.connection)
        refused = [self._publishing.hand_over(run, mandatory, now) for run, mandatory in publishes]
        # After the publishes: if one of them raises, nothing is settled, and all goes back with the channel.
        settling, transaction.settling = transaction.settling, []
        self._settling.settle_each(settling, now)
        if any(refused):
            raise AmqpError(codec.PRECONDITION_FAILED, "partial tx completion")
        self._context.send(commands.Tx.CommitOk())

    def roll_back(self, method: commands.Tx.Rollback, now: float) -> None:
        """Drops the publishes and marks the settlements as unsettled again, without redelivery."""
        self._need_tx()
        transaction = self._transaction
        transaction.take_publishes(self._context.connection)
        self._settling.unsettled.put_back([given for _, given in transaction.settling])
        transaction.settling = []
        self._context.send(commands.Tx.RollbackOk())

    def _need_tx(self) -> None:
        if not self._transaction.open:
            raise AmqpError(codec.PRECONDITION_FAILED, "channel is not transactional")
